"""The workflows that come with rankfold, as they are, on real data: what they find is what is known of it.

The data are not part of the project: see ``test_real_data``. Each test finishes within some 15 seconds.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from flow_commands import rankfold
from real_data import real
from test_flow_library import cells, images

import rankfold as rf
from rankfold.workflows.library import example_text

PIXELS, IMAGES = 784, 5000


def results(name: str, folder: Path) -> dict[str, rf.Result]:
    """Run a workflow that is shipped, on data that are there under the names it has for them."""
    (folder / f"{name}.yaml").write_text(example_text(name))
    run = rankfold("run", folder / f"{name}.yaml")
    assert run.exit_code == 0, run.output
    return {path.stem: rf.open_result(path) for path in (folder / f"{name}-results").glob("*.zarr")}


def test_patterns_of_sea_surface_temperature(tmp_path: Path) -> None:
    """Shares of variance and scores are those of an exact SVD of the ocean, land left out."""
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("netCDF4")
    with np.load(real("sst_ersst.npz")) as stored:
        x, lat, lon = (stored[name] for name in ("X", "lat", "lon"))
    # Which places are ocean is not kept: they stand in their order, and the places that are left are land.
    field = np.full((len(x), len(lat) * len(lon)), np.nan, np.float32)
    field[:, : x.shape[1]] = x
    grid = xarray.DataArray(
        field.reshape(len(x), len(lat), len(lon)), {"lat": lat, "lon": lon}, ("time", "lat", "lon")
    )
    xarray.Dataset({"sst": grid}).to_netcdf(tmp_path / "sst.nc", engine="netcdf4")
    found = results("climate", tmp_path)
    weights = np.sqrt(np.cos(np.deg2rad(np.repeat(lat, len(lon))[: x.shape[1]].astype(np.float64))))
    centered = (x.astype(np.float64) - x.mean(axis=0, dtype=np.float64)) * weights
    u, s, _ = np.linalg.svd(centered, full_matrices=False)
    share = s**2 / np.square(s).sum()
    patterns = found["patterns"]
    assert patterns.components.shape == (20, x.shape[1])
    np.testing.assert_allclose(patterns.explained_variance_ratio, share[:20], rtol=1e-3)
    assert patterns.explained_variance_ratio[0] == pytest.approx(share[0], rel=1e-5)
    assert share[0] > 0.5  # of monthly means that is the seasons
    first = np.asarray(patterns.scores[:, 0], np.float64)
    assert abs(first @ u[:, 0]) / np.linalg.norm(first) == pytest.approx(1, abs=1e-6)
    assert found["audit"].attrs["largest_residual"] < 1e-3
    with xarray.open_dataset(tmp_path / "patterns.nc") as dataset:
        assert dataset["components"].dims == ("mode", "lat", "lon")
        np.testing.assert_array_equal(dataset["lat"], lat)
        np.testing.assert_array_equal(
            dataset["components"].values.reshape(20, -1)[:, : x.shape[1]], patterns.components
        )


def test_neighbors_of_cells(tmp_path: Path) -> None:
    """All neighbors in the components are found, and the graph has every edge from both sides."""
    counts = scipy.sparse.load_npz(real("pbmc3k_counts.npz")).toarray()
    cells(tmp_path, counts)
    found = results("cells", tmp_path)
    scores = np.asarray(found["components"].scores[...], np.float64)
    assert scores.shape == (len(counts), 50)
    assert found["components"].attrs["largest_error_estimate"] < 1e-3
    squares = np.square(scores).sum(axis=1)
    distances = squares[:, None] + squares - 2 * scores @ scores.T
    np.fill_diagonal(distances, np.inf)
    exact = np.argsort(distances, axis=1, kind="stable")[:, :14]
    indices = np.asarray(found["near"].indices[...])
    recall = np.mean([len(np.intersect1d(a, b)) for a, b in zip(indices, exact, strict=True)]) / 14
    assert recall == 1.0 and found["near"].attrs["recall"] == 1.0
    graph = found["near"].graph
    assert graph.shape == (len(counts), len(counts)) and abs(graph - graph.T).max() == 0


def test_parts_of_images(tmp_path: Path) -> None:
    """The error that is told is that of the factors, and little above the least of any of that rank."""
    x = np.load(real("fashion_mnist.npz"))["X"][:IMAGES]
    images(tmp_path, x.reshape(-1, 28, 28))
    parts = results("images", tmp_path)["parts"]
    w, h = (np.asarray(each[...], np.float64) for each in (parts.W, parts.H))
    assert w.shape == (IMAGES, 16) and h.shape == (16, PIXELS)
    assert w.min() >= 0 and h.min() >= 0
    size = np.linalg.norm(x.astype(np.float64))
    error = np.linalg.norm(x - w @ h) / size
    assert parts.attrs["relative_error"] == pytest.approx(error, rel=1e-3)
    s = np.linalg.eigvalsh(x.astype(np.float64).T @ x)[::-1]
    least = np.sqrt(s[16:].sum()) / size  # of any factors, also negative ones
    assert least < error < 1.2 * least
