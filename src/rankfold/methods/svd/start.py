"""What is known before the first pass: how columns are centered, and the block that a sample gives."""

from __future__ import annotations

from functools import partial

from rankfold.methods.parts.conditioned import Centering
from rankfold.methods.parts.start import Start, sample_start
from rankfold.methods.svd.request import Request
from rankfold.methods.svd.strategy import Strategy
from rankfold.pipeline.data.view import Orientation
from rankfold.pipeline.engine.run import Run

CONSTANT = 1e-12
"""A column whose standard deviation is below this share of its mean is constant but for rounding."""


def begin(run: Run, strategy: Strategy, request: Request) -> tuple[Centering, Start]:
    """How columns are centered, and what a sample tells before the first pass."""
    solver = strategy.solver
    block = partial(solver.sampled, request, strategy)
    # A solver that does not scale before its passes does so with what they find.
    scale = request.scale and (solver.scales_first or strategy.view.orientation is Orientation.COLUMNS)
    start = sample_start(strategy.sample, block, center=request.center, scale=scale, folder=run.folder)
    return Centering(request.center, request.scale, start.unit, CONSTANT), start
