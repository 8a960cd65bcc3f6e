"""Local radii of the data and the layout: what they are, what follows them, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.datasets import load_digits
from sklearn.manifold import trustworthiness

import rankfold as rf
from rankfold.estimators import UMAP
from rankfold.methods.fuzzy_graph.fuzzy_graph import LEAST
from rankfold.methods.umap.arguments import UmapArguments
from rankfold.methods.umap.density import Densities, DensityGoal, embedding_radii
from rankfold.methods.umap.edges import PullingEdges
from rankfold.methods.umap.layout import LayoutRounds
from rankfold.pipeline.engine.rounds import Share
from rankfold.pipeline.errors import InputError

Array = npt.NDArray[Any]


def gaussian(rows: int = 300, columns: int = 5) -> Array:
    """Of which rows after the middle are ten times as far apart."""
    x = np.random.default_rng(0).standard_normal((rows, columns))
    x[rows // 2 :] = 10 * x[rows // 2 :] + 50
    return x


def graph_of(x: Array, k: int = 9, **how: Any) -> rf.Result:
    return rf.fuzzy_graph(rf.knn(x, k, threads=1), radii=True, **how)


# Radii --------------------------------------------------------------------------------------------


def test_radii_are_those_of_the_formula() -> None:
    x = gaussian()
    graph = graph_of(x, set_op_mix_ratio=0.7)
    weights = graph.graph.toarray().astype(np.float64)
    squares = ((x[:, None] - x) ** 2).sum(axis=2)
    expected = np.log(LEAST + (weights * squares).sum(axis=1) / weights.sum(axis=1))
    # Distances are rounded to float32 before they are squared, and radii after.
    np.testing.assert_allclose(graph.radius_data, expected, atol=4 * np.finfo(np.float32).eps * 10)


@pytest.mark.parametrize("exponent", [-40, -230, 100, 230])
def test_radii_follow_the_size_of_distances(exponent: int) -> None:
    plain = np.asarray(graph_of(gaussian()).radius_data)
    scaled = np.asarray(graph_of(np.ldexp(gaussian().astype(np.float64), exponent)).radius_data, np.float64)
    shift = 2 * exponent * np.log(2)
    rounding = 4 * np.finfo(np.float32).eps * (10 + abs(shift))
    np.testing.assert_allclose(scaled - shift, plain, atol=rounding)


def test_radii_of_a_graph_do_not_change_its_weights() -> None:
    lists = rf.knn(gaussian(), 9)
    plain, with_radii = (rf.fuzzy_graph(lists, radii=radii) for radii in (False, True))
    for name in ("data", "indices", "indptr"):
        assert getattr(plain.graph, name).tobytes() == getattr(with_radii.graph, name).tobytes()
    assert "radius_data" not in plain


def test_radii_are_those_of_chunks_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    lists = rf.knn(gaussian(), 9)
    whole = np.asarray(rf.fuzzy_graph(lists, radii=True).radius_data)
    monkeypatch.setattr("rankfold.methods.fuzzy_graph.fuzzy_graph.CHUNK_ROWS", 64)
    monkeypatch.setattr("rankfold.methods.fuzzy_graph.fuzzy_graph.SORT_BYTES", 96 * 500)
    pieces = np.asarray(rf.fuzzy_graph(lists, radii=True).radius_data)
    # Sums of float64 in another order, rounded to float32.
    np.testing.assert_allclose(pieces, whole, rtol=2 * np.finfo(np.float32).eps)


def test_a_row_without_neighbors_has_no_radius() -> None:
    x = np.array([[0.0], [1.0], [3.0], [10.0], [30.0]])
    graph = rf.fuzzy_graph(rf.knn(x, 1), set_op_mix_ratio=0.0, radii=True)
    alone = np.diff(graph.graph.indptr) == 0
    assert alone.any() and (np.isnan(graph.radius_data) == alone).all()
    result = rf.umap(graph, n_epochs=20, density=2.0)
    assert np.isfinite(np.asarray(result.embedding)).all()
    assert (np.isnan(np.asarray(result.radius_embedding)) == alone).all()


def test_radii_of_one_size_are_correlated_with_nothing() -> None:
    result = rf.umap(graph_of(np.zeros((40, 3)), 5), n_epochs=20, density=2.0)
    assert np.isfinite(np.asarray(result.embedding)).all()
    assert result.attrs["density_correlation"] is None


# Forces -------------------------------------------------------------------------------------------


def test_forces_are_the_gradient_of_the_correlation() -> None:
    graph = graph_of(gaussian())
    request = UmapArguments(density=1.5, n_epochs=100)
    a, b = request.curve()
    edges = PullingEdges.of(graph, 100)
    goal = DensityGoal.of(graph.path, edges, request)
    assert goal is not None and goal.first_epoch == 70
    weights = graph.graph.toarray()
    joined = weights >= edges.largest / 100
    assert goal.turns == pytest.approx(weights[joined].sum() / edges.largest, rel=1e-6)
    squares = np.random.default_rng(1).random(joined.shape) + 0.1
    squares = squares + squares.T
    in_data = np.asarray(graph.radius_data).astype(np.float64)
    wanted = (in_data - in_data.mean()) / in_data.std()

    def correlation(squares: Array) -> tuple[float, Array]:
        close = joined / (1 + a * squares**b)
        radii = np.log(LEAST + (close * squares).sum(axis=1) / close.sum(axis=1))
        value = (radii * wanted).mean() / np.sqrt(radii.var() + request.density_shift)
        return float(value), np.stack([np.exp(radii) - LEAST, close.sum(axis=1)], axis=1)

    _, spread = correlation(squares)
    pushes = Densities(goal, (a, b)).now(spread.astype(np.float32)).pushes.astype(np.float64)
    for one, other in np.argwhere(joined)[::97]:
        square, step = squares[one, other], 1e-5
        close = 1 / (1 + a * square**b)
        ends = pushes[one] + pushes[other]
        steep = a * b * square ** (b - 1) * close
        force = close * ((1 - b * (1 - close)) * ends[0] + steep * ends[1])
        values = []
        for sign in (-1, 1):
            moved = squares.copy()
            moved[one, other] = moved[other, one] = square + sign * step
            values.append(correlation(moved)[0])
        slope = (values[1] - values[0]) / (2 * step)
        # A covariance over m - 1 beside a variance over m, as in umap-learn; 1e-5 of what ends cancel.
        scale = request.density * goal.turns
        assert force == pytest.approx(scale * slope, rel=2 / len(in_data), abs=1e-5 * scale)


def test_dense_rows_lie_close_and_sparse_ones_apart() -> None:
    graph = graph_of(gaussian(), 14)
    plain, spread = (rf.umap(graph, density=density, n_epochs=300) for density in (0.0, 2.0))
    before, after = (result.attrs["density_correlation"] for result in (plain, spread))
    assert after > 0.8 > before
    middle = [np.median(np.asarray(spread.radius_embedding)[rows]) for rows in (slice(150), slice(150, 300))]
    assert middle[1] - middle[0] > 1  # of 2 log(10) = 4.6 in the data; the scale of a layout is its own


def test_density_of_weight_0_measures_alone() -> None:
    graph = graph_of(gaussian())
    plain, measured = rf.umap(graph, n_epochs=20), rf.umap(graph, n_epochs=20, density=0)
    assert np.asarray(plain.embedding).tobytes() == np.asarray(measured.embedding).tobytes()
    assert "radius_embedding" in measured and "radius_embedding" not in plain


def test_radii_under_way_are_those_of_the_end() -> None:
    graph, request = graph_of(gaussian()), UmapArguments(density=2.0, n_epochs=60, learning_rate=0.01)
    edges = PullingEdges.of(graph, 60)
    start = np.random.default_rng(0).random((300, 2)).astype(np.float32)
    rounds = LayoutRounds(edges, request, 300, DensityGoal.of(graph.path, edges, request))
    layout = rounds.part(rounds.start(start), Share((0, 300)))
    layout.run(lambda: None)
    assert layout.spread is not None
    radii = embedding_radii(layout.positions, edges, *request.curve())
    # Others have moved since, by less than a hundredth of a force of 4 at a rate of 1 / 60.
    np.testing.assert_allclose(np.log(LEAST + layout.spread[:, 0]), radii, atol=0.05)


def test_threads_change_no_byte() -> None:
    graph = graph_of(gaussian(1200))
    one, many = (rf.umap(graph, n_epochs=20, density=2.0, threads=threads) for threads in (1, 3))
    for name in ("embedding", "radius_embedding"):
        assert np.asarray(one[name]).tobytes() == np.asarray(many[name]).tobytes()


@pytest.mark.slow
def test_digits_keep_their_densities_as_in_umap_learn() -> None:
    umap = pytest.importorskip("umap.umap_", reason="umap-learn is not installed")
    x: Array = load_digits(return_X_y=True)[0]
    start = np.asarray(rf.pca(x, 2, threads=1).scores)
    ours = UMAP(densmap=True, init=start, random_state=0).fit(x)
    theirs = umap.UMAP(densmap=True, init=start, random_state=0, output_dens=True, n_jobs=1).fit(x)
    # Theirs are of the graph of the embedding, and of float32 sums; the samples' are one formula.
    np.testing.assert_allclose(ours.rad_orig_, theirs.rad_orig_, atol=0.02)
    radii = [np.asarray(graph_of(y, 14).radius_data) for y in (ours.embedding_, theirs.embedding_)]
    one, two = (np.corrcoef(ours.rad_orig_, each)[0, 1] for each in radii)
    # From seed to seed either correlation moves by up to 0.05, and trustworthiness by 0.01.
    assert one > two - 0.05
    assert np.corrcoef(ours.rad_orig_, ours.rad_emb_)[0, 1] > 0.85
    kept = [trustworthiness(x, y, n_neighbors=15) for y in (ours.embedding_, theirs.embedding_)]
    assert kept[0] > kept[1] - 0.01


# What callers get ----------------------------------------------------------------------------------


def test_lists_become_a_graph_with_radii_and_other_graphs_are_refused() -> None:
    lists = rf.knn(gaussian(), 9)
    of_lists, of_graph = (rf.umap(each, n_epochs=10, density=2) for each in (lists, graph_of(gaussian())))
    assert np.asarray(of_lists.embedding).tobytes() == np.asarray(of_graph.embedding).tobytes()
    with pytest.raises(InputError, match=r"radii=True"):
        rf.umap(rf.fuzzy_graph(lists), density=2.0)
    for wrong in ({"density": -1.0}, {"density_share": 1.5}, {"density_shift": float("nan")}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            rf.umap(lists, **{"density": 2.0, **wrong})


@pytest.mark.parametrize("metric", ["categorical", "euclidean"])
def test_radii_go_on_beside_targets(metric: str) -> None:
    plain = graph_of(gaussian())
    beside = graph_of(gaussian(), targets=np.arange(300.0) % 3, target_metric=metric)
    assert np.asarray(plain.radius_data).tobytes() == np.asarray(beside.radius_data).tobytes()


def test_the_estimator_returns_radii_where_they_are_asked_for() -> None:
    how: dict[str, Any] = {"n_epochs": 20, "random_state": 0}
    places, of_samples, of_places = UMAP(densmap=True, output_dens=True, **how).fit_transform(gaussian())
    model = UMAP(densmap=True, **how).fit(gaussian())
    assert places.tobytes() == model.embedding_.tobytes()
    assert of_samples.tobytes() == model.rad_orig_.tobytes()
    assert of_places.tobytes() == model.rad_emb_.tobytes()
    plain = UMAP(output_dens=True, **how).fit(gaussian())
    assert plain.embedding_.tobytes() == UMAP(**how).fit(gaussian()).embedding_.tobytes()
