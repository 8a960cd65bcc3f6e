"""What ``solver="auto"`` takes: what is exact where that costs no more, and what ends below ``tol``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import rankfold as rf
from rankfold.methods.parts.start import Start
from rankfold.methods.svd.request import Request
from rankfold.methods.svd.solvers import gram
from rankfold.methods.svd.strategy import choose_strategy
from rankfold.pipeline.errors import MemoryBudgetError
from rankfold.pipeline.formats import open_source

Array = npt.NDArray[Any]

ROWS, COLUMNS, RANK = 12_000, 1200, 5


def flat() -> Array:
    """No direction stands out."""
    return np.random.default_rng(3).standard_normal((ROWS, COLUMNS)).astype("f4")


def stepped() -> Array:
    """As many directions as are wanted stand out, and some more."""
    x = flat()
    x[:, : 2 * RANK] *= 20
    return x


def test_a_flat_spectrum_that_a_sample_shows_takes_the_exact_solver_at_once() -> None:
    found = rf.pca(flat(), RANK)
    assert (found.attrs["method"], found.attrs["passes"], found.attrs["converged"]) == ("gram", 2, True)


def test_a_spectrum_with_a_gap_takes_few_narrow_passes() -> None:
    found = rf.pca(stepped(), RANK)
    assert found.attrs["method"] == "krylov" and found.attrs["passes"] <= 2 and found.attrs["converged"]


@pytest.mark.parametrize("scale", [False, True])
def test_passes_that_do_not_end_are_followed_by_the_exact_solver(
    monkeypatch: pytest.MonkeyPatch, scale: bool
) -> None:
    """As where a sample shows a spectrum that falls, and the matrix has none."""
    x = flat()
    monkeypatch.setattr(Start, "is_flat", lambda *_: False)
    strategy = choose_strategy(Request("pca", RANK, center=True, scale=scale), open_source(x))
    assert strategy.method == "krylov" and strategy.otherwise is not None
    found, exact = rf.pca(x, RANK, scale=scale), rf.pca(x, RANK, solver="gram", scale=scale)
    assert found.attrs["method"] == "gram" and found.attrs["converged"]
    assert 2 < found.attrs["passes"] <= strategy.passes + 2 <= found.attrs["request"]["passes"]
    np.testing.assert_allclose(found.singular_values, exact.singular_values, rtol=1e-6)
    np.testing.assert_allclose(np.abs(np.sum(found.components * exact.components, axis=1)), 1, atol=1e-4)


def test_a_run_that_ends_in_the_exact_solver_goes_on_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    x, whole, ended = flat(), tmp_path / "whole.zarr", tmp_path / "ended.zarr"
    monkeypatch.setattr(Start, "is_flat", lambda *_: False)
    rf.pca(x, RANK, out=whole)
    leading = gram.leading_eigenpairs

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(gram, "leading_eigenpairs", end)
    with pytest.raises(KeyboardInterrupt):
        rf.pca(x, RANK, out=ended)
    monkeypatch.setattr(gram, "leading_eigenpairs", leading)
    rf.pca(x, RANK, out=ended)
    for path in sorted(p.relative_to(whole) for p in whole.rglob("*") if p.is_file() and "c" in p.parts):
        assert (whole / path).read_bytes() == (ended / path).read_bytes(), path


def test_the_plan_has_all_sweeps_of_both() -> None:
    x = flat()
    plan = rf.plan("pca", x, RANK)
    names = [sweep.name for sweep in plan.passes]
    assert len(set(names)) == len(names) and "gram" in names
    assert plan.likely_passes < plan.most_passes <= 8 and plan.decided_by
    exact = rf.plan("pca", x, RANK, solver="gram")
    assert plan.peak_bytes >= exact.peak_bytes


def test_where_the_square_does_not_fit_passes_alone_are_named() -> None:
    x = flat()
    need = rf.plan("pca", x, RANK).peak_bytes
    with pytest.raises(MemoryBudgetError, match="solver='krylov', which keeps no"):
        rf.plan("pca", x, RANK, memory="48MiB")
    assert rf.plan("pca", x, RANK, memory="48MiB", solver="krylov").peak_bytes < need


@pytest.mark.parametrize(
    ("shape", "rank", "method"),
    [
        ((3000, 2000), 10, "lanczos"),
        ((2000, 3000), 50, "lanczos"),
        ((4200, 2000), 10, "krylov"),
        ((3000, 2100), 10, "krylov"),
        ((900, 800), 10, "gram"),
    ],
)
def test_a_matrix_that_is_nearly_square_is_held_where_squares_take_more(
    shape: tuple[int, int], rank: int, method: str
) -> None:
    x = np.zeros(shape, np.float32)
    plan = rf.plan("pca", x, rank, threads=1)
    assert plan.method == method
    if method == "lanczos":
        assert plan.peak_bytes < rf.plan("pca", x, rank, solver="gram", threads=1).peak_bytes
        assert rf.plan("svd", x.astype("c8"), rank).method != method


@pytest.mark.parametrize(
    ("shape", "rank"), [((3000, 2000), 50), ((60_000, 300), 5), ((2000, 6), 2), ((50, 5000), 5)]
)
def test_what_newcomers_try_first_converges(shape: tuple[int, int], rank: int) -> None:
    x = np.random.default_rng(5).standard_normal(shape).astype("f4")
    found = rf.pca(x, rank)
    assert found.attrs["converged"] and found.attrs["passes"] <= 3
