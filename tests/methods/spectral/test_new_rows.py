"""New rows in eigenmaps: by the formula of Nystrom, near what is near, alone or in any company."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier
from typer.testing import CliRunner

import rankfold as rf
from rankfold.kernels.graph.fuzzy import membership
from rankfold.workflows.cli import app

Array = npt.NDArray[Any]
EPS = float(np.finfo(np.float64).eps)


def circle(n: int, turn: float = 0.0) -> Array:
    angles = 2 * np.pi * (np.arange(n) + turn) / n
    return np.column_stack([np.cos(angles), np.sin(angles)])


@pytest.fixture(scope="module")
def digits() -> tuple[Array, Array]:
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    return images[order], labels[order]


@pytest.mark.parametrize("make", [rf.spectral, rf.diffusion_map])
def test_rows_between_those_of_a_circle_lie_between_them(make: Any) -> None:
    # By symmetry the vectors are cosines and sines of the angle, and so is a mean over two neighbors; it is
    # shorter by cos(pi / n), an eigenvalue is 1 - O((k / n)^2).
    n = 400
    fit = make(rf.knn(circle(n), 4, threads=1), n_components=2)
    between = rf.knn(circle(n), 2, queries=circle(n, 0.5), threads=1)
    placed = np.asarray(rf.transform(fit, between).embedding[...])
    embedding = np.asarray(fit.embedding[...])
    exact = (embedding + np.roll(embedding, -1, axis=0)) / 2
    assert np.abs(placed - exact).max() < (2 * np.pi * 4 / n) ** 2 * np.abs(embedding).max()


@pytest.mark.parametrize(
    ("make", "more"), [(rf.spectral, {}), (rf.diffusion_map, {}), (rf.diffusion_map, {"alpha": 0.5, "t": 3})]
)
def test_coordinates_are_those_of_the_formula(digits: tuple[Array, Array], make: Any, more: Any) -> None:
    fitted, new = digits[0][:600], digits[0][600:650]
    graph = rf.fuzzy_graph(rf.knn(fitted, 14, threads=1))
    fit = make(graph, n_components=3, **more)
    lists = rf.knn(fitted, 15, queries=new, threads=1)
    result = rf.transform(fit, lists)
    distances, indices = (np.asarray(lists[name][...]) for name in ("distances", "indices"))
    weights = np.empty(distances.shape, np.float32)
    membership(distances, graph.attrs["mean_distance"], local_connectivity=0.0, first=1, out=weights)
    walk = np.zeros((50, 600))
    np.put_along_axis(walk, indices, weights.astype(float), axis=1)
    stored = graph.graph if sp.issparse(graph.graph) else graph.graph[...]
    degrees = np.asarray(sp.csr_array(stored).astype(float).sum(axis=1)).ravel()
    alpha = 0.0 if make is rf.spectral else more.get("alpha", 1.0)
    walk /= degrees**alpha
    walk /= walk.sum(axis=1, keepdims=True)
    values = fit.eigenvalues if make is rf.diffusion_map else 1 - fit.eigenvalues
    embedding = np.asarray(fit.embedding[...])
    expected = walk @ embedding / values
    error = 64 * 600 * EPS * np.abs(embedding).max() / np.abs(values).min()
    np.testing.assert_allclose(result.embedding[...], expected, atol=error, rtol=0)
    spread = [walk[i] ** 2 @ ((embedding - walk[i] @ embedding) / values) ** 2 for i in range(50)]
    measured = np.sqrt(np.mean(spread) / (embedding**2).mean())
    assert result.attrs["standard_error"] == pytest.approx(measured, rel=1e-9)


def test_new_digits_come_to_lie_among_their_like(digits: tuple[Array, Array]) -> None:
    images, labels = digits
    fit = rf.spectral(rf.knn(images[:1400], 14, threads=1), n_components=8)
    placed = rf.transform(fit, rf.knn(images[:1400], 15, queries=images[1400:], threads=1)).embedding
    near = KNeighborsClassifier(10).fit(fit.embedding[...], labels[:1400])
    assert near.score(placed[...], labels[1400:]) > 0.93


def test_a_row_of_the_graph_has_its_place_and_company_changes_nothing(digits: tuple[Array, Array]) -> None:
    fitted, new = digits[0][:600], digits[0][600:700]
    fit = rf.diffusion_map(rf.knn(fitted, 10, threads=1), n_components=2)
    same = rf.transform(fit, rf.knn(fitted, 11, queries=fitted, threads=1))
    assert same.embedding.tobytes() == np.asarray(fit.embedding[...]).tobytes()
    assert same.attrs["rows_of_the_graph"] == 600 and same.attrs["standard_error"] == 0
    whole = np.asarray(rf.transform(fit, rf.knn(fitted, 11, queries=new, threads=1)).embedding[...])
    for some in (slice(0, 1), slice(1, 40), slice(99, None, -1)):
        lists = rf.knn(fitted, 11, queries=new[some], threads=1)
        assert rf.transform(fit, lists).embedding[...].tobytes() == whole[some].tobytes()


def test_a_row_far_from_all_lies_with_its_nearest(digits: tuple[Array, Array]) -> None:
    fitted = digits[0][:600]
    fit = rf.spectral(rf.knn(fitted, 10, threads=1), n_components=2)
    far = np.full((1, 64), 1e6)
    placed = np.asarray(rf.transform(fit, rf.knn(fitted, 11, queries=far, threads=1)).embedding[...])
    assert np.isfinite(placed).all()
    assert (np.abs(placed) <= np.abs(fit.embedding[...]).max(axis=0) / (1 - fit.eigenvalues) + EPS).all()


def test_memory_stays_below_the_plan_and_the_command_does_the_same(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    fitted, new = rng.random((3000, 2)), rng.random((70_000, 2))
    fit = rf.spectral(rf.knn(fitted, 6, threads=1), n_components=5, tol=1e-2, out=tmp_path / "fit.zarr")
    lists = rf.knn(fitted, 6, queries=new, out=tmp_path / "new.zarr", threads=1)
    result = rf.transform(fit, lists, out=tmp_path / "r.zarr")
    attempt = result.run["attempts"][-1]
    assert attempt["measured_bytes"] <= attempt["planned_bytes"]
    assert rf.verify(tmp_path / "r.zarr") == []
    words = ["transform", str(fit.path), str(lists.path), "--out", str(tmp_path / "again.zarr")]
    run = CliRunner().invoke(app, words)
    assert run.exit_code == 0, run.output
    assert "70000 rows placed by 6 neighbors each among 3000 rows of spectral" in " ".join(run.stdout.split())
    again = rf.open_result(tmp_path / "again.zarr").embedding[...]
    assert again.tobytes() == np.asarray(result.embedding[...]).tobytes()


def test_what_has_no_place_is_refused(digits: tuple[Array, Array]) -> None:
    fitted = digits[0][:600]
    lists = rf.knn(fitted, 5, threads=1)
    fit = rf.spectral(lists)
    with pytest.raises(rf.RankfoldError, match="of rows among themselves: new rows are looked up"):
        rf.transform(fit, lists)
    with pytest.raises(rf.RankfoldError, match="has neighbors among 500 rows, but 600 are laid out"):
        rf.transform(fit, rf.knn(fitted[:500], 5, queries=fitted))
    weights = sp.csr_array(np.ones((5, 5)) - np.eye(5))
    with pytest.raises(rf.RankfoldError, match="says nothing of the distances in its graph"):
        rf.transform(rf.spectral(weights), rf.knn(fitted[:5], 3, queries=fitted))


def test_a_component_that_a_step_forgets_is_refused() -> None:
    # All neighbors of each other, equally: every eigenvalue of the walk but one is -1 / (n - 1).
    corners = np.eye(6)
    fit = rf.spectral(rf.knn(corners, 5, threads=1), n_components=2)
    with pytest.raises(rf.RankfoldError, match=r"no component of .* belongs to a positive"):
        rf.transform(fit, rf.knn(corners, 5, queries=corners + 0.1))
