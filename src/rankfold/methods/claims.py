"""The error that a result reports, and whether it meets the tolerance: one rule for all methods.

``largest_error_estimate`` and ``tol`` are relative to the same quantity, so the two can be compared. A result
has converged if the first is not above the second, whatever ended the iteration.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]


def has_converged(error: float, tol: float) -> bool:
    """True if ``error``, an estimated relative error, is at most the tolerance ``tol``."""
    return bool(error <= tol)


def claim(error: float, tol: float) -> dict[str, Any]:
    """The two facts of a result that describe its accuracy.

    >>> claim(0.02, 0.01)
    {'largest_error_estimate': 0.02, 'converged': False}
    """
    return {"largest_error_estimate": float(error), "converged": has_converged(error, tol)}


def in_words(error: float, tol: float) -> tuple[str, str]:
    """Format an error and a smaller tolerance as text, with enough digits to show the difference.

    >>> in_words(0.02, 0.01), in_words(0.010003, 0.01)
    (('2.0e-02', '1.0e-02'), ('1.00030e-02', '1.00000e-02'))
    """
    digits = 1 if f"{error:.1e}" != f"{tol:.1e}" else 5
    return f"{error:.{digits}e}", f"{tol:.{digits}e}"


def relative_errors(errors: Float64, sizes: Float64) -> Float64:
    """Divide absolute errors by the sizes that they are relative to; 0 where the size is 0.

    >>> relative_errors(np.array([1.0, 1.0]), np.array([4.0, 0.0]))
    array([0.25, 0.  ])
    """
    relative = np.zeros_like(errors)
    np.divide(errors, sizes, out=relative, where=sizes > 0)
    return relative
