"""Cases of kernels of the family ``bits``."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from kernel_cases.case import (
    Body,
    Case,
    MakeCase,
    Outputs,
    fill,
    increasing,
    listed,
)

from rankfold.kernels.bits.bit_meeting import BitRows
from rankfold.kernels.bits.set_keys import SetMetric
from rankfold.kernels.neighbors import lists as neighbors
from rankfold.kernels.neighbors.meeting import Lists
from rankfold.kernels.neighbors.sparse_meeting import SparseRows


def met_as_sets(body: Body, one: Any, two: Any, **how: Any) -> Outputs:
    """Lists of two blocks, or of one among itself, by both metrics; some of a second block take nothing."""
    outputs = {}
    for metric, same, takes in itertools.product(SetMetric, (False, True), (False, True)):
        sides = one, one if same else two
        found = [Lists(*fill(len(side), 3, np.inf, neighbors.EMPTY), np.zeros(1, np.int64)) for side in sides]
        for _ in range(2):  # a pair that meets again changes nothing
            lists_j = None if same or not takes else found[1]
            body(*sides, lists_i=found[0], lists_j=lists_j, metric=int(metric), same=same, **how)
        for side, each in zip("ij", found, strict=True):
            outputs |= listed(f"{side} {metric.name} {same} {takes}", each.keys, each.ids)
    return outputs


def meet_bits_case(shape: tuple[int, int], dtype: str) -> Case:
    inputs = {}
    for side, rows in (("x", shape[0]), ("y", 3 * shape[0] + 150)):  # more than a run of columns
        rng = np.random.default_rng([*shape, ord(side)])
        bits = rng.random((rows, 11 * shape[1])) < rng.random((rows, 1)) ** 2
        bits[: rows // 3] = bits[0]
        packed = np.zeros((rows, 8 * -(-bits.shape[1] // 64)), np.uint8)
        packed[:, : -(-bits.shape[1] // 8)] = np.packbits(bits, axis=1)
        inputs |= {f"words {side}": packed.view(np.uint64), f"sizes {side}": bits.sum(axis=1)}

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        x, y = (
            BitRows(first, 11 * shape[1], a[f"words {side}"], a[f"sizes {side}"])
            for side, first in (("x", 1000), ("y", 5))
        )
        return met_as_sets(body, x, y)

    return Case(inputs, run)


def meet_sets_case(shape: tuple[int, int], dtype: str) -> Case:
    n, d = shape
    inputs = {
        f"{name} {side}": a
        for side, rows in (("x", n), ("y", n + 150))
        for name, a in increasing((rows, d), "uint8", ord(side)).items()
        if name != "data"
    }

    def block(a: dict[str, Any], side: str) -> SparseRows:
        indptr, indices = (a[f"{name} {side}"] for name in ("indptr", "indices"))
        each = np.ones(len(indptr) - 1)
        return SparseRows(7, d, indptr, indices, np.ones(len(indices), np.uint8), each, each, each[:, None])

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        room = {"room": lambda name, size, kind: np.empty(size, kind)}
        return met_as_sets(body, block(a, "x"), block(a, "y"), common=np.arange(0, d, 3), **room)

    return Case(inputs, run)


CASES: dict[tuple[str, str], tuple[MakeCase, tuple[str, ...]]] = {
    ("bits.bit_meeting", "meet_bits"): (meet_bits_case, ("float64",)),
    ("bits.set_meeting", "meet_sets"): (meet_sets_case, ("float64",)),
}
