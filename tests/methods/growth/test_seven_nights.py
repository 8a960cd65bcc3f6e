"""A store that grows on seven nights: what each night's results are, and what they read of the store."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import zarr

import rankfold as rf
from rankfold.pipeline.formats.zarr.source import ZarrArray

Float64 = npt.NDArray[np.float64]

COLUMNS, CHUNK_ROWS, COMPONENTS = 24, 50, 6
NIGHTS = (430, 490, 490, 527, 600, 601, 750, 980)
"""Rows of the store before the first night, and on each of seven: one brings none, others end in a chunk."""

EPS = float(np.finfo(float).eps)


@pytest.fixture(scope="module")
def rows() -> Float64:
    """Rows of six parts that are not negative, of a spectrum that falls, and some noise."""
    random = np.random.default_rng(3)
    parts = random.random((COMPONENTS, COLUMNS)) ** 4 * 3.0 ** -np.arange(COMPONENTS)[:, None]
    weights = random.random((NIGHTS[-1], COMPONENTS)) + (np.arange(NIGHTS[-1]) % COMPONENTS)[:, None] % 3
    return weights @ parts + 1e-3 * random.random((NIGHTS[-1], COLUMNS))


@pytest.fixture
def store(tmp_path: Path, rows: Float64) -> Path:
    path = tmp_path / "x.zarr"
    shape = (NIGHTS[0], COLUMNS)
    zarr.create_array(path, shape=shape, chunks=(CHUNK_ROWS, 13), dtype=rows.dtype)[...] = rows[: NIGHTS[0]]
    return path


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, int]]]:
    """Folder of the store and row of chunks of each chunk file that is opened."""
    opened: list[tuple[str, int]] = []
    read_file = ZarrArray._read_file

    def note(self: ZarrArray, index: tuple[int, ...], parts: Any) -> None:
        opened.append((Path(self.files.folder).name, index[0]))
        read_file(self, index, parts)

    monkeypatch.setattr(ZarrArray, "_read_file", note)
    yield opened


def grow_by(store: Path, rows: Float64, count: int) -> int:
    """Append rows up to a count; how many there were."""
    array = zarr.open_array(store, mode="r+")
    before = array.shape[0]
    if count > before:
        array.append(rows[before:count])
    return before


def chunk_rows_read(reads: list[tuple[str, int]], store: Path) -> set[int]:
    return {row for folder, row in reads if folder == store.name}


def assert_stands_on(result: rf.Result, nights: int) -> None:
    """The result says which rows came when; nights without news leave no addition."""
    counts = list(dict.fromkeys(NIGHTS[: nights + 1]))
    starts = [0, *counts[:-1]]
    assert result.attrs["rows"] == [list(each) for each in zip(starts, counts, strict=True)]
    assert result.attrs["input"]["shape"][0] == counts[-1]


def test_components_of_all_ranks_are_those_of_a_fit_to_all_rows(
    tmp_path: Path, store: Path, rows: Float64, reads: list[tuple[str, int]]
) -> None:
    methods = {
        "pca": (rf.pca, "singular_values", {"rank": COLUMNS}),
        "scaled": (rf.pca, "singular_values", {"rank": COLUMNS, "scale": True}),
        "svd": (rf.svd, "s", {}),
    }
    for night, count in enumerate(NIGHTS):
        before = grow_by(store, rows, count)
        for name, (fit, values, more) in methods.items():
            reads.clear()
            out = tmp_path / f"{name}.zarr"
            result = fit(store, **more, with_rows=False, grows="rows", out=out, threads=1)  # type: ignore[operator]
            if night:
                new = set(range(before // CHUNK_ROWS, -(-count // CHUNK_ROWS))) if count > before else set()
                assert chunk_rows_read(reads, store) == new
            assert_stands_on(result, night)
            fresh = fit(rows[:count], **more, with_rows=False, threads=1)  # type: ignore[operator]
            s, expected = np.asarray(result[values]), np.asarray(fresh[values])
            # Of sums of squares no more than rounding is lost at each of seven merges.
            assert np.abs(s - expected).max() <= 64 * COLUMNS * EPS * expected[0]
            right = "Vt" if fit is rf.svd else "components"
            leading = np.abs(np.asarray(result[right])[:3] @ np.asarray(fresh[right])[:3].T)
            assert np.abs(leading - np.eye(3)).max() < 1e-10


def test_fewer_components_are_within_the_bound_that_is_stated(
    tmp_path: Path, store: Path, rows: Float64
) -> None:
    for count in NIGHTS:
        grow_by(store, rows, count)
        for fit, values in ((rf.pca, "singular_values"), (rf.svd, "s")):
            out = tmp_path / f"{fit.__name__}.zarr"
            result = fit(store, COMPONENTS, with_rows=False, grows="rows", out=out, threads=1)
            centered = rows[:count] - rows[:count].mean(axis=0) * (fit is rf.pca)
            truth = np.linalg.svd(centered, compute_uv=False)[:COMPONENTS]
            s = np.asarray(result[values])
            assert (np.abs(s - truth) / truth <= np.asarray(result.error_estimates) + 1e-12).all()


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["euclidean", "cosine", "manhattan"])
def test_neighbors_are_those_of_a_search_of_all_rows_to_the_byte(
    tmp_path: Path, store: Path, rows: Float64, metric: str
) -> None:
    out = tmp_path / "near.zarr"
    for night, count in enumerate(NIGHTS):
        grow_by(store, rows, count)
        each: Any = {"metric": metric, "symmetric": "union", "threads": 1}
        result = rf.knn(store, 7, grows="rows", out=out, **each)
        fresh = rf.knn(store, 7, out=tmp_path / f"fresh-{night}.zarr", **each)
        assert_stands_on(result, night)
        for name in ("indices", "distances", "graph"):
            assert files_of(result.path / name) == files_of(fresh.path / name)


def files_of(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_clusters_follow_as_means_and_state_their_inertia(
    tmp_path: Path, store: Path, rows: Float64, reads: list[tuple[str, int]]
) -> None:
    out = tmp_path / "clusters.zarr"
    for night, count in enumerate(NIGHTS):
        before = grow_by(store, rows, count)
        reads.clear()
        result = rf.kmeans(store, 5, grows="rows", out=out, threads=1)
        if night:
            new = set(range(before // CHUNK_ROWS, -(-count // CHUNK_ROWS))) if count > before else set()
            assert chunk_rows_read(reads, store) == new
        assert_stands_on(result, night)
        labels, centers, x = result.labels[...], np.asarray(result.centers), rows[:count]
        groups = [x[labels == j] for j in range(5)]
        assert [len(each) for each in groups] == np.asarray(result.counts).tolist()
        if night:
            assert np.abs(centers - [each.mean(axis=0) for each in groups]).max() < 1e-12
        squares = ((x[:, None] - centers) ** 2).sum(axis=2)
        stated = result.attrs["final_inertia"]
        np.testing.assert_allclose(stated, squares[np.arange(count), labels].sum(), rtol=1e-10)
        assert squares.min(axis=1).sum() <= stated * (1 + 1e-12)
        # From the first night's centers on: within a tenth of what a new start finds.
        assert stated < 1.1 * rf.kmeans(x, 5, threads=1).attrs["final_inertia"]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_factors_state_the_error_that_they_have_over_all_rows(
    tmp_path: Path, rows: Float64, reads: list[tuple[str, int]], dtype: str
) -> None:
    out, store = tmp_path / "parts.zarr", tmp_path / "x.zarr"
    x = rows.astype(dtype)
    shape = (NIGHTS[0], COLUMNS)
    zarr.create_array(store, shape=shape, chunks=(CHUNK_ROWS, 13), dtype=x.dtype)[...] = x[: NIGHTS[0]]
    for night, count in enumerate(NIGHTS):
        before = grow_by(store, x, count)
        reads.clear()
        result = rf.nmf(store, COMPONENTS, grows="rows", out=out, threads=1)
        if night:
            new = set(range(before // CHUNK_ROWS, -(-count // CHUNK_ROWS))) if count > before else set()
            assert chunk_rows_read(reads, store) == new
        assert_stands_on(result, night)
        w, h = result.W[...].astype(float), result.H[...].astype(float)
        assert w.shape == (count, COMPONENTS)
        assert min(w.min(), h.min()) >= 0
        error = np.linalg.norm(rows[:count].astype(dtype) - w @ h) / np.linalg.norm(rows[:count])
        floor = float(np.sqrt(np.finfo(dtype).eps))
        assert abs(result.attrs["relative_error"] - error) <= max(1e-3 * error, 2 * floor)
        assert error < 1.2 * rf.nmf(x[:count], COMPONENTS, threads=1).attrs["relative_error"]


@pytest.mark.parametrize(
    ("fit", "more"),
    [
        (rf.pca, {"rank": 4, "with_rows": False}),
        (rf.svd, {"rank": 4, "with_rows": False}),
        (rf.knn, {"k": 5}),
        (rf.kmeans, {"k": 4}),
        (rf.nmf, {"rank": 4}),
    ],
)
def test_a_night_without_news_reads_nothing(
    tmp_path: Path,
    store: Path,
    rows: Float64,
    reads: list[tuple[str, int]],
    fit: Any,
    more: dict[str, Any],
) -> None:
    out = tmp_path / "result.zarr"
    for count in NIGHTS[:2]:
        grow_by(store, rows, count)
        fit(store, **more, grows="rows", out=out, threads=1)
    before = files_of(out)
    reads.clear()
    began = time.perf_counter()
    result = fit(store, **more, grows="rows", out=out, threads=1)
    assert time.perf_counter() - began < 5
    assert not reads
    assert files_of(out) == before
    assert result.path == out
