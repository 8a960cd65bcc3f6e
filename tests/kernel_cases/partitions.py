"""Cases of kernels of the family ``partitions``."""

from __future__ import annotations

from typing import Any

import numpy as np
from kernel_cases.case import (
    Body,
    Case,
    MakeCase,
    Outputs,
)

from rankfold.kernels.neighbors import lists as neighbors


def visits_case(shape: tuple[int, int], dtype: str) -> Case:
    p, k = shape
    rng = np.random.default_rng(p)
    partitions = rng.integers(0, 6, (p, 3)).astype(np.int32)
    partitions[rng.random((p, 3)) < 0.3] = -1  # none
    ids = rng.integers(0, p, (p, k))
    ids[rng.random((p, k)) < 0.2] = neighbors.EMPTY

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        visits = {f"{count} of {own}": xp.zeros((p, count), np.int32) for own, count in ((0, 2), (5, 4))}
        for (name, out), own in zip(visits.items(), (0, 5), strict=True):
            assert body(a["ids"], a["partitions"], own, out=out) is None, name
        return visits

    return Case({"ids": ids, "partitions": partitions}, run)


CASES: dict[tuple[str, str], tuple[MakeCase, tuple[str, ...]]] = {
    ("partitions.visits", "choose_visits"): (visits_case, ("float64",)),
}
