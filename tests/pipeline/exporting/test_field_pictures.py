"""Pictures of fields: north is at the top wherever it lies in the file, and each map has its series."""

from __future__ import annotations

import sys
import types
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rankfold as rf
from rankfold.pipeline.exporting.plots.kinds import drawing_of, figure_of, kinds_of
from rankfold.pipeline.exporting.plots.maps import Maps, in_degrees
from rankfold.pipeline.exporting.plots.patterns import Patterns
from rankfold.pipeline.exporting.plots.series import MOST_POINTS, Series

xarray = pytest.importorskip("xarray", reason="fields are told by the axes that xarray knows")

DATES = np.datetime64("1990-01-01T00:00:00") + 86400 * 30 * np.arange(30)
LATITUDES, LONGITUDES = np.array([-40.0, 0.0, 35.0, 60.0]), np.array([100.0, 160.0, 170.0, 190.0, 200.0])


def field(times: Any = DATES) -> Any:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((len(times), 4, 5)) + 3 * np.sin(np.arange(len(times)))[:, None, None]
    x[:, 2, 1] = np.nan  # land
    coordinates = {"time": times, "lat": LATITUDES, "lon": LONGITUDES}
    return xarray.DataArray(x, coordinates, dims=("time", "lat", "lon"), name="t2m")


def analysis(data: Any, method: Any = rf.pca, **options: Any) -> rf.Result:
    found: rf.Result = method(
        rf.open(data, row_axes="time", drop_missing_columns=True, **options.pop("open", {})), 3, **options
    )
    return found


@pytest.mark.parametrize("order", ["as it is", "north first", "rolled", "turned", "longitudes first"])
def test_north_is_up_and_east_is_right(order: str) -> None:
    data = field()
    given = {
        "as it is": data,
        "north first": data[:, ::-1],
        "rolled": data.isel(lon=[2, 3, 4, 0, 1]),
        # As stored from -180 to 180: a map across the date line is not torn apart.
        "turned": data.assign_coords(lon=[100.0, 160.0, 170.0, -170.0, -160.0]).sortby("lon"),
        "longitudes first": data.transpose("time", "lon", "lat"),
    }[order]
    result = analysis(given)
    drawing = drawing_of(result)
    assert kinds_of(result)[0] == "patterns" and isinstance(drawing, Patterns)
    components = (
        result.to_xarray(like=given)
        .components.assign_coords(lon=lambda each: each.lon % 360)
        .sortby(["lat", "lon"])
    )
    for number, one in enumerate(drawing.maps):
        np.testing.assert_array_equal(one.image, components[number].transpose("lat", "lon"))
        np.testing.assert_array_equal(one.up.values, LATITUDES)
        np.testing.assert_array_equal(one.right.values, LONGITUDES)
        share = 100 * result.explained_variance_ratio[number]
        assert one.title == f"PC{number + 1}: {share:.3g} % of the variance"
    for number, line in enumerate(drawing.lines):
        np.testing.assert_array_equal(line.values, np.asarray(result.scores)[:, number])
        np.testing.assert_array_equal(line.times, DATES.astype("M8[s]"))


@pytest.mark.parametrize("components", [None, (2,)])
def test_a_map_says_what_its_axes_and_colors_are(components: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = analysis(field()).plot(components=components)
        figure._repr_png_()
    places = figure.axes[0].child_axes
    place, bar = places[:2]
    ticks = [*place.get_xticklabels(), *place.get_yticklabels()]
    assert {text.get_text()[-1] for text in ticks} <= {"N", "S", "E", "W", "°"}
    bottom, top = place.get_ylim()
    assert bottom < top and place.get_aspect() == 1
    mesh = place.collections[0]
    assert mesh.norm.vmin == -mesh.norm.vmax and bar.get_title("left") == "weight"
    image = mesh.get_array()
    assert image.mask.sum() == 1 and image.mask[2, 1]  # land is left blank


LEVELS = xarray.DataArray([850.0, 500.0, 250.0], dims="level", attrs={"units": "hPa"})


@pytest.mark.parametrize("land", ["none", "everywhere", "first level"])
@pytest.mark.parametrize("dims", [("level", "lat", "lon"), ("lon", "level", "lat")], ids=" ".join)
@pytest.mark.parametrize("coordinates", ["all", "none"])
def test_columns_with_levels_have_a_map_at_one(dims: tuple[str, ...], coordinates: str, land: str) -> None:
    places = {"level": LEVELS, "lat": LATITUDES, "lon": LONGITUDES} if coordinates == "all" else {}
    x = np.random.default_rng(0).standard_normal((len(DATES), 3, 4, 5))
    x[:, :, 2, 1] = 0.0 if land == "none" else np.nan
    x[:, : 1 if land == "first level" else 0] = np.nan
    data = xarray.DataArray(x, {"time": DATES, **places}, ("time", "level", "lat", "lon"))
    result = analysis(data.transpose("time", *dims))
    components = result.to_xarray().components.transpose("mode", "level", "lat", "lon")
    level = 1 if land == "first level" else 0
    drawing = drawing_of(result)
    assert isinstance(drawing, Patterns)
    words = f"level {LEVELS.values[level]:g} hPa" if coordinates == "all" else f"level {level + 1} of 3"
    for number, one in enumerate(drawing.maps):
        image = components[number, level].values
        unlabeled = coordinates == "none" and dims[0] == "lon"  # in the order of the file
        np.testing.assert_array_equal(one.image, image.T if unlabeled else image)
        assert one.title.startswith(f"PC{number + 1} at {words}: ")
    figure_of(drawing, "levels")


def test_axes_that_say_no_level_have_no_map() -> None:
    x = np.random.default_rng(0).random((9, 3, 4, 5))
    named = {
        ("time", "lev", "y", "x"): True,
        ("time", "sigma", "y", "x"): True,
        ("time", "lev", "height", "x"): False,
        ("time", "channel", "y", "x"): False,
    }
    for dims, there in named.items():
        data = xarray.DataArray(x, dims=dims)
        if "sigma" in dims:
            data = data.assign_coords(sigma=("sigma", range(3), {"positive": "down"}))
        assert ("maps" in kinds_of(rf.svd(data, 2, row_axes="time"))) is there, dims


def test_components_are_named_one_by_one() -> None:
    result = analysis(field())
    maps, series = (drawing_of(result, kind, components=(3, 1)) for kind in ("maps", "series"))
    assert isinstance(maps, Maps) and isinstance(series, Series)
    assert [one.title.partition(":")[0] for one in maps.maps] == ["PC3", "PC1"]
    np.testing.assert_array_equal(maps.maps[0].image[~np.isnan(maps.maps[0].image)], result.components[2])
    np.testing.assert_array_equal(series.lines[0].values, np.asarray(result.scores)[:, 2])
    assert len(result.plot("maps", components=3).axes[0].child_axes) == 2
    with pytest.raises(rf.RankfoldError, match=r"no kind 'map' .did you mean 'maps'\?"):
        result.plot("map")
    with pytest.raises(rf.RankfoldError, match="components 1 to 3, and 4 is none"):
        result.plot("maps", components=4)


def test_map_times_series_is_the_same_however_it_is_scaled() -> None:
    result = analysis(abs(field()), rf.nmf)
    drawing = drawing_of(result)
    assert isinstance(drawing, Patterns)
    maps = np.stack([one.image[~np.isnan(one.image)] for one in drawing.maps])
    lines = np.stack([line.values for line in drawing.lines])
    np.testing.assert_allclose(lines.T @ maps, np.asarray(result.W) @ np.asarray(result.H), rtol=1e-5)
    assert maps.max() == 1


@pytest.mark.parametrize(
    ("times", "label"),
    [
        (np.arange(1990, 2020), "time"),
        (np.array([f"1990-02-{day:02} 00:00:00" for day in range(1, 31)]), "number of time, from 1990-02-01"),
        (np.array([f"{day}. of February" for day in range(1, 31)]), "number of time, from 1. of February"),
    ],
)
def test_times_are_drawn_in_any_calendar(times: Any, label: str) -> None:
    line = drawing_of(analysis(field(times)), "series").lines[0]
    assert line.x.startswith(label.partition(" of February")[0]) and len(line.times) == 30


@pytest.mark.parametrize("kind", ["patterns", "maps", "series"])
@pytest.mark.parametrize("components", [None, (2,)])
def test_a_narrow_picture_has_all_of_the_wide_one(kind: str, components: Any) -> None:
    wide: Any = drawing_of(analysis(field()), kind, components=components)
    narrow = replace(wide, width=820)
    assert narrow.left + narrow.size[0] + narrow.right <= 820 < wide.left + wide.size[0] + wide.right
    figure = figure_of(narrow, "a field", least=820)
    assert figure.get_size_inches()[0] * figure.dpi == pytest.approx(820)
    places = [axes.get_position() for axes in figure.axes]
    assert len(places) == len(figure_of(wide, "a field").axes)
    assert all(0 <= place.x0 < place.x1 <= 1 and 0 <= place.y0 < place.y1 <= 1 for place in places)


def test_rows_that_are_no_times_have_no_series() -> None:
    places = field().rename(time="station").assign_coords(station=np.arange(30))
    result = rf.pca(rf.open(places, row_axes="station", drop_missing_columns=True), 2)
    assert "series" not in kinds_of(result) and kinds_of(result)[0] == "scatter"


def test_long_series_keep_their_extremes() -> None:
    times = np.arange(3 * MOST_POINTS + 1)
    data = field(times)
    data[MOST_POINTS + 3] += 100.0
    result = analysis(data)
    line = drawing_of(result, "series").lines[0]
    scores = np.asarray(result.scores)[:, 0]
    assert len(line.values) == len(line.times) == MOST_POINTS
    assert {line.values.min(), line.values.max()} == {scores.min(), scores.max()}
    assert abs(line.times[np.argmax(abs(line.values))] - (MOST_POINTS + 3)) <= 6


def test_degrees_are_written_as_on_maps() -> None:
    values = [in_degrees(each, east=True) for each in (0, 10.5, 180, 190, -30, 360)]
    assert values == ["0°", "10.5°E", "180°", "170°W", "30°W", "0°"]
    assert [in_degrees(each, east=False) for each in (-90, 0, 45)] == ["90°S", "0°", "45°N"]


@pytest.mark.parametrize("there", [True, False])
def test_coasts_are_drawn_where_cartopy_has_them_and_never_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    """A stand-in for cartopy, which raises where the real one would go to the network."""
    coast = tmp_path / "ne_110m_coastline.shp"
    if there:
        coast.write_bytes(b"")
    modules = {name: types.ModuleType(name) for name in ("cartopy", "cartopy.io", "cartopy.io.shapereader")}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)

    class Downloader:
        @staticmethod
        def from_config(key: tuple[str, ...]) -> Downloader:
            assert key[:2] == ("shapefiles", "natural_earth") and key[3:] == ("physical", "coastline")
            return Downloader()

        def pre_downloaded_path(self, facts: dict[str, Any]) -> Path | None:
            return None

        def target_path(self, facts: dict[str, Any]) -> Path:
            return tmp_path / f"ne_{facts['resolution']}_{facts['name']}.shp"

        def path(self, facts: dict[str, Any]) -> Path:
            raise AssertionError("the network was asked")

    class Reader:
        def __init__(self, path: Path) -> None:
            assert path == coast

        def geometries(self) -> list[Any]:
            line = types.SimpleNamespace(coords=[(-170.0, 0.0), (-160.0, 50.0)])
            far = types.SimpleNamespace(coords=[(0.0, 0.0), (10.0, 5.0)])
            return [types.SimpleNamespace(geoms=[line]), far]

    modules["cartopy"].config = {}  # type: ignore[attr-defined]
    modules["cartopy.io"].Downloader = Downloader  # type: ignore[attr-defined]
    modules["cartopy.io.shapereader"].Reader = Reader  # type: ignore[attr-defined]
    place = analysis(field()).plot("maps", components=1).axes[0].child_axes[0]
    segments = [path.vertices.tolist() for each in place.collections[1:] for path in each.get_paths()]
    assert segments == ([[[190.0, 0.0], [200.0, 50.0]]] if there else [])  # where the map shows it
    assert place.get_xlim()[0] < 100 < 200 < place.get_xlim()[1]
