"""QR factorisation of a tall matrix: R from one pass, Q written by another."""

from __future__ import annotations

from typing import Any

import numpy as np

from rankfold.pipeline.blas import one_blas_thread
from rankfold.pipeline.layout import Layout
from rankfold.pipeline.methods.long_factor import FromMatrix
from rankfold.pipeline.methods.reduction import begin
from rankfold.pipeline.methods.tsqr import tsqr, warn_of_rank
from rankfold.pipeline.request import Request
from rankfold.pipeline.result import create_array, write_group, write_small
from rankfold.pipeline.run import Run


def qr(run: Run, layout: Layout, request: Request, fingerprint: str) -> dict[str, Any]:
    """Carry out a request; the result is complete in ``run.result`` when this returns its facts.

    Notes
    -----
    See ``methods/tsqr.py``. Q costs 2 m n (n + k) flops more, no scratch, and m n elements of output.
    """
    view = layout.view
    with one_blas_thread():
        centring, start = begin(run, layout, request)
        found = tsqr(
            run, layout, centring, start, form=request.rows, passes=request.passes, seed=request.seed
        )
        warn_of_rank(run, layout, found, view.short)
        write_small(run.result, {"R": found.r / centring.unit})
        orthogonality = None
        if request.rows and found.whitening is not None:
            shape, chunks = (view.long, view.short), (min(layout.out_chunk, view.long), view.short)
            array = create_array(run.result, "Q", shape, view.dtype, chunks)
            long = FromMatrix(found.whitening, found.inverse, centring)
            product = long.write(run, layout, array, np.ones(view.short))
            orthogonality = float(np.abs(product - np.eye(view.short)).max())
        facts = run.facts(request.as_dict(), layout.method, view.source, fingerprint)
        facts["orthogonality"] = orthogonality
        write_group(run.result, facts)
    return facts
