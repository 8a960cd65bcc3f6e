"""Every fold over a matrix or over scratch, as it is planned and run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

import rankfold as rf
from rankfold.methods.kmeans.batches import batch_pass
from rankfold.methods.kmeans.iteration import far_rows, step_pass
from rankfold.methods.kmeans.passes import Layout, SamplePass
from rankfold.methods.model.update import KeepRows
from rankfold.methods.parts.combination import Combination, NarrowGram, NarrowR
from rankfold.methods.parts.conditioned import Centering, ColumnStatistics
from rankfold.methods.parts.sparse_panels import SparseStatistics
from rankfold.methods.svd.completion.completion import Completion
from rankfold.methods.svd.completion.low_rank_model import as_arrays, row_model
from rankfold.methods.svd.passes import PanelPass, SparseGramPass, SparsePass
from rankfold.methods.svd.request import Request
from rankfold.methods.svd.solvers.gram import GramPass, gram_panels
from rankfold.methods.svd.solvers.preconditioned import (
    PanelFactor,
    PreconditionedFactor,
    PreconditionedGram,
    Preconditioner,
)
from rankfold.methods.svd.solvers.sketch import SketchPass, SketchSizes
from rankfold.methods.svd.strategy import choose_strategy
from rankfold.pipeline.storage.checkpoint import save_arrays
from rankfold.pipeline.storage.scratch import ScratchMatrix

ROWS, COLUMNS, RANK = 3000, 400, 20


def folds(folder: Path, dtype: str) -> Iterator[tuple[Any, float]]:
    """Folds over a matrix, and what steps may take besides, as a share of what is allocated."""
    x = rf.open(np.zeros((ROWS, COLUMNS), dtype))
    layout = choose_strategy(Request("svd", RANK, method="krylov"), x)
    short, width, centering = layout.view.short, layout.width, Centering(True, False, 1.0, 0.0, 1.0)
    shift = np.zeros(short)
    constants = folder / "q.npz"
    save_arrays(constants, {"q": np.zeros((short, width)), "shift": shift})
    yield ColumnStatistics(layout.panels(2), shift, 1.0, 1e-6), 0.1
    yield GramPass(gram_panels(layout.view, 2), centering, shift, None, 1e-6), 0.1
    y = layout.y(folder, 1, width)
    for rows in (0, 4 * width):
        yield PanelPass(layout.panels(2), centering, constants, y, None, True, 1e-6, rows), 0.1
    full = np.random.default_rng(0).random((ROWS, COLUMNS)) < 0.05
    sparse = choose_strategy(Request("svd", RANK, method="krylov"), rf.open(csr_array(full.astype(dtype))))
    panels = sparse.sparse_panels(1)
    for rows in (0, 4 * width):
        # Panels themselves, which reads allocate, and the copies of one whose places are in no order.
        yield SparsePass(panels, centering, constants, y, None, True, 1e-6, rows), 1.2
    yield SparseStatistics(panels, centering, shift, 1e-6), 3.0
    # What ``add_gram`` works on.
    yield SparseGramPass(panels, centering, shift, 1e-6), 14.0
    sizes = SketchSizes.of(RANK, short)
    right = folder / "right.npz"
    save_arrays(right, {"right": np.zeros((short, sizes.right)), "shift": shift})
    sketched = choose_strategy(Request("svd", RANK, method="sketch"), x)
    y = layout.y(folder, 2, sizes.range)
    # Test vectors of a grain are drawn in float64, and multiplied once more.
    yield SketchPass(sketched.panels(2), centering, right, sizes, y, None, True, 0, 1e-6), 1.5
    exact = choose_strategy(Request("svd", RANK, method="tsqr"), x)
    w = folder / "w.npz"
    save_arrays(w, {"w": np.zeros((short, short)), "offset": shift, "shift": shift})
    preconditioner = Preconditioner(w, short, 0, 0)
    yield PreconditionedGram(exact.wide_panels(2), centering, preconditioner, None, 1e-6), 0.3
    # LAPACK has its operand twice besides: here three times what a stack of R and a grain takes.
    yield PreconditionedFactor(exact.wide_panels(2), centering, preconditioner, None, 1e-6), 2.0
    yield PanelFactor(exact.wide_panels(2), centering, shift, None, 1e-6), 1.2
    gaps = Completion.of(Request("svd", RANK, missing="em", completion_passes=9), x)
    for exact in (True, False):
        model = folder / f"model-{exact}.npz"
        first = row_model(shift, np.zeros((short, gaps.rank)), np.eye(gaps.rank), 1.0)
        save_arrays(model, as_arrays(first, first))
        yield replace(gaps, exact=exact).fold(2, model), 0.2
    yield KeepRows(layout.panels(2), 1e-6), 0.1
    clusters = Layout(x, RANK)
    groups = np.arange(RANK) % clusters.groups
    centers = np.random.default_rng(1).random((RANK, COLUMNS))
    working = clusters.view.dtype
    arrays = {"exact": centers, "before": centers, "rarity": np.ones(RANK), "shift": shift.astype(working)}
    save_arrays(folder / "centers.npz", {**arrays, "groups": groups})
    step = step_pass(clusters, 2, clusters.groups, working)
    after = clusters.labels(folder, 0), clusters.bounds(folder, 0, clusters.groups)
    far = far_rows(clusters, 8)
    # Tiles of rows, and centers as they are packed.
    yield replace(step, constants=folder / "centers.npz", after=after, kept=far, row_seconds=1e-6), 5.0
    sampled = SamplePass(
        step.panels, folder / "centers.npz", RANK, clusters.groups, working, clusters.sample, 0, 1e-6
    )
    yield sampled, 5.0
    begun = {**arrays, "groups": np.zeros(RANK, np.int64), "given": np.zeros(RANK)}
    save_arrays(folder / "begun.npz", begun)
    yield replace(batch_pass(clusters, 2, working, 100), constants=folder / "begun.npz"), 5.0
    combined = folder / "c.npz"
    save_arrays(combined, {"coefficients": np.zeros((width, width)), "offset": np.zeros(width)})
    narrow = Combination((ScratchMatrix(folder / "y", ROWS, width, np.dtype(dtype)),), combined, width, 0, 0)
    cut = layout.narrow_cut(narrow, RANK)
    yield NarrowGram(narrow, cut, 1e-6), 0.3
    yield NarrowR(narrow, cut, 1e-6), 1.2
