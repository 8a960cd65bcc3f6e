"""Laws are found again from times that follow them, and not claimed where runs do not tell."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankfold.workflows.reports.measures import Timing, fit, fit_amdahl, fit_gustafson

SERIAL = st.floats(0.0, 1.0)
SECONDS = st.floats(0.01, 1e5)


@given(SERIAL, SECONDS, st.sets(st.integers(1, 512), min_size=2, max_size=6))
def test_amdahl_is_found_again(serial: float, seconds: float, parallelism: set[int]) -> None:
    found = fit_amdahl([Timing(p, 7.0, seconds * (serial + (1 - serial) / p)) for p in sorted(parallelism)])
    assert found is not None and found.serial == pytest.approx(serial, abs=1e-6)
    for p, speedup, efficiency in found.points:
        assert speedup == pytest.approx(float(found.speedup(p)), rel=1e-6)
        assert efficiency == pytest.approx(speedup / p)


@given(SERIAL, SECONDS, st.sets(st.integers(1, 512), min_size=2, max_size=6))
def test_gustafson_is_found_again(serial: float, seconds: float, parallelism: set[int]) -> None:
    timings = [Timing(p, 3.0 * p, seconds * p / (p - serial * (p - 1))) for p in sorted(parallelism)]
    found = fit_gustafson(timings)
    assert found is not None and found.serial == pytest.approx(serial, abs=1e-6)
    for p, speedup, _ in found.points:
        assert speedup == pytest.approx(float(found.speedup(p)), rel=1e-6)


def test_the_experiment_tells_which_law_it_is_for() -> None:
    fixed, growing = ([Timing(1, 8, 4.0), Timing(4, 8, 1.5)], [Timing(1, 8, 4.0), Timing(4, 32, 4.5)])
    assert [found.law for one in (fixed, growing) if (found := fit(one))] == ["amdahl", "gustafson"]


@pytest.mark.parametrize(
    "timings",
    [[Timing(2, 1, 1.0)], [Timing(2, 1, 1.0), Timing(2, 1, 1.1)], [Timing(1, 1, 1.0), Timing(2, 9, 1.0)]],
    ids=["one run", "one number of lanes", "neither equal nor growing work"],
)
def test_nothing_is_fitted_to_too_little(timings: list[Timing]) -> None:
    assert fit(timings) is None


def test_slower_with_more_is_all_serial_and_not_negative() -> None:
    found = fit_amdahl([Timing(1, 1, 1.0), Timing(4, 1, 2.0)])
    assert found is not None and found.serial == 1.0
