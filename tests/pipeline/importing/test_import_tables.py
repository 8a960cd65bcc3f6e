"""Tables of text and Parquet: the numbers that are in them, or an error that says where and what to do."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stores import numbers, read

from rankfold.pipeline.errors import (
    ChunkError,
    DataError,
    DiskSpaceError,
    InputError,
    MemoryBudgetError,
    OutputError,
    RankfoldError,
)
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.formats.tables import delimited
from rankfold.pipeline.formats.tables.overview import describe_table
from rankfold.pipeline.importing import ImportReport, import_array
from rankfold.pipeline.importing import rows as growing
from rankfold.pipeline.importing import tiles as ingest_place
from rankfold.pipeline.importing.readers import wide_table

pa = pytest.importorskip("pyarrow", reason="tables are read by pyarrow, which is not installed")
pq = pytest.importorskip("pyarrow.parquet")


def imported(source: Path, **options: Any) -> tuple[Any, ImportReport]:
    """What the new store holds, after making sure that nothing else is left."""
    target = source.parent / "out.zarr"
    before = {*os.listdir(source.parent), "out.zarr"}
    report = import_array(source, target, **{"overwrite": True, **options})
    assert set(os.listdir(source.parent)) == before
    made = open_source(target)
    made.check()
    assert (report.shape, report.dtype) == (made.shape, made.dtype.name)
    return read(made, (0, made.shape[0]), (0, made.shape[1])), report


def refused(source: Path, error: type[RankfoldError], message: str, **options: Any) -> None:
    before = os.listdir(source.parent)
    with pytest.raises(error, match=message):
        import_array(source, source.parent / "out.zarr", **options)
    assert os.listdir(source.parent) == before


def text(folder: Path, content: str | bytes, name: str = "x.csv") -> Path:
    content = content.encode() if isinstance(content, str) else content
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return folder / name


def table(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


# --- text

FLOATS = st.floats(allow_nan=True, allow_infinity=True)


@settings(max_examples=25, derandomize=True, deadline=None)
@given(
    rows=st.lists(st.lists(FLOATS, min_size=3, max_size=3), min_size=1, max_size=30),
    separator=st.sampled_from([",", "\t", ";"]),
    newline=st.sampled_from(["\n", "\r\n"]),
    last=st.booleans(),
    header=st.booleans(),
    quoted=st.booleans(),
    packed=st.booleans(),
)
def test_any_numbers_in_any_dress(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[list[float]],
    separator: str,
    newline: str,
    last: bool,
    header: bool,
    quoted: bool,
    packed: bool,
) -> None:
    folder = tmp_path_factory.mktemp("csv")
    cell = '"{!r}"'.format if quoted else "{!r}".format
    lines = [separator.join("abc")] * header + [separator.join(map(cell, row)) for row in rows]
    content = newline.join(lines) + newline * last
    path = text(folder, content, ("x.tsv" if separator == "\t" else "x.csv") + ".gz" * packed)
    x, report = imported(path)
    np.testing.assert_array_equal(x, np.array(rows))
    assert (report.dtype, report.layout) == ("float64", "dense")


@pytest.mark.parametrize("block", [30, 1000])
def test_blocks_of_text_are_whole_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(delimited, "BLOCK_BYTES", (block, block))
    rows = [f'{i},"a ""word""\nand, more",{i * i}' for i in range(300)]
    x, _ = imported(text(tmp_path, "\ufeffid,note,square\n" + "\n".join(rows)), without=["note"])
    np.testing.assert_array_equal(x, np.stack([np.arange(300), np.arange(300) ** 2], 1))
    text(tmp_path, "id,square\n" + "\n".join(f"{i},{i}" for i in range(300)) + "\n\n7,x7\n")
    refused(
        tmp_path / "x.csv", DataError, r"'square' has 'x7' in line 303, which is not a number", overwrite=True
    )


def test_missing_cells_are_nan_in_floats_and_an_error_in_integers(tmp_path: Path) -> None:
    path = text(tmp_path, "a,b\n1,\nNA,4\n")
    x, _ = imported(path, dtype="float32")
    np.testing.assert_array_equal(x, np.array([[1, np.nan], [np.nan, 4]], "f4"))
    (tmp_path / "only").mkdir()
    path = text(tmp_path / "only", "a,b\n1,2\n3,\n")
    refused(
        path, DataError, r"column 'b' has no value in row 2 of the data, and int32 .*float64", dtype="int32"
    )


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float16", "bool"])
def test_a_type_may_be_asked_for(tmp_path: Path, dtype: str) -> None:
    x, report = imported(text(tmp_path, "a,b\n1,0\n0,1\n"), dtype=dtype)
    np.testing.assert_array_equal(x, np.array([[1, 0], [0, 1]], dtype))
    assert report.dtype == dtype


@pytest.mark.parametrize(
    ("cells", "dtype", "wrong"),
    [
        ("+5,-0", "int8", None),
        ("True,1", "bool", None),
        ("-7,' 9'", "int16", "'b' has \"' 9'\""),
        ("300,1", "uint8", "'a' has '300' in line 2, which is no uint8.*choose a type that holds it"),
        ("1.5,x", "int64", r"2 of 2 columns hold what is no int64: 'a' \('1.5' .*'b' \('x'"),
        ("9" * 5000 + ",1", "int64", "'a' has '999"),
        ("1e999,-1e999", "float64", None),
    ],
)
def test_what_a_type_holds_is_taken(tmp_path: Path, cells: str, dtype: str, wrong: str | None) -> None:
    path = text(tmp_path, f"a,b\n{cells}\n")
    if wrong is not None:
        refused(path, DataError, wrong, dtype=dtype)
    else:
        words = [{"True": "1"}.get(each, each) for each in cells.split(",")]
        np.testing.assert_array_equal(imported(path, dtype=dtype)[0], [np.array(words, "f8").astype(dtype)])


def test_columns_are_taken_by_name(tmp_path: Path) -> None:
    path = text(tmp_path, "gene,a,b,c\nx,1,2,3\ny,4,5,6\n")
    np.testing.assert_array_equal(imported(path, columns=["c", "a"])[0], [[3, 1], [6, 4]])
    np.testing.assert_array_equal(imported(path, without=["gene"])[0], [[1, 2, 3], [4, 5, 6]])
    np.testing.assert_array_equal(imported(path, columns=["a", "b"], without=["b"])[0], [[1], [4]])
    (tmp_path / "out.zarr").rename(tmp_path / "old.zarr")
    refused(path, InputError, r"has no column 'gen'. Did you mean 'gene'\?", columns=["gen"])
    refused(path, InputError, "no column is left of 4", columns=["a"], without=["a"])


def test_headers_are_noticed(tmp_path: Path) -> None:
    plain, _ = imported(text(tmp_path, "1,2\n3,4\n"))
    np.testing.assert_array_equal(plain, [[1, 2], [3, 4]])
    named, report = imported(text(tmp_path, "0,1\n3,4\n"))
    np.testing.assert_array_equal(named, [[3, 4]])
    assert "--header no" in report.notes[0]
    np.testing.assert_array_equal(imported(tmp_path / "x.csv", header="no")[0], [[0, 1], [3, 4]])
    assert "--header yes" in imported(text(tmp_path, "400.5,401.0,401.5\n3,4,1\n"))[1].notes[0]
    assert not imported(text(tmp_path, "400.5,401.0,401.5\n"), header="no")[1].notes
    assert not imported(text(tmp_path, "400.5,401.0,30\n"))[1].notes
    years, _ = imported(text(tmp_path, "1990,1991\n3,4\n"), header="yes", columns=["1991"])
    np.testing.assert_array_equal(years, [[4]])
    np.testing.assert_array_equal(imported(text(tmp_path, "1,2\n3,4\n"), columns=["1"])[0], [[2], [4]])


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        ("", DataError, "x.csv is empty"),
        ("\n\n", DataError, "x.csv is empty"),
        ("a,b\n", DataError, "holds no rows of numbers"),
        ("a,b", DataError, "holds no rows of numbers"),
        (
            "a,b\n1,2\n3,oak\n",
            DataError,
            r"'b' has 'oak' in line 3, .*numeric=True, or import the table with without=\['b'\]",
        ),
        ("a,b\n1,2\n3\n", ChunkError, "line 3 has 1 cells, where 2 are expected"),
        ("a,b\n1,2\n3,4,5\n", ChunkError, "line 3 has 3 cells"),
        (",Unnamed: 0,a\n0,1,2\n", InputError, r"first column of .* has no name.*without=\['column 1', "),
        ('a,b\n1,2\n3,"4\n', ChunkError, "a quote is left open after line 2"),
        ("a,a\n1,2\n", InputError, "has 2 columns named 'a'"),
    ],
)
def test_bad_text_is_refused_with_the_place(
    tmp_path: Path, content: str, error: type[RankfoldError], message: str
) -> None:
    options = {"columns": ["a"]} if "a,a" in content else {}
    refused(text(tmp_path, content), error, message, **options)


def test_damaged_gzip_is_refused(tmp_path: Path) -> None:
    path = text(tmp_path, "\n".join(f"{i},{i * 7919 % 104729}" for i in range(20_000)), "x.csv.gz")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    refused(path, ChunkError, r"x\.csv\.gz is cut short or damaged after line")
    path.write_bytes(whole[:3000] + bytes(200) + whole[3200:])
    refused(path, RankfoldError, "x.csv.gz")
    path.write_bytes(b"1,2\n3,4\n")
    refused(path, ChunkError, "cannot be read: .*gzip")


def test_a_wide_table_gets_wide_chunks(tmp_path: Path) -> None:
    """It is seen to be wide at its end, when rows have been written already."""
    x = np.random.default_rng(0).integers(0, 9, (600, 3000)).astype("f8")
    np.savetxt(path := tmp_path / "x.csv", x, delimiter=",", fmt="%g")
    seen: list[tuple[int, int]] = []
    found, report = imported(
        path, memory_bytes=48 * 2**20, chunk_bytes=2**20, progress=lambda *at: seen.append(at)
    )
    np.testing.assert_array_equal(found, x)
    assert report.chunks == (600, 256)
    assert seen[-1][0] == seen[-1][1] and [s[0] for s in seen] == sorted(s[0] for s in seen)


@settings(max_examples=20, derandomize=True, deadline=None)
@given(blocks=st.lists(st.integers(1, 40), min_size=1, max_size=12), height=st.integers(1, 50))
def test_an_array_grows_by_any_blocks(
    tmp_path_factory: pytest.TempPathFactory, blocks: list[int], height: int
) -> None:
    folder = tmp_path_factory.mktemp("growing") / "array"
    x = np.arange(sum(blocks) * 3, dtype="i4").reshape(-1, 3)
    array = growing.GrowingArray(folder, x.dtype, (height, 2), (3,), lambda rows: (rows, 3))
    for part in np.split(x, np.cumsum(blocks)[:-1]):
        array.append(part, "x")
    array.finish()
    made = open_source(folder)
    made.check()
    np.testing.assert_array_equal(read(made, (0, len(x)), (0, 3)), x)
    assert os.listdir(folder.parent) == ["array"]


def test_rows_too_long_for_the_memory_are_refused(tmp_path: Path) -> None:
    path = text(tmp_path, ",".join(["1.5"] * 200_000))
    refused(
        path,
        MemoryBudgetError,
        r"a row of .* takes 1\.53 MiB, .*memory_bytes=15728640",
        memory_bytes=10 * 2**20,
    )


def test_a_disk_that_will_not_do_is_noticed_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("usage", (), {"free": 10_000})
    monkeypatch.setattr(ingest_place.shutil, "disk_usage", lambda path: usage)
    monkeypatch.setattr(delimited, "BLOCK_BYTES", (2000, 2000))
    rng = np.random.default_rng(1)
    np.savetxt(path := tmp_path / "x.csv", rng.standard_normal((20_000, 3)), delimiter=",")
    refused(path, DiskSpaceError, "needs about .* more in .*9.77 KiB are free", chunk_bytes=1)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_interrupt_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    def interrupt(done: int, total: int) -> None:
        raise error

    path = text(tmp_path, "1,2\n" * 1000)
    with pytest.raises(error):
        import_array(path, tmp_path / "out.zarr", progress=interrupt)
    assert os.listdir(tmp_path) == ["x.csv"]


def test_ctrl_c_is_heard_while_blocks_are_parsed(tmp_path: Path) -> None:
    code = f"""
from rankfold.pipeline.importing import import_array
said = []
def progress(done, total):
    said or print("begun", flush=True)
    said.append(done)
source, target = {str(tmp_path / "x.csv")!r}, {str(tmp_path / "out.zarr")!r}
import_array(source, target, memory_bytes={64 * 2**20}, progress=progress)
"""
    (tmp_path / "x.csv").write_bytes(b"1.2345678901234,-2.3456789012345e-7,3\n" * 2_000_000)
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout and process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert process.wait(30) != 0
    process.stdout.close()
    assert os.listdir(tmp_path) == ["x.csv"]


def test_what_exists_is_kept_unless_told(tmp_path: Path) -> None:
    path = text(tmp_path, "1,2\n3,4\n")
    imported(path)
    path = text(tmp_path, "1,2\n3,4\n5,6\n")
    with pytest.raises(OutputError, match="Say overwrite=True"):
        import_array(path, tmp_path / "out.zarr")


def test_a_missing_library_is_named_as_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = text(tmp_path, "1,2\n")
    monkeypatch.setitem(sys.modules, "pyarrow.csv", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    refused(path, InputError, r"needs pyarrow, which .*: pip install pyarrow \(part of the extra 'formats'\)")


def test_options_that_do_not_apply_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", numbers())
    refused(tmp_path / "x.npy", InputError, "no table with named columns", columns=["a"])
    refused(tmp_path / "x.npy", InputError, "dtype='floaty' is not a type", dtype="floaty")
    refused(tmp_path / "x.npy", InputError, "layout='csc' is not known", layout="csc")
    refused(text(tmp_path, "1\n"), InputError, "header='maybe' is not known", header="maybe")
    with pytest.raises(InputError, match="columns are chosen by name"):
        import_array(numbers(), tmp_path / "out.zarr", columns=["a"])


# --- Parquet


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "uint8", "int16", "int64", "bool"])
def test_columns_of_one_type_keep_it(tmp_path: Path, dtype: str) -> None:
    x = np.random.default_rng(2).integers(0, 2, (700, 4)).astype(dtype)
    path = table(tmp_path / "x.parquet", **{f"c{j}": x[:, j] for j in range(4)})
    found, report = imported(path)
    np.testing.assert_array_equal(found, x)
    assert report.dtype == dtype


def test_types_are_joined_and_missing_values_are_nan(tmp_path: Path) -> None:
    path = table(
        tmp_path / "x.parquet", a=pa.array([1, None, 3], pa.int32()), b=pa.array([0.5, 1, 2], pa.float32())
    )
    x, report = imported(path)
    np.testing.assert_array_equal(x, [[1, 0.5], [np.nan, 1], [3, 2]])
    assert report.dtype == "float64"
    x, report = imported(path, columns=["a"])
    np.testing.assert_array_equal(x, [[1], [np.nan], [3]])
    assert report.dtype == "float64"


def test_missing_values_that_no_statistics_promise_are_refused_with_their_row(tmp_path: Path) -> None:
    column = pa.array([1, 2, None], pa.int32())
    pq.write_table(pa.table({"a": column, "b": column}), tmp_path / "x.parquet", write_statistics=False)
    message = r"x\.parquet: column 'a' has no value in row 3 of the data, and int32 .*float64"
    refused(tmp_path / "x.parquet", DataError, message)
    x, _ = imported(tmp_path / "x.parquet", dtype="float32")
    np.testing.assert_array_equal(x, [[1, 1], [2, 2], [np.nan, np.nan]])
    (tmp_path / "out.zarr").rename(tmp_path / "old.zarr")
    vectors = pa.array([[1, 2], [3, None]], pa.list_(pa.int16()))
    pq.write_table(pa.table({"e": vectors}), tmp_path / "x.parquet", write_statistics=False)
    refused(tmp_path / "x.parquet", DataError, "column 'e' has no value in row 2 of the data, and int16")


@pytest.mark.parametrize("kind", ["fixed", "list", "large"])
def test_a_column_of_vectors_is_the_matrix(tmp_path: Path, kind: str) -> None:
    x = np.random.default_rng(3).standard_normal((300, 17)).astype("f4")
    vectors = pa.FixedSizeListArray.from_arrays(x.ravel(), 17)
    column = {
        "fixed": vectors,
        "list": vectors.cast(pa.list_(pa.float32())),
        "large": vectors.cast(pa.large_list(pa.float32())),
    }
    path = table(tmp_path / "x.parquet", id=np.arange(300), text=["a"] * 300, e=column[kind])
    for number, (place, choice) in enumerate(((path, {"columns": ["e"]}), (f"{path}::e", {}))):
        np.testing.assert_array_equal(imported(Path(place), **choice)[0], x)
        (tmp_path / "out.zarr").rename(tmp_path / f"{number}.zarr")
    refused(
        Path(f"{path}::e"), InputError, "::e is one column of a table: leave out columns=", columns=["id"]
    )
    np.testing.assert_array_equal(read(open_source(f"{path}::e"), (0, 300), (0, 17)), x)
    described = str(describe_table(str(path)))
    assert "'e'     17 numbers in each row: " in described and "rankfold pca " in described
    assert "x.parquet::e --rank K" in described
    assert "1 column\n" in str(describe_table(f"{path}::e"))
    with pytest.raises(InputError, match=r"has no column 'd'\. Did you mean 'id'"):
        describe_table(f"{path}::d")
    refused(
        path, DataError, r"'text' holds string, no numbers, its first value is 'a'.*alone: .*x.parquet::e"
    )
    refused(path, InputError, r"'e' holds lists .*alone: .*::e", without=["text"])


def test_vectors_of_two_lengths_are_refused(tmp_path: Path) -> None:
    path = table(tmp_path / "x.parquet", e=[[1.0, 2.0], [3.0, 4.0], [5.0]])
    refused(path, DataError, "a list of 1 numbers at row 2 of these, where the first list has 2")
    table(path, e=[[1.0, 2.0], None])
    refused(path, DataError, "no list at row 1")


def test_a_folder_of_files_is_one_matrix(tmp_path: Path) -> None:
    (folder := tmp_path / "parts").mkdir()
    x = np.arange(60.0).reshape(20, 3)
    for part in range(2):
        rows = x[part * 10 : part * 10 + 10]
        table(folder / f"part-{part}.parquet", a=rows[:, 0], b=rows[:, 1], c=rows[:, 2])
    np.testing.assert_array_equal(imported(folder)[0], x)
    table(folder / "part-2.parquet", a=[1.0], b=[1.0])
    refused(folder, InputError, "part-2.parquet has columns 'a', 'b', not all", overwrite=True)


def test_the_first_file_does_not_speak_for_all(tmp_path: Path) -> None:
    (folder := tmp_path / "parts").mkdir()
    table(folder / "part-2.parquet", a=pa.array([1, 2], pa.int8()))
    table(folder / "part-10.parquet", a=[0.4, 2.9])
    np.testing.assert_array_equal(imported(folder)[0], [[1], [2], [0.4], [2.9]])  # 2 comes before 10
    table(folder / "part-10.parquet", a=pa.array([300, -1], pa.int16()))
    numbers, report = imported(folder)
    np.testing.assert_array_equal(numbers, [[1], [2], [300], [-1]])
    assert report.dtype == "int16"
    table(folder / "part-10.parquet", a=pa.array([3, None], pa.int8()))
    np.testing.assert_array_equal(imported(folder)[0], [[1], [2], [3], [np.nan]])
    table(folder / "part-10.parquet", a=["x", "y"])
    refused(folder, DataError, "part-10.parquet: column 'a' holds string", overwrite=True)
    table(folder / "part-10.parquet", a=[[1.0], [2.0]])
    refused(folder, InputError, "part-10.parquet: column 'a' holds lists", overwrite=True)


def test_the_index_of_pandas_names_rows(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]}, index=pd.Index([70, 80], name="id"))
    frame.to_parquet(tmp_path / "x.parquet")
    numbers, report = imported(tmp_path / "x.parquet")
    np.testing.assert_array_equal(numbers, frame.to_numpy())
    assert "'id' of" in report.notes[0] and "names rows" in report.notes[0]
    with_it, _ = imported(tmp_path / "x.parquet", columns=["id", "a"])
    np.testing.assert_array_equal(with_it, [[70, 1], [80, 2]])
    frame.reset_index(drop=True).to_parquet(tmp_path / "x.parquet")
    assert not imported(tmp_path / "x.parquet")[1].notes


def test_a_whole_number_that_a_float_does_not_hold_is_refused(tmp_path: Path) -> None:
    path = table(tmp_path / "x.parquet", user=[1, 2**53 + 1], income=[0.5, 1.5])
    refused(path, DataError, "column 'user' has 9007199254740993 in row 2 .* float64 does not hold")
    path = table(tmp_path / "x.parquet", user=[1, 2**53], income=[0.5, 1.5])
    np.testing.assert_array_equal(imported(path)[0], [[1, 0.5], [2**53, 1.5]])


@pytest.mark.parametrize("others", [1, 1200])
def test_whole_numbers_in_text_are_kept_to_the_last_digit_or_refused(tmp_path: Path, others: int) -> None:
    head = ",".join(["user", *(f"c{i}" for i in range(others))]) + "\n"
    rest = ",1" * others + "\n"
    lost = head + "7" + rest + "\n" + "-9007199254740993" + rest
    refused(text(tmp_path, lost), DataError, "'user' has -9007199254740993 in row 2 .* float64 does not hold")
    for digits in (400, 5000):  # beyond float64, and beyond what Python turns into an int unasked
        refused(text(tmp_path, head + "7" + rest + "9" * digits + rest), DataError, "'user' has 99+ in row 2")
    kept = head + "9007199254740994" + rest + "1e300" + rest + "9007199254740993.0" + rest
    numbers, _ = imported(text(tmp_path, kept))
    np.testing.assert_array_equal(numbers[:, 0], [2**53 + 2, 1e300, 2**53])
    numbers, _ = imported(text(tmp_path, lost), columns=["c0"])
    np.testing.assert_array_equal(numbers, [[1], [1]])
    numbers, _ = imported(text(tmp_path, lost), dtype="float32", columns=["user"])
    np.testing.assert_array_equal(numbers[:, 0], np.float32([7, -(2**53)]))


@pytest.mark.parametrize("at_a_time", [1, 7, 100])
def test_tables_of_very_many_columns_are_turned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_a_time: int
) -> None:
    monkeypatch.setattr(wide_table, "PAGE_BYTES", max(1, 64 * 2**20 // (4 * 3 * at_a_time)))
    monkeypatch.setattr(wide_table, "_page_bytes", lambda *args: 2**40)
    x = np.random.default_rng(4).integers(0, 99, (1000, 30)).astype("i2")
    path = table(tmp_path / "x.parquet", **{f"c{j}": x[:, j] for j in range(30)})
    np.testing.assert_array_equal(imported(path, memory_bytes=64 * 2**20)[0], x)


def test_damaged_parquet_is_refused(tmp_path: Path) -> None:
    x = np.random.default_rng(5).standard_normal(50_000)
    path = table(tmp_path / "x.parquet", a=x, b=x)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1000])
    refused(path, ChunkError, "is not a whole Parquet file.*Restore the file")
    path.write_bytes(whole[:1000] + bytes(300_000) + whole[301_000:])
    refused(path, ChunkError, "cannot be read: .*Restore the file")
    table(path, a=pa.array([], pa.float64()))
    refused(path, DataError, "holds no rows of numbers")
