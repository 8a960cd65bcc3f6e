"""What streams have found is merged into what one would find: small matrices, cut as large ones are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from covers import cover
from reference import decaying, exact, to_zarr

import rankfold as rf
from rankfold.methods.nmf.start import SignedSquares
from rankfold.methods.svd.solvers import tsqr
from rankfold.pipeline.engine import blocks
from rankfold.pipeline.engine.device import HOST
from rankfold.pipeline.engine.fold import Workspace

pytestmark = pytest.mark.filterwarnings("ignore:the largest estimated error")

METHODS = ["gram", "krylov", "subspace", "tsqr", "sketch"]


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Cuts into up to eight streams of short grains, and outputs of short chunks; how many there were."""
    counts: list[int] = []

    def count(panels: int, *_: Any, **__: Any) -> int:
        counts.append(1 << (min(panels, 8).bit_length() - 1))
        return counts[-1]

    monkeypatch.setattr(blocks, "grain_rows", lambda row_bytes, device: 10)
    monkeypatch.setattr(blocks, "stream_count", count)
    monkeypatch.setattr(tsqr, "matching_chunk", lambda native, read, written: 50)
    return counts


@pytest.mark.parametrize(
    ("method", "shape", "scale"), cover(METHODS, [(1200, 30), (30, 1200)], [False, True])
)
def test_components_of_many_streams(
    tmp_path: Path, streams: list[int], method: str, shape: tuple[int, int], scale: bool
) -> None:
    x = decaying(*shape) * np.linspace(0.5, 5, shape[1])
    chunks = (20, 30) if shape[0] > shape[1] else (30, 20)
    asked = {"scale": scale, "solver": method, "tol": 1e-8, "passes": 30}
    found = rf.pca(to_zarr(tmp_path / "x.zarr", x, chunks), 5, **asked)
    assert max(streams) == 8
    np.testing.assert_allclose(found.mean, x.mean(axis=0), rtol=1e-12)
    if scale:
        np.testing.assert_allclose(found.scale, x.std(axis=0, ddof=1), rtol=1e-12)
    if shape[0] > shape[1]:  # scores are written in panels of several grains
        assert found.attrs["orthogonality"] <= 1e-12
    if method != "sketch":  # whose errors do not shrink with passes
        values = exact(x, "pca", scale=scale)[1][:5]
        np.testing.assert_allclose(found.singular_values, values, rtol=1e-7)
        np.testing.assert_allclose(np.linalg.norm(found.scores[...], axis=0), values, rtol=1e-7)


@pytest.mark.parametrize("method", METHODS)
def test_means_that_no_sample_tells(
    tmp_path: Path, streams: list[int], monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """The provisional shift is far from the mean; of so low a rank sketches are exact too."""
    monkeypatch.setattr("rankfold.methods.parts.sample.ROWS_PER_PLACE", 1)
    rng = np.random.default_rng(4)
    x = 3 + rng.standard_normal((1200, 4)) @ rng.standard_normal((4, 30))
    x += np.linspace(0, 6, 1200)[:, None] ** 2 * rng.standard_normal(30)
    found = rf.pca(to_zarr(tmp_path / "x.zarr", x, (20, 30)), 5, solver=method, tol=1e-8, passes=30)
    values = exact(x, "pca")[1][:5]
    assert max(streams) == 8
    np.testing.assert_allclose(found.singular_values, values, rtol=1e-8)
    scores = (x - x.mean(axis=0)) @ found.components.T
    np.testing.assert_allclose(found.scores[...], scores, rtol=0, atol=1e-7 * values[0])


@pytest.mark.parametrize("condition", [0, 13])
def test_triangles_of_many_streams(tmp_path: Path, streams: list[int], condition: int) -> None:
    """By the Gram matrix, and by reflections where it would lose columns."""
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    x = rng.standard_normal((2000, 6)) * np.logspace(0, -condition, 6)
    x[:1000, ::2], x[1000:, 1::2] = 0, 0  # half of the rows know half of the directions
    x = x @ turn
    found = rf.qr(to_zarr(tmp_path / "x.zarr", x, (50, 6)))
    q, r = found.Q[...], found.R
    assert max(streams) == 8
    np.testing.assert_allclose(q @ r, x, atol=1e-13 * np.linalg.norm(x, 2))
    np.testing.assert_allclose(q.T @ q, np.eye(6), atol=1e-12)


def test_residuals_of_many_streams(tmp_path: Path, streams: list[int]) -> None:
    x = decaying(400, 30)
    store = to_zarr(tmp_path / "x.zarr", x, (20, 30))
    found = rf.svd(store, 3, tol=1e-8, out=tmp_path / "r.zarr")
    told = rf.check(found, store)
    assert max(streams) == 8 and told.attrs["left_orthogonality"] <= 1e-12
    left = np.linalg.norm(x @ found.Vt.T - found.U[...] * found.s, axis=0) / found.s[0]
    np.testing.assert_allclose(told.left_residuals, left, atol=1e-13)


def test_nonnegative_factors_of_many_streams(tmp_path: Path, streams: list[int]) -> None:
    rng = np.random.default_rng(0)
    x = rng.random((400, 3)) @ rng.random((3, 30)) + 0.1 * rng.random((400, 30))
    found = rf.nmf(to_zarr(tmp_path / "x.zarr", x, (20, 30)), 3)
    w, h = found.W[...], found.H[...]
    error = np.linalg.norm(x - w @ h) / np.linalg.norm(x)
    assert max(streams) == 8 and found.attrs["relative_error"] == pytest.approx(error, rel=1e-6)


def test_squares_above_and_below_zero_are_told_apart() -> None:
    rng = np.random.default_rng(0)
    y, coefficients = rng.standard_normal((40, 4)), rng.standard_normal((4, 3))

    class Rows:
        columns, dtype, row_bytes = 4, y.dtype, 32

        def read_into(self, out: np.ndarray, start: int) -> None:
            out[...] = y[start : start + len(out)]

    cut = blocks.Cut(np.array([0, 25, 40]), np.array([0, 1, 2]), 7)
    fold = SignedSquares(Rows(), cut, Path(), 3, 0.0)  # type: ignore[arg-type]
    total, other = fold.start(), fold.start()
    for state, start, stop in ((total, 0, 25), (other, 25, 40)):
        work = Workspace(device=HOST, coefficients=coefficients, rows=np.empty((7, 4)))
        fold.step(state, work, start, stop, 0)
    fold.merge(total, other)
    u = y @ coefficients
    expected = [(u.clip(0) ** 2).sum(axis=0), (u.clip(None, 0) ** 2).sum(axis=0)]
    np.testing.assert_allclose(total["squares"], expected, rtol=1e-12)
