"""Sparse matrices: from every file the same canonical CSR group, which sweeps and AnnData both read."""

from __future__ import annotations

import gzip
import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse
import zarr
from covers import cover
from hypothesis import given, settings
from hypothesis import strategies as st
from stores import read

import rankfold as rf
from rankfold.methods.svd.orientation import choose_orientation
from rankfold.pipeline.data.describe import describe
from rankfold.pipeline.data.view import Orientation
from rankfold.pipeline.errors import (
    ChunkError,
    DataError,
    DiskSpaceError,
    InputError,
    MemoryBudgetError,
    RankfoldError,
)
from rankfold.pipeline.formats import csr, open_source
from rankfold.pipeline.formats.csr import CsrSource
from rankfold.pipeline.importing import ImportReport, import_array
from rankfold.pipeline.importing import csr_writer as entry_sort
from rankfold.pipeline.importing import csr_writer as ingest_sparse
from rankfold.pipeline.importing import tiles as ingest_place
from rankfold.pipeline.importing.csr_writer import sorted_entries
from rankfold.pipeline.importing.readers import compressed, matrix_market
from rankfold.pipeline.importing.readers.reader import Entries


def sparse(rows: int = 230, columns: int = 170, density: float = 0.1, seed: int = 0) -> Any:
    return scipy.sparse.random(rows, columns, density, random_state=seed, format="csr")


def whole(source: Any) -> Any:
    return read(source, (0, source.shape[0]), (0, source.shape[1]))


def imported(source: Path | str, folder: Path, **options: Any) -> tuple[CsrSource, ImportReport]:
    before = {*os.listdir(folder), "out.zarr"}
    report = import_array(source, folder / "out.zarr", **{"overwrite": True, **options})
    assert set(os.listdir(folder)) == before
    made = open_source(folder / "out.zarr")
    assert isinstance(made, CsrSource)
    made.check()
    return made, report


def refused(
    source: Path | str, folder: Path, error: type[RankfoldError], message: str, **options: Any
) -> None:
    before = os.listdir(folder)
    with pytest.raises(error, match=message):
        import_array(source, folder / "out.zarr", **options)
    assert os.listdir(folder) == before


def group(path: Path, x: Any, layout: str = "csr", chunk: int = 100, **options: Any) -> Path:
    """A group as AnnData writes it."""
    x = x.asformat(layout)
    made = zarr.open_group(path, mode="w", zarr_format=options.get("zarr_format", 3))
    made.attrs.update(
        {"encoding-type": f"{layout}_matrix", "encoding-version": "0.1.0", "shape": list(x.shape)}
    )
    for name in ("data", "indices", "indptr"):
        part = getattr(x, name)
        options = {"compressors": None, **options}
        options.pop("zarr_format", None)
        made.create_array(name, shape=part.shape, dtype=part.dtype, chunks=(chunk,), **options)[...] = part
    return path


# --- the source


@pytest.mark.parametrize(("layout", "version", "piece"), cover(["csr", "csc"], [2, 3], [7, 2**17]))
def test_any_panel_is_made_dense(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str, version: int, piece: int
) -> None:
    monkeypatch.setattr(csr, "PIECE", piece)
    monkeypatch.setattr(csr, "POINTERS", 50)
    x = sparse()
    source = open_source(group(tmp_path / "x.zarr", x, layout, zarr_format=version))
    dense = x.toarray()
    for rows, columns in (((0, 230), (0, 170)), ((17, 140), (0, 170)), ((0, 230), (3, 90)), ((5, 6), (8, 9))):
        np.testing.assert_array_equal(
            read(source, rows, columns, apart=3), dense[slice(*rows), slice(*columns)]
        )


@pytest.mark.parametrize(
    "compressors", [None, "auto", zarr.codecs.GzipCodec(level=1), zarr.codecs.BloscCodec()]
)
def test_vectors_may_be_encoded_in_any_way(tmp_path: Path, compressors: Any) -> None:
    x = sparse()
    source = open_source(group(tmp_path / "x.zarr", x, compressors=compressors))
    np.testing.assert_array_equal(whole(source), x.toarray())


def test_a_group_inside_a_store_and_what_info_says(tmp_path: Path) -> None:
    zarr.create_group(tmp_path / "a.zarr")
    group(tmp_path / "a.zarr" / "layers", sparse())
    info = describe(open_source(f"{tmp_path / 'a.zarr'}::layers"))
    assert info.format == "CSR in Zarr v3, 3910 stored numbers (10.00%)"
    assert info.stored_bytes > 3910 * 12
    wide = describe(open_source(group(tmp_path / "w.zarr", sparse(100, 900))))
    assert wide.remarks[0].startswith("Sparse: sweeps run along the 100 rows")


def test_stored_twice_means_the_sum(tmp_path: Path) -> None:
    x = scipy.sparse.csr_matrix(
        (np.array([1.0, 2, 4, 8]), np.array([2, 0, 2, 1]), np.array([0, 3, 4])), (2, 3)
    )
    np.testing.assert_array_equal(whole(open_source(group(tmp_path / "x.zarr", x))), [[2, 0, 5], [0, 8, 0]])


@pytest.mark.parametrize(("layout", "wanted"), [("csr", Orientation.ROWS), ("csc", Orientation.COLUMNS)])
@pytest.mark.parametrize("shape", [(90, 400), (400, 90)])
def test_sweeps_run_along_the_lines_that_lie_together(
    tmp_path: Path, layout: str, wanted: Orientation, shape: tuple[int, int]
) -> None:
    x = sparse(*shape)
    source = open_source(group(tmp_path / "x.zarr", x, layout))
    assert choose_orientation(source, 5) is wanted
    s = np.linalg.svd(x.toarray(), compute_uv=False)
    np.testing.assert_allclose(rf.svd(source, 5, tol=1e-6, passes=15).s, s[:5], rtol=1e-5)
    centered = x.toarray() - x.toarray().mean(axis=0)
    found = rf.pca(str(tmp_path / "x.zarr"), 5, tol=1e-6, passes=15).singular_values
    np.testing.assert_allclose(found, np.linalg.svd(centered, compute_uv=False)[:5], rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "index", "value", "message"),
    [
        ("indices", 3, 170, r"indices\[3\] is 170, but the matrix has 170 columns"),
        ("indices", 3, -1, r"indices\[3\] is -1"),
        ("indptr", 5, 3900, r"indptr\[0:231\] is not increasing"),
        ("indptr", 0, 1, "indptr goes from 1 to 3910 instead of 0 to 3910"),
        ("indptr", -1, 4000, "indptr goes from 0 to 4000"),
    ],
)
def test_a_damaged_group_is_refused(tmp_path: Path, name: str, index: int, value: int, message: str) -> None:
    path = group(tmp_path / "x.zarr", sparse())
    zarr.open_array(path / name)[index] = value
    source = open_source(path)
    with pytest.raises(ChunkError, match=message):
        source.check()
        whole(source)


def test_lengths_that_do_not_agree_and_chunks_that_are_gone(tmp_path: Path) -> None:
    path = group(tmp_path / "x.zarr", sparse())
    before = open_source(path).fingerprint()
    (path / "data" / "c" / "7").unlink()
    with pytest.raises(ChunkError, match=r"x\.zarr::data: chunk c/7 of 40 is missing"):
        open_source(path, missing_chunks="error").check()
    assert open_source(path).fingerprint() != before
    zarr.open_array(path / "indices").resize((3000,))
    with pytest.raises(ChunkError, match="data has 3910 numbers, indices 3000, indptr 231 for 230 rows"):
        open_source(path).check()
    shutil.rmtree(path / "indptr")
    with pytest.raises(ChunkError, match="indptr"):
        open_source(path)


@pytest.mark.parametrize("name", ["data", "indices", "indptr"])
def test_a_vector_that_became_empty(tmp_path: Path, name: str) -> None:
    path = group(tmp_path / "x.zarr", sparse(), compressors=zarr.codecs.ZstdCodec())
    zarr.open_array(path / name).resize((0,))
    with pytest.raises(ChunkError, match="for 230 rows: the first two must agree, the last be one more"):
        rf.svd(path, 3)


def test_a_matrix_of_zeros_whose_chunks_zarr_left_out(tmp_path: Path) -> None:
    path = group(tmp_path / "x.zarr", sparse(density=0))
    with pytest.raises(ChunkError, match=r"indptr: 3 of 3 chunks are missing.* missing_chunks='fill'"):
        rf.svd(path, 3, missing_chunks="error")
    filled = open_source(path)
    assert not whole(filled).any()
    with pytest.warns(rf.RankfoldWarning, match="3 of 3 chunks are not in the store"):
        assert not rf.svd(filled, 3).s.any()


# --- files


@settings(max_examples=15, derandomize=True, deadline=None)
@given(
    rows=st.integers(1, 40),
    columns=st.integers(1, 40),
    density=st.floats(0, 1),
    layout=st.sampled_from(["csr", "csc", "coo"]),
    compressed_=st.booleans(),
    entries=st.integers(1, 60),
)
def test_scipy_files_of_any_layout(
    tmp_path_factory: pytest.TempPathFactory,
    rows: int,
    columns: int,
    density: float,
    layout: str,
    compressed_: bool,
    entries: int,
) -> None:
    folder = tmp_path_factory.mktemp("npz")
    x = sparse(rows, columns, density)
    scipy.sparse.save_npz(folder / "x.npz", x.asformat(layout), compressed=compressed_)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compressed, "ENTRY_BYTES", 256 * 2**20 // 8 // entries)
        made, report = imported(folder / "x.npz", folder)
    np.testing.assert_array_equal(whole(made), x.toarray())
    assert (report.nnz, report.layout, report.shape) == (x.nnz, "csr", x.shape)
    assert report.bytes_written > 0


def test_anndata_reads_what_was_written(tmp_path: Path) -> None:
    anndata = pytest.importorskip("anndata", reason="AnnData is not installed")
    x = sparse()
    scipy.sparse.save_npz(tmp_path / "x.npz", x)
    imported(tmp_path / "x.npz", tmp_path)
    stored = zarr.open_group(tmp_path / "out.zarr", mode="r")
    assert (anndata.io.read_elem(stored) != x).nnz == 0
    assert (anndata.io.sparse_dataset(stored)[10:20] != x[10:20]).nnz == 0


def test_what_was_written_is_in_order_and_summed(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    row, column, value = rng.integers(0, 20, 900), rng.integers(0, 30, 900), rng.integers(1, 9, 900)
    x = scipy.sparse.coo_matrix((value, (row, column)), (20, 30))
    scipy.sparse.save_npz(tmp_path / "x.npz", x)
    made, report = imported(tmp_path / "x.npz", tmp_path)
    want = x.tocsr()
    for name in ("data", "indices", "indptr"):
        vector = getattr(made, name)
        np.testing.assert_array_equal(vector.take(0, vector.length), getattr(want, name))
    assert (made.data.dtype, made.indices.dtype, made.indptr.dtype) == ("int64", "int32", "int64")
    assert report.nnz == want.nnz < 900


def test_a_sparse_matrix_may_be_made_dense_or_another_type(tmp_path: Path) -> None:
    x = sparse()
    scipy.sparse.save_npz(tmp_path / "x.npz", x)
    made, _ = imported(tmp_path / "x.npz", tmp_path, dtype="float32")
    np.testing.assert_array_equal(whole(made), x.toarray().astype("f4"))
    (tmp_path / "out.zarr").rename(tmp_path / "first.zarr")
    again, _ = imported(tmp_path / "first.zarr", tmp_path, dtype="float64")
    np.testing.assert_array_equal(whole(again), x.toarray().astype("f4"))
    report = import_array(tmp_path / "x.npz", tmp_path / "dense.zarr", layout="dense", dtype="float32")
    assert (report.layout, report.nnz) == ("dense", None)
    np.testing.assert_array_equal(whole(open_source(tmp_path / "dense.zarr")), x.toarray().astype("f4"))
    refused(
        tmp_path / "x.npz", tmp_path, DataError, "cannot be written as uint8", dtype="uint8", overwrite=True
    )


def test_damaged_scipy_files_leave_nothing(tmp_path: Path) -> None:
    x = sparse()
    broken = x.copy()
    broken.indices[5] = 999
    np.savez(
        tmp_path / "x.npz", format=b"csr", shape=x.shape, data=x.data, indices=broken.indices, indptr=x.indptr
    )
    refused(tmp_path / "x.npz", tmp_path, ChunkError, r"indices\[5\] is 999, but the matrix has only 170")
    np.savez(
        tmp_path / "x.npz",
        format=b"csr",
        shape=x.shape,
        data=x.data,
        indices=x.indices,
        indptr=x.indptr[::-1],
    )
    refused(tmp_path / "x.npz", tmp_path, ChunkError, "indptr begins with 3910")
    np.savez(
        tmp_path / "x.npz", format=b"bsr", shape=x.shape, data=x.data, indices=x.indices, indptr=x.indptr
    )
    refused(tmp_path / "x.npz", tmp_path, InputError, "layout 'bsr'; csr, csc and coo are read")
    scipy.sparse.save_npz(tmp_path / "x.npz", x)
    content = (tmp_path / "x.npz").read_bytes()
    (tmp_path / "x.npz").write_bytes(content[: len(content) // 2])
    refused(tmp_path / "x.npz", tmp_path, ChunkError, "not a whole .npz file")
    with zipfile.ZipFile(tmp_path / "y.npz", "w") as archive:
        archive.writestr("format.npy", b"what")
    refused(tmp_path / "y.npz", tmp_path, RankfoldError, "y.npz")


def test_a_sparse_file_that_is_compressed_is_not_read_in_place(tmp_path: Path) -> None:
    scipy.sparse.save_npz(tmp_path / "x.npz", sparse())
    with pytest.raises(
        InputError, match=r"is compressed, so .*Import it first: rankfold import \S+x.npz STOR"
    ):
        open_source(tmp_path / "x.npz")
    scipy.sparse.save_npz(tmp_path / "y.npz", sparse().tocoo(), compressed=False)
    with pytest.raises(InputError, match=r"not one of compressed rows or columns. Import it first"):
        open_source(tmp_path / "y.npz")


# --- MatrixMarket


KINDS_OF_ENTRIES = [
    *((field, symmetry) for field in ("real", "integer") for symmetry in matrix_market.SYMMETRIES),
    ("pattern", "general"),
    ("pattern", "symmetric"),
]


@pytest.mark.parametrize(("field", "symmetry"), KINDS_OF_ENTRIES)
@pytest.mark.parametrize("packed", [False, True])
def test_every_kind_of_coordinates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str, symmetry: str, packed: bool
) -> None:
    monkeypatch.setattr(matrix_market, "TEXT_BYTES", (50, 50))
    x = (sparse(60, 60) * 100).astype("i8").tocsr()
    x.eliminate_zeros()
    x = {"general": x, "symmetric": x + x.T, "skew-symmetric": x - x.T}[symmetry]
    path = tmp_path / ("x.mtx.gz" if packed else "x.mtx")
    with gzip.open(path, "wb") if packed else open(path, "wb") as file:
        scipy.io.mmwrite(file, x.astype("f8") if field == "real" else x, field=field, symmetry=symmetry)
    made, report = imported(path, tmp_path)
    want = x.toarray() if field != "pattern" else (x.toarray() != 0)
    np.testing.assert_array_equal(whole(made), want)
    assert report.dtype == {"real": "float64", "integer": "int64", "pattern": "float32"}[field]


def market(folder: Path, body: str, head: str = "coordinate real general", size: str = "3 4 2") -> Path:
    (folder / "x.mtx").write_bytes(f"%%MatrixMarket matrix {head}\n% comment\n\n{size}\n{body}".encode())
    return folder / "x.mtx"


def test_odd_but_valid_text(tmp_path: Path) -> None:
    made, _ = imported(market(tmp_path, "  1 1\t 5\r\n\r\n3   4 -2e3\n3 4 1\n\n", size="3 4 3"), tmp_path)
    np.testing.assert_array_equal(whole(made), [[5, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, -1999]])
    made, _ = imported(market(tmp_path, "", size="3 4 0"), tmp_path)
    np.testing.assert_array_equal(whole(made), np.zeros((3, 4)))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("1 1 5\n", "promises 2 entries but has 1. It is cut short"),
        ("1 1 5\n1 2 5\n1 3 5\n", "promises 2 entries but has 3"),
        ("1 1 5\n4 1 7\n", "line 6: Row index out of bounds"),
        ("1 1 5\n3 0 7\n", "line 6: Column index out of bounds"),
        ("1 1 5\n3 x 7\n", "line 6: '3 x 7' should be a row, a column and a number"),
        ("1 1 5\n3 1", "line 6: "),
        # SciPy's parser takes their beginnings, and reads on past the end of the last.
        ("1 1 5\n3 1 1.0D+05\n", "line 6: '3 1 1.0D"),
        ("3 1.5 6\n1 1 5\n", "line 5: '3 1.5 6'"),
        ("1 1 5\n3 1 6 7", "line 6: '3 1 6 7'"),
        ("1 1 5\n3 1 6x", "line 6: '3 1 6x'"),
    ],
)
def test_bad_entries_are_refused_with_their_line(tmp_path: Path, body: str, message: str) -> None:
    refused(market(tmp_path, body), tmp_path, ChunkError, message)


def test_bad_heads_are_refused(tmp_path: Path) -> None:
    one = "1 1 5\n2 2 5.5\n"
    refused(
        market(tmp_path, one, "coordinate integer general"),
        tmp_path,
        ChunkError,
        "line 6: '2 2 5.5' should be a row, a column and a whole number",
    )
    refused(
        market(tmp_path, one, "coordinate complex general"), tmp_path, InputError, "complex general; read are"
    )
    refused(market(tmp_path, one, size="3 4"), tmp_path, ChunkError, "line 4: .*should be the size")
    refused(
        market(tmp_path, one, "array real symmetric", "3 4"), tmp_path, InputError, "dense symmetric real"
    )
    (tmp_path / "x.mtx").write_text("1 1 5\n")
    refused(tmp_path / "x.mtx", tmp_path, InputError, "no MatrixMarket file")
    content = gzip.compress(market(tmp_path, "1 1 5\n1 2 5\n" * 5000, size="3 4 10000").read_bytes())
    (tmp_path / "x.mtx.gz").write_bytes(content[:-20])
    refused(tmp_path / "x.mtx.gz", tmp_path, ChunkError, r"x\.mtx\.gz cannot be read after line")


def test_arrays_are_dense(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix_market, "TEXT_BYTES", (50, 50))
    x = np.random.default_rng(2).standard_normal((23, 7))
    scipy.io.mmwrite(tmp_path / "x.mtx", x, precision=17)
    report = import_array(tmp_path / "x.mtx", tmp_path / "out.zarr", dtype="float32")
    np.testing.assert_array_equal(whole(open_source(tmp_path / "out.zarr")), x.astype("f4"))
    assert report.layout == "dense"
    market(tmp_path, "1\n2\n3\n", "array integer general", "2 2")
    refused(tmp_path / "x.mtx", tmp_path, ChunkError, "promises 2 x 2 numbers but has 3", overwrite=True)
    for last in ("6x", "6 7", "6 7\n", "1.2.3\n", "6e\n"):
        market(tmp_path, f"1\n2\n3\n{last}", "array real general", "2 2")
        refused(
            tmp_path / "x.mtx",
            tmp_path,
            ChunkError,
            f"line 8: '{last.strip()}' should be a number",
            overwrite=True,
        )
    market(tmp_path, "-1\n2.5e-3 \nNaN\n.5E2", "array real general", "2 2")
    import_array(tmp_path / "x.mtx", tmp_path / "out.zarr", overwrite=True)
    np.testing.assert_array_equal(whole(open_source(tmp_path / "out.zarr")), [[-1, np.nan], [2.5e-3, 50]])


# --- sorting


@settings(max_examples=30, derandomize=True, deadline=None)
@given(
    count=st.integers(0, 400),
    shape=st.tuples(st.integers(1, 30), st.integers(1, 30)),
    memory=st.integers(1, 100),
    fan_out=st.integers(2, 5),
    skew=st.booleans(),
)
def test_entries_in_any_order_come_out_sorted_and_summed(
    tmp_path_factory: pytest.TempPathFactory,
    count: int,
    shape: tuple[int, int],
    memory: int,
    fan_out: int,
    skew: bool,
) -> None:
    folder = tmp_path_factory.mktemp("sort")
    rng = np.random.default_rng(count)
    rows = rng.integers(0, 1 if skew else shape[0], count)
    columns, values = rng.integers(0, shape[1], count), rng.integers(1, 99, count).astype("f8")
    blocks = [Entries(rows[i : i + 50], columns[i : i + 50], values[i : i + 50]) for i in range(0, count, 50)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entry_sort, "FAN_OUT", fan_out)
        made = list(sorted_entries(blocks, shape, values.dtype, folder, memory * entry_sort.SORT_BYTES))
    dense = np.zeros(shape)
    places = [r * shape[1] + c for part in made for r, c in zip(part.rows, part.columns, strict=True)]
    assert places == sorted(set(places))
    for part in made:
        dense[part.rows, part.columns] += part.values
    np.testing.assert_array_equal(dense, scipy.sparse.coo_matrix((values, (rows, columns)), shape).toarray())
    assert not os.listdir(folder)


def test_rows_may_be_cut_between_blocks_or_be_empty(tmp_path: Path) -> None:
    writer = ingest_sparse.CsrWriter(tmp_path / "x.zarr", (7, 5), np.dtype("f4"), 10, "x")
    for rows, columns in (([1, 1], [0, 2]), ([1], [4]), ([4, 5], [1, 1])):
        writer.append(Entries(np.array(rows), np.array(columns), np.ones(len(rows))))
    writer.finish()
    source = open_source(tmp_path / "x.zarr")
    source.check()
    np.testing.assert_array_equal(source.pointers(0, 7), [0, 0, 3, 3, 3, 4, 5, 5])


def test_too_little_disk_for_the_sort_is_said_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("usage", (), {"free": 1000})
    monkeypatch.setattr(ingest_place.shutil, "disk_usage", lambda path: usage)
    scipy.sparse.save_npz(tmp_path / "x.npz", sparse().tocsc())
    refused(tmp_path / "x.npz", tmp_path, DiskSpaceError, "needs about 61.1 KiB more .*0.977 KiB are free")


# --- AnnData in HDF5


def test_every_matrix_of_an_h5ad(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py", reason="HDF5 is read by h5py, which is not installed")
    x, path = sparse(), tmp_path / "x.h5ad"
    with h5py.File(path, "w") as file:
        for key, layout in (("X", "csr"), ("layers/counts", "csc")):
            part = file.create_group(key)
            part.attrs.update({"encoding-type": f"{layout}_matrix", "shape": x.shape})
            for name in ("data", "indices", "indptr"):
                part.create_dataset(
                    name, data=getattr(x.asformat(layout), name), chunks=(100,), compression=1
                )
        file.create_dataset("obsm/X_pca", data=x.toarray()[:, :7], chunks=(13, 7), compression=1)
    for key in ("", "::X", "::layers/counts"):
        np.testing.assert_array_equal(whole(imported(f"{path}{key}", tmp_path)[0]), x.toarray())
    import_array(f"{path}::obsm/X_pca", tmp_path / "dense.zarr")
    np.testing.assert_array_equal(whole(open_source(tmp_path / "dense.zarr")), x.toarray()[:, :7])
    refused(
        f"{path}::layers/x", tmp_path, InputError, r"no matrix layers/x. It holds X .* obsm/X_pca \(230, 7\)"
    )
    with h5py.File(path, "r+") as file:
        file.create_dataset("layers/tall", shape=(3_000_000, 8), chunks=(3_000_000, 8), dtype="f8")
    small = {"memory_bytes": 64 * 2**20, "overwrite": True}
    refused(
        f"{path}::layers/tall", tmp_path, MemoryBudgetError, "chunks of 3000000 x 8, .*memory_bytes=", **small
    )
    refused(f"{path}::layers", tmp_path, InputError, "is a group .*not a matrix")
    with h5py.File(path, "r+") as file:
        file["X/indices"][9] = 500
        del file["layers/counts/data"]
    refused(path, tmp_path, ChunkError, r"indices\[9\] is 500", overwrite=True)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    refused(path, tmp_path, ChunkError, "cannot be opened as HDF5: .*Restore the file", overwrite=True)


# --- real counts


def test_counts_of_single_cells(tmp_path: Path) -> None:
    """2638 cells x 13714 genes: wide, so a dense matrix of this shape would be swept by columns."""
    folder = os.environ.get("RANKFOLD_TEST_DATA")
    if not folder or not (Path(folder) / "pbmc3k_counts.npz").exists():
        pytest.skip("set RANKFOLD_TEST_DATA to the folder of the real data")
    x = scipy.sparse.load_npz(Path(folder) / "pbmc3k_counts.npz")
    made, report = imported(Path(folder) / "pbmc3k_counts.npz", tmp_path)
    assert (made.shape, report.nnz) == (x.shape, x.nnz)
    found = rf.svd(str(tmp_path / "out.zarr"), 20, tol=1e-4, memory="400MiB")
    np.testing.assert_allclose(found.s, np.sort(scipy.sparse.linalg.svds(x, 20)[1])[::-1], rtol=1e-4)


def test_what_a_sparse_store_takes_on_disk_is_told(tmp_path: Path) -> None:
    x = scipy.sparse.random(200, 40, 0.2, "csr", random_state=0)
    scipy.sparse.save_npz(tmp_path / "x.npz", x)
    report = import_array(tmp_path / "x.npz", tmp_path / "x.zarr")
    files = [path for path in (tmp_path / "x.zarr").rglob("*") if path.is_file()]
    chunks = sum(path.stat().st_size for path in files if path.suffix != ".json")
    assert 0 < chunks <= report.bytes_written <= sum(path.stat().st_size for path in files)
