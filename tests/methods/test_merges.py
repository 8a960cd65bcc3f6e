"""A merge of streams forgets nothing that they added up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from every_fold import folds
from reference import decaying, to_zarr
from scipy.sparse import csr_array

import rankfold as rf
from rankfold.pipeline.engine.sweep import Sweep
from rankfold.pipeline.storage.checkpoint import State

PLACES = ("bad", "negative", "bad_weights")
"""Counts with the first place beside them: joined by a rule of their own."""


def filled(state: State, seed: int) -> State:
    """As many numbers as an accumulator holds, none of them zero."""
    rng = np.random.default_rng(seed)
    numbers = {name: rng.integers(1, 90, values.shape).astype(values.dtype) for name, values in state.items()}
    if "r" in numbers:
        numbers["r"] = np.triu(numbers["r"])
    return numbers | {name: state[name].copy() for name in PLACES if name in state}


def forgotten(fold: Any, start: State) -> list[str]:
    """Sums that a merge leaves as they were, or makes the same whatever the other stream has."""
    once: dict[str, Any] = filled(start, 1)
    totals = []
    for seed in (2, 3):
        total = {name: values.copy() for name, values in once.items()}
        fold.merge(total, filled(start, seed))
        totals.append(total)
    unused = PLACES if getattr(fold, "first_pass", True) else (*PLACES, "sums", "squares")
    return [
        name
        for name in start
        if name not in unused
        and any(
            np.array_equal(one[name], other[name])
            for one, other in ((totals[0], once), (totals[1], once), (totals[0], totals[1]))
        )
    ]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_every_sum_of_the_other_stream_counts(tmp_path: Path, dtype: str) -> None:
    for fold, _ in folds(tmp_path, dtype):
        assert not forgotten(fold, fold.start()), type(fold).__name__


def calls(folder: Path) -> Iterator[Callable[[], object]]:
    """What sweeps over a matrix, or over scratch, beside the decompositions."""
    tall, wide = decaying(600, 20, mean=1.0), np.tile(decaying(200, 2000, np.float32), (1, 75))
    near = to_zarr(folder / "near.zarr", np.abs(tall), (60, 20))
    # Chunks of whole columns, which do not split: no panel of rows is small.
    far = to_zarr(folder / "far.zarr", wide, (200, 2000), compressors="auto")
    fit, far_fit = rf.pca(tall, 3, solver="gram"), rf.pca(far, 3, tol=1e-3)
    yield lambda: rf.check(fit, tall)
    yield lambda: rf.check(far_fit, far)
    yield lambda: rf.transform(fit, near)
    yield lambda: rf.transform(far_fit, far)
    yield lambda: rf.nmf(near, 3, passes=3)
    yield lambda: rf.nmf(near, 3, loss="kullback-leibler", passes=3)
    yield lambda: rf.nmf(near, 3, missing="ignore", passes=3)
    yield lambda: rf.nmf(near, 3, weights=np.abs(tall), solver="mu", passes=3)
    yield lambda: rf.qr(tall)
    yield lambda: rf.pca(tall, 3, scale=True, solver="krylov", passes=2)
    stored = csr_array(np.where(np.abs(tall) > 1.5, tall, 0))
    yield lambda: rf.pca(stored, 3, scale=True, solver="krylov", passes=2)
    yield lambda: rf.svd(stored, 3, solver="gram")


@pytest.mark.filterwarnings("ignore::rankfold.RankfoldWarning")
def test_every_sum_of_the_sweeps_of_every_call_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, made, seen = Sweep.make_total, list(calls(tmp_path)), set[str]()

    def watched(self: Sweep, *arguments: Any, **options: Any) -> Any:
        seen.add(type(self.fold).__name__)
        assert not forgotten(self.fold, self.fold.start()), type(self.fold).__name__
        return run(self, *arguments, **options)

    monkeypatch.setattr(Sweep, "make_total", watched)
    for call in made:
        call()
    assert {"Verify", "ProjectRows", "ProjectColumns", "NonnegativePass", "DivergencePass"} <= seen
    assert {"WeightedPass", "WeightedRatios"} <= seen
