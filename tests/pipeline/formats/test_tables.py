"""Tables as they come: every cell is the number that it says, is missing and said to be, or is refused."""

from __future__ import annotations

import bz2
import logging
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rankfold as rf
from rankfold.pipeline.data.names import MOST_LABELS, Axis
from rankfold.pipeline.data.origin import names_of
from rankfold.pipeline.errors import DataError, InputError, OutputError, RankfoldError
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.formats.tables import delimited, several
from rankfold.pipeline.formats.tables.options import ReadOptions
from rankfold.pipeline.formats.tables.overview import describe_table
from rankfold.pipeline.importing import _request, import_array

pa = pytest.importorskip("pyarrow", reason="tables are read by pyarrow, which is not installed")
pq = pytest.importorskip("pyarrow.parquet")

NAN = float("nan")


def whole(x: object) -> Any:
    return np.asarray(open_source(x))


def opened(path: Path | str, caplog: pytest.LogCaptureFixture, **options: Any) -> tuple[Any, list[str], str]:
    """Numbers and names of columns of a table that is read in place, and what is said of it."""
    caplog.clear()
    with caplog.at_level(logging.WARNING, "rankfold"):
        table = open_source(str(path), **options)
    names = names_of(table, 1)
    return (
        np.asarray(table),
        [] if names is None or names.labels is None else names.labels.tolist(),
        caplog.text,
    )


AS_THEY_COME = {
    "semicolons": ("x.csv", "a;b\r\n1;2\r\n", [[1, 2]], "ab", "separated by semicolons"),
    "decimal comma": ("x.csv", "a;b\n1,5;2,25\n3;?\n", [[1.5, 2.25], [3, NAN]], "ab", "such as '1,5'"),
    "no header": ("x.csv", "1,5;2,5\n3,5;4,5\n", [[1.5, 2.5], [3.5, 4.5]], "", "comma before the fraction"),
    "bars": ("x.txt", "a|b\n1|2\n", [[1, 2]], "ab", "separated by bars"),
    "spaces": ("x.txt", "  a   b\n  1  -2.5\n 10   3\n", [[1, -2.5], [10, 3]], "ab", "separated by spaces"),
    "of numpy": (
        "x.txt",
        "# a b\n1.0e0 2\n3 4\n",
        [[1, 2], [3, 4]],
        "ab",
        "names from a line that begins with #",
    ),
    "of R": ("x.txt", '"a" "b"\n"r1" 1 TRUE\n"r2" 2 NA\n', [[1, 1], [2, NAN]], "ab", "it names rows"),
    "comments": ("x.csv", "# by, me\na,b\n1,2\n#\n3,4\n", [[1, 2], [3, 4]], "ab", "left out of .*: 2 lines"),
    "bom": ("x.csv", '\ufeff"a";"b"\n"1";2\n', [[1, 2]], "ab", "semicolons"),
    "truth": ("x.csv", "a,b\nTrue,1\nfalse,\n", [[1, 1], [0, NAN]], "ab", "True and False in 'a' .* 1 and 0"),
    "marks": (
        "x.csv",
        "a,b\n?,-\n1,n/a\n ,5\n",
        [[NAN, NAN], [1, NAN], [NAN, 5]],
        "ab",
        r"'\?', '-' in 2 cells",
    ),
    "tabs": ("x.csv", "a\tb\n1\t2\n", [[1, 2]], "ab", ""),
    "row again": ("x.csv", "5.1,setosa\n4.9,setosa\n", [[5.1], [4.9]], "", "taken for a row"),
    "index of numbers": ("x.csv", ",0,1\n0,1.5,2\n1,3,4\n", [[1.5, 2], [3, 4]], "", "it names rows"),
    "index and years": (
        "x.csv",
        ",1990,1991\n0,1.5,2\n1,3,4\n",
        [[1.5, 2], [3, 4]],
        ["1990", "1991"],
        "names rows",
    ),
    "index again": (
        "x.csv",
        ",Unnamed: 0,a\n0,0,1\n1,1,3\n",
        [[1], [3]],
        "a",
        "no name and the name 'Unnamed: 0'",
    ),
    "index of before": ("x.csv", "Unnamed: 0,a\n0,1\n1,3\n", [[1], [3]], "a", "the name 'Unnamed: 0', so"),
    "names with numbers": (
        "x.csv",
        "a,1990\n1,2\n",
        [[1, 2]],
        ["a", "1990"],
        "words and numbers such as '1990'",
    ),
}


@pytest.mark.parametrize("case", AS_THEY_COME)
def test_text_is_read_as_it_comes(tmp_path: Path, caplog: pytest.LogCaptureFixture, case: str) -> None:
    name, text, numbers, names, said = AS_THEY_COME[case]
    (tmp_path / name).write_text(text, newline="")
    numeric = case in ("of R", "row again") or case.startswith("index")
    found, titles, notes = opened(tmp_path / name, caplog, numeric=numeric)
    np.testing.assert_array_equal(found, numbers)
    assert titles == [*names]
    assert re.search(said, notes)
    packed = tmp_path / f"{name}.bz2"
    packed.write_bytes(bz2.compress(text.encode()))
    import_array(packed, tmp_path / "y.zarr", numeric=numeric)
    np.testing.assert_array_equal(whole(tmp_path / "y.zarr"), numbers)


BELOW_NO_NAME = {
    "wavelengths": ("x.csv", ",400.5,401.5\na,1,2\nb,4,5\n", ["a", "b"], ["400.5", "401.5"], ""),
    "in quotes": ("x.csv", '"","2019","2020"\n"a",1,2\n"b",4,5\n', ["a", "b"], ["2019", "2020"], ""),
    "blank": ("x.csv", " ,5,3\na,1,2\nb,4,5\n", ["a", "b"], ["5", "3"], ""),
    "commas": ("x.csv", ";400,5;401,5\na;1,0;2\nb;4;5\n", ["a", "b"], ["400,5", "401,5"], ""),
    "tabs": ("x.tsv", "\t400.5\t401.5\na\t1\t2\nb\t4\t5\n", ["a", "b"], ["400.5", "401.5"], ""),
    "no cell": ("x.tsv", "2019\t2020\na\t1\t2\nb\t4\t5\n", ["a", "b"], ["2019", "2020"], "one cell fewer"),
    "numbers": ("x.csv", ",400.5,401.5\n7,1,2\n9,4,5\n", [7, 9], ["400.5", "401.5"], "with an empty cell"),
}


@pytest.mark.parametrize("case", BELOW_NO_NAME)
def test_numbers_after_an_empty_cell_name_columns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    name, text, rows, columns, said = BELOW_NO_NAME[case]
    (tmp_path / name).write_text(text)
    found, titles, notes = opened(tmp_path / name, caplog)
    np.testing.assert_array_equal(found, [[1, 2], [4, 5]])
    assert titles == columns
    assert labels_of_rows(tmp_path / name) == rows
    assert said in notes
    assert ("--header no" in notes) == bool(said)


@pytest.mark.parametrize(
    ("text", "rows", "said"),
    {
        "in quotes": ('"400","401"\n1,2\n4,5\n', 2, "is quoted"),
        "in quotes, unordered": ('"5","3"\n1,2\n4,5\n', 2, "is quoted"),
        "all in quotes": ('"5","3"\n"1","2"\n4,5\n', 3, ""),
        "years": ("2019,2020\n1,2\n4,5\n", 3, "unlike those below"),
        "years, unordered": ("2020,2010,2019\n1,2,0\n4,5,0\n", 3, "unlike those below"),
        "one row below": ("2019,2020\n1,2\n", 2, ""),
        "near one column": ("2019,5\n1,2\n4,5\n", 3, ""),
        "the same twice": ("100,100\n1,2\n4,5\n", 3, ""),
        "constant below": ("7,3\n0,0\n0,0\n", 3, ""),
        "data": ("5.1,3.5\n4.9,3.0\n4.7,3.2\n", 3, ""),
    }.values(),
)
def test_names_of_columns_that_are_numbers_are_noticed_or_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, rows: int, said: str
) -> None:
    (tmp_path / "x.csv").write_text(text)
    found, titles, notes = opened(tmp_path / "x.csv", caplog)
    assert len(found) == rows
    assert len(titles) == (2 if rows == 2 and said else 0)
    assert said in notes
    assert bool(notes) == bool(said)


@pytest.mark.parametrize(
    "text",
    [
        "1990,1991,1992\n1,2,3\n4,5,7\n",
        "0,1\n3,4\n",
        "a,7\n3,4\n",
        "5.1,setosa\n4.9,setosa\n",
        "a;b\n1.234;2\n5.678;3\n",
    ],
)
def test_notes_name_options_of_an_import_as_such(tmp_path: Path, caplog: Any, text: str) -> None:
    """Commands of methods have none of them."""
    (tmp_path / "x.csv").write_text(text)
    _, _, notes = opened(tmp_path / "x.csv", caplog, numeric=True)
    assert re.search(r"import it with (header|thousands)='", notes)
    assert not re.search(r"say (header|thousands)", notes)


@pytest.mark.parametrize("text", [",1,2\n,4,5\n3,4,5\n", ",1,2\n"])
def test_a_column_with_gaps_names_no_rows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    (tmp_path / "x.csv").write_text(text)
    found, _, _ = opened(tmp_path / "x.csv", caplog)
    np.testing.assert_array_equal(found[0], [NAN, 1, 2])


def test_one_column_of_a_table_has_the_names_of_its_rows(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"a": [1, 2, 3], "b": [4, 5, 9]}, index=["z", "x", "y"])
    table.to_csv(tmp_path / "t.csv")
    table.to_parquet(tmp_path / "t.parquet")
    for name in ("t.csv::b", "t.parquet::b"):
        np.testing.assert_array_equal(whole(tmp_path / name), [[4], [5], [9]])
        assert labels_of_rows(tmp_path / name) == ["z", "x", "y"]


def labels_of_rows(path: Path) -> list[Any]:
    names = names_of(open_source(str(path)), 0)
    return [] if names is None or names.labels is None else names.labels.tolist()


@pytest.mark.parametrize("name", ["", "Unnamed: 0"])
def test_an_index_that_came_back_as_a_column_is_no_number(tmp_path: Path, caplog: Any, name: str) -> None:
    (tmp_path / "x.csv").write_text(f"{name},a\n0,1.5\n1,3\n")
    found, names, notes = opened(tmp_path / "x.csv", caplog)
    assert (
        found.tolist() == [[1.5], [3.0]]
        and names == ["a"]
        and names_of(open_source(tmp_path / "x.csv"), 0) is None
    )
    assert f"has {f'the name {name!r}' if name else 'no name'}, so it names rows; it counts them" in notes
    assert "so it names rows" in str(describe_table(str(tmp_path / "x.csv")))
    pq.write_table(pa.table({name: [0, 1], "a": [1.5, 3.0]}), tmp_path / "x.parquet")
    found, names, notes = opened(tmp_path / "x.parquet", caplog)
    assert found.tolist() == [[1.5], [3.0]] and names == ["a"] and "names rows" in notes


def _wide(texts: list[str]) -> str:
    head = ",".join(["id", *(f"c{place}" for place in range(delimited.WIDE))])
    return "\n".join([head, *(",".join([text, *["1"] * delimited.WIDE]) for text in texts)])


def _text(head: str, texts: list[str]) -> str:
    return "\n".join([head, *(f"{text},{place},{place * place}" for place, text in enumerate(texts))])


NAMED: dict[str, Any] = {
    "text": (["s1", "s2", "s3"], ["s1", "s2", "s3"], "id", ""),
    "numbers": (["30", "20", "10"], [30, 20, 10], "id", ""),
    "no numbers": (["007", "8", "9"], ["007", "8", "9"], "id", ""),
    "counted, and asked for": (["0", "1", "2"], [0, 1, 2], "id", ""),
    "gaps": (["a", "", "c"], ["a", "", "c"], "id", "names no row in 1 of 3 rows"),
    "twice": (["a", "b", "a"], ["a", "b", "a"], "id", "names 1 of 3 rows as it names others before them"),
    "by itself": (["s1", "s2", "s3"], ["s1", "s2", "s3"], "", "so it names rows|names rows, as pandas"),
    "rows of a frame": (["5", "6", "7"], [5, 6, 7], "", "so it names rows|names rows, as pandas"),
}


@pytest.mark.parametrize("case", NAMED)
@pytest.mark.parametrize(
    "door", ["csv", "csv of many columns", "several", "parquet", "partitions", "pandas", "polars", "dask"]
)
def test_a_column_names_the_rows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, door: str, case: str
) -> None:
    texts, labels, index_col, said = NAMED[case]
    table: Any = {"id": texts, "a": [0.0, 1, 2], "b": [0.0, 1, 4]}
    if not index_col:
        table = {"__index_level_0__" if door == "parquet" else "Unnamed: 0": table.pop("id"), **table}
    head, x = ",".join([index_col, "a", "b"]), tmp_path / "x.csv"
    if door in ("pandas", "dask"):
        x = pytest.importorskip("pandas").DataFrame(table)
    if door == "polars":
        x = pytest.importorskip("polars").DataFrame(table)
    elif door == "dask":
        if not index_col:
            return
        x = pytest.importorskip("dask.dataframe").from_pandas(x, npartitions=2)
    elif door.startswith("csv"):
        many = "many" in door and index_col
        x.write_text(_wide(texts) if many else _text(head, texts))
    elif door == "several":
        x = tmp_path / "*.csv"
        for part in range(3):
            row = f"{texts[part]},{part},{part * part}"
            (tmp_path / f"{part}.csv").write_text(f"{head}\n{row}\n")
    elif door == "parquet":
        table_of(x := tmp_path / "x.parquet", **table)
    elif door == "partitions":
        for part in range(3):
            (tmp_path / f"t/p={part}").mkdir(parents=True)
            rows = {name: values[part : part + 1] for name, values in table.items()}
            table_of(tmp_path / f"t/p={part}/0.parquet", **rows)
        x = tmp_path / "t"
    caplog.clear()
    options: Any = {"index_col": index_col} if index_col else {}
    with caplog.at_level(logging.WARNING, "rankfold"):
        source = open_source(x, **options)
    assert source.shape[0] == 3 and source.shape[1] == (delimited.WIDE if "many" in door and index_col else 2)
    np.testing.assert_array_equal(
        np.asarray(source)[:, :2][:, -1], [1, 1, 1] if source.shape[1] > 2 else [0, 1, 4]
    )
    assert re.search(said, caplog.text)
    sides = [names_of(source, 0)]
    if isinstance(x, Path):
        import_array(x, tmp_path / "y.zarr", **options)
        sides.append(names_of(open_source(tmp_path / "y.zarr"), 0))
    for names in sides:
        assert names is not None and names.labels is not None and names.labels.tolist() == labels
        assert names.axes[0].name == (index_col or "row")


def test_names_of_many_rows_are_a_digest(tmp_path: Path) -> None:
    count = MOST_LABELS + 5
    for texts, labels in (
        ([f"n{place}" for place in range(count)], None),
        ([*map(str, range(7, count + 7))], int),
    ):
        (tmp_path / "x.csv").write_text("id,a\n" + "".join(f"{text},1\n" for text in texts))
        names = names_of(open_source(tmp_path / "x.csv", index_col="id"), 0)
        assert names is not None and names.labels is None
        assert names.axes[0].mark == Axis.of("id", count, np.array(texts, labels)).mark


def test_names_of_rows_go_through_a_result_into_a_table(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    (tmp_path / "x.csv").write_text(_text("id,a,b", ["s1", "s2", "s3"]) + "\ns4,7,2\n")
    result = rf.pca(tmp_path / "x.csv", 1, index_col="id", out=tmp_path / "r.zarr")
    frame = result.to_pandas()
    assert frame.index.tolist() == ["s1", "s2", "s3", "s4"] and frame.index.name == "id"
    wanted = pd.read_csv(tmp_path / "x.csv", index_col="id")
    np.testing.assert_allclose(frame["PC1"], rf.pca(wanted, 1).to_pandas()["PC1"])
    for name, read in (("s.csv", pd.read_csv), ("s.parquet", pd.read_parquet)):
        result.to_table(tmp_path / name)
        assert read(tmp_path / name).columns.tolist() == ["id", "PC1"]
    new = rf.transform(result, tmp_path / "x.csv", index_col="id")
    pd.testing.assert_frame_equal(new.to_pandas(), result.to_pandas())
    assert rf.check(result, tmp_path / "x.csv", index_col="id").attrs["largest_residual"] < 1e-9
    chosen = open_source(f"{tmp_path / 'x.csv'}::b", index_col="id")
    assert names_of(chosen, 0).labels.tolist() == ["s1", "s2", "s3", "s4"]  # type: ignore[union-attr]
    for options in ({"columns": ["id", "b"]}, {"without": ["a"]}):
        import_array(tmp_path / "x.csv", tmp_path / "y.zarr", index_col="id", overwrite=True, **options)
        store = open_source(tmp_path / "y.zarr")
        assert store.shape == (4, 1) and names_of(store, 0).labels[3] == "s4"  # type: ignore[union-attr,index]


@pytest.mark.parametrize("of", ["table", "frame", "array"])
def test_what_names_no_rows_is_refused(tmp_path: Path, of: str) -> None:
    (tmp_path / "x.csv").write_text("id,a\ns1,1\n")
    x: Any = np.eye(2) if of == "array" else tmp_path / "x.csv"
    x = pytest.importorskip("pandas").DataFrame({"id": ["s1"], "a": [1]}) if of == "frame" else x
    message = "and this is none" if of == "array" else r"has no column 'idd'. Did you mean 'id'\?"
    with pytest.raises(InputError, match=message):
        open_source(x, index_col="idd")
    if of != "array":
        with pytest.raises(RankfoldError, match=r"If 'id' names the rows, say index_col='id'"):
            open_source(x)


@pytest.mark.parametrize("others", [1, 1200])
@pytest.mark.parametrize(
    ("space", "name"),
    [("\u00a0", "no-break space"), ("\u202f", "narrow no-break space"), ("\u2009", "thin space")],
)
def test_spaces_that_do_not_break_group_digits_on_request_alone(
    tmp_path: Path, space: str, name: str, others: int
) -> None:
    head, rest = "a;" + ";".join(f"c{place}" for place in range(others)) + "\n", ";2" * others + "\n"
    path = tmp_path / "x.csv"
    path.write_text(head + f"1{space}234,5{rest}{space}-1{space}234{space}567{rest}12{space}{rest}")
    message = rf"{name} \(U\+{ord(space):04X}\) separates thousands, import it with thousands=' '"
    with pytest.raises(DataError, match=message):
        open_source(path)
    table = describe_table(str(path))
    assert table is not None and table.index_col is None and re.search(message, str(table))
    import_array(path, tmp_path / "y.zarr", thousands=" ")
    expected = [[number, *[2] * others] for number in (1234.5, -1234567, 12)]
    np.testing.assert_array_equal(whole(tmp_path / "y.zarr"), expected)
    path.write_text(head + f"9{space}007{space}199{space}254{space}740{space}993{rest}")
    with pytest.raises(DataError, match="'a' has 9007199254740993 in row 1 of the data, which float64"):
        import_array(path, tmp_path / "z.zarr", thousands=" ")
    path.write_text(head.replace(";", " ") + f"1{space}234{rest}".replace(";", " "))
    import_array(path, tmp_path / "s.zarr", thousands=" ")
    np.testing.assert_array_equal(whole(tmp_path / "s.zarr"), [[1234, *[2] * others]])


@pytest.mark.parametrize("others", [1, 1200])
@pytest.mark.parametrize("separator", [",", ";"])
def test_the_minus_of_typesetting_is_a_minus(tmp_path: Path, others: int, separator: str) -> None:
    rest = f"{separator}2" * others + "\n"
    path = tmp_path / "x.csv"
    path.write_text(f"\u22121.5{rest}\u22122e\u22123{rest}3{rest}")
    np.testing.assert_array_equal(whole(path)[:, 0], [-1.5, -2e-3, 3])
    path.write_text(f"\u22127{rest}5{rest}")
    np.testing.assert_array_equal(whole(path)[:, 0], [-7, 5])


@pytest.mark.parametrize("others", [1, 1200])
def test_tables_of_any_width_may_have_commas_before_fractions(tmp_path: Path, others: int) -> None:
    (tmp_path / "x.csv").write_text("1,5" + ";2,25" * others + "\n" + "3,5" + ";0,125" * others + "\n")
    np.testing.assert_array_equal(
        whole(tmp_path / "x.csv"), [[1.5, *[2.25] * others], [3.5, *[0.125] * others]]
    )


def test_a_space_of_another_encoding_is_said(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes("a;b\n1\u00a0234,5;2\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"not UTF-8\. Write it as UTF-8.*iconv -f LATIN1"):
        open_source(tmp_path / "x.csv")


PREAMBLES = {
    "title": ("Station 5\n", ",", 1),
    "title of one cell fewer": ("Rome, 2020\n", ",", 1),
    "title of more cells": ("Rome, 2020, x, y, z\n", ",", 1),
    "source and blank lines": ("Source: me\nDate, 2020\n\n\n", ",", 4),
    "title above semicolons": ("Rome, 2020\n", ";", 1),
    "title above tabs": ("Rome\n", "\t", 1),
    "quotes over two lines": ('"Rome,\n2020"\n', ",", 2),
    "comment and title": ("# by me\nRome\n", ",", 2),
    "other comments": ("% by me\n! twice\n", ",", 2),
    "padded": ("Rome,,\n,,\n", ",", 2),
    "portal": ('"Data Source","WDI",\n\n"Last Updated","2020-01-01",\n\n', ",", 4),
    "separator": ("sep=;\n", ";", 1),
    "separator in quotes": ('"sep=\t"\n', "\t", 1),
    "mark and title": ("\ufeffRome\n", ",", 1),
}


@pytest.mark.parametrize("rows", [1, 300])
@pytest.mark.parametrize("name", PREAMBLES)
def test_lines_above_a_table_are_refused_and_left_out_on_request(
    tmp_path: Path, name: str, rows: int, caplog: pytest.LogCaptureFixture
) -> None:
    above, separator, lines = PREAMBLES[name]
    table = "a,b,c\n" + "1,2,3.5\n" * rows
    path = tmp_path / "x.csv"
    path.write_text(above + table.replace(",", separator))
    for read in (lambda: open_source(path), lambda: import_array(path, tmp_path / "y.zarr")):
        with pytest.raises(RankfoldError, match=rf"skip_lines={lines}\b"):
            read()
    import_array(path, tmp_path / "y.zarr", skip_lines=lines)
    np.testing.assert_array_equal(whole(tmp_path / "y.zarr"), [[1, 2, 3.5]] * rows)
    assert names_of(open_source(tmp_path / "y.zarr"), 1).labels.tolist() == ["a", "b", "c"]
    path.write_text(above + table.partition("\n")[2].replace(",", separator))  # without names
    import_array(path, tmp_path / "z.zarr", skip_lines=lines)
    np.testing.assert_array_equal(whole(tmp_path / "z.zarr"), [[1, 2, 3.5]] * rows)


@pytest.mark.parametrize("above", ["% by me\n", "// by me\n! twice\n", "% made, 2020\n"])
def test_a_comment_above_a_table_without_names_is_none_of_them(tmp_path: Path, above: str) -> None:
    path, rows = tmp_path / "x.csv", "1,2,5\n3,4,6\n" if "," in above else "1,2\n3,4\n"
    path.write_text(above + rows)
    lines = above.count("\n")
    with pytest.raises(InputError, match=rf"seems to be a comment; .*skip_lines={lines} to"):
        open_source(path)
    import_array(path, tmp_path / "x.zarr", skip_lines=lines)
    np.testing.assert_array_equal(whole(tmp_path / "x.zarr")[:, :2], [[1, 2], [3, 4]])
    path.write_text("% fat,water\n" + "1,2\n3,4\n")
    np.testing.assert_array_equal(whole(path), [[1, 2], [3, 4]])


def test_text_and_parquet_are_no_one_table(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    pq.write_table(pa.table({"a": [1.0], "b": [2.0]}), tmp_path / "x.parquet")
    names = [tmp_path / "x.csv", tmp_path / "x.parquet"]
    for files in (names, names[::-1]):
        with pytest.raises(
            InputError, match=r"x\.csv is text and .*x\.parquet is Parquet: .* all of one kind"
        ):
            open_source(files)


def test_skipped_lines_are_a_number_and_of_text(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    for lines in (-1, True, 1.5):
        with pytest.raises(InputError, match="must be a whole number of lines"):
            import_array(tmp_path / "x.csv", tmp_path / "y.zarr", skip_lines=lines)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="nothing below line 7"):
        import_array(tmp_path / "x.csv", tmp_path / "y.zarr", skip_lines=7)
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "x.parquet")
    with pytest.raises(InputError, match="thousands and skip_lines are for"):
        import_array(tmp_path / "x.parquet", tmp_path / "y.zarr", skip_lines=1)
    with pytest.raises(InputError):
        import_array(np.eye(3), tmp_path / "y.zarr", skip_lines=1)


LONG = 2**53 + 1


@pytest.mark.parametrize(
    "columns",
    [
        {"a": [LONG, None]},
        {"a": [LONG, 2], "b": [0.5, 1.5]},
        {"a": pa.array([2**64 - 1, 2], pa.uint64()), "b": [-1, 1]},
        {"a": [[LONG, 1], [2, None]]},
        {"a": pa.array([LONG + 1, 2], pa.decimal128(20, 0))},
        {"a": pa.array([LONG, None], pa.decimal128(20, 0))},
        {"a": pa.array([-LONG, 2], pa.decimal128(20, 2)), "b": [-1, 1]},
        {"a": pa.array([LONG, 2], pa.decimal256(60, 30))},
        {"a": pa.array([[LONG, 1], [2, None]], pa.list_(pa.decimal128(20, 0)))},
    ],
    ids=[
        *("gaps", "fractions", "unsigned", "lists", "decimals"),
        *("decimals with gaps", "decimals with digits after the point", "wide decimals", "lists of decimals"),
    ],
)
def test_whole_numbers_of_parquet_keep_their_digits_or_are_refused(tmp_path: Path, columns: Any) -> None:
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    with pytest.raises(
        DataError, match=r"column 'a' has -?[0-9]+ in row 1 of the data, which float64 does not hold"
    ):
        open_source(tmp_path / "x.parquet")


def test_decimals_of_parquet_with_a_fraction_are_rounded(tmp_path: Path) -> None:
    decimals = [Decimal("9007199254740993.50"), Decimal(LONG + 1), Decimal("-0.25"), None]
    pq.write_table(pa.table({"a": pa.array(decimals, pa.decimal128(20, 2))}), tmp_path / "x.parquet")
    expected = [[NAN if each is None else float(each)] for each in decimals]
    # Arrow rounds twice: the digits, and their quotient by a power of ten.
    np.testing.assert_allclose(whole(tmp_path / "x.parquet"), expected, rtol=2.0**-52)


def test_columns_that_the_first_of_several_files_lacks_are_said(tmp_path: Path, caplog: Any) -> None:
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "x-1.parquet")
    pq.write_table(pa.table({"b": [7, 8], "a": [5, 6]}), tmp_path / "x-2.parquet")
    found, _, notes = opened(tmp_path / "x-*.parquet", caplog)
    assert found.tolist() == [[1], [2], [5], [6]] and "'b' of" in notes and "and were left out" in notes


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ('a,b\n"1,234",5\n', {"thousands": ","}, [[1234, 5]]),
        ("a;b\n1.234,5;-2\n", {"thousands": "."}, [[1234.5, -2]]),
        ("a;b\n1 234,5;2\n", {"thousands": " ", "decimal": ","}, [[1234.5, 2]]),
        ("a;b\n1,234;5\n", {"decimal": ","}, [[1.234, 5]]),
        ("a;b\n1,234;5\n", {"thousands": ",", "dtype": "int32"}, [[1234, 5]]),
        ('a,b\n"1,23",5\n', {"thousands": ","}, "'a' has '1,23' in line 2"),
        ('a,b\n"1,234",5\n', {}, "'a' has '1,234' in line 2.*thousands=','"),
        ("a;b\n1.234,5;2\n", {}, r"'a' has '1\.234,5'.*thousands='\.'"),
        ("a;b\n1,5;2\n1.5;2\n", {}, "'a' has '1,5'.*decimal=','"),
        ("a;b\n1,234;5\n", {}, r"'1,234', which may be 1\.234 or 1234.*decimal=',' or thousands=','"),
        ("a;b\n1 234,5;2\n", {}, r"'a' has '1 234,5'.*If ' ' separates thousands.*thousands=' '"),
        ("a;b\n1 234,5;2\n", {"thousands": " "}, [[1234.5, 2]]),
        ('a,b\n"1 234,5",2\n', {"thousands": " "}, r"'a' has '1 234,5'.*decimal=','"),
        ('a,b\n"1 234,5",2\n', {"thousands": " ", "decimal": ","}, [[1234.5, 2]]),
        ("a,b\n1’234,2\n", {"thousands": "'"}, [[1234, 2]]),
        ("a,b\n1’234,2\n", {}, r"If right single quotation mark \(U\+2019\) .*thousands=\"'\""),
        ("a,b\n1,2\n#3,4\n", {}, "'a' has '#3' in line 3"),
        ("a,b\n1,0x10\n", {}, "'b' has '0x10'"),
        ("a,b\n1,300\n", {"dtype": "uint8"}, "'b' has '300' in line 2, which is no uint8. Keep"),
    ],
)
def test_groups_of_digits_are_never_misread(
    tmp_path: Path, text: str, options: dict[str, Any], expected: Any
) -> None:
    (tmp_path / "x.csv").write_text(text)
    if isinstance(expected, str):
        with pytest.raises(RankfoldError, match=expected):
            import_array(tmp_path / "x.csv", tmp_path / "y.zarr", **options)
        return
    import_array(tmp_path / "x.csv", tmp_path / "y.zarr", **options)
    np.testing.assert_array_equal(whole(tmp_path / "y.zarr"), expected)


def test_text_of_two_bytes_to_a_letter_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a\tb\n1\t2\n", encoding="utf-16")
    with pytest.raises(InputError, match=r"UTF-16.*iconv"):
        open_source(tmp_path / "x.csv")


def test_names_in_another_encoding_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("größe,b\n1,2\n", encoding="latin-1")
    with pytest.raises(InputError, match=r"letters are not UTF-8.*iconv -f LATIN1"):
        open_source(tmp_path / "x.csv")


@pytest.mark.parametrize("others", [1, 1200])
def test_all_columns_that_hold_text_are_named_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, others: int
) -> None:
    monkeypatch.setattr(delimited, "BLOCK_BYTES", (30, 30))  # the last word is blocks away from the first
    head = ",".join(["id", *(f"c{i}" for i in range(others)), "last"]) + "\n"
    rest = ",1" * others
    (tmp_path / "x.csv").write_text(head + f"u{rest},1\n" * 20 + f"v{rest},oak\n")
    words = r"2 of \d+ columns .*'id' \('u' in line 2\), 'last' \('oak' in line 22, 1 of 21 cells\)"
    for read in (open_source, lambda path: import_array(path, tmp_path / "no.zarr")):
        with pytest.raises(DataError, match=words + r".*numeric=True.*without=\['id', 'last'\]"):
            read(tmp_path / "x.csv")
    found, _, notes = opened(tmp_path / "x.csv", caplog, numeric=True)
    np.testing.assert_array_equal(found, np.ones((21, others)))
    assert "by all of 21 rows: 'id' ('u' in line 2), 'last' ('oak' in line 22, 1 of 21 cells)" in notes


def test_columns_of_numbers_are_kept_everywhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pd, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    frame = pd.DataFrame({"x": [1, 2, 4], "city": list("abc"), "t": [True, False, True], "day": list("xyz")})
    frame.to_parquet(tmp_path / "x.parquet")
    frame.to_csv(tmp_path / "x.csv")
    for table in (str(tmp_path / "x.parquet"), str(tmp_path / "x.csv"), frame, polars.DataFrame(frame)):
        with pytest.raises(RankfoldError, match=r"(?s)(city.*day|first column)"):
            rf.open(table)
        with caplog.at_level(logging.WARNING, "rankfold"):
            kept = rf.open(table, numeric=True)
        np.testing.assert_array_equal(np.asarray(kept), [[1, 1], [2, 0], [4, 1]])
        assert names_of(kept, 1).labels.tolist() == ["x", "t"]  # type: ignore[union-attr]
        assert "'city'" in caplog.text and "'day'" in caplog.text
        caplog.clear()
        import_array(table, tmp_path / "y.zarr", numeric=True, overwrite=True)
        np.testing.assert_array_equal(whole(tmp_path / "y.zarr"), np.asarray(kept))
        result = rf.pca(table, 1, numeric=True)
        np.testing.assert_allclose(result["mean"], [7 / 3, 2 / 3])
    with pytest.raises(InputError, match=r"numeric=True .* tables and DataFrames"):
        rf.open(np.eye(3), numeric=True)
    with pytest.raises(DataError, match="no column of numbers"):
        import_array(table_of(tmp_path / "t.parquet", a=["x"], b=["y"]), tmp_path / "z.zarr", numeric=True)


def table_of(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize("library", ["pandas", "polars", "dask"])
def test_decimals_and_categories_of_numbers_are_numbers_as_in_parquet(tmp_path: Path, library: str) -> None:
    pandas, arrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    values = [Decimal("1.5"), None, Decimal("3")]
    frame = pandas.DataFrame({"x": [1, 2, 3], "word": pandas.Categorical(["a", "b", "a"])})
    if library != "polars":
        frame["whole"] = pandas.Categorical([10, 20, 10])
        frame["gap"] = pandas.Categorical([0.5, None, 7])
        frame["arrow"] = pandas.array(values, dtype=pandas.ArrowDtype(arrow.decimal128(10, 2)))
    if library != "dask":  # which makes text of objects
        frame["decimal"] = values
    frame.to_parquet(tmp_path / "x.parquet")
    if library == "polars":
        frame = pytest.importorskip("polars").read_parquet(tmp_path / "x.parquet")
    elif library == "dask":
        frame = pytest.importorskip("dask.dataframe").from_pandas(frame, npartitions=2)
    expected, found = (open_source(x, numeric=True) for x in (str(tmp_path / "x.parquet"), frame))
    np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))
    assert names_of(found, 1).labels.tolist() == names_of(expected, 1).labels.tolist()


def test_decimals_keep_their_digits_or_are_refused() -> None:
    pandas = pytest.importorskip("pandas")
    with pytest.raises(
        DataError, match="column 'id' of the DataFrame holds whole numbers such as 9007199254740993"
    ):
        open_source(pandas.DataFrame({"id": [Decimal(2**53 + 1), None], "x": [1, 2]}))


def test_requests_of_before_say_nothing_of_what_came_later() -> None:
    assert [*_request(ReadOptions())] == ["dtype", "columns", "without", "header"]
    assert _request(ReadOptions(numeric=True, decimal=","))["decimal"] == ","


def test_several_tables_are_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "y-2.csv").write_text("a,b,n\n1,2,x\n")
    (tmp_path / "y-10.csv").write_text("b;a;n;c\n4,5;3;y;0\n")
    found, names, notes = opened(tmp_path / "y-*.csv", caplog, numeric=True)
    np.testing.assert_array_equal(found, [[1, 2], [3, 4.5]])
    assert names == ["a", "b"]
    assert "another order" in notes and "'c' of" in notes and "'n' ('x' in line 2)" in notes
    report = import_array(tmp_path / "y-*.csv", tmp_path / "y.zarr", without=["n"])
    np.testing.assert_array_equal(whole(tmp_path / "y.zarr"), found)
    assert report.shape == (2, 2)
    assert import_array(tmp_path / "y-*.csv", tmp_path / "y.zarr", without=["n"]).done_before
    assert open_source([tmp_path / "y-2.csv", tmp_path / "y-10.csv"], numeric=True).shape == (2, 2)
    with pytest.raises(InputError, match=r"y-3\.csv does not exist"):
        open_source([tmp_path / "y-2.csv", tmp_path / "y-3.csv"])
    (tmp_path / "y-11.csv").write_text("a,n\n1,x\n")
    with pytest.raises(InputError, match=r"y-11\.csv has no column 'b'"):
        open_source(str(tmp_path / "y-*.csv"), numeric=True)
    for read in (open_source, lambda path: import_array(path, tmp_path / "no.zarr")):
        with pytest.raises(InputError, match=r"no file is called as .*c\*\.csv"):
            read(str(tmp_path / "c*.csv"))


def test_partitioned_parquet_is_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for place, value in (("land=b/year=1", 2.0), ("land=a/year=2", 1.0)):
        (tmp_path / "hive" / place).mkdir(parents=True)
        table_of(tmp_path / "hive" / place / "0.parquet", x=[value], y=[3])
    found, names, notes = opened(tmp_path / "hive", caplog)
    np.testing.assert_array_equal(found, [[1, 3], [2, 3]])
    assert names == ["x", "y"] and "'land', 'year' of" in notes
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.csv").write_text("1\n")
    with pytest.raises(InputError, match=r"say which: '.*texts/\*\.csv'"):
        open_source(tmp_path / "texts")


def test_tensors_in_parquet_are_rows(tmp_path: Path) -> None:
    x = np.arange(12, dtype="f4").reshape(2, 2, 3)
    path = table_of(tmp_path / "x.parquet", id=["a", "b"], e=pa.FixedShapeTensorArray.from_numpy_ndarray(x))
    import_array(path, tmp_path / "y.zarr", columns=["e"])
    np.testing.assert_array_equal(whole(tmp_path / "y.zarr"), x.reshape(2, 6))


def test_large_tables_name_the_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n3,4\n")
    table_of(tmp_path / "x.parquet", a=[1, 2, 3, 4])
    for limit, size in (("LARGEST_TABLE", 31), ("LARGEST_FILES", 7)):
        with monkeypatch.context() as small:
            small.setattr(several, limit, size)
            for name in ("x.csv", "x.parquet"):
                with pytest.raises(InputError, match=rf"import it first: rankfold import .*{name} STORE"):
                    open_source(tmp_path / name)


def test_a_table_is_told_by_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n3,4\n")
    first = open_source(tmp_path / "x.csv")
    assert (first.path, first.stored_bytes()) == (str(tmp_path / "x.csv"), 12)  # type: ignore[attr-defined]
    (tmp_path / "z.csv").write_text("a;b\n1;2\n3;4\n")
    assert open_source(tmp_path / "z.csv").fingerprint() == first.fingerprint()
    (tmp_path / "x.csv").write_text("a,c\n1,2\n3,4\n")
    assert open_source(tmp_path / "x.csv").fingerprint() != first.fingerprint()


def test_an_overview_shows_columns_and_what_goes_on(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,city,t\n1,x,True\n?,y,False\n")
    table = describe_table(str(tmp_path / "x.csv"))
    assert table is not None
    assert [each.kind for each in table.columns] == ["numbers", "text", "True and False"]
    for words in (
        "2 rows and 3 columns",
        "no numbers: 'x' in line 2",
        "x.csv --rank K",
        "--index-col city",
        "all differ, so it may name rows",
    ):
        assert words in str(table)
    (tmp_path / "x.csv").write_text("a,city,t\n1,x,True\n?,x,False\n")
    assert "--numeric  (2 columns; 1" in str(describe_table(str(tmp_path / "x.csv")))
    table_of(tmp_path / "x.parquet", a=[1.5], n=["u"])
    assert "no numbers: string, its first value is 'u'" in str(describe_table(str(tmp_path / "x.parquet")))
    (tmp_path / "r.csv").write_text(',a,b\n0,1,"1,000"\n1,2,3\n')
    named = str(describe_table(str(tmp_path / "r.csv")))
    assert "'column 1'  no numbers: it has no name" in named and "thousands=',' (--thousands ,)" in named
    np.save(tmp_path / "x.npy", np.eye(2))
    assert describe_table(str(tmp_path / "x.npy")) is None


def test_an_address_is_no_place_for_an_import(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.eye(3))
    for address in ("s3://lab/y.zarr", Path("s3://lab/y.zarr")):
        with pytest.raises(OutputError, match="is not on a file system, and an import writes a folder there"):
            import_array(tmp_path / "x.npy", address)
