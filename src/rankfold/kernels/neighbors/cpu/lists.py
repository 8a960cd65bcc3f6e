"""Nearest neighbors from tiles of products. See ``kernels/neighbors/lists.py``.

Runs of columns are tested as vectors against the farthest of the lists; only where one passes is there a loop
over pairs. The test is never too strict, and the loop repeats it: a limit out of date costs only time.
"""

from __future__ import annotations

import functools
import types
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from rankfold.kernels._compiled import compile_loop, part
from rankfold.kernels._dispatch import plain, wide
from rankfold.kernels.neighbors.cpu._distances import COSINE, INNER_PRODUCT, distance, inner_product, load
from rankfold.kernels.neighbors.cpu._heaps import TOP, heapify, sift, sort, take
from rankfold.kernels.neighbors.cpu._masks import LANES as LANES_OF_MASK
from rankfold.kernels.neighbors.cpu._masks import lowest_bit, mask_below
from rankfold.kernels.neighbors.cpu._pairs import compare, measure
from rankfold.kernels.neighbors.lists import EMPTY, LANES, half, no_number
from rankfold.kernels.neighbors.lists import compare_pairs as contract

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]

RUN = LANES_OF_MASK
"""Columns (rows of the other side) that are tested at a time."""

Index = np.uint64
"""Index type of loops that are to be vectorized: a signed index is checked each time for being negative, and
slices instead count references, each by an atomic operation."""

TINY = 1e-35
"""Added to limits, since the smallest numbers of float32 are lost."""

SHORT_ERROR = 2.0**-24
"""Largest relative error of a rounding in float32. A length of n numbers is off by (n + 4) / 2 times it."""

_COMPILABLE = (types.FunctionType, numba.core.dispatcher.Dispatcher)

_half = part(half)


def scan_pairs(
    products: Array,
    near_i: Array,
    near_j: Array,
    *,
    bounds_i: Array,
    places_i: Int32,
    bounds_j: Array,
    places_j: Int32,
    first_i: int,
    first_j: int,
    diagonal: int,
) -> None:
    """See the contract; scratch two numbers a column. Inserts the pairs of a tile into shortlists."""
    inputs = (wide(products), plain(near_i), plain(near_j))
    lists = (bounds_i, places_i, bounds_j, places_j)
    # Loops that allocate arrays take long to compile.
    scratch = np.array(bounds_j[:, 0]), np.empty(len(near_j), np.int64)
    _run(_scan, inputs, lists, int(first_i), int(first_j), int(diagonal), *scratch)


def refine_rows(
    x: Array,
    y: Array,
    scale_x: Float64,
    scale_y: Float64,
    *,
    metric: int,
    first: int,
    bounds: Array,
    places: Int32,
    keys: Float64,
    ids: Int64,
) -> npt.NDArray[np.bool_]:
    """See the contract. Measures the candidates of shortlists, and merges them into lists.

    Scratch 16 c + 8 d bytes, 8 r c more for float32. Shortlists are left as they are.
    """
    certain = np.empty(len(x), np.bool_)
    # Bounds are compared in float64 in any case: converted here, one loop serves both types.
    bounds = bounds.astype(np.float64, copy=False)
    inputs = _pair_inputs(x, y, scale_x, scale_y, metric, first)
    row, sums = np.empty(x.shape[1]), np.empty(LANES)
    heap, names = np.empty(bounds.shape[1]), np.empty(bounds.shape[1], np.int64)
    _run(_refine, (*inputs, plain(bounds), plain(places)), (keys, ids), certain, row, sums, heap, names)
    return certain


def _pair_inputs(
    x: Array, y: Array, scale_x: Float64, scale_y: Float64, metric: int, first: int
) -> tuple[Any, ...]:
    """Arguments of a loop that measures pairs of rows, with arrays in the layout that it is compiled for."""
    rows, scales = (wide(x), wide(y)), (plain(scale_x), plain(scale_y))
    return *rows, *scales, int(metric), inner_product(metric), int(first)


def exhaust_rows(
    products: Float64,
    near_i: Float64,
    near_j: Float64,
    x: Array,
    y: Array,
    scale_x: Float64,
    scale_y: Float64,
    *,
    metric: int,
    own: Int64,
    first: int,
    keys: Float64,
    ids: Int64,
) -> None:
    """See the contract; scratch 8 d bytes. Measures the pairs that bounds do not rule out, into lists."""
    limits = (wide(products), plain(near_i), plain(near_j))
    inputs = _pair_inputs(x, y, scale_x, scale_y, metric, first)
    scratch = np.empty(x.shape[1]), np.empty(LANES)
    _run(_exhaust, (*limits, *inputs, plain(own)), (keys, ids), *scratch)


def measure_near(
    products: Array,
    near_i: Array,
    near_j: Array,
    z_i: Array,
    z_j: Array,
    x: Array,
    y: Array,
    scale_x: Float64,
    scale_y: Float64,
    *,
    leading: int,
    metric: int,
    keys_i: Float64,
    ids_i: Int64,
    keys_j: Float64,
    ids_j: Int64,
    first_i: int,
    first_j: int,
    diagonal: int,
) -> int:
    """See the contract. Measures the pairs of a tile that bounds do not rule out, into both lists.

    Scratch 12 d bytes, and 4 or 8 a row and a column.
    """
    bounds = wide(products), plain(near_i), plain(near_j), plain(z_i), plain(z_j), int(leading)
    inputs = _pair_inputs(x, y, scale_x, scale_y, metric, first_j)
    limits = np.empty(len(x), products.dtype), np.empty(len(y), products.dtype)
    scratch = np.empty(x.shape[1]), np.empty(x.shape[1], np.float32), np.empty(LANES), np.zeros(1, np.int64)
    # Of float32 rows and bytes a sum in float32 is close enough to rule most pairs out.
    reach = 0.0 if x.dtype == np.float64 else SHORT_ERROR * (x.shape[1] + 8)
    widening = 4 * float(np.finfo(products.dtype).eps)
    where = int(first_i), int(diagonal), widening, reach
    _run(_measure_near, (*bounds, *inputs), (keys_i, ids_i, keys_j, ids_j), *where, *limits, *scratch)
    return int(scratch[-1][0])


def measure_pairs(
    x: Float64,
    y: Float64,
    *,
    metric: int,
    keys_i: Float64,
    ids_i: Int64,
    keys_j: Float64,
    ids_j: Int64,
    first_i: int,
    first_j: int,
    diagonal: int,
) -> None:
    """See the contract; scratch 8 (p + 64 d) bytes. Measures all pairs of a tile, into lists."""
    inputs = (wide(x), wide(y), int(metric))
    rows, columns = (np.empty(RUN), np.empty(RUN, np.int64), np.empty(len(x))), np.empty((x.shape[1], RUN))
    where = int(first_i), int(first_j), int(diagonal)
    _run(measure, inputs, (keys_i, ids_i, keys_j, ids_j), *where, *rows, np.empty(RUN), columns)


def compare_pairs(
    x: Float64,
    y: Float64,
    *,
    function: Callable[[Float64, Float64], float],
    keys_i: Float64,
    ids_i: Int64,
    keys_j: Float64,
    ids_j: Int64,
    first_i: int,
    first_j: int,
    diagonal: int,
) -> None:
    """See the contract. Evaluates a caller's metric for all pairs of a tile, into lists.

    A function that numba cannot compile is called from Python, with a warning.
    """
    loop = _compile_metric(function) if isinstance(function, _COMPILABLE) else None
    if loop is None:
        lists = {"keys_i": keys_i, "ids_i": ids_i, "keys_j": keys_j, "ids_j": ids_j}
        where = {"first_i": first_i, "first_j": first_j, "diagonal": diagonal}
        contract.reference(x, y, function=function, **lists, **where)  # type: ignore[attr-defined]
        return
    # Writable, since a function may have been compiled for that.
    rows, nowhere = [np.require(a, requirements=["C", "W"]) for a in (x, y)], np.full(2, -1)
    _run(
        functools.partial(compare, loop),
        rows,
        (keys_i, ids_i, keys_j, ids_j),
        int(first_i),
        int(first_j),
        int(diagonal),
        nowhere,
    )
    if nowhere[0] >= 0:
        raise ValueError(no_number(*nowhere.tolist()))


def merge_lists(keys: Float64, ids: Int64, *, other_keys: Float64, other_ids: Int64) -> None:
    """See the contract; no scratch. Merges other lists of the same rows into lists."""
    _run(_merge, (), (keys, ids), plain(other_keys), plain(other_ids))


def merge_rows(keys: Float64, ids: Int64, rows: Int64, *, other_keys: Float64, other_ids: Int64) -> None:
    """See the contract; no scratch. Merges other lists into those of ``rows``."""
    _run(_merge_rows, (plain(rows),), (keys, ids), plain(other_keys), plain(other_ids))


def sort_lists(keys: Float64, ids: Int64) -> None:
    """See the contract; no scratch. Sorts each list, nearest first."""
    _run(_sort, (), (keys, ids))


def _run(loop: Callable[..., None], inputs: Sequence[object], lists: Sequence[Array], *rest: object) -> None:
    """Call a loop with lists in C order; where they are not, with copies that are written back."""
    plain = [np.ascontiguousarray(a) for a in lists]
    loop(*inputs, *plain, *rest)
    for a, copy in zip(lists, plain, strict=True):
        if copy is not a:
            a[...] = copy


@part
def _mask_below(row: Array, near: Any, near_j: Array, far: Any, far_j: Array, a: int, b: int) -> Any:
    """Mask of columns ``a:b``, at most ``RUN``: bit t is set if column j = a + t may enter either shortlist.

    That is if ``near + near_j[j] - row[j]`` is below ``far`` or ``far_j[j]``, the limits of the row and of j;
    ``row`` is products of the row with all columns.
    """
    if len(near_j) >= RUN:
        # The last columns are compared with some before them, whose bits are dropped.
        start = min(a, len(near_j) - RUN)
        return mask_below(row, near_j, far_j, start, near, far) >> np.uint64(a - start)
    mask = np.uint64(0)
    for j in range(a, b):
        bound = near + near_j[j] - row[j]
        mask |= np.uint64((bound < far) | (bound < far_j[j])) << np.uint64(j - a)
    return mask


@part
def _room(names: Array) -> int:
    """Number of empty slots of a heap, which are its first ones and have negative names.

    They hold the largest value that the heap accepts, so that the next pair may go into the last of them: a
    heap is built from its leaves, in less than a sift for each.
    """
    room: int = TOP
    while room < len(names) and names[room] < 0:
        room += 1
    return room


@compile_loop
def _scan(
    products: Array,
    near_i: Array,
    near_j: Array,
    bounds_i: Array,
    places_i: Int32,
    bounds_j: Array,
    places_j: Int32,
    first_i: int,
    first_j: int,
    diagonal: int,
    far_j: Array,
    room_j: Int64,
) -> None:
    q = len(near_j)
    for j in range(q):
        room_j[j] = _room(places_j[j])
    for i in range(len(near_i)):
        row, near, room = products[i], near_i[i], _room(places_i[i])
        for a in range(max(0, i + diagonal), q, RUN):
            mask = _mask_below(row, near, near_j, bounds_i[i, 0], far_j, a, min(a + RUN, q))
            while mask:
                j = a + lowest_bit(mask)
                mask &= mask - np.uint64(1)
                bound = near + near_j[j] - row[j]
                if bound < bounds_i[i, 0]:
                    room = max(TOP, room - 1)
                    sift(bounds_i[i], places_i[i], room, bounds_i.shape[1], bound, np.int32(first_j + j))
                if bound < bounds_j[j, 0]:
                    room_j[j] = max(TOP, room_j[j] - 1)
                    sift(bounds_j[j], places_j[j], room_j[j], bounds_j.shape[1], bound, np.int32(first_i + i))
                far_j[j] = bounds_j[j, 0]


@part
def _candidates(bounds: Array, places: Int32, limit: float, heap: Float64, names: Int64) -> int:
    """Write the candidates of a shortlist with bounds up to ``limit`` as a heap, smallest bound on top.

    Bounds go to ``heap``, negated, since heaps have the largest value on top, and places to ``names``.
    Returns the number of these candidates.
    """
    count: int = TOP
    for slot in range(len(bounds)):
        if places[slot] >= 0 and bounds[slot] <= limit:
            heap[count], names[count] = -bounds[slot], places[slot]
            count += 1
    heapify(heap, names, count)
    return count


@part
def _empty(ids: Int64) -> int:
    """Number of slots of a list if all are empty, else 0, since the list may have the next pair already."""
    others = 0
    for t in range(len(ids)):
        others += ids[t] != EMPTY
    return TOP if others else len(ids)


@compile_loop
def _refine(
    x: Array,
    y: Array,
    scale_x: Float64,
    scale_y: Float64,
    metric: int,
    inner: Any,
    first: int,
    bounds: Array,
    places: Int32,
    keys: Float64,
    ids: Int64,
    certain: npt.NDArray[np.bool_],
    row: Float64,
    sums: Float64,
    heap: Float64,
    names: Int64,
) -> None:
    for i in range(len(x)):
        count = _candidates(bounds[i], places[i], _half(keys[i, 0], metric), heap, names)
        room: int = TOP
        if count:
            load(x[i], scale_x[i], metric, row)
            room = _empty(ids[i])
        while count and -heap[0] <= _half(keys[i, 0], metric):
            place = names[0]
            key = distance(row, scale_x[i], y, place, scale_y[place], metric, inner, sums)
            room = take(keys[i], ids[i], key, first + place, room)
            count -= 1
            sift(heap, names, TOP, count, heap[count], names[count])
        largest = bounds[i, 0]
        certain[i] = largest == np.inf or largest > _half(keys[i, 0], metric)


@part
def _any_within(row: Float64, near: float, near_j: Float64, limit: float, a: int, b: int) -> bool:
    within = False
    for j in range(Index(a), Index(b)):
        within |= not near + near_j[j] - row[j] > limit
    return within


@compile_loop
def _exhaust(
    products: Float64,
    near_i: Float64,
    near_j: Float64,
    x: Array,
    y: Array,
    scale_x: Float64,
    scale_y: Float64,
    metric: int,
    inner: Any,
    first: int,
    own: Int64,
    keys: Float64,
    ids: Int64,
    row: Float64,
    sums: Float64,
) -> None:
    q = len(near_j)
    for i in range(len(near_i)):
        load(x[i], scale_x[i], metric, row)
        for start in range(0, q, RUN):
            if keys[i, 0] == 0 and metric != INNER_PRODUCT and first + start > ids[i, 0]:
                break
            stop, limit = min(start + RUN, q), _half(keys[i, 0], metric)
            if not _any_within(products[i], near_i[i], near_j, limit, start, stop):
                continue
            for j in range(start, stop):
                bound, root = near_i[i] + near_j[j] - products[i, j], keys[i, 0]
                no_gain = root == 0 and metric != INNER_PRODUCT and first + j > ids[i, 0]
                if first + j == own[i] or bound > _half(root, metric) or no_gain:
                    continue
                key = distance(row, scale_x[i], y, j, scale_y[j], metric, inner, sums)
                take(keys[i], ids[i], key, first + j)


def _square_of(row: Array, y: Array, j: Index, scale: Any, columns: Index) -> Any:
    total = scale * 0
    for t in range(columns):
        apart = row[t] - np.float32(y[j, t]) * scale
        total += apart * apart
    return total


# Compared with a limit that allows for additions in any order.
_square = compile_loop(_square_of, fastmath={"reassoc", "contract", "nsz"}, called_from_python=False)


@part
def _limit(key: float, metric: int, widening: float) -> float:
    """Number that the bound of each pair which may enter a list is below: see ``half``.

    ``widening`` is more than rounding the number to the type of bounds takes, relative to it.
    """
    if key == -np.inf:
        return key
    limit: float = _half(key, metric)
    return limit + abs(limit) * widening + TINY


@part
def _gains(key: float, name: int, other: int, metric: int) -> bool:
    """False if a list is full of pairs at distance 0 with ids up to ``name``, and ``other`` is above it."""
    return key != 0 or metric == INNER_PRODUCT or other < name


def _rest_of(z_i: Array, z_j: Array, i: Index, j: Index, leading: Index) -> Any:
    total = np.float32(0)
    for t in range(leading, Index(z_i.shape[1])):
        total += z_i[i, t] * z_j[j, t]
    return total


# Roundings of a sum in any order are allowed for in the terms of rows.
_rest = compile_loop(_rest_of, fastmath={"reassoc", "contract", "nsz"}, called_from_python=False)


@compile_loop
def _measure_near(
    products: Array,
    near_i: Array,
    near_j: Array,
    z_i: Array,
    z_j: Array,
    leading: int,
    x: Array,
    y: Array,
    scale_x: Float64,
    scale_y: Float64,
    metric: int,
    inner: Any,
    first_j: int,
    keys_i: Float64,
    ids_i: Int64,
    keys_j: Float64,
    ids_j: Int64,
    first_i: int,
    diagonal: int,
    widening: float,
    reach: float,
    far_i: Array,
    far_j: Array,
    row: Float64,
    short: Array,
    sums: Float64,
    measured: Int64,
) -> None:
    q, columns, has_rest = len(near_j), Index(len(row)), z_i.shape[1] > leading
    for j in range(q):
        far_j[j] = _limit(keys_j[j, 0], metric, widening)
    for i in range(len(near_i)):
        bounds, near, is_loaded = products[i], near_i[i], False
        far_i[i] = _limit(keys_i[i, 0], metric, widening)
        for a in range(max(0, i + diagonal), q, RUN):
            mask = _mask_below(bounds, near, near_j, far_i[i], far_j, a, min(a + RUN, q))
            while mask:
                j = a + lowest_bit(mask)
                mask &= mask - np.uint64(1)
                bound = near + near_j[j] - bounds[j]
                of_row = bound < far_i[i] and _gains(keys_i[i, 0], ids_i[i, 0], first_j + j, metric)
                of_column = bound < far_j[j] and _gains(keys_j[j, 0], ids_j[j, 0], first_i + i, metric)
                if not of_row and not of_column:
                    continue
                if has_rest:
                    rest = _rest(z_i, z_j, Index(i), Index(j), Index(leading))
                    bound += z_i[i, leading - 1] * z_j[j, leading - 1] - rest
                    if not bound < max(far_i[i], far_j[j]):
                        continue
                if not is_loaded:
                    is_loaded = True
                    load(x[i], scale_x[i], metric, row)
                    for t in range(columns):
                        short[t] = row[t]
                if inner is None and reach > 0:
                    # Half a squared distance, and rounded: most pairs are ruled out by it.
                    scale = np.float32(scale_y[j] if metric == COSINE else 1.0)
                    length = np.sqrt(np.float64(_square(short, y, Index(j), scale, columns))) * (1 - reach)
                    least = max(length - (reach if metric == COSINE else 0.0), 0.0)
                    if least * least > 2 * max(far_i[i], far_j[j]):
                        continue
                key = distance(row, scale_x[i], y, j, scale_y[j], metric, inner, sums)
                take(keys_i[i], ids_i[i], key, first_j + j)
                take(keys_j[j], ids_j[j], key, first_i + i)
                far_i[i] = _limit(keys_i[i, 0], metric, widening)
                far_j[j] = _limit(keys_j[j, 0], metric, widening)
                measured[0] += 1


@compile_loop
def _sort(keys: Float64, ids: Int64) -> None:
    for i in range(len(keys)):
        sort(keys[i], ids[i])


@compile_loop
def _merge(keys: Float64, ids: Int64, other_keys: Float64, other_ids: Int64) -> None:
    for i in range(len(keys)):
        for t in range(other_ids.shape[1]):
            if other_ids[i, t] != EMPTY:
                take(keys[i], ids[i], other_keys[i, t], other_ids[i, t])


@compile_loop
def _merge_rows(rows: Int64, keys: Float64, ids: Int64, other_keys: Float64, other_ids: Int64) -> None:
    for i in range(len(rows)):
        for t in range(other_ids.shape[1]):
            if other_ids[i, t] != EMPTY:
                take(keys[rows[i]], ids[rows[i]], other_keys[i, t], other_ids[i, t])


@functools.lru_cache(maxsize=16)
def _compile_metric(function: Callable[[Float64, Float64], float]) -> Any:
    """Function compiled by numba together with its loop, or None where numba cannot compile it."""
    loop = function if numba.extending.is_jitted(function) else numba.njit(nogil=True)(function)
    keys, ids = np.empty((0, 1)), np.empty((0, 1), np.int64)
    try:
        compare(loop, keys, keys, keys, ids, keys, ids, 0, 0, 0, np.full(2, -1))
    except (numba.core.errors.NumbaError, numba.core.errors.UnsupportedBytecodeError) as error:
        name = getattr(function, "__qualname__", repr(function))
        warnings.warn(
            f"{name} is called from Python for every pair, which is some hundred times slower: numba cannot "
            f"compile it ({str(error).splitlines()[0]})",
            stacklevel=4,  # from here by the body and the dispatcher to the caller
        )
        return None
    return loop
