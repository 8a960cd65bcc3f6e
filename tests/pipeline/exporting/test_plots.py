"""Pictures of results: points are counted where NumPy counts them, and the same result is the same bytes."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tracemalloc
import warnings
from pathlib import Path

import matplotlib
import matplotlib.image
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plotted import result_with

import rankfold as rf
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.exporting.plots import coordinates
from rankfold.pipeline.exporting.plots.canvas import DARK, LIGHT
from rankfold.pipeline.exporting.plots.coordinates import View, points_of, project
from rankfold.pipeline.exporting.plots.density import count_points, extent_of
from rankfold.pipeline.exporting.plots.kinds import drawing_of, figure_of, kinds_of
from rankfold.pipeline.exporting.plots.row_colors import Labels, Values, colors_of
from rankfold.pipeline.exporting.plots.scatter import MOST_MARKERS, Scatter

MANY = MOST_MARKERS + 5000


def cloud(rows: int, columns: int = 2, dtype: str = "f4") -> np.ndarray:
    rng = np.random.default_rng(3)
    return (rng.standard_normal((rows, columns)) * 3 + rng.integers(0, 3, (rows, 1))).astype(dtype)


def pixels(png: bytes | Path) -> np.ndarray:
    return np.asarray(matplotlib.image.imread(io.BytesIO(png) if isinstance(png, bytes) else png))


# Counts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_counts_are_those_of_numpy(tmp_path: Path, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = cloud(MANY, 3, dtype)
    result = result_with(tmp_path / "r.zarr", embedding=x)
    bins = (37, 53)
    monkeypatch.setattr(coordinates, "BLOCK_NUMBERS", 3000)
    points = points_of(result, (3, 1), None)
    extent = extent_of(points)
    grid = count_points(points, extent, bins)
    limits = list(zip(extent.low, extent.high, strict=True))
    truth = np.histogram2d(x[:, 2].astype("f8"), x[:, 0].astype("f8"), bins, limits)[0]
    np.testing.assert_array_equal(grid.counts, truth.astype(np.int64))
    assert grid.counts.sum() == MANY


@given(
    st.lists(st.tuples(*[st.floats(-1e6, 1e6, width=32)] * 2), min_size=1, max_size=40),
    st.integers(1, 7),
)
def test_points_on_edges_are_counted_as_numpy_does(rows: list[tuple[float, float]], bins: int) -> None:
    x = np.array(rows, np.float32)
    points = coordinates.Points(source_of(x), (0, 1), ("a", "b"), None, True)
    extent = extent_of(points)
    assert (extent.size > 0).all()
    limits = list(zip(extent.low, extent.high, strict=True))
    truth = np.histogram2d(*x.T.astype("f8"), bins, limits)[0]
    np.testing.assert_array_equal(count_points(points, extent, (bins, bins)).counts, truth)


def source_of(x: np.ndarray) -> Source:
    source: Source = rf.open(x)
    return source


def test_colors_and_values_are_summed_by_bin(tmp_path: Path) -> None:
    x, rng = cloud(MANY), np.random.default_rng(0)
    points = points_of(result_with(tmp_path / "r.zarr", embedding=x), None, None)
    extent = extent_of(points)
    limits = list(zip(extent.low, extent.high, strict=True))
    labels = rng.integers(0, 4, MANY)
    palette = rng.integers(0, 256, (5, 3))
    grid = count_points(points, extent, (9, 8), colors_of(labels, MANY), palette)
    values = rng.standard_normal(MANY)
    values[::7] = np.nan
    means = count_points(points, extent, (9, 8), colors_of(values, MANY), palette)
    assert grid.colors is not None and means.values is not None and means.value_counts is not None
    for channel in range(3):
        weights = palette[labels, channel]
        truth = np.histogram2d(*x.T.astype("f8"), (9, 8), limits, weights=weights)[0]
        np.testing.assert_array_equal(grid.colors[..., channel], truth)
    known = np.isfinite(values)
    truth = np.histogram2d(*x[known].T.astype("f8"), (9, 8), limits, weights=values[known])[0]
    np.testing.assert_allclose(means.values, truth, rtol=1e-12, atol=1e-9)
    counts = np.histogram2d(*x[known].T.astype("f8"), (9, 8), limits)[0]
    np.testing.assert_array_equal(means.value_counts, counts)


def test_names_stand_where_most_of_a_label_are(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    centers = np.array([[0, 0], [10, 0], [0, 10]])
    labels = np.repeat([2, 0, 1, 3, 4, 5], 900)
    x = np.where(rng.random((5400, 1)) < 0.95, np.vstack([centers, [[5, 5]] * 3])[labels], 5.0)
    x += 0.3 * rng.standard_normal((5400, 2))
    drawing = drawing_of(result_with(tmp_path / "r.zarr", embedding=x), color=labels)
    assert isinstance(drawing, Scatter)
    assert list(drawing.grid.places) == [0, 1, 2]  # those that lie within each other are in the legend alone
    for label, place in drawing.grid.places.items():
        np.testing.assert_allclose(place, centers[label], atol=0.4)


# Bytes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [300, MANY])
@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_the_same_result_is_the_same_bytes(tmp_path: Path, rows: int, suffix: str) -> None:
    result = result_with(tmp_path / "r.zarr", embedding=cloud(rows))
    labels = np.arange(rows) % 3
    first = tmp_path / f"a{suffix}"
    result.plot(color=labels, out=first)
    with matplotlib.rc_context({"font.size": 30, "savefig.dpi": 30, "axes.grid": True}):
        result.plot(color=labels, out=tmp_path / f"b{suffix}")
    assert first.read_bytes() == (tmp_path / f"b{suffix}").read_bytes()
    assert not re.search(rb"20\d\d-\d\d-\d\d", first.read_bytes())


def test_any_order_of_the_rows_has_the_same_density(tmp_path: Path) -> None:
    x = cloud(MANY)
    labels = (x[:, 0] > 0).astype(int) + (x[:, 1] > 2)
    order = np.random.default_rng(0).permutation(MANY)
    for name, rows in (("a", slice(None)), ("b", order)):
        result = result_with(tmp_path / f"{name}.zarr", embedding=x[rows])
        result.plot(color=labels[rows], out=tmp_path / f"{name}.png")
    assert (pixels(tmp_path / "a.png") == pixels(tmp_path / "b.png")).all()


def test_dense_points_are_an_image_in_an_svg(tmp_path: Path) -> None:
    result_with(tmp_path / "a.zarr", embedding=cloud(MANY)).plot(out=tmp_path / "a.svg")
    result_with(tmp_path / "b.zarr", embedding=cloud(400)).plot(out=tmp_path / "b.svg")
    dense, sparse = ((tmp_path / f"{name}.svg").read_text() for name in "ab")
    assert "<image" in dense and "data:image/png;base64," in dense and len(dense) < 500_000
    assert "<image" not in sparse and sparse.count("<use") >= 400


def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    peaks = []
    result_with(tmp_path / "0.zarr", embedding=cloud(MANY)).plot()  # imports
    for rows in (400_000, 1_600_000):
        result = result_with(tmp_path / f"{rows}.zarr", embedding=cloud(rows))
        tracemalloc.start()
        drawing_of(result)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0] and peaks[1] < 100 * 2**20


def test_nothing_of_the_user_is_touched(tmp_path: Path) -> None:
    result_with(tmp_path / "r.zarr", embedding=cloud(50)).plot()
    code = (
        "import io, sys, matplotlib, matplotlib.image\n"
        "def settings(): return {k: matplotlib.rcParams[k] for k in matplotlib.rcParams if k != 'backend'}\n"
        "before = settings()\n"
        f"import rankfold as rf; r = rf.open_result({str(tmp_path / 'r.zarr')!r})\n"
        f"figure = r.plot(out={str(tmp_path / 'r.png')!r})\n"
        "assert 'matplotlib.pyplot' not in sys.modules and settings() == before\n"
        "image, read = matplotlib.image, io.BytesIO(figure._repr_png_())\n"
        "assert (image.imread(read) == image.imread(sys.argv[1])).all()\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code, str(tmp_path / "r.png")], check=True)


# What is drawn --------------------------------------------------------------------------------------


def test_the_density_is_where_the_points_are(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.standard_normal((MANY, 2)), [[30, 30]]]).astype("f4")
    figure = result_with(tmp_path / "r.zarr", embedding=x).plot()
    (axes,) = (each for each in figure.axes if each.images)
    image = axes.images[0].get_array()
    assert image[..., 3].astype(bool).sum() == (np.asarray(drawing(tmp_path).grid.counts) > 0).sum()
    assert image[-40:, -40:, 3].any() and not image[-40:, :40, 3].any()  # the one point is seen
    np.testing.assert_allclose(axes.get_aspect(), 1.0)


def drawing(folder: Path) -> Scatter:
    made = drawing_of(rf.open_result(folder / "r.zarr"))
    assert isinstance(made, Scatter)
    return made


def test_components_count_from_one(tmp_path: Path) -> None:
    x = cloud(60, 4)
    result = result_with(tmp_path / "r.zarr", "pca", scores=x)
    figure = result.plot(components=(4, 2))
    offsets = figure.axes[0].collections[0].get_offsets()
    assert {tuple(row) for row in np.asarray(offsets)} == {tuple(row) for row in x[:, [3, 1]].astype("f8")}
    assert figure.axes[0].get_xlabel().split()[0] == "PC4" and figure.axes[0].get_ylabel().split()[0] == "PC2"


@given(st.floats(-90, 90), st.floats(-360, 360))
def test_a_view_is_a_rotation(elevation: float, azimuth: float) -> None:
    axes = View(elevation, azimuth).axes()
    np.testing.assert_allclose(axes @ axes.T, np.eye(2), atol=1e-12)
    assert axes[0, 2] == 0  # the third coordinate points up
    np.testing.assert_allclose(project(np.eye(3), View(elevation, azimuth)), axes)


def test_three_components_are_seen_as_matplotlib_sees_them() -> None:
    from mpl_toolkits.mplot3d import proj3d

    view = View(20, -50)
    e, a = np.deg2rad([20, -50])
    eye = np.array([np.cos(e) * np.cos(a), np.cos(e) * np.sin(a), np.sin(e)])
    u, v, w = proj3d._view_axes(eye, np.zeros(3), np.array([0, 0, 1.0]), 0)
    np.testing.assert_allclose(view.axes(), [u, v], atol=1e-12)
    np.testing.assert_allclose(np.cross(u, v), w, atol=1e-12)


@pytest.mark.parametrize("theme", [LIGHT, DARK])
@pytest.mark.parametrize("rows", [1, 2, 50, MANY])
@pytest.mark.parametrize("components", [(1,), (1, 2), (1, 2, 3)])
def test_odd_coordinates_are_drawn_without_a_warning(tmp_path: Path, theme, rows: int, components) -> None:
    for number, x in enumerate((cloud(rows, 3), np.full((rows, 3), 1e20, "f4"), np.zeros((rows, 3), "f8"))):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            result = result_with(tmp_path / f"{number}.zarr", embedding=x)
            figure = figure_of(drawing_of(result, components=components), "A title", theme)
            image = pixels(figure._repr_png_())
        assert image.std() > 0


@pytest.mark.parametrize(
    "color", ["labels", "more words than colors", "words", "values", "one value", "most are missing", "bool"]
)
@pytest.mark.parametrize("rows", [40, MANY])
def test_rows_are_colored(tmp_path: Path, color: str, rows: int) -> None:
    row = np.arange(rows)
    colors = {
        "labels": row % 30,
        "more words than colors": np.array([f"w{i}" for i in range(130)])[row % 130],
        "words": np.array(["a word that is much longer than any legend", "b"])[row % 2],
        "values": row / 7,
        "one value": np.full(rows, 3.0),
        "most are missing": np.where(row % 9, np.nan, row),
        "bool": row % 2 == 0,
    }[color]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = result_with(tmp_path / "r.zarr", embedding=cloud(rows)).plot(color=colors)
        assert pixels(figure._repr_png_())[..., :3].std() > 0
    legend = figure.axes[0].get_legend()
    assert (legend is None) == (colors.dtype.kind == "f")
    if legend is not None:
        names = [text.get_text() for text in legend.get_texts()]
        assert len(names) == min(len(set(colors.tolist())), 101)
        assert (names[-1] == "30 others") == (color == "more words than colors" and rows > 130)
        canvas = figure.canvas.get_renderer()
        box, page = legend.get_window_extent(canvas), figure.bbox
        assert box.x1 <= page.x1 and box.y0 >= 0


@pytest.mark.parametrize("name", ["$", "$\\frac{$", "a $x$ b", "_hidden", "two\nlines", "{}"])
def test_labels_are_shown_as_they_are(tmp_path: Path, name: str) -> None:
    result = result_with(tmp_path / "r.zarr", embedding=cloud(40))
    figure = result.plot(color=np.array([name, "other"])[np.arange(40) % 2])
    assert pixels(figure._repr_png_()).std() > 0
    shown = [text.get_text().replace("\\$", "$") for text in figure.axes[0].get_legend().get_texts()]
    assert " ".join(name.split()) in shown


def test_axes_of_the_user_are_drawn_into(tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure()
    axes = figure.subplots(1, 2)
    result = result_with(tmp_path / "r.zarr", embedding=cloud(40))
    assert result.plot(ax=axes[1], out=tmp_path / "both.png") is figure
    assert axes[1].collections and not axes[0].collections
    assert pixels(tmp_path / "both.png").std() > 0


# Other kinds ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def x() -> np.ndarray:
    rng = np.random.default_rng(0)
    return (rng.random((240, 6)) @ rng.random((6, 70)) + 0.1 * rng.random((240, 70))).astype("f4")


def test_every_method_has_a_picture(x: np.ndarray) -> None:
    near = rf.knn(x, k=5)
    graph = rf.fuzzy_graph(near)
    results = {
        ("scatter", "scree", "loadings"): rf.pca(x, rank=4),
        ("scatter", "scree"): rf.svd(x, rank=3),
        ("loadings", "scatter"): rf.nmf(x, rank=3),
        ("sizes", "inertia"): rf.kmeans(x, k=4),
        ("degrees",): near,
    }
    assert kinds_of(graph) == ("degrees",)
    for kinds, result in results.items():
        assert kinds_of(result)[: len(kinds)] == kinds
        for kind in kinds:
            assert pixels(result.plot(kind)._repr_png_()).std() > 0


def test_degrees_are_those_of_the_graph(x: np.ndarray) -> None:
    near = rf.knn(x, k=5)
    for result, degrees in (
        (near, np.bincount(np.asarray(near.indices).ravel(), minlength=240)),
        (rf.fuzzy_graph(near), np.diff(rf.fuzzy_graph(near).graph.indptr)),
        (rf.radius_neighbors(x[:, :2], radius=0.3), None),
    ):
        if degrees is None:
            degrees = np.asarray(result.degrees)
        bars = drawing_of(result)
        truth = np.histogram(degrees, bars.edges)[0]
        np.testing.assert_array_equal(bars.counts, truth)
        assert bars.counts.sum() == 240


def test_loadings_are_of_the_heaviest_columns(x: np.ndarray) -> None:
    result = rf.pca(x, rank=3)
    drawn = drawing_of(result, "loadings", names=[f"column {i}" for i in range(70)])
    components = np.asarray(result.components)
    for component in range(3):
        heaviest = np.argsort(-abs(components[component]))[:4]
        assert {f"column {i}" for i in heaviest} <= set(drawn.columns)
    at = [int(name.split()[1]) for name in drawn.columns]
    np.testing.assert_array_equal(drawn.weights, components[:, at].T)


def test_components_are_images_where_columns_are_two_axes() -> None:
    rng = np.random.default_rng(0)
    x = rng.random((50, 4, 1, 6)).astype("f4")
    x[:, 2, 0, 3:] = np.nan
    result = rf.pca(rf.open(x, row_axes="0", drop_missing_columns=True), rank=3)
    assert kinds_of(result)[-1] == "maps"
    images = np.stack([one.image for one in drawing_of(result, "maps").maps])
    assert images.shape == (3, 4, 6)
    np.testing.assert_array_equal(images[:, ~np.isnan(x[0, :, 0])], np.asarray(result.components))
    assert np.isnan(images[:, 2, 3:]).all()
    assert pixels(result.plot("maps")._repr_png_()).std() > 0
    assert kinds_of(rf.nmf(rf.open(x[:, :2], row_axes="0"), rank=2))[0] == "maps"
    assert "maps" not in kinds_of(rf.pca(x[:, 0, 0], rank=2))


def test_sizes_are_those_of_the_clusters(x: np.ndarray) -> None:
    result = rf.kmeans(x, k=4)
    np.testing.assert_array_equal(drawing_of(result).counts, np.bincount(np.asarray(result.labels)))


# Refusals -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "scree"}, r"this result of umap has plots of kind scatter, not scree"),
        ({"kind": "pie"}, r"there is no kind 'pie'$"),
        ({"kind": "scater"}, r"there is no kind 'scater' .did you mean 'scatter'\?"),
        ({"components": (0, 1)}, r"components 1 to 3, and 0 is none"),
        ({"components": (1, 4)}, r"4 is none"),
        ({"components": (1, 1)}, r"name each once"),
        ({"components": (1, 2.0)}, r"numbers from 1 on, not 2.0"),
        ({"components": ()}, r"not of 0"),
        ({"view": (1, 2)}, r"view is for three components"),
        ({"view": (1,), "components": (1, 2, 3)}, r"such as \(25, -60\)"),
        ({"names": ["a"]}, r"names is for plots of kind loadings, and this is scatter"),
        ({"color": np.arange(3), "components": (1,)}, r"3 values, and the result has 40 rows"),
        ({"color": np.arange(40), "components": (1,)}, r"color is for two or three components"),
        ({"color": np.zeros((40, 2))}, r"one label or value each"),
        ({"color": np.zeros(40, complex)}, r"neither text nor real numbers"),
        ({"color": np.full(40, np.nan)}, r"holds no number, only NaN"),
        ({"out": "x.pdf"}, r"ends in .png or .svg"),
        ({"out": "nowhere/x.png"}, r"there is no folder"),
    ],
)
def test_what_cannot_be_drawn_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = result_with(tmp_path / "r.zarr", embedding=cloud(40, 3))
    with pytest.raises(rf.RankfoldError, match=message):
        result.plot(**{"out": "x.png", **options})
    assert [path.name for path in tmp_path.iterdir()] == ["r.zarr"]


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_another_picture_that_exists_is_replaced_on_request_alone(tmp_path: Path, suffix: str) -> None:
    result = result_with(tmp_path / "r.zarr", embedding=cloud(40))
    same = {"color": np.arange(40) % 3, "components": (1, 2), "out": tmp_path / f"x{suffix}"}
    result.plot(**same)
    before = same["out"].read_bytes()
    result.plot(**same)  # made by the same call
    assert same["out"].read_bytes() == before
    with pytest.raises(rf.RankfoldError, match=r"exists\. Say overwrite=True"):
        result.plot(**(same | {"color": np.arange(40) % 4}))
    result.plot(out=tmp_path / "x.png", overwrite=True)
    before = (tmp_path / "x.png").read_bytes()
    with pytest.raises(rf.RankfoldError, match=r"exists. Say overwrite=True"):
        result.plot("scatter", components=(2, 1), out=tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes() == before
    result.plot("scatter", components=(2, 1), out=tmp_path / "x.png", overwrite=True)
    assert (tmp_path / "x.png").read_bytes() != before and pixels(tmp_path / "x.png").std() > 0


def test_what_others_made_is_never_replaced(tmp_path: Path) -> None:
    result = result_with(tmp_path / "r.zarr", embedding=cloud(40))
    (tmp_path / "x.png").write_text("mine")
    with pytest.raises(
        rf.RankfoldError, match="exists and was not made by rankfold, so it is never replaced"
    ):
        result.plot(out=tmp_path / "x.png", overwrite=True)
    assert (tmp_path / "x.png").read_text() == "mine"


def test_a_result_without_anything_to_draw_says_so(x: np.ndarray) -> None:
    with pytest.raises(rf.RankfoldError, match="this result of qr has nothing to plot"):
        rf.qr(x).plot()
    with pytest.raises(rf.RankfoldError, match=r"has plots of kind scree, loadings, not scatter"):
        rf.pca(x, rank=2, with_rows=False).plot("scatter")


def test_coordinates_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    x = cloud(40)
    x[7, 1] = np.nan
    with pytest.raises(rf.RankfoldError, match=r"embedding\[7, 1\] is nan, but is to be finite"):
        result_with(tmp_path / "a.zarr", embedding=x).plot()
    with pytest.raises(rf.RankfoldError, match="embedding is of complex64, not of float64"):
        result_with(tmp_path / "b.zarr", embedding=cloud(40).astype("c8")).plot()


def test_labels_and_values_are_told_apart() -> None:
    assert isinstance(colors_of(np.arange(300) % 100, 300), Labels)
    assert isinstance(colors_of(np.arange(300) % 101, 300), Values)
    assert isinstance(colors_of(np.arange(3.0), 3), Values)
    labels = colors_of(np.array(["b", "", "a", "b"]), 4)
    assert isinstance(labels, Labels) and labels.names == ("a", "b")
    assert labels.counts.tolist() == [1, 2, 1] and labels.read(0, 4).tolist() == [1, 2, 0, 1]
    with pytest.raises(rf.RankfoldError, match="names of rows"):
        colors_of(np.arange(70_000).astype(str), 70_000)
