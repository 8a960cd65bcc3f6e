"""Nonnegative least squares by multiplicative updates: no step length, no change of sign, and slow.

A zero stays zero, so that a floor above zero keeps coordinates that may have to grow again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel, portable

Array = npt.NDArray[Any]


@portable
@kernel
def multiply_rows(gram: Array, b: Array, *, w: Array, linear: Array, floor: float, sweeps: int) -> None:
    """Improve rows w for ``w G w' / 2 + (linear - b) w'``, w >= 0, by multiplicative updates, in place.

    G is ``gram``; an update changes all coordinates at once.

    Parameters
    ----------
    gram : (k, k) float32 or float64, symmetric, not negative
    b : (r, k) of that type, not negative, zero where the diagonal of ``gram`` is
    w : (r, k) of that type, not negative; written
    linear : (k,) not negative
        Coefficients of the linear term: the L1 penalty on each coordinate.
    floor : float, not negative
        The smallest number that is written.
    sweeps : int, >= 1

    Notes
    -----
    From rows at or above ``floor`` no sweep raises the objective. A row depends on no
    other. The smallest normal number is added to every denominator: 0 / 0 is 0, then ``floor``.
    Work 2 r k^2 flops and r k divisions a sweep.

    References
    ----------
    Lee, Seung, Algorithms for non-negative matrix factorization, NIPS 13, 2001; several sweeps on one
    product with the data after Gillis, Glineur, Accelerated multiplicative updates and hierarchical ALS
    algorithms for nonnegative matrix factorization, Neural Computation 24(4), 2012.
    """
    shift = linear.astype(w.dtype) + np.finfo(w.dtype).tiny
    for _ in range(sweeps):
        w[...] = np.maximum(w * b / (w @ gram + shift), w.dtype.type(floor))
