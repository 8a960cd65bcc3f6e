"""Dask arrays of sparse blocks: what is stored stays what is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse

import rankfold as rf
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.data.source import compressed
from rankfold.pipeline.engine.blocks import PANEL_NUMBERS, cut_by_numbers
from rankfold.pipeline.errors import ChunkError, InputError
from rankfold.pipeline.formats import open_source

Array = npt.NDArray[Any]


def counts(rows: int = 500, columns: int = 80, *, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    x = rng.poisson(rng.gamma(0.5, 0.2, columns), (rows, columns)).astype(np.float32)
    x[rng.random(rows) < 0.1] = 0
    return x


def blocks_of(x: Array, chunks: tuple[Any, Any], form: str = "csr_matrix") -> Any:
    return da.from_array(x, chunks=chunks).map_blocks(getattr(scipy.sparse, form))


CHUNKS: dict[str, tuple[tuple[Any, Any], str, str]] = {
    "rows": ((70, 80), "csr_matrix", "rows"),
    "rows, unequal, one empty": (((200, 0, 1, 299), 80), "csr_array", "rows"),
    "columns": ((500, 30), "csc_matrix", "columns"),
    "columns, by rows": ((500, 30), "csr_matrix", "columns"),
    "one, by columns": ((500, 80), "csc_array", "columns"),
}


@pytest.mark.parametrize(("chunks", "form", "by"), CHUNKS.values(), ids=CHUNKS)
def test_blocks_are_read_as_they_are_stored(chunks: tuple[Any, Any], form: str, by: str) -> None:
    x = counts()
    source = compressed(open_source(blocks_of(x, chunks, form)))
    assert source is not None and source.by == by and source.nnz == np.count_nonzero(x)
    lines = x if by == "rows" else x.T
    for start, stop in ((0, len(lines)), (3, 4), (17, len(lines) - 5)):
        part = source.read_sparse((start, stop))
        shape = (stop - start, lines.shape[1])
        dense = scipy.sparse.csr_array((part.data, part.indices, part.indptr), shape).toarray()
        np.testing.assert_array_equal(dense, lines[start:stop])
        np.testing.assert_array_equal(
            source.pointers(start, stop)[1:] - source.pointers(start, stop)[0],
            np.cumsum(np.count_nonzero(lines[start:stop], axis=1)),
        )


def test_blocks_cut_both_ways_are_filled_in() -> None:
    source = open_source(blocks_of(counts(), (70, 30)))
    assert compressed(source) is None
    out = np.empty((500, 80), np.float32)
    source.read_into(out, (0, 500), (0, 80))
    np.testing.assert_array_equal(out, counts())


@pytest.mark.parametrize("call", ["krylov", "gram", "svd", "nmf", "knn", "prepared"])
@pytest.mark.parametrize("chunks", ["rows", "columns"])
def test_methods_give_what_they_give_of_the_whole(tmp_path: Path, call: str, chunks: str) -> None:
    if (call, chunks) in (("knn", "columns"), ("prepared", "columns")):
        with pytest.raises(InputError, match="by columns"):
            _call(call, blocks_of(counts(), *CHUNKS[chunks][:2]), tmp_path / "out")
        return
    x = counts()
    form = scipy.sparse.csr_array if chunks == "rows" else scipy.sparse.csc_array
    found = _call(call, blocks_of(x, *CHUNKS[chunks][:2]), tmp_path / "blocks")
    expected = _call(call, form(x), tmp_path / "whole")
    if call == "nmf":  # other paths, to other minima of one size
        errors = [np.linalg.norm(x - result["W"][...] @ result["H"][...]) for result in (found, expected)]
        assert errors[0] == pytest.approx(errors[1], rel=0.02)
    for name in {"s", "singular_values", "distances"} & set(found):
        np.testing.assert_allclose(found[name][...], expected[name][...], rtol=1e-4, atol=1e-4, err_msg=name)


def _call(call: str, x: Any, out: Path) -> rf.Result:
    if call == "nmf":
        return rf.nmf(x, 3, out=out, seed=0)
    if call == "knn":
        return rf.knn(x, 5, out=out)
    if call in ("gram", "krylov"):
        return rf.pca(x, 4, out=out, solver=call, seed=0)
    source = rf.open(x, prepare="normalize_total(1e4), log1p") if call == "prepared" else x
    return rf.svd(source, 4, out=out, seed=0)


def test_each_block_is_computed_once_a_pass(tmp_path: Path) -> None:
    computed: list[int] = []

    def block(part: Array) -> Any:
        computed.append(len(part))
        return scipy.sparse.csr_matrix(part)

    x = counts(3000, 40)
    array = da.from_array(x, chunks=(700, 40)).map_blocks(
        block, meta=scipy.sparse.csr_matrix((0, 0), dtype=np.float32)
    )
    source = rf.open(array)
    assert sorted(computed) == [200, 700, 700, 700, 700]
    computed.clear()
    result = rf.pca(source, 3, out=tmp_path / "out", solver="gram", with_rows=False)
    assert result.attrs["passes"] == 1
    assert sorted(computed[-5:]) == [200, 700, 700, 700, 700]
    assert len(computed) == 8 + 5, "eight places are looked at first"


def test_panels_are_whole_chunks() -> None:
    ends = np.arange(0, 101) * 10**5
    edges = np.array([0, 4, 5, 30, 31, 60, 100])
    lines = Grid(edges, splittable=False)
    cut, fullest = cut_by_numbers(lambda a, b: ends[a : b + 1], lines, 50, int(ends[-1]), 8, 400)
    assert set(cut.panels.tolist()) <= set(edges.tolist())
    assert cut.panels.tolist() == [0, 5, 30, 31, 60, 100] and fullest == 4 * 10**6 > PANEL_NUMBERS


def test_what_cannot_be_computed_or_is_wrong_is_refused_by_its_block() -> None:
    def broken(part: Array) -> Any:
        stored = scipy.sparse.csr_matrix(part)
        if len(part) == 60:
            stored.indices[0] = 1000
        return stored

    meta = scipy.sparse.csr_matrix((0, 0), dtype=np.float32)
    array = da.from_array(counts(), chunks=((440, 60), 80)).map_blocks(broken, meta=meta)
    with pytest.raises(ChunkError, match=r"block \(1, 0\) could not be computed: ValueError"):
        rf.open(array)


def test_a_graph_that_gives_other_numbers_each_time_is_refused() -> None:
    calls = iter(range(100))

    def changing(part: Array) -> Any:
        return scipy.sparse.csr_matrix(np.roll(part, next(calls), axis=0))

    meta = scipy.sparse.csr_matrix((0, 0), dtype=np.float32)
    source = compressed(
        open_source(da.from_array(counts(), chunks=(500, 80)).map_blocks(changing, meta=meta))
    )
    assert source is not None
    with pytest.raises(ChunkError, match="other places than when they were counted"):
        source.read_sparse((0, 500))
