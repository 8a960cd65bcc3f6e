"""The single pass: exact where it can be, linear in the data, and honest about the rest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from covers import cover
from reference import decaying, exact, factors, to_zarr

import rankfold as rf
from rankfold.pipeline.errors import InputError, MemoryBudgetError

pytestmark = pytest.mark.filterwarnings("ignore:the largest estimated error")

SHAPES = [(900, 130), (130, 900)]
SPECTRA = {
    "1/i": 1 / np.arange(1.0, 301),
    "i^-0.5": np.arange(1.0, 301) ** -0.5,
    "geometric": np.maximum(0.8 ** np.arange(300.0), 1e-9),
    "flat": np.linspace(1.1, 0.9, 300),
    "one above all others alike": np.r_[100.0, np.ones(299)],
}


def with_spectrum(spectrum: np.ndarray, dtype: str = "f8") -> np.ndarray:
    rng = np.random.default_rng(6)
    left = np.linalg.qr(rng.standard_normal((700, len(spectrum))))[0]
    right = np.linalg.qr(rng.standard_normal((len(spectrum), len(spectrum))))[0]
    return ((left * spectrum) @ right).astype(dtype)


@pytest.mark.parametrize(
    ("wide", "dtype", "name"),
    cover([pytest.param(False, id="tall"), pytest.param(True, id="wide")], ["f8", "f4"], SPECTRA),
)
def test_errors_are_those_that_the_error_sketch_tells(name: str, dtype: str, wide: bool) -> None:
    x = with_spectrum(SPECTRA[name], dtype)
    x = x.T if wide else x
    s = np.linalg.svd(x.astype("f8"), compute_uv=False)[:10]
    for seed in range(4):
        result = rf.svd(x, 10, solver="sketch", passes=1, seed=seed)
        us, found, right = factors(result)
        true = np.linalg.norm(x - us @ right) / np.linalg.norm(x)
        # Squares are a mean of chi-squares of 10 degrees of freedom at least. Chernoff's (t e^(1 - t))^5
        # gives 1e-4 for t = 1/16 and 3e-4 for t = 4.
        assert 1 / 16 <= (result.attrs["approximation_error"] / true) ** 2 <= 4
        known = result.error_estimates < 1
        assert np.all((np.abs(found - s) / s <= result.error_estimates)[known])
        assert result.attrs["passes"] == 1


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("scale", [False, True])
def test_centering_and_scaling_cost_no_digit(shape: tuple[int, int], scale: bool) -> None:
    """Sketches are linear: those of the raw data, put right, are those of centered data."""
    x = decaying(*shape, mean=50.0) * np.linspace(0.5, 2, shape[1])
    ready = x - x.mean(axis=0)
    ready = ready / ready.std(axis=0, ddof=1) if scale else ready
    there, here = rf.svd(ready, 6, solver="sketch"), rf.pca(x, 6, solver="sketch", scale=scale)
    # Both are backward stable: some eps of the largest, times the norms of Gaussian matrices.
    np.testing.assert_allclose(here.singular_values, there.s, rtol=0, atol=1e-12 * there.s[0])
    np.testing.assert_allclose(here.components, there.Vt, atol=1e-9)
    np.testing.assert_allclose(here.mean, x.mean(axis=0), rtol=1e-12)
    assert here.attrs["passes"] == (2 if scale and shape[0] > shape[1] else 1)


def test_float32_data_far_from_zero_lose_nothing() -> None:
    rng = np.random.default_rng(0)
    x = (1e4 + rng.standard_normal((20_000, 60)) * np.linspace(3, 0.3, 60)).astype(np.float32)
    centered = x.astype(np.float64) - x.astype(np.float64).mean(axis=0)
    there, here = rf.svd(centered, 10, solver="sketch"), rf.pca(x, 10, solver="sketch")
    np.testing.assert_allclose(here.singular_values, there.s, rtol=0, atol=1e-5 * there.s[0])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_low_rank_comes_back_whole(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(3)
    x = 7 + rng.standard_normal((shape[0], 5)) @ rng.standard_normal((5, shape[1]))
    result = rf.pca(x, 5, solver="sketch", passes=1)
    s = exact(x, "pca")[1][:5]
    np.testing.assert_allclose(result.singular_values, s, rtol=1e-11)
    assert np.all(np.abs(result.singular_values - s) <= result.error_estimates * s)
    assert result.attrs["converged"] and result.attrs["approximation_error"] < 1e-12


def test_another_chunking_agrees(tmp_path: Path) -> None:
    """Test matrices are keyed by the index of the row: another cut is the same sketch."""
    x = decaying(2500, 90)
    results = [
        rf.pca(to_zarr(tmp_path / f"{i}.zarr", x, chunks), 8, solver="sketch")
        for i, chunks in enumerate([(2500, 90), (100, 90), (333, 31), (2500, 7)])
    ]
    first = results[0]
    for other in results[1:]:
        np.testing.assert_allclose(other.singular_values, first.singular_values, rtol=1e-11)
        np.testing.assert_allclose(other.components, first.components, atol=1e-9)


def test_the_plan_says_how_often_it_reads() -> None:
    x = np.zeros((4000, 300), np.float32)
    plan = rf.plan("svd", x, 10, solver="sketch", passes=1, memory="1GiB", threads=2)
    assert (plan.most_passes, plan.likely_passes) == (1, 1)
    assert plan.scratch_bytes == 4000 * (41 * 4 + 16)
    scaled = rf.plan("pca", x, 10, solver="sketch", scale=True, memory="1GiB", threads=2)
    assert [p.name for p in scaled.passes] == ["statistics", "sketch", "range", "rows"]
    with pytest.raises(InputError, match=r"by sketch takes 2 passes here, but passes is 1"):
        rf.plan("pca", x, 10, solver="sketch", scale=True, passes=1)


def test_it_is_refused_with_the_methods_that_fit() -> None:
    x = np.broadcast_to(np.float32(0), (60_000, 20_000))
    with pytest.raises(
        MemoryBudgetError, match=r"by sketch needs .* solver='krylov', which keeps narrower blocks"
    ):
        rf.plan("svd", x, 50, solver="sketch", memory="320MiB", threads=2)


@pytest.mark.parametrize("method", ["subspace", "sketch"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_nan_is_refused_with_its_place(shape: tuple[int, int], method: str) -> None:
    x = decaying(*shape, np.float32)
    x[17, 40] = np.nan
    with pytest.raises(rf.RankfoldError, match=r"1 NaN or Inf, the first at row 17, column 40"):
        rf.svd(x, 4, solver=method)
