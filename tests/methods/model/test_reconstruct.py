"""The matrix as its components have it: NumPy's product in every shape, a plain array, whole or not there."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from reference import decaying, to_zarr
from typer.testing import CliRunner

import rankfold as rf
from rankfold.methods.model import reconstruct as reconstruction
from rankfold.methods.model.model import open_model
from rankfold.methods.model.reconstruct import Reconstruction
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.workflows.cli import app

pytestmark = pytest.mark.filterwarnings("ignore:the largest estimated error")
FITS: list[dict[str, Any]] = [{}, {"scale": True, "whiten": True}, {"whiten": True}, {"center": False}]


def product(result: rf.Result, rank: int) -> np.ndarray:
    """The approximation in float64, from the arrays of a result alone."""
    if result.attrs["kind"] == "svd":
        return (np.asarray(result.U[:, :rank], np.float64) * result.s[:rank]) @ np.asarray(
            result.Vt[:rank], np.float64
        )
    scores = np.asarray(result.scores[:, :rank], np.float64)
    if result.attrs["request"]["whiten"]:
        scores = scores * result.singular_values[:rank] / np.sqrt(len(scores) - 1)
    x = scores @ np.asarray(result.components[:rank], np.float64)
    return x * (result.scale if "scale" in list(result) else 1.0) + result.mean


def rounding(x: np.ndarray, dtype: Any) -> float:
    """Elements are summed in float64, each a few terms of its own size, and rounded once."""
    return float(np.abs(x).max() * (np.finfo(dtype).eps / 2 + 20 * np.finfo(np.float64).eps))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", [(700, 40), (40, 700), (60, 60)], ids=str)
def test_the_approximation_is_the_product(shape: tuple[int, int], dtype: Any) -> None:
    x = decaying(*shape, dtype)
    for result in [rf.svd(x, 5, tol=1e-3), *(rf.pca(x, 5, tol=1e-3, **options) for options in FITS)]:
        for rank, rows in [(None, None), (2, None), (5, slice(7, 31)), (1, slice(-3, None))]:
            made = rf.reconstruct(result, rank=rank, row_range=rows)
            want = product(result, rank or 5)[slice(None) if rows is None else rows]
            assert isinstance(made, np.ndarray) and made.dtype == dtype
            np.testing.assert_allclose(made, want, rtol=0, atol=rounding(want, dtype))


@pytest.mark.parametrize("prepare", ["scale", "coslat, scale", "weights"])
def test_steps_are_taken_back_and_land_comes_back(tmp_path: Path, prepare: Any) -> None:
    xarray = pytest.importorskip("xarray", reason="pip install xarray")
    x = np.random.default_rng(0).standard_normal((12, 5, 4)) + 18
    x[:, 2, 1] = np.nan
    coords = {"time": np.arange(12) * 30, "lat": np.linspace(-60, 60, 5)}
    data = xarray.DataArray(x, coords, ("time", "lat", "lon"), name="sst", attrs={"units": "K"})
    weights = [{"weights": {"values": np.r_[0.0, np.linspace(0.5, 2, 19)]}}]
    view = {"row_axes": "time", "drop_missing_columns": True}
    matrix = rf.open(data, **view, prepare=weights if prepare == "weights" else prepare)
    for result in (rf.svd(matrix), rf.pca(matrix), rf.pca(matrix, scale=True, whiten=True)):
        out = tmp_path / result.attrs["kind"]
        rf.reconstruct(result, row_range=slice(2, 9), physical=True, out=out, overwrite=True)
        found, want = rf.open_result(out).to_xarray(data)["sst"], data[2:9].copy()
        if prepare == "weights":
            want[:, 0, 0] = np.nan
        xarray.testing.assert_allclose(found, want, rtol=1e-10)
        assert found.attrs["units"] == "K"
        np.testing.assert_array_equal(rf.open_result(out).to_xarray()["time"], np.arange(2, 9) * 30)


@pytest.mark.parametrize("kept", ["all", "some columns", "some columns by a mask"])
@pytest.mark.parametrize("prepare", [None, "scale"])
@pytest.mark.parametrize("physical", [False, True])
def test_axes_and_names_come_back(tmp_path: Path, physical: bool, prepare: str | None, kept: str) -> None:
    """They did where steps were taken back alone; in a file of netCDF axes were ``row`` and ``column``."""
    xarray = pytest.importorskip("xarray", reason="pip install xarray")
    x = np.random.default_rng(0).standard_normal((12, 5, 4)) + 18
    coords = {"time": np.arange(12) * 30, "lat": np.linspace(-60, 60, 5)}
    data = xarray.DataArray(x, coords, ("time", "lat", "lon"), name="sst", attrs={"units": "K"})
    columns = {"all": {}, "some columns": {"select_columns": slice(3, 15)}}
    how = columns.get(kept, {"mask_var": (np.arange(20) >= 3) & (np.arange(20) < 15)})
    result = rf.pca(data, 11, row_axes="time", prepare=prepare, **how)
    for rows in (slice(0, 12), slice(2, 5)):
        rf.reconstruct(result, row_range=rows, physical=physical, out=tmp_path / "x", overwrite=True)
        in_units = physical or prepare is None
        found = rf.open_result(tmp_path / "x").to_xarray()["sst" if in_units else "X"]
        assert found.dims == data.dims
        np.testing.assert_array_equal(found["time"], coords["time"][rows])
        np.testing.assert_array_equal(found["lat"], coords["lat"])
        again = rf.svd(tmp_path / "x", 1).to_xarray()
        assert again["Vt"].dims == ("mode", "lat", "lon") and again["U"].dims == ("mode", "time")
        assert found.attrs == ({"units": "K"} if in_units else {})
        there = np.ones(20, bool) if kept == "all" else (np.arange(20) >= 3) & (np.arange(20) < 15)
        np.testing.assert_array_equal(np.isfinite(found.values.reshape(-1, 20)), [there] * len(found))
        if in_units:
            np.testing.assert_allclose(found.values.reshape(-1, 20)[:, there], x.reshape(12, 20)[rows, there])


@pytest.mark.parametrize("door", ["netcdf", "hdf5", "zarr", "imported", "opened", "in memory", "dask"])
def test_the_matrix_has_the_name_and_units_of_its_variable(tmp_path: Path, door: str) -> None:
    xarray = pytest.importorskip("xarray", reason="pip install xarray")
    x = np.random.default_rng(0).standard_normal((12, 5, 4))
    said = {"units": "degC", "long_name": "sea surface temperature"}
    data = xarray.DataArray(x, {"time": range(12)}, ("time", "lat", "lon"), name="sst", attrs=said)
    (h5, nc), store = (tmp_path / f"d.{kind}" for kind in ("h5", "nc")), tmp_path / "d.zarr"
    for file in (h5, nc):
        data.to_netcdf(file, engine="netcdf4")
    data.to_dataset().to_zarr(store, consolidated=False)
    if door == "imported":
        rf.import_array(f"{nc}::sst", tmp_path / "i.zarr", row_axes="time")
    with xarray.open_dataset(nc) as opened:
        doors = {
            "netcdf": f"{nc}::sst",
            "hdf5": f"{h5}::sst",
            "zarr": f"{store}::sst",
            "imported": tmp_path / "i.zarr",
            "opened": opened.sst,
            "in memory": data,
            "dask": data.chunk(time=5),
        }
        fit = rf.pca(doors[door], 2, row_axes=None if door == "imported" else "time")
    rf.reconstruct(fit, out=tmp_path / "x")
    dataset = rf.open_result(tmp_path / "x").to_xarray()
    assert [*dataset.data_vars] == ["sst"] and dataset.sst.attrs == said
    assert [*rf.open_result(tmp_path / "x").to_xarray(data.rename("t")).data_vars] == ["t"]


@pytest.mark.parametrize(
    ("variable", "axes", "expected"),
    [
        ("lat", ("time", "lat", "lon"), "X"),
        ("sst", ("T", "Y", "X"), "sst"),
        (None, ("T", "Y", "Z"), "X"),
        (None, ("T", "Y", "X"), "reconstruction"),
    ],
)
def test_no_matrix_is_called_as_an_axis_is(
    tmp_path: Path, variable: str | None, axes: tuple[str, str, str], expected: str
) -> None:
    xarray = pytest.importorskip("xarray", reason="pip install xarray")
    data = xarray.DataArray(np.random.default_rng(0).random((9, 3, 4)), dims=axes, name=variable)
    rf.reconstruct(rf.svd(data, 2, row_axes=axes[0]), out=tmp_path / "x")
    found = rf.open_result(tmp_path / "x").to_xarray()
    assert [*found.data_vars] == [expected] and found[expected].dims == axes


def test_columns_that_a_step_chose_keep_their_names(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="pip install pandas")
    counts = np.random.default_rng(0).poisson(1.0, (60, 12)) * np.arange(1, 13)
    frame = pandas.DataFrame(counts, columns=[f"g{i}" for i in range(12)], dtype=float)
    result = rf.pca(frame, 3, prepare="log1p, highly_variable(n_top_genes=4)")
    rf.reconstruct(result, out=tmp_path / "x")
    found = rf.open_result(tmp_path / "x").to_pandas()
    assert list(found.columns) == list(result.to_pandas("components").index) and len(found) == 60
    np.testing.assert_array_equal(found, rf.reconstruct(result))
    again = rf.pca(tmp_path / "x", 2)  # and it is a matrix with these names
    assert list(again.to_pandas("components").index) == list(found.columns)


def test_what_cannot_be_taken_back_is_refused() -> None:
    x = np.random.default_rng(0).random((12, 5))
    weighed = rf.svd(x, 2, prepare=[{"sample_weight": {"values": np.arange(12.0)}}])
    with pytest.raises(rf.RankfoldError, match="a result keeps no weights of rows"):
        rf.reconstruct(weighed, physical=True)
    with pytest.raises(rf.RankfoldError, match="and log1p is none"):
        rf.reconstruct(rf.svd(x, 2, prepare="log1p"), physical=True)


def test_the_command_says_what_the_numbers_are(tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((12, 5))
    x[:, 1] = np.nan
    rf.pca(rf.open(x, drop_missing_columns=True, prepare="scale"), 2, out=tmp_path / "fit.zarr")
    words = ["reconstruct", str(tmp_path / "fit.zarr"), "--out"]
    plain = CliRunner().invoke(app, [*words, str(tmp_path / "a.zarr")])
    assert (
        "numbers are those after scale(zero_center=True, ddof=1); 1 of 5 columns were left out"
        in plain.stdout
    )
    physical = CliRunner().invoke(app, [*words, str(tmp_path / "b.zarr"), "--physical"])
    assert "numbers are those" not in physical.stdout and "1 of 5 columns" in physical.stdout


def test_scikit_learn_agrees() -> None:
    from sklearn.decomposition import PCA

    x = decaying(300, 30)
    for whiten in (False, True):
        theirs = PCA(4, whiten=whiten, svd_solver="full").fit(x)
        ours = rf.reconstruct(rf.pca(x, 4, tol=1e-13, passes=30, whiten=whiten))
        np.testing.assert_allclose(ours, theirs.inverse_transform(theirs.transform(x)), atol=1e-6)


def test_float32_data_far_from_zero_lose_nothing() -> None:
    rng = np.random.default_rng(0)
    low = rng.standard_normal((900, 3)) @ rng.standard_normal((3, 25))
    x = (1e4 + low).astype(np.float32)
    made = np.asarray(rf.reconstruct(rf.pca(x, 4, tol=1e-3)))
    # What is left out is the rounding of the data themselves, and rounding the answer adds as much.
    assert np.abs(made.astype(np.float64) - x).max() <= 2 * np.spacing(np.float32(1e4))


def test_the_whole_rank_gives_the_matrix_back_and_says_how_good_less_is(tmp_path: Path) -> None:
    x = decaying(200, 12)
    result = rf.svd(x, 12, tol=1e-10, passes=30)
    np.testing.assert_allclose(rf.reconstruct(result), x, atol=1e-9)
    low = rf.reconstruct(result, rank=5, out=tmp_path / "x.zarr")
    facts = low.attrs["rankfold"]
    error = np.linalg.norm(low[...] - x) / np.linalg.norm(x)
    assert facts["relative_error"] == pytest.approx(error, rel=1e-8)
    assert rf.open_result(tmp_path / "x.zarr").attrs == facts
    # The same number as the pass of transform finds.
    assert rf.transform(rf.svd(x, 5, tol=1e-10, passes=30), x).attrs["relative_error"] == pytest.approx(error)


@pytest.mark.parametrize("chunks", [(500, 70), (37, 9)], ids=str)
def test_out_is_a_plain_array_that_all_commands_read(tmp_path: Path, chunks: tuple[int, int]) -> None:
    store = to_zarr(tmp_path / "in.zarr", decaying(500, 70, np.float32), chunks)
    fit = rf.pca(store, 4, out=tmp_path / "fit.zarr")
    made = rf.reconstruct(tmp_path / "fit.zarr", out=tmp_path / "x.zarr")
    assert isinstance(made, zarr.Array) and made.shape == (500, 70)
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "x.zarr", mode="r")[...], rf.reconstruct(fit))
    source = rf.open(tmp_path / "x.zarr")
    assert source.shape == (500, 70) and source.dtype == np.float32
    source.check()
    assert "500 x 70 float32" in CliRunner().invoke(app, ["info", str(tmp_path / "x.zarr")]).stdout
    again = rf.pca(tmp_path / "x.zarr", 4, tol=1e-3)
    np.testing.assert_allclose(again.singular_values, fit.singular_values, rtol=1e-5)


def test_long_lines_are_cut_across_too_and_panels_are_whole_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconstruction, "FULL_ROWS_BYTES", 256 * 100 * 8)
    monkeypatch.setattr(reconstruction, "CHUNK_BYTES", 256 * 100 * 8)
    x = decaying(3000, 410)
    for i, matrix in enumerate((x, x.T)):
        result = rf.pca(matrix, 3, tol=1e-2, scale=True)
        made = rf.reconstruct(result, out=tmp_path / f"{i}.zarr")
        assert sorted(made.chunks) == [82, 256]
        np.testing.assert_allclose(made[...], product(result, 3), rtol=0, atol=rounding(x, x.dtype))
        task = Reconstruction.of(open_model(result), rank=None, rows=None)
        fold = task.fold(tmp_path, tmp_path, 1)
        assert task.by_rows == (i == 0) and np.all(fold.cut.panels[:-1] % 256 == 0)


COMMAND = """
import json, sys
import rankfold as rf
told = lambda name, done, total: print(name, done, flush=True)
rf.reconstruct(sys.argv[1], out=sys.argv[2], threads=int(sys.argv[3]), memory="256MiB", progress=told)
last = rf.open_result(sys.argv[2]).run["attempts"][-1]
print(json.dumps([last["planned_bytes"], last["measured_bytes"]]))
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two fits, of which the matrix of the second is two and a half times as tall: 400 MB."""
    folder = tmp_path_factory.mktemp("large")
    for name, times in (("a", 20), ("b", 50)):
        x = np.tile(decaying(2000, 100, np.float32), (times, 10))
        rf.svd(x, 8, tol=0.5, passes=1, solver="krylov", out=folder / f"{name}.zarr")
    return folder / "a.zarr", folder / "b.zarr"


def test_any_number_of_threads_gives_the_same_bytes(tmp_path: Path, large: tuple[Path, Path]) -> None:
    made = []
    for threads in (1, 4):
        rf.reconstruct(large[0], out=tmp_path / f"{threads}.zarr", threads=threads)
        files = sorted(path for path in (tmp_path / f"{threads}.zarr").rglob("*") if path.is_file())
        made.append([hashlib.sha256(path.read_bytes()).digest() for path in files])
    assert made[0] == made[1]
    ran = rf.open_result(tmp_path / "4.zarr").run["attempts"][-1]["plan"]
    assert ran["passes"][0]["streams"] > 1 and ran["concurrency"] > 1


def start(fit: Path, out: Path, threads: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "ignore", "-c", COMMAND, str(fit), str(out), str(threads)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_the_peak_is_planned_and_does_not_grow_with_the_rows(
    tmp_path: Path, large: tuple[Path, Path]
) -> None:
    peaks = []
    for fit in large:
        # One thread: of two a busy machine may keep one waiting, and its buffers are never made.
        with start(fit, tmp_path / fit.name, 1) as child:
            said, _ = child.communicate()
            assert child.returncode == 0
        peaks.append(json.loads(said.splitlines()[-1]))
    if peaks[0][1] is None:
        pytest.skip("this system does not report anonymous memory (RssAnon is Linux)")
    assert all(peak <= planned for planned, peak in peaks)
    assert peaks[1][0] <= 1.1 * peaks[0][0]
    assert peaks[1][1] <= 1.1 * peaks[0][1] + 8 * 2**20


@pytest.mark.slow
def test_a_killed_reconstruction_is_not_there_and_goes_on_to_the_same_bytes(
    tmp_path: Path, large: tuple[Path, Path]
) -> None:
    with start(large[1], tmp_path / "x.zarr", 2) as child:
        assert child.stdout is not None
        while (line := child.stdout.readline()).startswith("reconstruct") and line.split()[1] == "0":
            pass
        child.send_signal(signal.SIGKILL)
    assert not (tmp_path / "x.zarr").exists() and (tmp_path / "x.zarr.run").exists()
    made, whole = rf.reconstruct(large[1], out=tmp_path / "x.zarr"), rf.reconstruct(large[1])
    assert isinstance(whole, zarr.Array)  # too large to be loaded unasked
    for begin in range(0, made.shape[0], 10_000):
        np.testing.assert_array_equal(made[begin : begin + 10_000], whole[begin : begin + 10_000])


def test_what_cannot_be_rebuilt_is_refused(tmp_path: Path) -> None:
    x = decaying(300, 20)
    result = rf.svd(x, 3)
    for wrong, message in [
        ({"rank": 4}, "holds 3 components: ask for 1 to 3, or fit again with rank=4"),
        ({"rank": 0}, "rank must be at least 1, not 0"),
        ({"rank": 1.5}, "rank must be an integer"),
        ({"row_range": slice(300, None)}, "row_range 300:None holds none of the 300 rows"),
        ({"row_range": slice(0, 9, 2)}, "steps of 2"),
        ({"row_range": (0, 9)}, "row_range must be a slice"),
        ({"memory": "9MiB"}, "memory= gives 9 MiB. Give memory="),
        ({"out": result.path}, "on or around the result"),
    ]:
        with pytest.raises(rf.RankfoldError, match=message):
            rf.reconstruct(result, **wrong)
    with pytest.raises(rf.RankfoldError, match="has no scores: it was fitted without rows"):
        rf.reconstruct(rf.pca(x, 3, with_rows=False))
    to_zarr(tmp_path / "x.zarr", x, (300, 20))
    with pytest.raises(rf.RankfoldError, match="never replaced"):
        rf.reconstruct(result, out=tmp_path / "x.zarr", overwrite=True)
    plan = Reconstruction.of(open_model(result), rank=None, rows=None).plan(Budget(2**30, 2))
    assert plan.result_bytes == x.nbytes and plan.peak_bytes < 2**30


def test_the_command_line_does_the_same(tmp_path: Path) -> None:
    def rankfold(*arguments: object) -> Any:
        return CliRunner().invoke(app, [str(argument) for argument in arguments])

    fit, out = tmp_path / "fit.zarr", tmp_path / "low.zarr"
    rf.pca(decaying(300, 20), 3, out=fit)
    command = ("reconstruct", fit, "--out", out, "--rank", 2, "--select-rows", "10:60")
    run = rankfold(*command)
    assert run.exit_code == 0, run.output
    assert "low.zarr: done" in run.stdout and "50 x 20 float64 of rank 2" in run.stdout
    want = rf.reconstruct(fit, rank=2, row_range=slice(10, 60))
    np.testing.assert_array_equal(zarr.open_array(out, mode="r")[...], want)
    again = json.loads(rankfold(*command, "--json").stdout)
    assert again["already_done"] and again["request"]["rows"] == [10, 60]
    other = rankfold(*command[:-1], ":60")
    assert other.exit_code == 2 and "--overwrite" in other.stderr
    assert rankfold(*command[:-1], ":60", "--overwrite").exit_code == 0
    assert zarr.open_array(out, mode="r").shape == (60, 20)
    wrong = rankfold(*command[:-1], "60")
    assert wrong.exit_code == 2 and "is not START:STOP" in wrong.stderr
