"""Frames come back with the names of the rows and columns that went in."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import rankfold as rf
from rankfold.pipeline.data.pandas_index import index_of_labels
from rankfold.pipeline.errors import InputError, OutputError
from rankfold.pipeline.exporting import frames
from rankfold.workflows.cli import app

pandas = pytest.importorskip("pandas", reason="pip install pandas")


def frame() -> Any:
    x = np.random.default_rng(0).standard_normal((30, 4))
    return pandas.DataFrame(x, index=[f"s{i}" for i in range(30)], columns=list("abcd"))


def test_coordinates_and_components_have_the_names_of_the_data() -> None:
    data = frame()
    result = rf.pca(data, 2)
    scores = result.to_pandas(like=data)
    assert list(scores.columns) == ["PC1", "PC2"] and scores.index.equals(data.index)
    np.testing.assert_array_equal(scores, result.scores[:])
    loadings = result.to_pandas("components", like=data)
    assert list(loadings.index) == list("abcd") and list(loadings.columns) == ["PC1", "PC2"]
    np.testing.assert_array_equal(loadings, result.components[:].T)
    assert list(result.to_pandas("mean", like=data).index) == list("abcd")
    assert list(result.to_pandas("explained_variance").columns) == ["explained_variance"]


def test_an_index_keeps_its_name(tmp_path: Path) -> None:
    data = frame().rename_axis("sample")
    result = rf.pca(data, 2)
    assert result.to_pandas().index.equals(data.index) and result.to_pandas().index.name == "sample"
    assert rf.pca(frame(), 2).to_pandas().index.name is None
    result.to_table(tmp_path / "scores.csv")
    assert (tmp_path / "scores.csv").read_text().startswith('"sample","PC1","PC2"')
    assert rf.open(data).fingerprint() == rf.open(frame()).fingerprint()


@pytest.mark.parametrize(
    "index",
    [
        pandas.date_range("2020-01-01", periods=30, freq="MS", name="month"),
        pandas.RangeIndex(500, 530, name="id"),
        pandas.Index(range(0, 60, 2)),
        pandas.RangeIndex(30),
        pandas.Index(np.arange(30) / 4),
        pandas.Index([f"p{at}" for at in range(30)], name="person"),
        pandas.date_range("2020-03-28", periods=30, freq="h", tz="Europe/Berlin", name="hour"),
        pandas.date_range("2020-01-01", periods=30, freq="777ms", tz="UTC"),
        pandas.period_range("2020Q1", periods=30, freq="Q-NOV", name="quarter"),
        pandas.timedelta_range("1h", periods=30, freq="90min"),
        pandas.MultiIndex.from_product([["it's", "b"], [0.5, 1.5, 2.5], range(5)], names=["k", None, "n"]),
    ],
    ids=[
        *("dates", "a part of a frame", "every other row", "counted", "numbers", "words"),
        *("a time zone", "fractions of seconds", "quarters", "durations", "levels"),
    ],
)
def test_an_index_comes_back_as_it_was(tmp_path: Path, index: Any) -> None:
    data = frame().set_axis(index)
    for out in (None, tmp_path / "r.zarr"):
        back = rf.pca(data, 2, out=out).to_pandas()
        pandas.testing.assert_index_equal(back.index, index, exact=False)
        assert len(data.join(back, how="inner")) == 30


@pytest.mark.parametrize("zone", ["Nowhere/Atlantis", ""])
def test_an_index_that_cannot_be_read_is_text(zone: str) -> None:
    labels = np.array(["2020-01-01 00:00:00+01:00", "(" * 999])
    for said in ({"time_zone": zone}, {"period": zone}, {"duration": zone}, {"levels": zone}):
        assert index_of_labels(pandas, labels, said, "t").equals(pandas.Index(labels, name="t"))


def test_parts_have_the_names_of_the_parts() -> None:
    data = frame()
    result = rf.svd(rf.open(data, select_rows="3::2", select_columns=[2, 0]), 2)
    assert result.to_pandas(like=data).index.equals(data.index[3::2])
    assert list(result.to_pandas("Vt", like=data).index) == ["c", "a"]


def test_neighbors_are_numbers_of_rows() -> None:
    found = rf.knn(frame(), 3).to_pandas(like=frame())
    assert list(found.columns) == ["neighbor1", "neighbor2", "neighbor3"] and found.index[0] == "s0"


def test_polars_goes_in_and_out() -> None:
    polars = pytest.importorskip("polars")
    data = polars.from_pandas(frame())
    result = rf.pca(data, 2)
    found = result.to_polars()
    assert found.columns == ["PC1", "PC2"] and found.shape == (30, 2)
    np.testing.assert_array_equal(found.to_numpy(), rf.pca(frame(), 2).scores[:])
    with_gap = data.with_columns(polars.Series("a", [None, *range(29)], dtype=polars.Int32))
    with pytest.raises(rf.RankfoldError, match="row 0, column 0"):
        rf.pca(with_gap, 2)
    with pytest.raises(InputError, match="column 'e' of the DataFrame holds String"):
        rf.pca(data.with_columns(polars.lit("x").alias("e")), 2)


def test_a_frame_of_polars_begins_with_the_names_that_a_table_has(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    result = rf.pca(frame(), 2)
    found = result.to_polars()
    result.to_table(tmp_path / "t.parquet")
    assert found.equals(polars.read_parquet(tmp_path / "t.parquet"))
    assert found[found.columns[0]].to_list() == [f"s{i}" for i in range(30)]
    assert result.to_polars("components").columns[1:] == ["PC1", "PC2"]


@pytest.mark.filterwarnings("error")
def test_a_lazy_frame_is_refused_without_a_word_of_polars() -> None:
    polars = pytest.importorskip("polars")
    with pytest.raises(InputError, match=r"cannot read a polars LazyFrame; .*x\.collect\(\)"):
        rf.open(polars.LazyFrame({"a": [1, 2]}), numeric=True)


@pytest.mark.parametrize("missing", ["mean", "em"])
def test_columns_without_numbers_are_named(missing: str) -> None:
    data = frame().astype(float)
    data["gone"] = np.nan
    with pytest.raises(rf.RankfoldError, match="'gone'"):
        rf.pca(data, 2, missing=missing)


def test_wrong_names_and_lengths_are_told() -> None:
    result = rf.pca(frame(), 2)
    with pytest.raises(InputError, match="has no 'score'; it has"):
        result.to_pandas("score")
    with pytest.raises(InputError, match="like has 29 rows, but the result is of a matrix with 30"):
        result.to_pandas(like=frame()[1:])
    with pytest.raises(InputError, match="no coordinates of rows"):
        rf.pca(frame(), 2, with_rows=False).to_pandas()


# Tables in files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("columns", "rows"), [(4, 7), (5, 5), (9, 3), (40, 1)])
def test_a_wide_table_is_written_by_fewer_rows(
    columns: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "TABLE_ROWS", 7)
    monkeypatch.setattr(frames, "TABLE_NUMBERS", 28)
    arrow, array = pytest.importorskip("pyarrow"), np.random.default_rng(0).random((20, columns))
    parts = list(frames._tables(arrow, array, None, [f"PC{at}" for at in range(columns)]))
    assert {len(part) for part in parts[:-1]} <= {rows} and len(parts) == -(-20 // rows)
    np.testing.assert_array_equal(arrow.concat_tables(parts).to_pandas().to_numpy(), array)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_a_table_has_the_names_and_every_digit(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankfold.pipeline.exporting.frames.TABLE_ROWS", 7)
    exact = functools.partial(pandas.read_csv, float_precision="round_trip")
    by_tabs = functools.partial(exact, sep="\t")
    read = {".csv": exact, ".tsv": by_tabs, ".parquet": pandas.read_parquet}[suffix]
    result = rf.pca(frame(), 2, out=tmp_path / "r.zarr")
    found = read(result.to_table(tmp_path / f"t{suffix}"))
    assert list(found.columns) == ["row", "PC1", "PC2"]
    assert list(found["row"]) == [f"s{i}" for i in range(30)]
    np.testing.assert_array_equal(found[["PC1", "PC2"]], result.scores[:])
    found = read(result.to_table(tmp_path / f"c{suffix}", "components"))
    assert list(found.iloc[:, 0]) == list("abcd")
    np.testing.assert_array_equal(found[["PC1", "PC2"]], result.components.T)
    result.to_table(tmp_path / f"t{suffix}", overwrite=True)
    shutil.copy(tmp_path / f"c{suffix}", tmp_path / f"t{suffix}")
    if suffix != ".parquet":  # which says that rankfold wrote it, not of what
        with pytest.raises(OutputError):
            result.to_table(tmp_path / f"t{suffix}", overwrite=True)


def test_a_table_of_a_field_has_a_column_for_each_axis(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    x = np.random.default_rng(0).standard_normal((9, 3, 4))
    data = xarray.DataArray(
        x, dims=("time", "lat", "lon"), coords={"lat": [60.0, 50.0, 40.0], "lon": [0.0, 10.0, 20.0, 30.0]}
    )
    result = rf.pca(rf.open(data, row_axes="time"), 2)
    found = pandas.read_csv(result.to_table(tmp_path / "t.csv", "components"))
    assert list(found.columns) == ["lat", "lon", "PC1", "PC2"]
    assert found.loc[5, ["lat", "lon"]].tolist() == [50.0, 10.0]


def test_the_command_writes_tables_and_replaces_its_own_alone(tmp_path: Path) -> None:
    cli = CliRunner()
    rf.kmeans(frame(), 3, out=tmp_path / "k.zarr")
    words = ["export", str(tmp_path / "k.zarr"), "--into", str(tmp_path / "k.csv")]
    assert cli.invoke(app, words).output.endswith(" written\n")
    assert pandas.read_csv(tmp_path / "k.csv").columns[-1] == "labels"
    assert cli.invoke(app, words).exit_code != 0
    assert cli.invoke(app, [*words, "--overwrite"]).exit_code == 0
    (tmp_path / "k.csv").write_text("mine\n")
    refused = cli.invoke(app, [*words, "--overwrite"])
    assert refused.exit_code != 0
    assert (tmp_path / "k.csv").read_text() == "mine\n"
    assert cli.invoke(app, [*words[:3], str(tmp_path / "c.parquet"), "--array", "centers"]).exit_code == 0
    assert len(pandas.read_parquet(tmp_path / "c.parquet")) == 4
    wrong = cli.invoke(app, [*words[:3], str(tmp_path / "d.csv"), "--array", "U"])
    assert "has no 'U'" in wrong.output
    assert not (tmp_path / "d.csv").exists()
