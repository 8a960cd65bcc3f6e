"""Exact sums over all sources, one by one: the reference for every approximation."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel
from rankfold.kernels.sums.laws import at_zero, derivatives, values

Float64 = npt.NDArray[np.float64]

GROUP = 32
"""Targets whose sums are computed at once: they fill vectors of any length that a processor has."""


@kernel
def sum_pairs(
    x: Float64,
    weights: Float64,
    targets: Float64,
    own: Float64,
    shifts: Float64,
    *,
    law: int,
    scale: float,
    magnitudes: bool = False,
    out: Float64,
) -> None:
    """Compute, at each target, the sum of a law over all sources, and its negative gradient (the force).

    Parameters
    ----------
    x : (n, d)
        Sources, finite.
    weights : (n,)
        Weights of sources, of any sign.
    targets : (m, d)
    own : (m,)
        Weight of the target among the sources, which is left out; 0 where it is none of them.
    shifts : (m,)
        Shift of each target, see ``laws``; 0 for laws without.
    law, scale : see ``laws``
    magnitudes : bool
        True for sums of absolute values instead; for forces of their lengths, in a single column.
    out : (m, 1) or (m, 1 + d)
        Written: ``sum_j w_j f(s_ij)``, then its negative gradient, ``-2 sum_j w_j f'(s_ij) (t_i - x_j)``. The
        second form takes a law of ``SMOOTH``.

    Notes
    -----
    Some 3 d + 10 operations a pair; scratch of GROUP targets. Sources are added up by blocks in a fixed
    order, and blocks with their rounding errors: within some 100 eps of the sum of magnitudes.
    """
    weights, own = (np.abs(weights), np.abs(own)) if magnitudes else (weights, own)
    for i, target in enumerate(targets):
        apart = target - x
        s = (apart * apart).sum(axis=1)
        same = s == 0
        w, s = np.where(same, 0.0, weights), np.where(same, 1.0, s)
        here = weights[same].sum() - own[i]
        out[i, 0] = (w * values(law, s, scale, shifts[i])).sum()
        if here:
            out[i, 0] += here * at_zero(law, scale) * float(np.exp(shifts[i]))
        if out.shape[1] > 1:
            pulls = -2 * w * derivatives(law, s, scale, shifts[i], 1)[1]
            out[i, 1:] = (pulls * np.sqrt(s)).sum() if magnitudes else pulls @ apart


def scratch_bytes(columns: int) -> int:
    """Scratch bytes of a group of targets of ``columns`` columns, and of its sums."""
    return GROUP * 8 * (6 * (columns + 3) + 8)


def no_shifts(count: int) -> Any:
    """Shifts of 0 for ``count`` targets; takes no memory."""
    return np.broadcast_to(0.0, (count,))
