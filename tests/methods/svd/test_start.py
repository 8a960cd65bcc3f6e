"""Passes that start from sampled rows: fewer where the sample is fair, and none fooled where it is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from covers import cover

import rankfold as rf
from rankfold.kernels.linear.count_sketch import draw_buckets
from rankfold.methods.parts.sample import Sample
from rankfold.methods.parts.start import tells_of_others
from rankfold.methods.random_keys import Purpose
from rankfold.methods.svd.request import Request
from rankfold.methods.svd.strategy import choose_strategy
from rankfold.pipeline.data.view import Orientation, View

Array = npt.NDArray[Any]

ROWS, COLUMNS, RANK = 20_000, 200, 12
INDEX = np.arange(1.0, COLUMNS + 1)
SPECTRA = {
    "slow": INDEX**-0.5,
    "fast": INDEX**-1.0,
    "spiked": np.where(INDEX <= 40, 10 * INDEX**-0.7, 0) + 0.05,
    "step": np.where(INDEX <= RANK, 1.0, 0.3),
}


def independent(rng: np.random.Generator) -> Array:
    """Rows of one distribution."""
    return rng.standard_normal((ROWS, COLUMNS))


def sorted_rows(rng: np.random.Generator) -> Array:
    """Rows in order of their first coordinates."""
    a = independent(rng)
    return a[np.argsort(a[:, 0] + 0.5 * a[:, 1])]


def batches(rng: np.random.Generator) -> Array:
    """Each direction in one of forty runs of rows, most of which no sampled row is from."""
    a, edges = np.zeros((ROWS, COLUMNS)), np.linspace(0, ROWS, 41).astype(int)
    for j, run in enumerate(rng.integers(0, 40, COLUMNS)):
        a[edges[run] : edges[run + 1], j] = np.sqrt(40) * rng.standard_normal(edges[run + 1] - edges[run])
    return a


def one_strange_batch(rng: np.random.Generator) -> Array:
    """The direction that ranks last among those wanted lives in half a per cent of the rows."""
    a, length = independent(rng), ROWS // 200
    start = 9 * ROWS // 16  # between two places of the sample
    a[:, RANK - 2] = 0
    a[start : start + length, RANK - 2] = np.sqrt(200) * rng.standard_normal(length)
    return a


def few_heavy_rows(rng: np.random.Generator) -> Array:
    """Rows whose lengths differ by orders of magnitude."""
    return independent(rng) * np.exp(1.5 * rng.standard_normal((ROWS, 1)))


ROWS_OF = (independent, sorted_rows, batches, one_strange_batch, few_heavy_rows)


def known(make: Any, spectrum: str, seed: int = 0) -> tuple[Array, Array]:
    """A matrix and its leading singular values."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.standard_normal((COLUMNS, COLUMNS)))[0]
    x = (make(rng) * SPECTRA[spectrum]) @ turn
    return x, np.linalg.svd(np.linalg.qr(x, mode="r"), compute_uv=False)[:RANK]


@pytest.mark.filterwarnings("ignore::rankfold.RankfoldWarning")
@pytest.mark.parametrize(("make", "spectrum"), cover(ROWS_OF, SPECTRA, strength=1))
def test_no_error_exceeds_its_estimate(make: Any, spectrum: str) -> None:
    x, s = known(make, spectrum)
    assert choose_strategy(Request("svd", RANK, method="krylov"), rf.open(x)).sketch_rows > 0
    for method in ("krylov", "subspace"):
        for passes in (1, 2, 3):
            found = rf.svd(x, RANK, solver=method, passes=passes, tol=1e-12, with_rows=False)
            errors = np.abs(found.s - s) / s
            assert errors.max() <= max(found.error_estimates.max(), 1e-13), (method, passes)


@pytest.mark.parametrize("spectrum", SPECTRA)
def test_a_fair_sample_saves_a_pass(spectrum: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, s = known(independent, spectrum)
    found = rf.svd(x, RANK, solver="krylov", with_rows=False)
    assert (np.abs(found.s - s) <= 1e-4 * s).all()
    monkeypatch.setattr("rankfold.methods.parts.sample.LARGEST_SHARE", ROWS)  # no row is sampled
    without = rf.svd(x, RANK, solver="krylov", with_rows=False).attrs["passes"]
    # A step is known after two passes from anywhere.
    assert found.attrs["passes"] < without or found.attrs["passes"] == without == 2


@pytest.mark.parametrize(("spectrum", "make"), cover(SPECTRA, [batches, few_heavy_rows], strength=1))
def test_an_unfair_sample_costs_one_pass_at_most(
    make: Any, spectrum: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, s = known(make, spectrum)
    found = rf.svd(x, RANK, solver="krylov", with_rows=False)
    assert (np.abs(found.s - s) <= 1e-4 * s).all()
    monkeypatch.setattr("rankfold.methods.parts.sample.LARGEST_SHARE", ROWS)
    assert found.attrs["passes"] <= rf.svd(x, RANK, solver="krylov", with_rows=False).attrs["passes"] + 1


def test_what_is_sampled_does_not_depend_on_chunks(tmp_path: Any) -> None:
    import zarr

    x = independent(np.random.default_rng(1))[:20_000, :64].astype(np.float32)
    samples = []
    for i, chunks in enumerate([(97, 64), (5000, 64), (20_000, 16)]):
        array = zarr.create_array(tmp_path / f"{i}.zarr", shape=x.shape, chunks=chunks, dtype=x.dtype)
        array[...] = x
        view = View(rf.open(tmp_path / f"{i}.zarr"), Orientation.ROWS)
        samples.append(Sample.of(view, 16).read())
    assert samples[0].shape == (1024, 64)
    assert all(np.array_equal(samples[0], other) for other in samples[1:])


def test_a_sample_with_gaps_is_no_reason_to_stop_early() -> None:
    x = independent(np.random.default_rng(2))
    x[0, 0] = np.nan  # in the first place that is looked at
    with pytest.raises(rf.RankfoldError, match="1 NaN or Inf, the first at row 0, column 0"):
        rf.svd(x, RANK, solver="krylov", with_rows=False)


def test_rows_that_cancel_in_the_sketch_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leading direction lives in two equal rows of one bucket, with opposite signs."""
    rng = np.random.default_rng(0)
    buckets, signs = draw_buckets(0, Purpose.ROW_SIGNS, 7, 4 * 16)
    lost = 7 * 1024 + int(np.flatnonzero((buckets[1:] == buckets[:-1]) & (signs[1:] == -signs[:-1]))[0])
    x = rng.standard_normal((ROWS, COLUMNS)) * SPECTRA["fast"]
    x[:, -1] = 0
    x[lost : lost + 2] = 0
    x[lost : lost + 2, -1] = 300
    assert choose_strategy(Request("svd", 3, method="krylov"), rf.open(x)).sketch_rows == 64
    s = np.linalg.svd(x, compute_uv=False)[:3]
    for method in ("krylov", "subspace"):
        found = rf.svd(x, 3, tol=1e-2, solver=method, with_rows=False)
        assert (np.abs(found.s - s) <= found.error_estimates * s).all() and found.attrs["converged"]
    with pytest.warns(rf.RankfoldWarning):
        first = rf.svd(x, 3, tol=1e-2, passes=1, solver="krylov", with_rows=False, oversampling=8)
    assert first.error_estimates[0] > 0.5


@pytest.mark.parametrize("method", ["krylov", "subspace", "sketch", "gram", "tsqr"])
def test_marks_for_missing_values_are_refused(method: str) -> None:
    x = np.random.default_rng(3).standard_normal((20_000, 10))
    x[777, 4] = -np.finfo(np.float64).max
    with pytest.raises(rf.RankfoldError, match=r"row 777, column 4 .* squares leave the range of float64"):
        rf.svd(x, 3, solver=method, with_rows=False)


@pytest.mark.parametrize(
    ("rows", "method"), cover([15, 16, 63, 64, 100, 127, 128, 129], ["krylov", "tsqr", "gram"], strength=1)
)
def test_one_column_has_a_sample_or_none(rows: int, method: str) -> None:
    x = np.random.default_rng(rows).standard_normal((rows, 1))
    for matrix in (x, np.ascontiguousarray(x.T)):
        assert rf.svd(matrix, 1, solver=method).s[0] == pytest.approx(np.linalg.norm(x), rel=1e-13)


def test_rows_that_have_nothing_in_common_tell_nothing_of_others() -> None:
    rng = np.random.default_rng(3)
    apart = np.diag(rng.uniform(0.5, 1, 300))[rng.permutation(300)[:96]]
    common = rng.standard_normal((96, 5)) @ rng.standard_normal((5, 300))
    assert not tells_of_others(apart.astype("f4"), 0)
    assert tells_of_others(common, 0)
    assert tells_of_others(apart + common, 0)
    assert tells_of_others(rng.standard_normal((96, 300)), 0)  # no better than random, and no worse
