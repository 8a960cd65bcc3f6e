"""Two blocks that meet leave exact lists, whatever limits and balls spare them of looking at."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from rankfold.kernels.neighbors.cpu import meeting as tuned
from rankfold.kernels.neighbors.lists import EMPTY, Metric, distance, sort_lists
from rankfold.kernels.neighbors.meeting import Lists, Rows, limit_pairs, meet_rows

Array = npt.NDArray[Any]

K = 5


def block(raw: Array, first: int, metric: Metric, shift: Array | None) -> Rows:
    wide = raw.astype(np.float64)
    norms, scale = (wide**2).sum(1), np.ones(len(raw))
    if metric == Metric.COSINE:
        scale = np.divide(1, np.sqrt(norms), out=np.zeros_like(norms), where=norms > 0)
        wide, norms = wide * scale[:, None], (norms > 0).astype(float)
    elif shift is not None:
        wide = wide - shift
        norms = (wide**2).sum(1)
    return Rows(first, raw, wide.astype(np.float32), norms, scale)


def met(x: Array, y: Array | None, metric: Metric, shift: Array | None) -> list[Array]:
    """Sorted lists of both sides; of rows among themselves where there is no other."""
    one = block(x, 0, metric, shift)
    two = one if y is None else block(y, len(x), metric, shift)
    lists = [
        Lists(np.full((len(each), K), np.inf), np.full((len(each), K), EMPTY), np.zeros(1, np.int64))
        for each in (one, two)
    ]
    how: dict[str, Any] = {"room": lambda name, shape, kind: np.empty(shape, kind), "precise": False}
    same = y is None
    meet_rows(
        one, two, lists_i=lists[0], lists_j=None if same else lists[1], metric=int(metric), shift=shift,
        same=same, **how,
    )  # fmt: skip
    for each in lists[: 1 if same else 2]:
        sort_lists(each.keys, each.ids)
    return [array for each in lists[: 1 if same else 2] for array in (each.keys, each.ids)]


def sorted_clusters(dtype: str) -> Array:
    """Three clusters of 700 rows, one after the other, a few rows equal, one far outside."""
    r = np.random.default_rng(0)
    x = r.standard_normal((2100, 20)) + 40 * np.repeat(r.standard_normal((3, 20)), 700, axis=0)
    x[5], x[1200] = x[4], 1e4
    return (
        (np.abs(x) if dtype == "uint8" else x).clip(0, 255).astype(dtype)
        if dtype == "uint8"
        else x.astype(dtype)
    )


@pytest.mark.parametrize("metric", [Metric.EUCLIDEAN, Metric.SQEUCLIDEAN, Metric.COSINE])
@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8"])
@pytest.mark.parametrize("shifted", [False, True])
def test_tiles_that_are_far_apart_are_left_out_and_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch, metric: Metric, dtype: str, shifted: bool
) -> None:
    x = sorted_clusters(dtype)
    shift = x.mean(axis=0, dtype=np.float64) if shifted and metric != Metric.COSINE else None
    verdicts: list[bool] = []
    monkeypatch.setattr(tuned, "WORTH_BALLS", 1)
    is_far = tuned._Meeting.is_far
    monkeypatch.setattr(tuned._Meeting, "is_far", lambda *a: verdicts.append(is_far(*a)) or verdicts[-1])
    found = [*met(x, None, metric, shift), *met(x[:1400], x[1400:], metric, shift)]
    if dtype != "uint8":
        assert any(verdicts)
    monkeypatch.setattr(tuned._Meeting, "is_far", lambda *_: False)
    every = [*met(x, None, metric, shift), *met(x[:1400], x[1400:], metric, shift)]
    for a, b in zip(found, every, strict=True):
        np.testing.assert_array_equal(a, b)


def test_lists_are_those_of_every_pair() -> None:
    x = sorted_clusters("float32")
    keys, ids = met(x, None, Metric.EUCLIDEAN, None)
    for row in (0, 4, 5, 699, 700, 1200, 2099):
        every = [(distance(x[row], other, 1, 1, metric=0), j) for j, other in enumerate(x) if j != row]
        assert list(zip(keys[row].tolist(), ids[row].tolist(), strict=True)) == sorted(every)[:K]


@pytest.mark.parametrize("shape", [(64, 64), (300, 500), (257, 1000), (1000, 70)])
@pytest.mark.parametrize("length", [1, 8, 64, 65])
def test_limits_leave_room_for_as_many_pairs_as_a_shortlist_has(shape: tuple[int, int], length: int) -> None:
    r = np.random.default_rng(shape)
    products, near_i, near_j = r.standard_normal(shape), r.random(shape[0]), r.random(shape[1])
    bound = near_i[:, None] + near_j - products
    bounds = [np.full((n, length), np.inf) for n in shape]
    limit_pairs(products, near_i, near_j, bounds_i=bounds[0], bounds_j=bounds[1], diagonal=-shape[0])
    for lines, limits in zip((bound, bound.T), bounds, strict=True):
        below = (lines < limits[:, :1]).sum(axis=1)
        assert (below >= min(length, lines.shape[1])).all()
        assert (limits == limits[:, :1]).all()
        if length <= 8 and lines.shape[1] > 256:
            assert below.mean() < 2 * length + 2
