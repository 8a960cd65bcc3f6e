"""QR factorization: for a tall matrix R by one pass and Q by another, for a wide one both from a square."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.dense import adjoint, phases_to_positive
from rankfold.methods.parts.conditioned import Centering
from rankfold.methods.parts.outputs import write_outputs
from rankfold.methods.parts.start import Start
from rankfold.methods.svd.long_factor import FromMatrix, create_long_array
from rankfold.methods.svd.operator import begin
from rankfold.methods.svd.orientation import factors_leading_square
from rankfold.methods.svd.request import Request
from rankfold.methods.svd.solvers.preconditioned import Preconditioner
from rankfold.methods.svd.solvers.tsqr import tsqr, warn_of_rank
from rankfold.methods.svd.strategy import Strategy
from rankfold.pipeline.data.real_parts import expand, matrix_of_parts
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.machine import one_blas_thread
from rankfold.pipeline.storage.checkpoint import load_if_whole, save_arrays
from rankfold.pipeline.storage.chunk_writer import open_to_write

Float64 = npt.NDArray[np.float64]


def qr(run: Run, layout: Strategy, request: Request, fingerprint: str) -> dict[str, Any]:
    """Factorize a matrix into Q and R, and write them into ``run.result``; return the facts of the result.

    ``fingerprint`` is that of the matrix.

    Notes
    -----
    See ``tsqr.py``. Q costs 2 m n (n + k) flops more, no scratch, and m n elements of output.
    """
    with one_blas_thread():
        view = layout.view
        centering, start = begin(run, layout, request)
        if factors_leading_square(request, view):
            orthogonality: float | None = _wide(run, layout, request, centering)
        else:
            orthogonality = _tall(run, layout, request, centering, start)
        facts = run.facts(
            layout.as_asked(request).as_dict(), layout.method, matrix_of_parts(view.source), fingerprint
        )
        facts["orthogonality"] = orthogonality
        run.describe(facts)
    return facts


def _tall(run: Run, layout: Strategy, request: Request, centering: Centering, start: Start) -> float | None:
    """Factorize a tall matrix, and write Q and R; return the loss of orthogonality of Q, None without Q.

    That is the largest absolute element of Q'Q - I.
    """
    short = layout.vectors(layout.view.short)
    factorization = tsqr(
        run, layout, centering, start, form=request.rows, passes=request.passes, seed=request.seed
    )
    warn_of_rank(run, layout, factorization, short)
    write_outputs(run.result, {"R": factorization.r / centering.pow2_scale})
    if not request.rows or factorization.preconditioner is None:
        return None
    array = create_long_array(run, layout, "Q", short)
    long = FromMatrix(factorization.preconditioner, factorization.inverse, centering)
    return _lacks(long.write(run, layout, array, np.ones(short)))


def _wide(run: Run, layout: Strategy, request: Request, centering: Centering) -> float:
    """Factorize a wide matrix by the Q of its leading square, and write both; return Q's orthogonality loss.

    That is the largest absolute element of Q'Q - I. R' is the product of A' and Q, formed by one pass. For a
    complex matrix A' and Q are not conjugated: the pass runs over the transpose of A.
    """
    view, matrix = layout.view, matrix_of_parts(layout.view.source)
    short = layout.vectors(view.short)
    path = run.part("square.part")
    arrays = load_if_whole(path)
    if arrays is None:
        square = np.empty((short, short), matrix.dtype)
        matrix.read_into(square, (0, short), (0, short))
        # Numbers that are not finite are reported by the pass, with their place.
        q, r = np.linalg.qr(np.nan_to_num(square.astype(layout.wide_dtype)) * centering.pow2_scale)
        phases, nothing = phases_to_positive(np.diag(r)), np.zeros(view.short)
        q, r = q * phases.conj(), r * phases[:, None]
        w = expand(q.conj()) * centering.pow2_scale
        arrays = {"w": w, "offset": nothing, "shift": nothing, "q": q, "r": r}
        save_arrays(path, arrays)
    identity = np.eye(short, dtype=layout.wide_dtype)
    long = FromMatrix(Preconditioner(path, view.short, 0, request.seed), identity, centering)
    array = create_long_array(run, layout, "R", short)
    long.write(run, layout, array, np.full(short, 1 / centering.pow2_scale))
    _overwrite_square(array, arrays["r"] / centering.pow2_scale)
    run.forget(array)
    q = arrays["q"].astype(layout.dtype)
    if request.rows:
        write_outputs(run.result, {"Q": q})
    return _lacks(adjoint(q).astype(layout.wide_dtype) @ q)


def _overwrite_square(array: Path, r: Float64) -> None:
    """Overwrite the leading square of the array of R by ``r`` (short, short), zero below the diagonal."""

    open_to_write(array)[:, : len(r)] = np.triu(r)


def _lacks(product: Float64) -> float:
    return float(np.abs(product - np.eye(len(product))).max())
