"""An orthonormal block from any block, also against blocks that are orthonormal already."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel
from rankfold.kernels.linear.dense import adjoint
from rankfold.kernels.linear.gaussian import gaussian_rows

RESTART = 3

Float64 = npt.NDArray[np.float64]


@kernel
def orthonormalize(w: Float64, against: Callable[[], Iterable[Float64]] = tuple) -> Float64:
    """Orthonormal columns that span ``w`` less its projection on the blocks ``against``.

    Parameters
    ----------
    w : (n, b) float64 or complex128, finite
        Columns may be dependent or zero: the directions that are missing are then arbitrary.
    against : callable giving (n, b_j) blocks, orthonormal together, b + sum of b_j <= n
        Called once per sweep over the blocks, so that they need not be in memory together.

    Returns
    -------
    (n, b), of the type of ``w``

    Notes
    -----
    Work 2 n b^2 + 4 n b sum(b_j) flops per sweep, scratch 2 blocks. Two sweeps of classical block
    Gram-Schmidt make the block orthogonal to working precision ("twice is enough": Giraud, Langou,
    Rozloznik, van den Eshof, Numer. Math. 101, 2005); sweeps go on while a projection was large,
    which happens when ``w`` lay in the span of the blocks up to rounding.
    """
    q = np.linalg.qr(w)[0]
    for sweep in range(8):
        largest_overlap = 0.0
        for block in against():
            overlap = adjoint(block) @ q
            largest_overlap = max(largest_overlap, float(np.abs(overlap).max(initial=0.0)))
            q -= block @ overlap
        # Columns that vanish exactly would come back from Householder QR as the same unit vectors each time.
        zero_columns = np.flatnonzero(np.linalg.norm(q, axis=0) < 1e-10)
        q[:, zero_columns] = gaussian_rows(sweep, RESTART, (0, len(q)), q.shape[1])[:, zero_columns]
        q = np.linalg.qr(q)[0]
        if largest_overlap < 1e-12 and not zero_columns.size:
            break
    return q
