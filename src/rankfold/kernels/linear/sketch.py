"""Three sketches of one panel: everything a single pass needs while the panel is in cache."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]


@kernel
def sketch_product(
    d: Array, right: Array, down: Array, across: Float64, *, y: Array, z: Float64, core: Float64, work: Array
) -> None:
    """``y = d @ right``, ``z += d.T @ down`` and ``core += across.T @ y``.

    Parameters
    ----------
    d : (r, s) float32 or float64, C or Fortran order
        One grain (rows of one product) of the matrix, centered and scaled. Left untouched.
    right : (s, a) of the type of ``d``
        Test matrices of the columns.
    down : (r, b) of the type of ``d``
        Test matrices of the rows, those that make sketches as wide as the matrix.
    across : (r, c) float64
        Test matrices of the rows, those that make the sketch small on both sides.
    y : (r, a) of the type of ``d``, written
    z : (s, b) float64, added to
        The product of one grain is formed in the type of ``d``.
    core : (c, a) float64, added to
        Formed in float64: it is divided by the small singular values of ``y``, which rounding in
        float32 would drown.
    work : (s, b) of the type of ``d``, overwritten

    Notes
    -----
    Work 2 r s (a + b) + 2 r a c flops; scratch 8 r a bytes where ``d`` is float32, and 8 c a.

    References
    ----------
    Tropp, Yurtsever, Udell, Cevher, Streaming low-rank matrix approximation with an application to
    scientific simulation, SIAM J. Sci. Comput. 41(4), 2019, section 2: the linear updates of range,
    co-range and core sketch, for a block of rows. We form the core from the range sketch of the block.
    """
    np.matmul(d, right, out=y)
    np.matmul(d.T, down, out=work)
    np.add(z, work, out=z)
    np.add(core, across.T @ y.astype(np.float64, copy=False), out=core)
