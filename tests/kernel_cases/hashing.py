"""Cases of kernels of the family ``hashing``."""

from __future__ import annotations

from typing import Any

import numpy as np
from kernel_cases.case import (
    Body,
    Case,
    MakeCase,
    Outputs,
    matrix,
)


def mixing_case(shape: tuple[int, int], dtype: str) -> Case:
    words = matrix(shape).reshape(-1).view(np.uint64)

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        lanes = xp.arange(64, dtype=np.uint64)
        body(a["words"], lanes=lanes)
        return {"lanes": lanes}

    return Case({"words": words}, run)


CASES: dict[tuple[str, str], tuple[MakeCase, tuple[str, ...]]] = {
    ("hashing.digest", "mix_words"): (mixing_case, ("float64",)),
}
