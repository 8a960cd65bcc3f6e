"""Raise for similarities that are NaN or out of range, wherever they are made.

A non-integer power of a negative product has no value, and a high power may overflow even where rows and
their squares are finite.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rankfold.kernels.similarity.functions import Rows, Similarity
from rankfold.kernels.similarity.tiles import evaluate
from rankfold.pipeline.errors import DataError

Float64 = npt.NDArray[np.float64]


def require_finite(numbers: npt.ArrayLike, name: str, dtype: str = "float64") -> None:
    """Raise ``DataError`` if similarities of rows, or values computed from them, are not finite.

    ``name`` is that of the matrix and ``dtype`` the type whose range is left, for the message.
    """
    if not np.isfinite(numbers).all():
        raise DataError(
            f"similarities of rows of {name} are no numbers, or they, or sums of their squares, leave "
            f"the range of {dtype}: take another kernel, a smaller gamma or degree, or rescale the columns"
        )


def finite_similarities(x: Rows, y: Rows, similarity: Similarity, name: str) -> Float64:
    """(m, p) similarities of rows ``x`` with rows ``y``; raises ``DataError`` if one is not finite."""
    out = np.empty((len(x.squares), len(y.squares)))
    evaluate(x, y, similarity=similarity, out=out)
    require_finite(out, name)
    return out
