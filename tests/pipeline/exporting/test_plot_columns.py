"""Labels and values of rows are read where they lie, by slices, and what is no such column is told."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plotted import result_with

import rankfold as rf
from rankfold.pipeline.data.names import Axis, Names
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.exporting.plots import row_colors
from rankfold.pipeline.exporting.plots.row_colors import Labels, Values, colors_of
from rankfold.pipeline.exporting.plots.row_columns import name_of, open_column, words_of

ROWS = 30
WORDS = np.array(["T cell", "B cell", "monocyte"])[np.arange(ROWS) * 7 % 3]


def labels_in(color: Any) -> list[str]:
    colors = colors_of(color, ROWS)
    assert isinstance(colors, Labels)
    return [[*colors.names, ""][code] for code in colors.read(0, ROWS)]


def values_in(color: Any) -> np.ndarray:
    colors = colors_of(color, ROWS)
    assert isinstance(colors, Values)
    return colors.read(0, ROWS)


def test_arrays_of_numpy(tmp_path: Path) -> None:
    np.save(tmp_path / "words.npy", WORDS)
    np.save(tmp_path / "values.npy", np.arange(ROWS) / 3)
    np.save(tmp_path / "column.npy", np.arange(ROWS)[:, None] % 4)
    np.save(tmp_path / "objects.npy", WORDS.astype(object))
    assert labels_in(tmp_path / "words.npy") == WORDS.tolist()
    np.testing.assert_array_equal(values_in(str(tmp_path / "values.npy")), np.arange(ROWS) / 3)
    assert labels_in(tmp_path / "column.npy") == [str(i % 4) for i in range(ROWS)]
    assert labels_in(WORDS.tolist()) == WORDS.tolist()
    assert labels_in(WORDS.astype("S")) == WORDS.tolist()
    assert labels_in(np.array([None, *WORDS[1:]], object)) == ["", *WORDS[1:]]
    with pytest.raises(rf.RankfoldError, match=r"objects\.npy cannot be read"):
        colors_of(tmp_path / "objects.npy", ROWS)


def test_tables(tmp_path: Path) -> None:
    lines = [f'{i},"{word}",{i / 4 if i % 5 else ""},{i % 2 == 0}' for i, word in enumerate(WORDS)]
    (tmp_path / "t.csv").write_text("\n".join(["row,type,value,even", *lines, ""]))
    place = f"{tmp_path}/t.csv::"
    assert labels_in(place + "type") == WORDS.tolist()
    assert labels_in(place + "row") == [str(i) for i in range(ROWS)]
    assert labels_in(place + "even") == [str(i % 2 == 0) for i in range(ROWS)]
    truth = np.where(np.arange(ROWS) % 5, np.arange(ROWS) / 4, np.nan)
    np.testing.assert_array_equal(values_in(place + "value"), truth)
    (tmp_path / "one.tsv").write_text("type\n" + "\n".join(WORDS[:-1]) + "\n\n")
    assert labels_in(tmp_path / "one.tsv") == [*WORDS[:-1], ""]
    assert name_of(place + "type") == "type" and name_of(tmp_path / "one.tsv") == "one"
    (tmp_path / "t.txt.gz").write_bytes(gzip.compress((tmp_path / "t.csv").read_bytes().replace(b",", b";")))
    assert labels_in(f"{tmp_path}/t.txt.gz::type") == WORDS.tolist()


@pytest.mark.parametrize("end", ["csv", "tsv", "parquet", "R.txt"])
def test_columns_of_tables_go_to_the_rows_of_their_names(tmp_path: Path, end: str) -> None:
    """By an index that names rows by itself; one that counts them, or is colored by, names none."""
    pandas = pytest.importorskip("pandas")
    names = [f"r{i}" for i in range(ROWS)]
    rows = Names.of([Axis.of("row", ROWS, np.array(names))])
    table = pandas.DataFrame({"type": WORDS, "value": np.arange(ROWS) / 3}, index=names)
    path = str(tmp_path / f"t.{end}")

    def write(frame: Any) -> None:
        if end == "parquet":
            frame.to_parquet(path)
        elif end == "R.txt":
            lines = frame.to_csv(sep=" ", na_rep="NA").splitlines()
            Path(path).write_text("\n".join([lines[0].strip(), *lines[1:], ""]))
        else:
            frame.to_csv(path, sep="\t" if end == "tsv" else ",")

    write(table.sample(frac=1, random_state=1))
    colors = colors_of(f"{path}::type", ROWS, rows)
    assert isinstance(colors, Labels)
    assert [colors.names[code] for code in colors.read(0, ROWS)] == WORDS.tolist()
    values = colors_of(f"{path}::value", ROWS, rows)
    np.testing.assert_array_equal(values.read(0, ROWS), table.value)
    write(table.iloc[1:])
    with pytest.raises(InputError, match="has no row 'r0', which is row 0"):
        colors_of(f"{path}::value", ROWS, rows)
    write(table[["value"]].reset_index(drop=True))
    np.testing.assert_array_equal(colors_of(path, ROWS, rows).read(0, ROWS), table.value)


def test_columns_that_a_message_leaves_out_are_counted(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(",".join(f"v{i}" for i in range(15)) + "\n")
    with pytest.raises(InputError, match=r"no column 'nope'; it has v0, .*, v7 and 7 more$"):
        open_column(f"{tmp_path}/t.csv::nope")


def test_columns_of_parquet(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    counts = arrow.array([None, *range(1, ROWS)], arrow.int32())
    table = arrow.table({"type": [None, *WORDS[1:]], "count": counts})
    parquet.write_table(table, tmp_path / "t.parquet")
    place = f"{tmp_path}/t.parquet::"
    assert labels_in(place + "type") == ["", *WORDS[1:]]
    np.testing.assert_array_equal(values_in(place + "count"), [np.nan, *range(1, ROWS)])
    with pytest.raises(rf.RankfoldError, match=r"t\.parquet has 2 columns: name one after ::, of type"):
        open_column(tmp_path / "t.parquet")


def test_anndata(tmp_path: Path) -> None:
    anndata, pandas = (pytest.importorskip(name) for name in ("anndata", "pandas"))
    obs = pandas.DataFrame(index=[f"c{i}" for i in range(ROWS)])
    obs["type"] = pandas.Categorical([None, *WORDS[1:]], categories=["monocyte", "B cell", "T cell"])
    obs["word"] = WORDS
    obs["value"] = np.arange(ROWS) / 3
    obs["count"] = pandas.array([None, *range(1, ROWS)], dtype="Int64")
    obs["chosen"] = np.arange(ROWS) < 5
    cells = anndata.AnnData(np.zeros((ROWS, 3), np.float32), obs=obs)
    cells.var_names = ["a", "b", "c"]
    cells.write_h5ad(tmp_path / "cells.h5ad")
    cells.write_zarr(tmp_path / "cells.zarr")
    for store in (tmp_path / "cells.h5ad", tmp_path / "cells.zarr"):
        assert labels_in(f"{store}::type") == ["", *WORDS[1:]] == labels_in(f"{store}::obs/type")
        assert labels_in(f"{store}::word") == WORDS.tolist()
        assert labels_in(f"{store}::chosen") == [str(i < 5) for i in range(ROWS)]
        np.testing.assert_array_equal(values_in(f"{store}::value"), np.arange(ROWS) / 3)
        np.testing.assert_array_equal(values_in(f"{store}::count"), [np.nan, *range(1, ROWS)])
        assert words_of(f"{store}::var/_index") == ("a", "b", "c")
        with pytest.raises(rf.RankfoldError, match="has no 'typo': name one after ::, of obs/"):
            colors_of(f"{store}::typo", ROWS)
    assert labels_in(cells.obs["type"]) == ["", *WORDS[1:]] and name_of(cells.obs["type"]) == "type"
    np.testing.assert_array_equal(values_in(cells.obs["value"]), np.arange(ROWS) / 3)


def test_genes_are_values_whatever_holds_them(tmp_path: Path) -> None:
    """Whole numbers too; by the name that the matrix has for a column, with the names of its rows."""
    anndata, pandas = (pytest.importorskip(name) for name in ("anndata", "pandas"))
    counts = np.arange(90).reshape(30, 3) % 7
    cells, genes = (pandas.Index([f"{sign}{i}" for i in range(n)]) for sign, n in (("c", 30), ("g", 3)))
    adata = anndata.AnnData(
        counts.astype("i4"), obs=pandas.DataFrame(index=cells), var=pandas.DataFrame(index=genes)
    )
    adata.write_h5ad(tmp_path / "a.h5ad")
    rf.import_array(tmp_path / "a.h5ad", tmp_path / "b.zarr")
    for color in (adata[:, "g1"], f"{tmp_path / 'a.h5ad'}::g1", f"{tmp_path / 'b.zarr'}::g1"):
        np.testing.assert_array_equal(values_in(color), counts[:, 1])
        names = open_column(color).names
        assert name_of(color) == "g1" and names is not None and names.word(3) == "'c3'"
    with pytest.raises(InputError, match=r"has 3 variables, .* adata\[:, 'NAME'\]"):
        open_column(adata)
    for store in ("a.h5ad", "b.zarr"):
        with pytest.raises(InputError, match=r"did you mean 'g1'"):
            open_column(f"{tmp_path / store}::gg1")
    clusters = rf.kmeans(adata, 2)
    assert labels_in(clusters) == [str(each) for each in clusters.labels[:]]
    rf.pca(adata, 2).plot(color=clusters, out=tmp_path / "p.png")
    with pytest.raises(InputError, match="a result of pca has no labels of rows"):
        open_column(rf.pca(adata, 2))


def test_arrays_and_results(tmp_path: Path) -> None:
    labels = (np.arange(ROWS) % 4).astype(np.int32)
    result_with(tmp_path / "clusters.zarr", "kmeans", labels=labels)
    for place in ("clusters.zarr", "clusters.zarr::labels", "clusters.zarr/labels"):
        assert labels_in(tmp_path / place) == [str(i) for i in labels]
    assert name_of(tmp_path / "clusters.zarr::labels") == "clusters"


def test_columns_are_read_by_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counted:
        """An array that knows how much of it was read at a time."""

        def __init__(self, values: np.ndarray) -> None:
            self.values, self.dtype, self.shape, self.most = values, values.dtype, values.shape, 0

        def __getitem__(self, part: slice) -> np.ndarray:
            self.most = max(self.most, len(self.values[part]))
            return self.values[part]

    monkeypatch.setattr(row_colors, "BLOCK_ROWS", 7)
    for values in (WORDS, np.arange(ROWS) % 3, np.arange(ROWS) / 3):
        counted = Counted(values)
        whole = colors_of(values, ROWS)
        cut = colors_of(counted, ROWS)
        np.testing.assert_array_equal(cut.read(3, 9), whole.read(3, 9))
        assert counted.most == 7


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("nowhere.csv", "does not exist"),
        ("t.csv", "has 2 columns: name one after ::, of a, b"),
        ("t.csv::c", "has no column 'c'; it has a, b"),
        ("t.doc", "no file of labels that is known: give .npy, .csv"),
        ("x.npy::a", "is one array, and has none called 'a'"),
        ("x.npy", r"shape \(30, 2\): rows are colored by one"),
        ("short.csv", "2 values, and the result has 30 rows. The first line of a .csv file holds the names"),
        ("folder", "is a folder, where a regular file belongs"),
    ],
)
def test_what_is_no_column_is_told(tmp_path: Path, place: str, message: str) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    (tmp_path / "t.doc").write_text("1\n")
    (tmp_path / "short.csv").write_text("a\n1\n2\n")
    (tmp_path / "folder").mkdir()
    np.save(tmp_path / "x.npy", np.zeros((ROWS, 2)))
    with pytest.raises(rf.RankfoldError, match=message):
        colors_of(tmp_path / place, ROWS)


def test_numbers_too_large_for_64_bits_are_values(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a\n" + "\n".join(str(10**30 + i) for i in range(ROWS)))
    assert isinstance(colors_of(tmp_path / "t.csv", ROWS), Values)
    assert open_column(tmp_path / "t.csv").kind == "f"
