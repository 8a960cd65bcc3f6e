"""The fused pass: what it adds up follows from its definition, however rows are cut."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import rankfold as rf
from rankfold.kernels.linear.count_sketch import TILE_ROWS, draw_buckets
from rankfold.methods.parts.conditioned import Centering
from rankfold.methods.random_keys import Purpose
from rankfold.methods.svd.passes import PanelPass
from rankfold.methods.svd.request import Request
from rankfold.methods.svd.strategy import choose_strategy
from rankfold.pipeline.storage.checkpoint import save_arrays

ROWS, COLUMNS, BUCKETS, SEED = 3 * TILE_ROWS + 77, 12, 8, 5


@pytest.mark.parametrize("panel_rows", [ROWS, 1000, TILE_ROWS, 37])
def test_every_row_goes_to_its_bucket_with_its_sign(tmp_path: Path, panel_rows: int) -> None:
    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS))
    strategy = choose_strategy(Request("svd", 3, method="krylov"), rf.open(x))
    q = np.linalg.qr(np.random.default_rng(1).standard_normal((COLUMNS, strategy.width)))[0]
    width = q.shape[1]
    shift = np.zeros(COLUMNS)
    save_arrays(tmp_path / "q.npz", {"q": q, "shift": shift})
    y = strategy.y(tmp_path, 1, width)
    fold = PanelPass(
        strategy.panels(1),
        Centering(False, False, 1.0, 0.0, 1.0),
        tmp_path / "q.npz",
        y,
        None,
        True,
        1e-6,
        BUCKETS,
        SEED,
    )
    state, work = fold.start(), fold.workspace()
    for start in range(0, ROWS, panel_rows):
        stop = min(ROWS, start + panel_rows)
        fold.read(work, start, stop, 0)
        fold.step(state, work, start, stop, 0)

    rows, signs = np.zeros((BUCKETS, COLUMNS)), np.zeros(BUCKETS)
    for i in range(ROWS):
        buckets, of_rows = draw_buckets(SEED, Purpose.ROW_SIGNS, i // TILE_ROWS, BUCKETS)
        bucket, sign = buckets[i % TILE_ROWS], of_rows[i % TILE_ROWS]
        rows[bucket] += sign * x[i]
        signs[bucket] += sign
    assert np.array_equal(state["signs"], signs)
    np.testing.assert_allclose(state["rows"], rows, atol=1e-12 * ROWS)
    np.testing.assert_allclose(state["z"], x.T @ (x @ q), atol=1e-12 * ROWS)
