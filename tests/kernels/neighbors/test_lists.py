"""Lists hold the nearest rows by (key, id), whatever bounds, tiles and rounding did on the way."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from rankfold.kernels.neighbors.lists import (
    BY_PRODUCTS,
    EMPTY,
    Metric,
    compare_pairs,
    distance,
    exhaust_rows,
    half,
    measure_pairs,
    merge_lists,
    refine_rows,
    scan_pairs,
    sort_lists,
)

Array = npt.NDArray[Any]
Lists = tuple[Array, Array]

TYPES = ("float32", "float64", "uint8")
IN_ORDER = (Metric.EUCLIDEAN, Metric.SQEUCLIDEAN, Metric.MANHATTAN, Metric.CHEBYSHEV)


def rows(n: int, d: int, seed: int, dtype: str = "float64", few: bool = False) -> Array:
    """Rows, many of them equal where their values are to be few."""
    rng = np.random.default_rng([n, d, seed])
    return (rng.integers(0, 3, (n, d)) if few else 100 + 30 * rng.standard_normal((n, d))).astype(dtype)


def lists(n: int, k: int) -> Lists:
    return np.full((n, k), np.inf), np.full((n, k), EMPTY)


def two_sides(left: Lists, right: Lists) -> dict[str, Array]:
    return {"keys_i": left[0], "ids_i": left[1], "keys_j": right[0], "ids_j": right[1]}


def ordered(of: Lists) -> Lists:
    keys, ids = of[0].copy(), of[1].copy()
    sort_lists(keys, ids)
    return keys, ids


def assert_equal(found: Lists, expected: Lists) -> None:
    for a, b in zip(ordered(found), ordered(expected), strict=True):
        np.testing.assert_array_equal(a, b)


def is_heap(values: Array, names: Array) -> bool:
    pairs = [list(zip(v.tolist(), n.tolist(), strict=True)) for v, n in zip(values, names, strict=True)]
    return all(row[(p - 1) // 2] >= row[p] for row in pairs for p in range(1, len(row)))


def nearest(keys: Array, k: int, first: int = 0) -> Lists:
    """The k smallest of each row by (key, id), of a matrix of keys; infinite keys are no pairs."""
    ids = np.broadcast_to(first + np.arange(keys.shape[1]), keys.shape)
    ids = np.where(np.isinf(keys), EMPTY, ids)
    order = np.lexsort((ids, keys), axis=1)[:, :k]
    found = lists(len(keys), k)
    for out, of in zip(found, (keys, ids), strict=True):
        out[:, : order.shape[1]] = np.take_along_axis(of, order, axis=1)
    return found


def plain_keys(x: Array, y: Array, metric: Metric) -> Array:
    """Keys by formulas of NumPy, right but for rounding."""
    a, b = x.astype(float)[:, None], y.astype(float)[None]
    if metric == Metric.INNER_PRODUCT:
        return -(a * b).sum(axis=2)  # type: ignore[no-any-return]
    if metric == Metric.COSINE:
        norms = np.sqrt((a * a).sum(axis=2) * (b * b).sum(axis=2))
        return np.where(norms == 0, 1.0, 1 - (a * b).sum(axis=2) / np.where(norms == 0, 1, norms))
    apart = np.abs(a - b)
    if metric == Metric.CHEBYSHEV:
        return apart.max(axis=2)  # type: ignore[no-any-return]
    if metric == Metric.MANHATTAN:
        return apart.sum(axis=2)  # type: ignore[no-any-return]
    squares = (apart * apart).sum(axis=2)
    return np.sqrt(squares) if metric == Metric.EUCLIDEAN else squares  # type: ignore[no-any-return]


# By products ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Panel:
    """Rows with what bounds of their pairs are made of, as those who call the kernels prepare it."""

    x: Array
    metric: Metric

    @property
    def working(self) -> Any:
        return np.dtype("float64" if self.x.dtype == "float64" else "float32")

    @functools.cached_property
    def scale(self) -> Array:
        norms = np.sqrt(np.square(self.x.astype(float)).sum(axis=1))
        return np.where(norms == 0, 0, 1 / np.where(norms == 0, 1, norms))

    def factor(self, dtype: Any) -> Array:
        return (self.x * self.scale[:, None] if self.metric == Metric.COSINE else self.x).astype(dtype)

    def near(self, dtype: Any) -> Array:
        """Halves of squared norms, or nothing, less what rounding of a product and of these may take."""
        halves = np.square(self.factor(float)).sum(axis=1) / 2
        rounding = 2 * (self.x.shape[1] + 8) * float(np.finfo(dtype).eps) * halves
        return ((0 if self.metric == Metric.INNER_PRODUCT else halves) - rounding).astype(dtype)

    def exact(self, other: Panel) -> Array:
        of = list(zip(other.x, other.scale, strict=True))
        pairs = zip(self.x, self.scale, strict=True)
        return np.array([[distance(a, b, s, t, metric=self.metric) for b, t in of] for a, s in pairs])


def above(key: Array, metric: Metric, dtype: Any) -> Array:
    """The largest bound that is of use to lists with these keys in front, and a little more."""
    halves = np.array([half(float(value), metric) for value in key])
    return np.nextafter(halves.astype(dtype), np.inf, dtype=dtype)


def shortlists(n: int, c: int, limit: Any, dtype: Any) -> Lists:
    bounds = np.empty((n, c), dtype)
    bounds[...] = np.reshape(limit, (-1, 1))
    return bounds, np.full((n, c), -1, np.int32)


def scanned(a: Panel, b: Panel, c: int, limit: Any, cut: int = 0, own: bool = False) -> Lists:
    """Shortlists of a's rows with b, in tiles from the last to the first; without their own diagonal."""
    dtype = a.working
    products, near_a, near_b = a.factor(dtype) @ b.factor(dtype).T, a.near(dtype), b.near(dtype)
    bounds, places = shortlists(len(a.x), c, limit, dtype)
    unused = shortlists(len(b.x), 1, -np.inf, dtype)
    if own:
        np.fill_diagonal(products, -np.inf)
    for start in range(0, len(b.x), cut or len(b.x))[::-1]:
        part = slice(start, start + (cut or len(b.x)))
        sides = {
            "bounds_i": bounds,
            "places_i": places,
            "bounds_j": unused[0][part],
            "places_j": unused[1][part],
        }
        where = {"first_i": 0, "first_j": start, "diagonal": -len(a.x)}
        scan_pairs(products[:, part], near_a, near_b[part], **sides, **where)
    assert (unused[0] == -np.inf).all() and (unused[1] == -1).all()
    assert is_heap(bounds, places)
    return bounds, places


def refined(a: Panel, b: Panel, short: Lists, held: Lists, first: int = 0) -> Array:
    where = {"metric": a.metric, "first": first, "bounds": short[0], "places": short[1]}
    return refine_rows(a.x, b.x, a.scale, b.scale, **where, keys=held[0], ids=held[1])


def exhausted(a: Panel, b: Panel, which: Array, held: Lists, first: int = 0, own: bool = False) -> None:
    part = Panel(a.x[which], a.metric)
    products, keys, ids = part.factor(float) @ b.factor(float).T, held[0][which], held[1][which]
    names = first + np.arange(len(a.x))[which] if own else np.full(len(part.x), -1)
    rows_of = (part.near(float), b.near(float), part.x, b.x, part.scale, b.scale)
    exhaust_rows(products, *rows_of, metric=a.metric, own=names, first=first, keys=keys, ids=ids)
    held[0][which], held[1][which] = keys, ids


@examples(60)
@given(
    n=st.integers(1, 40),
    d=st.sampled_from([1, 2, 5, 16, 17, 33, 70]),
    k=st.integers(1, 8),
    c=st.integers(1, 9),
    cut=st.integers(1, 90),
    dtype=st.sampled_from(TYPES),
    metric=st.sampled_from(BY_PRODUCTS),
    few=st.booleans(),
    seed=st.integers(0, 99),
)
def test_bounds_and_distances_find_the_nearest(
    n: int, d: int, k: int, c: int, cut: int, dtype: str, metric: Metric, few: bool, seed: int
) -> None:
    x, y = rows(n, d, seed, dtype, few), rows(90, d, seed + 1, dtype, few)
    a, held = Panel(x, metric), lists(n, k)
    first = 2**33
    for start, stop in ((70, 90), (0, 70)):
        b = Panel(y[start:stop], metric)
        short = scanned(a, b, c, above(held[0][:, 0], metric, a.working), cut)
        certain = refined(a, b, short, held, first + start)
        truth = nearest(a.exact(Panel(y[start:], metric)), k, first + start)
        if start == 0:
            np.testing.assert_array_equal(ordered(held)[1][certain], truth[1][certain])
        exhausted(a, b, ~certain, held, first + start)
        assert_equal(held, truth)
        assert is_heap(*held)


@pytest.mark.parametrize("metric", BY_PRODUCTS)
@pytest.mark.parametrize("dtype", TYPES)
def test_distances_are_those_of_the_reference_to_the_last_bit(dtype: str, metric: Metric) -> None:
    for d in (1, 15, 16, 17, 63, 64, 65, 130, 784):
        a, b = Panel(rows(5, d, 1, dtype), metric), Panel(rows(6, d, 2, dtype), metric)
        a.x[1], b.x[2] = 0, 0
        short = np.full((5, 6), -np.inf, a.working), np.tile(np.arange(6, dtype=np.int32), (5, 1))
        found, back = lists(5, 6), lists(6, 5)
        refined(a, b, short, found)
        swapped = np.full((6, 5), -np.inf, a.working), np.tile(np.arange(5, dtype=np.int32), (6, 1))
        refined(b, a, swapped, back)
        exact = a.exact(b)
        assert_equal(found, nearest(exact, 6))
        assert_equal(back, nearest(exact.T, 5))
        # A sum of d terms in any order, and the root or the norms: d + 8 roundings of the largest.
        scale = 1.0 if metric == Metric.COSINE else float(np.abs(exact).max())
        np.testing.assert_allclose(exact, plain_keys(a.x, b.x, metric), atol=(d + 8) * 4e-16 * scale)


def crowd() -> tuple[Panel, Panel]:
    """Rows of which every one has 30 others as near, by bounds of float32, as its nearest are."""
    rng = np.random.default_rng(5)
    centers = 1000 * rng.standard_normal((6, 20))
    y = (centers[np.arange(180) % 6] + 1e-3 * rng.standard_normal((180, 20))).astype(np.float32)
    return Panel(y[:60], Metric.EUCLIDEAN), Panel(y, Metric.EUCLIDEAN)


def test_a_shortlist_too_short_is_never_called_certain() -> None:
    a, b = crowd()
    truth = nearest(np.where(np.eye(60, 180, dtype=bool), np.inf, a.exact(b)), 5)
    lost = 0
    for c in (5, 8, 20, 29, 30, 60):
        held = lists(60, 5)
        certain = refined(a, b, scanned(a, b, c, np.inf, own=True), held)
        right = (ordered(held)[1] == truth[1]).all(axis=1)
        assert not (certain & ~right).any()
        assert certain.all() == (c >= 30)
        lost += int((~right).sum())
        exhausted(a, b, ~certain, held, own=True)
        assert_equal(held, truth)
    assert lost > 50


def test_long_shortlists_are_taken_by_increasing_bound() -> None:
    a, b = (
        Panel(rows(7, 24, 1, "float32"), Metric.EUCLIDEAN),
        Panel(rows(2000, 24, 2, "float32"), Metric.EUCLIDEAN),
    )
    held = lists(7, 40)
    assert refined(a, b, scanned(a, b, 1300, np.inf, cut=300), held).all()
    assert_equal(held, nearest(a.exact(b), 40))


def test_rows_that_are_all_equal_keep_the_smallest_ids() -> None:
    a = Panel(np.ones((70, 3), np.float32), Metric.EUCLIDEAN)
    held = lists(70, 4)
    certain = refined(a, a, scanned(a, a, 6, np.inf, own=True), held, 9)
    assert not certain.any()
    exhausted(a, a, ~certain, held, first=9, own=True)
    assert_equal(held, nearest(np.where(np.eye(70, dtype=bool), np.inf, 0.0), 4, 9))


def test_places_and_ids_are_never_rounded() -> None:
    first = 2**24 + 1
    bounds, places = shortlists(1, 3, np.inf, "float32")
    other = shortlists(9, 1, np.inf, "float32")
    products = np.arange(9, dtype=np.float32)[None]
    sides = {"bounds_i": bounds, "places_i": places, "bounds_j": other[0], "places_j": other[1]}
    zeros = np.zeros(9, np.float32)
    scan_pairs(products, zeros[:1], zeros, **sides, first_i=first + 2, first_j=first, diagonal=0)
    assert sorted(places[0].tolist()) == [first + 6, first + 7, first + 8]
    assert (other[1] == first + 2).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("diagonal", [-30, -7, 0, 1, 5, 99, 200])
def test_scans_take_pairs_on_and_above_the_diagonal_for_both_sides(diagonal: int, dtype: str) -> None:
    x, y = rows(30, 4, 1, dtype), rows(100, 4, 2, dtype)
    products, near = x @ y.T, np.zeros(100, dtype)
    left, right = shortlists(30, 7, np.inf, dtype), shortlists(100, 3, np.inf, dtype)
    sides = {"bounds_i": left[0], "places_i": left[1], "bounds_j": right[0], "places_j": right[1]}
    scan_pairs(products, near[:30], near, **sides, first_i=5, first_j=8, diagonal=diagonal)
    bounds = np.where(np.triu(np.ones_like(products), diagonal) > 0, -products, np.inf)
    for found, expected in ((left, nearest(bounds, 7, 8)), (right, nearest(bounds.T, 3, 5))):
        order = np.lexsort((found[1], found[0]), axis=1)
        np.testing.assert_array_equal(np.take_along_axis(found[0], order, 1), expected[0])
        taken = np.where(expected[1] == EMPTY, -1, expected[1])
        np.testing.assert_array_equal(np.take_along_axis(found[1], order, 1), taken)


@given(squared=st.floats(1e-290, 1e290))
def test_a_half_is_never_below_what_its_key_came_from(squared: float) -> None:
    assert half(float(np.sqrt(squared)), Metric.EUCLIDEAN) >= squared / 2
    assert half(squared, Metric.SQEUCLIDEAN) >= squared / 2
    assert half(-squared, Metric.INNER_PRODUCT) >= -squared


# Every pair ----------------------------------------------------------------------------------------


def tiles(n: int, height: int, width: int) -> Iterator[tuple[slice, slice]]:
    """Tiles that cover all pairs i < j of n rows."""
    for i in range(0, n, height):
        for j in range(i - i % width, n, width):
            yield slice(i, min(i + height, n)), slice(j, min(j + width, n))


@examples(40)
@given(
    n=st.integers(1, 110),
    d=st.integers(1, 9),
    k=st.integers(1, 12),
    height=st.integers(1, 90),
    width=st.integers(1, 150),
    metric=st.sampled_from(IN_ORDER),
    few=st.booleans(),
    seed=st.integers(0, 99),
    size=st.sampled_from([1.0, 1e-160, 1e150]),
)
def test_every_pair_once_gives_the_nearest_of_all(
    n: int, d: int, k: int, height: int, width: int, metric: Metric, few: bool, seed: int, size: float
) -> None:
    x, first = rows(n, d, seed, few=few) * size, 2**31 + 5
    found, cuts = lists(n, k), list(tiles(n, height, width))
    for t in np.random.default_rng(seed).permutation(len(cuts)):
        i, j = cuts[t]
        sides = two_sides((found[0][i], found[1][i]), (found[0][j], found[1][j]))
        where = {"first_i": first + i.start, "first_j": first + j.start, "diagonal": 1 + i.start - j.start}
        measure_pairs(x[i], x[j], metric=metric, **sides, **where)
    every = lists(n, n)
    where = {"first_i": first, "first_j": first, "diagonal": 1}
    measure_pairs.reference(x, x, metric=metric, **two_sides(every, every), **where)  # type: ignore[attr-defined]
    expected = tuple(a[:, :k] for a in ordered(every))
    assert_equal(tuple(a[:, : min(k, n)] for a in ordered(found)), expected)  # type: ignore[arg-type]
    assert (ordered(found)[1][:, n - 1 :] == EMPTY).all()
    if size == 1:
        apart = np.where(np.eye(n, dtype=bool), np.inf, plain_keys(x, x, metric))
        np.testing.assert_allclose(expected[0], np.sort(apart, axis=1)[:, :k], rtol=1e-14)


def by_name(name: str) -> Callable[..., None]:
    if name == "measure":
        return functools.partial(measure_pairs, metric=Metric.MANHATTAN)
    return functools.partial(compare_pairs, function={"python": city, "jitted": jitted_city}[name])


def city(a: Array, b: Array) -> float:
    total = 0.0
    for t in range(len(a)):
        total += abs(a[t] - b[t])
    return total


jitted_city = numba.njit("float64(float64[:], float64[:])")(city)


@pytest.mark.parametrize("diagonal", [-20, -3, 0, 1, 66, 80, 300])
@pytest.mark.parametrize("name", ["measure", "python", "jitted"])
def test_pairs_on_and_above_the_diagonal_go_to_both_sides(name: str, diagonal: int) -> None:
    x, y = rows(20, 3, 1), rows(150, 3, 2)
    left, right = lists(20, 4), lists(150, 2)
    right[0][::3] = -np.inf
    x.flags.writeable = False
    by_name(name)(x, y, **two_sides(left, right), first_i=3, first_j=2**40, diagonal=diagonal)
    keys = np.where(np.triu(np.ones((20, 150)), diagonal) > 0, plain_keys(x, y, Metric.MANHATTAN), np.inf)
    columns = nearest(keys.T, 2, 3)
    columns[0][::3], columns[1][::3] = -np.inf, EMPTY
    assert_equal(left, nearest(keys, 4, 2**40))
    assert_equal(right, columns)


def test_a_pair_that_comes_again_is_not_taken_twice() -> None:
    x, left, right = rows(20, 2, 1), lists(20, 8), lists(20, 8)
    for _ in range(3):
        where = {"first_i": 0, "first_j": 0, "diagonal": -20}
        measure_pairs(x, x, metric=Metric.EUCLIDEAN, **two_sides(left, right), **where)
    assert_equal(left, nearest(plain_keys(x, x, Metric.EUCLIDEAN), 8))
    assert_equal(right, left)


def test_a_function_that_numba_cannot_compile_is_called_and_reported() -> None:
    def spelt(a: Array, b: Array) -> float:
        return float(f"{np.abs(a - b).sum():.3f}".strip())

    x, found, expected = rows(9, 3, 1), lists(9, 3), lists(9, 3)
    where = {"first_i": 0, "first_j": 0, "diagonal": 1}
    with pytest.warns(UserWarning, match="spelt is called from Python for every pair"):
        compare_pairs(x, x, function=spelt, **two_sides(found, found), **where)
    reference = compare_pairs.reference  # type: ignore[attr-defined]
    reference(x, x, function=spelt, **two_sides(expected, expected), **where)
    assert_equal(found, expected)


# Lists ---------------------------------------------------------------------------------------------


@st.composite
def parts(draw: st.DrawFn) -> list[Lists]:
    """Lists of one row in any order; an id has the same key wherever it is."""
    names = draw(st.lists(st.lists(st.integers(0, 30), unique=True, max_size=9), min_size=2, max_size=4))
    out = []
    for part in names:
        keys, ids = lists(1, 9)
        for slot, name in enumerate(part):
            keys[0, slot], ids[0, slot] = name * 7 % 5, 2**40 + name
        out.append((keys, ids))
    return out


def merged(of: list[Lists], k: int) -> Lists:
    total = lists(1, k)
    for keys, ids in of:
        merge_lists(*total, other_keys=keys, other_ids=ids)
    assert is_heap(*total)
    return total


@examples(150)
@given(of=parts(), k=st.integers(1, 6))
def test_merging_takes_any_order_and_any_repetition(of: list[Lists], k: int) -> None:
    once = merged(of, k)
    assert_equal(once, merged(of[::-1] + of, k))
    assert_equal(once, merged([merged(of[:1], k), merged(of[1:], k)], k))
    pairs = sorted({(key, n) for a, b in of for key, n in zip(a[0], b[0], strict=True) if n != EMPTY})[:k]
    keys, ids = ordered(once)
    held = [(key, n) for key, n in zip(keys[0].tolist(), ids[0].tolist(), strict=True) if n != EMPTY]
    assert held == pairs


@pytest.mark.parametrize("k", [1, 2, 3, 64, 65])
def test_sorted_lists_backwards_are_lists(k: int) -> None:
    keys, ids = np.round(rows(30, k, 1) / 20), rows(30, k, 2).astype(np.int64) + 2**40
    order = np.lexsort((ids, keys), axis=1)
    expected = np.take_along_axis(keys, order, 1), np.take_along_axis(ids, order, 1)
    sort_lists(keys, ids)
    np.testing.assert_array_equal(keys, expected[0])
    np.testing.assert_array_equal(ids, expected[1])
    assert is_heap(keys[:, ::-1], ids[:, ::-1])
