"""Projected gradient of nonnegative least squares: the part that the constraint does not cancel."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel, portable

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]


@portable
@kernel
def gradient_rows(gram: Array, b: Array, w: Array) -> Float64:
    """Sums over rows of squares of the projected gradient of ``w G w' / 2 - b w'``, by component.

    G is ``gram``.

    Parameters
    ----------
    gram : (k, k) float32 or float64, symmetric
    b, w : (r, k) of that type; ``w`` is not negative

    Returns
    -------
    (k,) float64
        Sums for ``w G - b`` where ``w`` is above zero, and for its negative part where ``w`` is zero.

    Notes
    -----
    Work 2 r k^2 flops, in the type of the rows; squares are summed in float64.

    References
    ----------
    Lin, Projected gradient methods for nonnegative matrix factorization, Neural Computation 19(10), 2007:
    the projected gradient whose norm is his stopping condition.
    """
    slope = w @ gram - b
    projection = np.where(w > 0, slope, np.minimum(slope, 0)).astype(np.float64)
    return np.einsum("ij,ij->j", projection, projection)  # type: ignore[no-any-return]
