"""Headers that no writer writes are refused in one line, at once, and before anything is planned."""

from __future__ import annotations

import gzip
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import zarr
from stores import COLUMNS, ROWS, numbers, read, zarr_store

import rankfold as rf
from rankfold.pipeline.errors import ChunkError, DataError, InputError, RankfoldError
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.importing import import_array

SPARSE = scipy.sparse.random(20, 10, 0.3, "csr", dtype="f4", random_state=0)


def refused(place: Any, message: str, error: type[RankfoldError] = InputError) -> None:
    """By opening and by importing alike."""
    with pytest.raises(error, match=message) as raised:
        open_source(place)
    assert len(str(raised.value)) < 1000
    with pytest.raises(error, match=message):
        import_array(place, Path(f"{place}.imported.zarr"))


def import_refused(place: Any, message: str, error: type[RankfoldError] = InputError) -> None:
    with pytest.raises(error, match=message):
        import_array(place, Path(f"{place}.imported.zarr"))
    assert not Path(f"{place}.imported.zarr").exists()


@pytest.mark.parametrize("length", [10**30, 2**62, 10**12])
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("axes", [2, 3])
def test_lengths_and_chunks_of_zarr_that_cannot_be(
    tmp_path: Path, length: int, zarr_format: Any, axes: int
) -> None:
    for what in ("shape", "chunks"):
        path = tmp_path / what
        zarr.create_array(path, shape=(20,) * axes, chunks=(5,) * axes, dtype="f4", zarr_format=zarr_format)
        document = path / ("zarr.json" if zarr_format == 3 else ".zarray")
        metadata = json.loads(document.read_text())
        holder = metadata
        if what == "chunks" and zarr_format == 3:
            holder = metadata["chunk_grid"]["configuration"]
        holder["chunk_shape" if holder is not metadata else what][0] = length
        document.write_text(json.dumps(metadata))
        if what == "chunks" and length == 10**12:
            continue  # one chunk of 20 TB: whether it fits is for the plan to say
        with pytest.raises(InputError, match=r"which no array has|chunks of shape .* along one axis"):
            open_source(path, row_axes=0)


@pytest.mark.parametrize("name", ["zarr.json", ".zarray", ".zattrs", ".zgroup"])
def test_metadata_nested_without_end(tmp_path: Path, name: str) -> None:
    deep = '{"attributes": ' + '{"a":' * 100_000 + "1" + "}" * 100_001
    path = tmp_path / "x.zarr"
    path.mkdir()
    if name == ".zattrs":
        (path / ".zgroup").write_text('{"zarr_format": 2}')
    (path / name).write_text(deep)
    with pytest.raises(InputError, match=r"cannot open|group, not an array"):
        open_source(path)


@pytest.mark.parametrize(
    "shape",
    [
        None,
        [None, 10],
        ["a", 3],
        [20, 10, 3],
        [20.5, 10],
        [-20, 10],
        [True, True],
        [[1], [2]],
        [[1, 2], 3],
        {"a": 1},
    ],
)
def test_sparse_groups_without_a_shape(tmp_path: Path, shape: Any) -> None:
    path = sparse_group(tmp_path / "x.zarr", {"shape": shape})
    refused(path, r"is sparse, but says that its shape is .*\. Restore it")


def sparse_group(path: Path, attributes: dict[str, Any], **parts: Any) -> Path:
    group = zarr.create_group(path)
    vectors = {"data": SPARSE.data, "indices": SPARSE.indices, "indptr": SPARSE.indptr, **parts}
    for name, vector in vectors.items():
        array = group.create_array(name, shape=vector.shape, chunks=vector.shape, dtype=vector.dtype)
        array[...] = vector
    group.attrs.update({"encoding-type": "csr_matrix", "shape": [20, 10], **attributes})
    return path


def test_vectors_of_sparse_matrices_of_another_type_or_shape(tmp_path: Path) -> None:
    for part in ("indptr", "indices"):
        path = sparse_group(tmp_path / f"{part}.zarr", {}, **{part: getattr(SPARSE, part).astype("f8")})
        refused(path, f"{part} holds float64, but numbers of places are whole", ChunkError)
    path = sparse_group(tmp_path / "wide.zarr", {}, data=SPARSE.data.reshape(-1, 1))
    refused(path, "should be a vector of numbers")


@pytest.mark.parametrize("change", ["indptr", "indices", "data", "data 0"])
@pytest.mark.parametrize("kind", ["npz", "h5ad"])
def test_vectors_of_sparse_files_of_another_type_or_shape(tmp_path: Path, kind: str, change: str) -> None:
    part = change.partition(" ")[0]
    found = getattr(SPARSE, part)
    wrong = {"data": found.reshape(1, -1), "data 0": np.float32(3)}.get(change, found.astype("f8"))
    parts = {name: getattr(SPARSE, name) for name in ("data", "indices", "indptr")} | {part: wrong}
    path = tmp_path / f"x.{kind}"
    if kind == "npz":
        np.savez(path, format=np.array(b"csr"), shape=np.array(SPARSE.shape), **parts)
    else:
        h5py = pytest.importorskip("h5py")
        with h5py.File(path, "w") as file:
            group = file.create_group("X")
            group.attrs.update({"encoding-type": "csr_matrix", "shape": SPARSE.shape})
            for name, vector in parts.items():
                group[name] = vector
    import_refused(path, rf"{part} is float\d\d .*should be a vector of (whole )?numbers", ChunkError)


@pytest.mark.parametrize(
    "shape",
    [
        [20],
        20,
        [np.nan, 10],
        [20.5, 10],
        [20, 10, 1],
        [[20, 10]],
        [-20, 10],
        [1e30, 10],
        ["a", "b"],
        [True] * 2,
    ],
)
def test_shapes_of_sparse_npz_files(tmp_path: Path, shape: Any) -> None:
    vectors = {"data": SPARSE.data, "indices": SPARSE.indices, "indptr": SPARSE.indptr}
    np.savez(tmp_path / "x.npz", format=np.array(b"csr"), shape=np.array(shape), **vectors)
    import_refused(tmp_path / "x.npz", "says that its shape is|which no array has")


@pytest.mark.parametrize("shape", ["(-5,10)", f"({10**30},10)", "(True,True)", f"({2**62},4)", "(" * 3000])
@pytest.mark.parametrize("rows", [None, "0"])
def test_shapes_of_npy_files(tmp_path: Path, shape: str, rows: str | None) -> None:
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    path = tmp_path / "x.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(800))
    for attempt in (
        lambda: open_source(path, row_axes=rows),
        lambda: import_array(path, tmp_path / "o.zarr"),
    ):
        with pytest.raises(InputError, match=r"which no array has|not whole numbers|not a valid"):
            attempt()


def test_vectors_of_billions_of_rows_in_a_file_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "x.fbin").write_bytes(b"\xff\xff\xff\xff\x01\x00\x00\x00" + bytes(100))
    refused(
        tmp_path / "x.fbin", "is truncated: it holds 108 bytes, its header promises 17179869188", ChunkError
    )


def test_text_compressed_under_another_name_is_read(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "x.csv").write_bytes(gzip.compress(b"a,b\n1,2\n3,4\n"))
    (tmp_path / "x.mtx").write_bytes(
        gzip.compress(b"%%MatrixMarket matrix coordinate real general\n2 2 1\n1 1 5\n")
    )
    assert import_array(tmp_path / "x.csv", tmp_path / "a.zarr").shape == (2, 2)
    assert import_array(tmp_path / "x.mtx", tmp_path / "b.zarr").nnz == 1


def test_lines_that_end_as_those_of_an_old_mac(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "x.csv").write_bytes(b"a,b\r1,2\r3,4\r")
    import_refused(tmp_path / "x.csv", "end with a carriage return alone")


def test_a_matrix_of_more_numbers_than_it_promises_is_refused_early(tmp_path: Path) -> None:
    (tmp_path / "x.mtx").write_bytes(
        b"%%MatrixMarket matrix coordinate real general\n9 9 1\n" + b"1 1 5\n" * 200_000
    )
    import_refused(tmp_path / "x.mtx", "promises 1 entries but has .* or more", ChunkError)
    (tmp_path / "y.mtx").write_bytes(b"%%MatrixMarket matrix array real general\n2 2\n" + b"1\n" * 200_000)
    import_refused(tmp_path / "y.mtx", "promises 2 x 2 numbers but has .* or more", ChunkError)
    (tmp_path / "z.mtx").write_bytes(
        b"%%MatrixMarket matrix coordinate real general\n" + b"9" * 5000 + b" 2 1\n"
    )
    import_refused(tmp_path / "z.mtx", "should be the size", ChunkError)
    (tmp_path / "r.mtx").write_bytes(b"%%MatrixMarket matrix coordinate real general\n" + b"%\n" * 70_000)
    import_refused(tmp_path / "r.mtx", "no size of the matrix stands in its first", ChunkError)


def test_a_member_of_more_bytes_than_its_header_promises(tmp_path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        np.save(tmp_path / "x.npy", numbers())
        archive.writestr("X.npy", (tmp_path / "x.npy").read_bytes() + bytes(2**24))
    import_refused(tmp_path / "x.npz", "holds more than the .* bytes that its header promises", ChunkError)


def test_names_that_are_not_text(tmp_path: Path) -> None:
    os.mkdir(os.fsencode(tmp_path) + b"/\xff.zarr")
    refused(f"{tmp_path}/\udcff.zarr", r"\\udcff\.zarr is a name that is not UTF-8.* Rename it")


def test_a_name_that_the_encoding_of_python_cannot_hold(tmp_path: Path) -> None:
    code = "import sys, rankfold as rf; rf.open(sys.argv[1])"
    ended = subprocess.run(
        [sys.executable, "-c", code, os.fsencode(tmp_path / "ü.zarr")],
        env={**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0"},
        capture_output=True,
        check=False,
    )
    assert b"Python cannot use here" in ended.stderr and b"set PYTHONUTF8=1" in ended.stderr


@pytest.mark.parametrize("store", ["a::b.zarr", "day::1/x.zarr", "x.zarr"])
def test_a_store_whose_path_holds_the_sign_of_arrays(tmp_path: Path, store: str) -> None:
    path = tmp_path / store
    path.parent.mkdir(exist_ok=True)
    zarr.create_array(path, data=numbers(), chunks=(10, COLUMNS))
    assert open_source(str(path)).shape == (ROWS, COLUMNS)
    result = rf.pca(str(path), 2, out=path.with_name("r::1.zarr"))
    assert rf.open(f"{result.path}::scores").shape == (ROWS, 2)
    with pytest.raises(InputError, match="none does not exist"):
        rf.open(f"{tmp_path}/none::X")


@pytest.mark.parametrize("part", ["shape", "chunk_shape"])
def test_true_is_no_length(tmp_path: Path, part: str) -> None:
    path = zarr_store(tmp_path / "x.zarr", numbers())
    document = json.loads((path / "zarr.json").read_text())
    held = document if part == "shape" else document["chunk_grid"]["configuration"]
    held[part] = [True, COLUMNS]
    (path / "zarr.json").write_text(json.dumps(document))
    refused(path, rf"{part} is \[True, {COLUMNS}\], and true or false is no length")


def test_a_chunk_that_is_a_loop_of_links_is_bad_data(tmp_path: Path) -> None:
    path = zarr_store(tmp_path / "x.zarr", numbers())
    (path / "c/1/0").unlink()
    (path / "c/1/0").symlink_to("0")
    for attempt in (open_source(path).check, open_source(path).fingerprint):
        with pytest.raises(
            ChunkError, match=r"chunk c/1/0 cannot be read .*symbolic links.* Restore the store"
        ):
            attempt()


# --- wide tables


def wide(path: Path, x: Any, *, quote: str = "", end: str = "\n") -> Path:
    lines = [",".join(f"{quote}c{number}{quote}" for number in range(x.shape[1]))]
    lines += [",".join("" if np.isnan(v) else repr(float(v)) for v in row) for row in x]
    path.write_text(end.join(lines) + end, newline="")
    return path


@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n"])
def test_wide_tables_hold_the_same_numbers(tmp_path: Path, end: str) -> None:
    pytest.importorskip("pyarrow")
    x = np.random.default_rng(1).standard_normal((7, 1500))
    x[3, 700] = x[0, 0] = x[6, 1499] = np.nan
    for number, taken in enumerate((None, ["c9", "c3", "c1499"])):
        made = tmp_path / f"{number}.zarr"
        import_array(wide(tmp_path / "x.csv", x, quote='"', end=end), made, columns=taken, memory_bytes=2**26)
        expected = x if taken is None else x[:, [9, 3, 1499]]
        np.testing.assert_array_equal(zarr.open_array(made, mode="r")[:], expected)
    text = (tmp_path / "x.csv").read_text().replace(repr(float(x[2, 5])), f'"{float(x[2, 5])!r}"')
    (tmp_path / "x.csv").write_text(text)
    import_array(tmp_path / "x.csv", tmp_path / "q.zarr")
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "q.zarr", mode="r")[:], x)


def test_mistakes_in_wide_tables_are_told_by_line_and_column(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    x = np.ones((5, 1500))
    path = wide(tmp_path / "x.csv", x)
    lines = path.read_text().splitlines()
    cells = lines[3].split(",")
    cells[11] = "many"
    path.write_text("\n".join([*lines[:3], ",".join(cells), *lines[4:]]))
    import_refused(path, "column 'c11' has 'many' in line 4, which is not a number", DataError)
    path.write_text("\n".join([*lines[:3], f"{lines[3]},1", *lines[4:]]))
    import_refused(path, "line 4 has 1501 cells, where 1500 are expected", ChunkError)
    lines = wide(path, x).read_text().replace("1.0", "1").splitlines()
    path.write_text("\n".join([*lines[:3], lines[3].removesuffix("1"), *lines[4:]]))
    with pytest.raises(DataError, match="column 'c1499' has no value in row 3 of the data"):
        import_array(path, tmp_path / "o.zarr", dtype="int32")


def test_a_table_of_many_columns_takes_little_memory(tmp_path: Path) -> None:
    """Two rows of 100 000 columns; resident memory of a process of its own."""
    pytest.importorskip("pyarrow")
    path = wide(tmp_path / "x.csv", np.ones((2, 100_000)))
    code = """
import resource, sys, numpy as np, pyarrow.csv
from rankfold.pipeline.importing import import_array
import_array(np.ones((9, 9)), sys.argv[1] + ".first.zarr")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
import_array(sys.argv[1], sys.argv[1] + ".zarr")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    taken = int(subprocess.check_output([sys.executable, "-c", code, str(path)], text=True))
    assert taken < 256 * 2**10, f"{taken / 2**10:.0f} MiB"


def test_a_line_without_an_end_is_refused_in_bounded_memory(tmp_path: Path) -> None:
    """A gigabyte of digits in one line, packed into a few MB."""
    pytest.importorskip("pyarrow")
    piece = gzip.compress(b"1" * 2**24)
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(b"a,b\n1,2\n") + piece * 64)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    import_refused(tmp_path / "x.csv.gz", "has a line of over", ChunkError)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400 * 2**10


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_metadata_in_another_unicode_say_the_same(tmp_path: Path, encoding: str) -> None:
    """JSON may be written so: readers tell the encodings apart by their first bytes, without a guess."""
    x = np.random.default_rng(0).random((20, 10), dtype=np.float32)
    zarr.create_array(tmp_path / "x.zarr", data=x, chunks=(5, 10))
    file = tmp_path / "x.zarr" / "zarr.json"
    file.write_bytes(file.read_text().encode(encoding))
    source = open_source(tmp_path / "x.zarr")
    np.testing.assert_array_equal(read(source, (0, 20), (0, 10)), x)
