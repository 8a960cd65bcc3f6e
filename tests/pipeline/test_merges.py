"""A merge of streams forgets nothing that they added up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_plan import folds

from rankfold.pipeline.checkpoint import State

PLACES = ("bad", "negative")
"""Counts with the first place beside them: joined by a rule of their own."""


def filled(state: State, seed: int) -> State:
    """As many numbers as an accumulator holds, none of them zero."""
    rng = np.random.default_rng(seed)
    numbers = {name: rng.integers(1, 90, values.shape).astype(values.dtype) for name, values in state.items()}
    if "r" in numbers:
        numbers["r"] = np.triu(numbers["r"])
    return numbers | {name: state[name].copy() for name in PLACES if name in state}


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_every_sum_of_the_other_stream_counts(tmp_path: Path, dtype: str) -> None:
    for fold, _ in folds(tmp_path, dtype):
        state = fold.start()
        once: dict[str, Any] = filled(state, 1)
        for seed in (2, 3):
            total = {name: values.copy() for name, values in once.items()}
            fold.merge(total, filled(state, seed))
            unused = PLACES if getattr(fold, "measured", True) else (*PLACES, "sums", "squares")
            kept = [name for name in state if name not in unused and np.array_equal(total[name], once[name])]
            assert not kept, (type(fold).__name__, kept)
