"""What differs between a finished result and a request is told by name, with both values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rankfold as rf
from rankfold.api.execute import identity_of
from rankfold.api.finished import argument_of, difference_of
from rankfold.methods.nmf.arguments import NMF
from rankfold.methods.registry import Method
from rankfold.methods.svd.arguments import SVD

X = np.random.default_rng(0).standard_normal((60, 8))


def asked(rank: int | None = 3, x: Any = X, **options: Any) -> dict[str, Any]:
    task = SVD.task(x, rank=rank, solver="gram", **options)
    return identity_of(task.request(), task.source.fingerprint(), "cpu")


@pytest.fixture(scope="module")
def attrs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return rf.svd(X, 3, solver="gram", out=tmp_path_factory.mktemp("r") / "r.zarr").attrs


def test_the_same_request_differs_in_nothing(attrs: dict[str, Any]) -> None:
    assert difference_of(attrs, asked()) == ""


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"rank": 4}, "rank (3 there, 4 now)"),
        ({"rank": 4, "seed": 7}, "rank (3 there, 4 now); seed (0 there, 7 now)"),
        ({"rank": None, "tol": 0.5}, "rank (3 there, found from tol now); tol (0.0001 there, 0.5 now)"),
        ({"x": X + 1}, "data that has changed since, or another matrix (array float64 (60, 8) there)"),
        ({"with_rows": False}, "with_rows (True there, False now)"),
    ],
)
def test_what_differs_is_told(attrs: dict[str, Any], options: dict[str, Any], told: str) -> None:
    assert difference_of(attrs, asked(**options)) == told


def test_another_method_and_another_edition_are_told(attrs: dict[str, Any]) -> None:
    request = NMF.task(np.abs(X), rank=3).request()
    assert difference_of(attrs, {**asked(), "request": request}) == "method (svd there, nmf now)"
    now = attrs["edition"]
    later = {**asked(), "edition": now + 1}
    assert difference_of(attrs, later) == f"edition of svd ({now} there, {now + 1} now)"


@pytest.mark.parametrize("method", [SVD, NMF], ids=lambda method: method.name)
def test_a_part_that_an_argument_declares_is_one_of_its_request(method: Method) -> None:
    request = method.task(np.abs(X), rank=3).request()
    parts = {each.argument.part: each.name for each in method.parameters() if each.argument.part}
    assert set(parts) <= set(request) and not set(parts.values()) & set(request)
    assert {argument_of(part, method.name) for part in parts} == set(parts.values())


def test_what_a_request_holds_is_named_and_not_shown() -> None:
    old = {"request": {"kind": "knn", "base": "0" * 32, "metric": "mine-0123456789abcdef"}, "input": {}}
    new = {"request": {"kind": "knn", "base": "1" * 32, "metric": "euclidean"}, "input": None, "edition": 1}
    assert difference_of(old, new) == "contents of base; metric (mine there, euclidean now)"


def test_facts_that_are_damaged_are_told_too() -> None:
    told = difference_of({"request": None, "input": None}, asked())
    assert told == "method (None there, svd now)"
