"""What is missing, cut short, damaged or no matrix at all is refused in words."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import dask.array as da
import numcodecs
import numpy as np
import pytest
import scipy.sparse
import zarr
from stores import COLUMNS, KINDS, ROWS, Matrix, npy, numbers, read, zarr_store

import rankfold as rf
from rankfold.pipeline import regular
from rankfold.pipeline.chunks.encoding import decode_into
from rankfold.pipeline.errors import ChunkError, InputError, SourceNotFoundError
from rankfold.pipeline.formats import csr, open_source
from rankfold.pipeline.importing import import_array


@pytest.mark.parametrize("kind", ["v3 rows", "v3 blosc rows", "v3 gzip", "v3 shards", "v2 rows"])
def test_a_missing_chunk_is_fill_value_or_an_error_that_names_it(tmp_path: Path, kind: str) -> None:
    path = KINDS[kind](tmp_path, numbers())
    key = {"v2 rows": "3.0", "v3 shards": "c/2/0"}.get(kind, "c/3/0")
    (path / key).unlink()
    source = open_source(path, missing_chunks="error")
    for attempt in (source.check, lambda: read(source, (0, ROWS), (0, COLUMNS))):
        with pytest.raises(
            ChunkError, match=rf"chunk {key} of \d+ is missing; .* fill value 0\.0.* missing_chunks='fill'"
        ):
            attempt()
    filled = open_source(path)
    filled.check()
    expected = zarr.open_array(path, mode="r")[:]
    np.testing.assert_array_equal(read(filled, (0, ROWS), (0, COLUMNS), apart=2), expected)
    assert filled.fingerprint() == source.fingerprint()


def test_missing_chunks_are_counted(tmp_path: Path) -> None:
    path = KINDS["v3 cells"](tmp_path, numbers())
    for key in ("c/1/2", "c/4/0"):
        (path / key).unlink()
    with pytest.raises(ChunkError, match="2 of 30 chunks are missing, the first is c/1/2"):
        open_source(path, missing_chunks="error").check()


def test_the_fill_value_of_the_store_is_used(tmp_path: Path) -> None:
    path = zarr_store(tmp_path / "x.zarr", numbers(), fill_value=float("nan"))
    (path / "c/0/0").unlink()
    assert np.isnan(read(open_source(path), (0, 10), (0, COLUMNS))).all()


def test_an_inner_chunk_left_out_of_its_shard_is_fill_value(tmp_path: Path) -> None:
    x = numbers()
    x[5:10] = 3
    path = zarr_store(
        tmp_path / "x.zarr", x, chunks=(5, COLUMNS), shards=(20, COLUMNS), fill_value=3, config=None
    )
    source = open_source(path)
    source.check()
    np.testing.assert_array_equal(read(source, (0, ROWS), (0, COLUMNS)), x)


@pytest.mark.parametrize(
    "kind", [k for k in KINDS if k.startswith(("v3", "v2")) and "keys" not in k and "larger" not in k]
)
def test_a_chunk_cut_short_never_yields_numbers(tmp_path: Path, kind: str) -> None:
    path = KINDS[kind](tmp_path, numbers())
    victim = sorted(p for p in path.rglob("*") if p.is_file() and p.name[0] not in ".z")[-1]
    victim.write_bytes(victim.read_bytes()[: victim.stat().st_size * 2 // 3])
    with pytest.raises(ChunkError, match=r"chunk .* cannot be read .*Restore the store"):
        read(open_source(path), (0, ROWS), (0, COLUMNS))


def test_check_sees_sizes_that_cannot_be_right(tmp_path: Path) -> None:
    path = KINDS["v3 rows"](tmp_path, numbers())
    os.truncate(path / "c/2/0", 100)
    with pytest.raises(
        ChunkError, match=r"chunk c/2/0 holds 100 bytes instead of 1480 \(.*c/2/0\)\. Restore"
    ):
        open_source(path).check()
    (tmp_path / "z").mkdir()
    path = KINDS["v3 gzip"](tmp_path / "z", numbers())
    os.truncate(path / "c/2/0", 0)
    with pytest.raises(ChunkError, match="chunk c/2/0 holds 0 bytes instead of at least 1"):
        open_source(path).check()


def test_a_damaged_chunk_among_many_of_one_request_is_named(tmp_path: Path) -> None:
    path = KINDS["v3 gzip"](tmp_path, numbers())
    (path / "c/3/2").write_bytes(b"not gzip at all")
    with pytest.raises(
        ChunkError, match=r"chunk c/3/2 cannot be read .*rows 30:40, columns 16:24.*BadGzipFile"
    ):
        read(open_source(path), (0, ROWS), (0, COLUMNS))


def test_a_chunk_that_decodes_to_another_size_is_refused() -> None:
    for codec in (numcodecs.Blosc(), numcodecs.Zstd(), numcodecs.LZ4()):
        encoded = np.frombuffer(codec.encode(np.arange(1000, dtype="u1")), "u1")
        with pytest.raises(ValueError, match="decodes to 1000 bytes instead of 1008"):
            decode_into(codec.codec_id, encoded, np.empty(1008, "u1"))


@pytest.mark.parametrize("size", [1, 255, 256, 300, 65_535, 65_792, 70_000, 300_000])
def test_frames_of_zstd_of_every_size_decode(size: int) -> None:
    x = np.arange(size, dtype="u4").view("u1")[:size]
    out = np.empty(size, "u1")
    decode_into("zstd", np.frombuffer(numcodecs.Zstd().encode(x), "u1"), out)
    np.testing.assert_array_equal(out, x)


def test_a_missing_store_suggests_its_neighbor(tmp_path: Path) -> None:
    zarr_store(tmp_path / "climate.zarr", numbers())
    with pytest.raises(
        SourceNotFoundError, match=r"climat\.zarr does not exist\. Did you mean .*climate\.zarr\?"
    ):
        open_source(tmp_path / "climat.zarr")
    with pytest.raises(SourceNotFoundError, match=r"nor does the folder .*nowhere$"):
        open_source(tmp_path / "nowhere" / "x.zarr")


@pytest.mark.parametrize("name", ["", " "])
def test_an_empty_name_is_no_file(name: str) -> None:
    with pytest.raises(SourceNotFoundError, match=r"^'\s?' names no file: give the path of one"):
        open_source(name)


def test_a_group_lists_its_arrays(tmp_path: Path) -> None:
    path = tmp_path / "g.zarr"
    group = zarr.create_group(path)
    with pytest.raises(InputError, match=r"g\.zarr is a Zarr group, not an array\. It holds no arrays"):
        open_source(path)
    zarr_store(path / "counts", numbers())
    zarr_store(path / "layers" / "X", numbers(), zarr_format=2)
    zarr.create_group(path / "layers", zarr_format=2)
    with pytest.raises(
        InputError, match=r"It holds counts \(53, 37\) float32, layers/X .*Name one: .*::counts"
    ):
        open_source(path)
    with pytest.raises(SourceNotFoundError, match=r"has no array count\. Did you mean .*g\.zarr::counts\?"):
        open_source(f"{path}::count")
    with pytest.raises(InputError, match=r"is a Zarr group, not an array\. It holds counts"):
        open_source(group)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros(3), r"has 1 axes, shape \(3,\); a matrix has two"),
        (np.zeros((3, 4, 5)), "has 3 axes"),
        (np.zeros((0, 4)), "without rows"),
        (np.zeros((4, 0)), "without columns"),
        (np.zeros((2, 2), "M8[s]"), r"holds datetime64\[s\]; supported"),
        (np.array([["a"]]), "holds <U1"),
    ],
)
def test_what_is_no_matrix_is_refused_wherever_it_lies(tmp_path: Path, x: Matrix, message: str) -> None:
    np.save(tmp_path / "x.npy", x)
    chunks = tuple(max(1, size) for size in x.shape)
    zarr.create_array(tmp_path / "x.zarr", shape=x.shape, chunks=chunks, dtype=x.dtype)
    for place in (x, tmp_path / "x.npy", tmp_path / "x.zarr", da.from_array(x)):
        with pytest.raises(InputError, match=message):
            open_source(place)


def test_objects_masks_and_the_unknown_are_refused() -> None:
    with pytest.raises(InputError, match="holds object; supported"):
        open_source(np.array([[None]]))
    with pytest.raises(InputError, match=r"masked array .* pass x.*filled"):
        open_source(np.ma.masked_array(np.zeros((2, 2)), mask=True))
    with pytest.raises(InputError, match=r"not a matrix: give one of its arrays, r.scores or r.components"):
        open_source(rf.pca(np.eye(4), 2))
    with pytest.raises(InputError, match=r"cannot read a builtins\.dict; give the path of a Zarr store"):
        open_source({"x": [[1.0]]})
    with pytest.raises(InputError, match=r"missing_chunks='skip' is not known; say one of 'fill', 'error'"):
        open_source(np.zeros((2, 2)), missing_chunks="skip")
    with pytest.raises(InputError, match="is open already: say missing_chunks='error' where it is opened"):
        open_source(open_source(np.zeros((2, 2))), missing_chunks="error")


def test_stores_elsewhere_are_refused() -> None:
    with pytest.raises(InputError, match=r"ftp://host/x\.zarr begins with ftp://; read are s3://, gs://"):
        open_source("ftp://host/x.zarr")
    with pytest.raises(InputError, match=r"MemoryStore; only local stores .*Give the numbers, array"):
        open_source(zarr.create_array({}, shape=(2, 2), dtype="f4"))


def test_files_that_are_not_what_they_seem(tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x01\x00")
    with pytest.raises(InputError, match=r"x\.npy is not a valid \.npy file"):
        open_source(tmp_path / "x.npy")
    (tmp_path / "x.npy").write_text("1 2 3")
    with pytest.raises(InputError, match=r"x\.npy is not a valid \.npy file"):
        open_source(tmp_path / "x.npy")
    (tmp_path / "x.dat").write_text("")
    with pytest.raises(
        InputError,
        match=r"x\.dat is neither a Zarr store \(a folder\) nor a file that is read in place, \.npy",
    ):
        open_source(tmp_path / "x.dat")
    with pytest.raises(InputError, match=r"folder without Zarr metadata.* Give a Zarr store or a \.npy file"):
        open_source(tmp_path)
    with pytest.raises(InputError, match=r"x\.npy is a file, not a Zarr store, so it holds no array a"):
        open_source(f"{tmp_path / 'x.npy'}::a")
    (tmp_path / "b.zarr").mkdir()
    (tmp_path / "b.zarr" / "zarr.json").write_text('{"zarr_format": 3, "node_type": "array", "shape": [2')
    with pytest.raises(InputError, match=r"Zarr cannot open .*b\.zarr"):
        open_source(tmp_path / "b.zarr")


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("x.csv.xz", "unpack it first: `xz --decompress --keep"),
        ("x.zarr.zip", "unpack it first: `unzip .*/x.zarr.zip -d .*/x.zarr`$"),
        ("x.feather", "write it as Parquet first: pandas.read_feather"),
        ("x.dat", "is neither a Zarr store"),
    ],
)
@pytest.mark.parametrize("options", [{}, {"numeric": True}, {"index_col": "id"}])
def test_files_of_other_kinds_say_what_to_do_first(
    tmp_path: Path, name: str, step: str, options: dict[str, Any]
) -> None:
    (tmp_path / name).write_bytes(b"?")
    with pytest.raises(InputError, match=step):
        open_source(tmp_path / name, **options)


@pytest.mark.parametrize("method", [rf.knn, rf.kmeans])
def test_rows_of_what_lies_by_columns_are_had_by_an_import(tmp_path: Path, method: Any) -> None:
    scipy.sparse.save_npz(tmp_path / "x.npz", scipy.sparse.eye_array(9, format="csc"), compressed=False)
    with pytest.raises(InputError, match=r"compressed by columns.*: rankfold import .*x\.npz STORE\.zarr"):
        method(tmp_path / "x.npz", 2)
    import_array(tmp_path / "x.npz", tmp_path / "x.zarr")
    method(tmp_path / "x.zarr", 2)


@pytest.mark.parametrize("ask", [rf.reconstruct, rf.open_result, lambda x: rf.plan("reconstruct", x)])
def test_a_matrix_is_no_result(ask: Any) -> None:
    with pytest.raises(InputError, match=r"a result, or its path, is asked for here, not .* ndarray"):
        ask(np.ones((3, 2)))


def test_arrays_in_a_folder_that_is_no_group(tmp_path: Path) -> None:
    """``mkdir cells.zarr`` and arrays in it: they are read by either name, and listed."""
    store = tmp_path / "cells.zarr"
    store.mkdir()
    for compressors in (None, "auto"):
        x = zarr.create_array(
            store / "X", shape=(4, 3), dtype="f8", chunks=(2, 3), compressors=compressors, overwrite=True
        )
        x[...] = np.arange(12.0).reshape(4, 3)
        for location in (f"{store}::X", f"{store}/X"):
            source, out = open_source(location), np.empty((4, 3))
            source.read_into(out, (0, 4), (0, 3))
            np.testing.assert_array_equal(out, x[...])
    missing = rf"{store} is a folder without Zarr metadata \(zarr.json, .zarray or .zgroup\)"
    listed = rf"It holds X \(4, 3\) float64\. Name one: {store}::X"
    with pytest.raises(InputError, match=rf"{missing}\. {listed}"):
        open_source(store)
    with pytest.raises(
        InputError, match=rf"{missing}, and has no array XX\. Did you mean {store}::X\? {listed}"
    ):
        open_source(f"{store}::XX")


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_truncated_npy_file(tmp_path: Path, order: str) -> None:
    path = npy(order)(tmp_path, numbers())
    source = open_source(path)
    os.truncate(path, path.stat().st_size - 9)
    for attempt in (lambda: open_source(path), source.check, lambda: read(source, (0, ROWS), (0, COLUMNS))):
        with pytest.raises(ChunkError, match=r"is truncated: it holds 7963 bytes, its header promises 7972"):
            attempt()
    path.unlink()
    with pytest.raises(ChunkError, match="cannot be read"):
        source.check()


def test_dask_arrays_of_unknown_or_broken_blocks() -> None:
    x = da.from_array(numbers(), chunks=10)
    with pytest.raises(InputError, match=r"compute_chunk_sizes\(\)"):
        open_source(x[x[:, 0] > 50])

    def fails(block: Matrix) -> Matrix:
        raise OSError("disk on fire")

    source = open_source(x.map_blocks(fails, meta=x._meta))
    with pytest.raises(ChunkError, match=r"block \(1, 0\) could not be computed: OSError: disk on fire"):
        read(source, (12, 15), (0, 5))


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_store_of_anndata_names_its_matrix(tmp_path: Path, zarr_format: int) -> None:
    """Not the vectors that a sparse one is made of, nor columns of tables."""
    path = tmp_path / "cells.zarr"
    root = zarr.create_group(path, zarr_format=zarr_format)
    for name in ("layers", "obs", "obsm"):
        root.create_group(name)
    for name in ("X", "layers/counts"):
        group = root.create_group(name)
        group.attrs.update({"encoding-type": "csr_matrix", "shape": [53, 37]})
        for part in ("data", "indices", "indptr"):
            group.create_array(part, shape=(1000,), dtype="f4")
    root.create_array("obs/batch", shape=(53,), dtype="i4")
    root.create_array("obsm/pca", shape=(53, 5), dtype="f4")
    listed = (
        r"It holds X \(53, 37\) sparse, layers/counts \(53, 37\) sparse, obsm/pca \(53, 5\) \S*\. Name one: "
    )
    with pytest.raises(InputError, match=rf"is a Zarr group, not an array\. {listed}.*::X$"):
        open_source(path)


def test_a_store_of_xarray_names_its_data_before_coordinates(tmp_path: Path) -> None:
    path = tmp_path / "sea.zarr"
    root = zarr.create_group(path)
    for name, shape in {"lat": (5,), "time_bounds": (4, 2), "mask": (5, 6), "sst": (4, 5, 6)}.items():
        root.create_array(name, shape=shape, dtype="f4")
    listed = (
        r"It holds sst \(4, 5, 6\) float32, mask \(5, 6\) float32, time_bounds \(4, 2\) float32\. Name one: "
    )
    with pytest.raises(InputError, match=rf"{listed}.*::sst$"):
        open_source(path)


def test_a_document_that_is_stale_is_no_missing_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attributes that a file server forgot do not make a sparse matrix something else."""
    group = zarr.create_group(tmp_path / "x.zarr")
    group.attrs.update({"encoding-type": "csr_matrix", "shape": [2, 3]})

    def stale(path: str, *_: object, **__: object) -> None:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), path)

    monkeypatch.setattr(regular, "open_descriptor", stale)
    with pytest.raises(OSError, match="Stale file handle"):
        csr.compressed_kind(str(tmp_path / "x.zarr"))


@pytest.mark.parametrize("error", [RuntimeError, SystemError])
def test_a_damaged_table_of_links_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """h5py raises either, as the damage is seen within its lock or outside."""
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = np.ones((4, 3))

    def damaged(self: object, look: object) -> None:
        raise error("unable to offset into local heap data block")

    monkeypatch.setattr(h5py.File, "visititems_links", damaged)
    with pytest.raises(ChunkError, match=r"x\.h5 cannot be opened: unable to offset"):
        rf.open(tmp_path / "x.h5")
