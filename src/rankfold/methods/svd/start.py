"""What is known before the first pass: how columns are centered, and the block that a sample gives."""

from __future__ import annotations

from functools import partial

from rankfold.methods.parts.conditioned import Centering
from rankfold.methods.parts.start import Start, leading_block, sample_start
from rankfold.methods.svd.request import Request
from rankfold.methods.svd.solvers.tsqr import sampled_basis
from rankfold.methods.svd.strategy import Strategy
from rankfold.pipeline.data.view import Orientation
from rankfold.pipeline.engine.run import Run

CONSTANT = 1e-12
"""A column whose standard deviation is below this share of its mean is constant but for rounding."""


def begin(run: Run, layout: Strategy, request: Request) -> tuple[Centering, Start]:
    """How columns are centered, and what a sample tells before the first pass."""
    exact = layout.method == "tsqr"
    block = sampled_basis if exact else partial(leading_block, width=layout.width, seed=request.seed)
    # The R factor of a tall matrix is scaled when it is known.
    scale = request.scale and not (exact and layout.view.orientation is Orientation.ROWS)
    start = sample_start(layout.sample, block, center=request.center, scale=scale, folder=run.folder)
    return Centering(request.center, request.scale, start.unit, CONSTANT), start
