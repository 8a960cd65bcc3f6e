"""What is attacked: every method, each as it is given on the command line."""

from __future__ import annotations

import pytest
from cases import CASES, CONSUMERS, Case, case
from inputs import EARLIER, FLOWS
from moments import NAMED

from rankfold.methods.registry import METHODS


def test_every_method_is_attacked() -> None:
    covered = set.union(*(one.covers() for one in CASES))
    assert not set(METHODS.ours) - covered, "each needs a case in cases.py"
    assert not covered - set(METHODS.ours) - {"import", "run"}


def test_names_are_unique() -> None:
    names = [one.name for one in CASES]
    assert len(names) == len(set(names)) and all(case(name).name == name for name in names)


@pytest.mark.parametrize("one", CASES, ids=lambda one: one.name)
def test_other_runs_and_readers_of_a_case_are_there(one: Case) -> None:
    for change in (one.other_request, one.other_matrix):
        assert change is None or change[0] in one.arguments, change
    assert not set(one.consumers) - CONSUMERS.keys()
    for name in NAMED.findall(" ".join(one.arguments)):
        assert name.endswith((".zarr", ".npy"))


def test_earlier_results_are_made_of_what_is_there_before_them() -> None:
    before = set[str]()
    for name, words in EARLIER.items():
        assert not (set(NAMED.findall(" ".join(words))) & EARLIER.keys()) - before, name
        before.add(name)
    assert all("{x: X}" in text for text, _ in FLOWS.values())
