"""Sums over a tree are those of all pairs: to rounding, or as near as an opening says."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from rankfold.kernels.sums.laws import SMOOTH, Law
from rankfold.kernels.sums.nearest import nearest_sources
from rankfold.kernels.sums.pairs import GROUP, no_shifts, sum_pairs
from rankfold.kernels.sums.repulsion import Repulsion, repulsion
from rankfold.kernels.sums.tree import LEAF, SKIP, START, STOP, SumTree, most_nodes
from rankfold.kernels.sums.tree_sums import Groups, Sources, Way, sum_in_tree

Array = npt.NDArray[Any]
EPS = float(np.finfo(np.float64).eps)


def points_of(name: str, n: int, d: int, seed: int) -> Array:
    r = np.random.default_rng(seed)
    x = r.standard_normal((n, d))
    if name == "equal":
        x[:] = x[0]
    elif name == "few places":
        x = x[r.integers(0, max(1, n // 20), n)]
    elif name == "on a line":
        x = np.outer(r.random(n), np.arange(1, d + 1))
    elif name == "tenfold":
        x *= 10.0 ** r.uniform(-12, 12, (n, 1))
    elif name == "one far away":
        x[0] = 1e9
    return x


NAMES = ("normal", "equal", "few places", "on a line", "tenfold", "one far away")


def over_tree(x: Array, w: Array, law: Law, scale: float, opening: float, order: int) -> tuple[Array, Array]:
    """Sums over a tree and of all pairs, both in the order of the tree, each source without itself."""
    tree = SumTree.of(x.copy(), np.arange(len(x)))
    weights = w[tree.ids]
    edges = np.append(np.arange(0, len(x), GROUP), len(x))
    counts, none = np.empty((len(edges) - 1, 2), np.int64), no_shifts(len(x))
    out, exact = np.empty((2, len(x), 1 + x.shape[1] * (law in SMOOTH)))
    how: dict[str, Any] = {"law": int(law), "scale": scale}
    way = Way(int(law), scale, opening, order, 0.0)
    sources = Sources.of(tree, weights)
    sum_in_tree(sources, Groups(tree.points, weights, none, none, edges), way, counts=counts, out=out)
    sum_pairs(tree.points, weights, tree.points, weights, none, **how, out=exact)
    return out, exact


@given(
    name=st.sampled_from(NAMES),
    n=st.sampled_from([1, 2, 3, LEAF, LEAF + 1, 40, 333]),
    d=st.integers(1, 3),
    law=st.sampled_from(list(Law)),
    seed=st.integers(0, 2**32),
)
@examples(120)
def test_without_an_opening_sums_are_those_of_all_pairs(
    name: str, n: int, d: int, law: Law, seed: int
) -> None:
    x = points_of(name, n, d, seed)
    w = np.random.default_rng(seed).standard_normal(n)
    out, exact = over_tree(x, w, law, 0.5, 0.0, 2)
    magnitudes = np.empty((n, 2 if law in SMOOTH else 1))
    how: dict[str, Any] = {"law": int(law), "scale": 0.5, "magnitudes": True}
    tree = SumTree.of(x.copy(), np.arange(n))
    sum_pairs(tree.points, w[tree.ids], tree.points, w[tree.ids], no_shifts(n), **how, out=magnitudes)
    # Either adds up what differs by rounding of distances, some ten ulp each, in another order.
    size = np.abs(w).sum() + magnitudes[:, :1]
    np.testing.assert_array_less(np.abs(out[:, :1] - exact[:, :1]), 100 * EPS * size + 1e-300)
    if law in SMOOTH:
        bound = np.broadcast_to(100 * EPS * (magnitudes[:, 1:] + size), (n, d))
        np.testing.assert_array_less(np.abs(out[:, 1:] - exact[:, 1:]), bound + 1e-300)


@pytest.mark.parametrize("law", SMOOTH)
@pytest.mark.parametrize("order", [2, 3])
def test_errors_fall_with_the_opening_as_the_order_says(law: Law, order: int) -> None:
    x = points_of("normal", 3000, 3, 5)
    errors = []
    for opening in (0.6, 0.3):
        out, exact = over_tree(x, np.random.default_rng(1).random(3000), law, 0.3, opening, order)
        errors.append(float(np.sqrt(np.mean((out[:, 1:] - exact[:, 1:]) ** 2))))
    # The first moment that is left out falls with power ``order + 1`` of the opening; of forces one less. In
    # a tree that is cut at points the nodes that are just far enough are few: half of that power is certain.
    assert errors[1] < errors[0] * 0.5 ** (order / 2)


@given(name=st.sampled_from(NAMES), n=st.integers(1, 400), d=st.integers(1, 3), seed=st.integers(0, 2**32))
@examples(80)
def test_a_tree_holds_every_point_once_and_skips_what_is_below(name: str, n: int, d: int, seed: int) -> None:
    x = points_of(name, n, d, seed)
    tree = SumTree.of(x.copy(), np.arange(n))
    np.testing.assert_array_equal(np.sort(tree.ids), np.arange(n))
    np.testing.assert_array_equal(tree.points, x[tree.ids])
    assert len(tree.nodes) <= most_nodes(n)
    for node, (start, stop, skip) in enumerate(tree.nodes.tolist()):
        np.testing.assert_array_equal(
            tree.boxes[node], [x[tree.ids[start:stop]].min(0), x[tree.ids[start:stop]].max(0)]
        )
        below = tree.nodes[node + 1 : skip]
        assert (below[:, START] >= start).all() and (below[:, STOP] <= stop).all()
        assert skip == len(tree.nodes) or tree.nodes[skip, START] >= stop
        equal = (tree.boxes[node, 0] == tree.boxes[node, 1]).all()
        assert (skip > node + 1) == (stop - start > LEAF and not equal)
    leaves = tree.nodes[tree.nodes[:, SKIP] == np.arange(1, len(tree.nodes) + 1)]
    assert (leaves[:, STOP] - leaves[:, START]).sum() == n


@given(name=st.sampled_from(NAMES), n=st.integers(1, 200), d=st.integers(1, 3), seed=st.integers(0, 2**32))
@examples(60)
def test_the_nearest_source_is_that_of_all(name: str, n: int, d: int, seed: int) -> None:
    tree = SumTree.of(points_of(name, n, d, seed), np.arange(n))
    targets = np.concatenate([tree.points, np.random.default_rng(seed).standard_normal((20, d))])
    own = np.concatenate([np.arange(n), np.full(20, -1)])
    answers = [(np.empty(n + 20), np.empty(n + 20, np.int64)) for _ in range(2)]
    for body, (squares, places) in zip((nearest_sources, nearest_sources.reference), answers, strict=True):  # type: ignore[attr-defined]
        body(tree, targets, own, squares=squares, places=places)
    for ours, theirs in zip(*answers, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_many_equal_points_take_no_pair_of_each_other() -> None:
    x = np.zeros((200_000, 3))
    x[::2] = 1.0
    out, _ = np.zeros((2, 1)), None
    tree = SumTree.of(x, np.arange(len(x)))
    sources = Sources.of(tree, np.ones(len(x)))
    counts, targets = np.empty((1, 2), np.int64), np.array([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    groups = Groups(targets, np.ones(2), no_shifts(2), no_shifts(2), np.array([0, 2]))
    sum_in_tree(sources, groups, Way(int(Law.CAUCHY), 1.0, 0.5, 2, 0.0), counts=counts, out=out)
    assert counts.sum() == 4  # two targets, two places
    np.testing.assert_allclose(out[:, 0], 99_999 + 100_000 / 4, rtol=1e-15)


@pytest.mark.parametrize("law", [Law.GAUSSIAN, Law.EXPONENTIAL])
@pytest.mark.parametrize("d", [1, 4])
def test_far_from_everything_sums_that_decay_are_nothing(law: Law, d: int) -> None:
    x, targets = np.zeros((50, d)), np.zeros((6, d))
    targets[:, 0] = [700.0, 708.0, 708.7, 709.0, 745.0, 1e100]
    if law == Law.GAUSSIAN:
        targets[:, 0] = np.sqrt(targets[:, 0])
    sums, expected = np.empty((2, 6, 1))
    for body, out in ((sum_pairs, sums), (sum_pairs.reference, expected)):  # type: ignore[attr-defined]
        body(x, np.ones(50), targets, np.zeros(6), no_shifts(6), law=int(law), scale=1.0, out=out)
    # Exponents of 700 are off by eps times as much. What is no normal number is nothing.
    np.testing.assert_allclose(sums[:3], expected[:3], rtol=2000 * EPS)
    assert not sums[3:].any()


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_repulsion_is_that_of_all_pairs(d: int, dtype: str) -> None:
    y = (10 * np.random.default_rng(2).standard_normal((700, d))).astype(dtype)
    wide = y.astype(float)
    apart = wide[:, None] - wide
    q = 1 / (1 + (apart**2).sum(axis=2))
    np.fill_diagonal(q, 0)
    expected = (q[..., None] ** 2 * apart).sum(axis=1)
    forces, z = repulsion(y, opening=0.0)
    np.testing.assert_allclose(forces, expected, atol=1e-12 * np.abs(expected).max())
    assert z == pytest.approx(q.sum(), rel=1e-13)
    near, z = repulsion(y, opening=0.3, order=3)
    assert np.linalg.norm(near - expected) < 0.01 * np.linalg.norm(expected)
    assert z == pytest.approx(q.sum(), rel=1e-2)


def test_groups_of_a_layout_may_be_shared_out() -> None:
    points = Repulsion.of(np.random.default_rng(4).standard_normal((1000, 3)))
    whole, parts = [(np.zeros((1000, 3)), np.zeros(1000)) for _ in range(2)]
    how: dict[str, Any] = {"opening": 0.5, "order": 2}
    points.push(0, points.groups, **how, forces=whole[0], weights=whole[1])
    for first in range(0, points.groups, 7):
        points.push(first, min(first + 7, points.groups), **how, forces=parts[0], weights=parts[1])
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(one, other)
