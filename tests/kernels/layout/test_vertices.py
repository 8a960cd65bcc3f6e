"""Tables of forces, turns of edges, and vertices that are moved in any split to the same bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankfold.kernels.layout.cpu.vertices import _factor
from rankfold.kernels.layout.forces import BITS, Edges, Epoch, epoch_key, forces_of, phases_of
from rankfold.kernels.layout.vertices import move_vertices


@pytest.mark.parametrize(("a", "b"), [(1.577, 0.895), (0.1, 1.8), (3.0, 0.4)])
def test_tables_are_as_near_to_the_forces_as_steps_allow(a: float, b: float) -> None:
    tables = forces_of(a, b, 2.0)
    squares = np.float32(10) ** np.linspace(-9, 9, 4001, dtype=np.float32)
    wide = squares.astype(np.float64)
    curve = 1 + a * wide**b
    exact = (-2 * a * b * wide ** (b - 1) / curve, 4 * b / ((0.001 + wide) * curve))
    # Between steps of a relative width h a power of slope s is off by h^2 s (s + 1) / 8; slopes are below 3.
    bound = 2.0 ** (-2 * BITS) * 3 * 4 / 8 + 4 * np.finfo(np.float32).eps
    for table, values in zip(tables, exact, strict=True):
        found = np.array([_factor.py_func(table, square) for square in squares], np.float64)
        assert (np.abs(found - values) <= bound * np.abs(values)).all()


@given(weight=st.floats(0, 1, width=32), epochs=st.integers(1, 3000))
def test_an_edge_pulls_as_often_as_its_weight_says(weight: float, epochs: int) -> None:
    phase = int(phases_of(np.array([weight], np.float32), 1.0)[0])
    pulls = sum((epoch * phase) % 2**32 < phase for epoch in range(1, epochs + 1))
    # The phase of 1 is a 2^-32nd short of a turn, and others are rounded down by less than that.
    assert int(epochs * weight) - 1 <= pulls <= int(epochs * weight) + 1
    assert weight < 1 or pulls == epochs - 1


def graph(rows: int, width: int) -> dict[str, Any]:
    rng = np.random.default_rng(rows)
    pointers = np.concatenate([[0], np.cumsum(rng.integers(0, 9, rows))])
    ends = rng.integers(0, rows, pointers[-1]).astype(np.int32)
    positions = rng.standard_normal((rows, width)).astype(np.float32)
    edges = Edges(pointers, ends, phases_of(rng.random(len(ends), np.float32), 1.0))
    return {"positions": positions, "edges": edges, "forces": forces_of(1.577, 0.895, 1.0)}


@given(cuts=st.lists(st.integers(1, 199), unique=True).map(sorted), width=st.integers(1, 4))
def test_any_split_of_the_vertices_gives_the_same_bytes(cuts: list[int], width: int) -> None:
    case = graph(200, width)
    case["epoch"] = Epoch(5, epoch_key(1, 2, 5), 0.5, 3)
    vertices = np.random.default_rng(0).permutation(200)
    whole, parts = (np.empty((200, width), np.float32) for _ in range(2))
    move_vertices(vertices=vertices, **case, out=whole)
    edges = case.pop("edges")
    for start, stop in zip([0, *cuts], [*cuts, 200], strict=True):
        some = vertices[start:stop]
        move_vertices(vertices=some, edges=edges.part(start, stop), **case, out=parts[start:stop])
    assert whole.tobytes() == parts.tobytes()


def test_other_epochs_and_seeds_draw_other_numbers() -> None:
    keys = {epoch_key(seed, purpose, epoch) for seed in range(9) for purpose in (1, 2) for epoch in range(9)}
    assert len(keys) == 9 * 2 * 9


def test_random_vertices_are_drawn_evenly() -> None:
    """Each is as likely as another: pushes from far away are small, so where they come from shows."""
    rows = 64
    positions = np.zeros((rows, 2), np.float32)
    positions[:, 0] = np.arange(rows)
    drawn, out = np.zeros(2), np.empty((1, 2), np.float32)
    pointers, phases = np.array([0, 1]), np.full(1, 2**32 - 1, np.uint32)
    edges, forces = Edges(pointers, np.zeros(1, np.int32), phases), forces_of(1.0, 1.0, 1.0)
    positions[0] = 31.5, 0
    for key in range(2000):
        now = Epoch(1, key * 77, 1.0, 1)
        move_vertices(positions, np.zeros(1, np.int64), edges, forces=forces, epoch=now, out=out)
        drawn += [out[0, 0] > 31.5, out[0, 0] < 31.5]
    assert abs(drawn[0] - drawn[1]) < 5 * np.sqrt(2000)  # five standard deviations


def test_any_of_the_neighbors_may_be_the_last_to_pull() -> None:
    """A vertex in the middle of three ends towards the last: each of them, over epochs."""
    angles = np.arange(3) * 2 * np.pi / 3
    ring = 3 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    positions = np.concatenate([np.zeros((1, 2)), ring]).astype(np.float32)
    edges = Edges(np.array([0, 3]), np.array([1, 2, 3], np.int32), np.full(3, 2**32 - 1, np.uint32))
    forces, out, last = forces_of(1.0, 1.0, 1.0), np.empty((1, 2), np.float32), np.zeros(3)
    for epoch in range(600):
        now = Epoch(2, epoch_key(0, 1, epoch), 1.0, 0)
        move_vertices(positions, np.zeros(1, np.int64), edges, forces=forces, epoch=now, out=out)
        last[(ring @ out[0]).argmax()] += 1
    assert np.abs(last - 200).max() < 5 * np.sqrt(600 * 2 / 9)  # five standard deviations
