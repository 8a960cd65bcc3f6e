"""The tests that peers ship hold for rankfold too. ``make peers`` runs them all; here are the quick ones."""

from __future__ import annotations

import pytest
from exclusions import EXCLUSIONS
from run import WANTED, run_suite
from suites import SUITES

QUICK = (
    "dask",
    "scikit-learn TruncatedSVD",
    "scikit-learn IncrementalPCA",
    "scikit-learn neighbors",
    "scikit-learn neighbor graphs",
    "scikit-learn KernelDensity",
    "scikit-learn Isomap",
    "scikit-learn TSNE",
    "scikit-learn SpectralEmbedding",
    "scikit-learn KernelPCA",
    "scikit-learn kernel approximation",
    "pynndescent",
    "scipy svds",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_the_tests_of_a_peer_pass(name: str) -> None:
    if reason := SUITES[name].missing():
        pytest.skip(reason)
    outcome = run_suite(SUITES[name])
    assert outcome.passed >= WANTED * outcome.run > 0, outcome.output
    assert not outcome.failed, outcome.output
    assert outcome.calls, "no test called rankfold"
    unused = {each.reason for each in EXCLUSIONS if each.suite == name} - set(outcome.excluded)
    assert not unused, f"reasons that no test needs any more: {unused}"


def test_exclusions_are_of_suites_that_run() -> None:
    assert {each.suite for each in EXCLUSIONS} <= set(SUITES)
