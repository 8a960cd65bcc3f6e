"""The fused pass over one panel: everything a subspace method needs while the panel is in cache."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel

Array = npt.NDArray[Any]


@kernel
def panel_product(d: Array, q: Array, *, y: Array, z: Array, work: Array, tf32: bool = False) -> None:
    """``y = d @ q`` and ``z += d.T @ y``.

    Parameters
    ----------
    d : (r, s) float32 or float64, C or Fortran order
        One grain (rows of one product) of the matrix, centered and scaled. Left untouched.
    q : (s, b) of the type of ``d``
        Basis.
    y : (r, b) of the type of ``d``, written
    z : (s, b) float64, added to
        Accumulator of the whole sweep; the product of one grain is formed in the type of ``d``.
    work : (s, b) of the type of ``d``, overwritten
    tf32 : bool
        True if a body may round float32 operands to 11 bits; those of a CPU do not.

    Notes
    -----
    Work 4 r s b flops. Reads ``d`` twice; while it fits in cache, memory sees one read, at an
    intensity of 4 b / itemsize flops per byte. The rounding error of ``z`` is that of one grain,
    not of the sum over grains.

    References
    ----------
    The fused product is the row-panel form of one half step of block power iteration: Halko,
    Martinsson, Shkolnisky, Tygert, An algorithm for the principal component analysis of large data
    sets, SIAM J. Sci. Comput. 33(5), 2011, multiply by A and A' in separate passes.
    """
    np.matmul(d, q, out=y)
    np.matmul(d.T, y, out=work)
    np.add(z, work, out=z)
