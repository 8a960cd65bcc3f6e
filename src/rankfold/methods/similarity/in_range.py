"""Similarities that are no numbers, or out of range, are refused wherever they are made.

A power that is no whole number has no value of a negative product, and a high one may overflow where the rows
themselves are finite and their squares too.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rankfold.kernels.similarity.functions import Rows, Similarity
from rankfold.kernels.similarity.tiles import evaluate
from rankfold.pipeline.errors import DataError

Float64 = npt.NDArray[np.float64]


def require_finite(numbers: npt.ArrayLike, name: str, dtype: str = "float64") -> None:
    """Raise ``DataError`` if similarities of rows of a matrix, or what is made of them, are not finite."""
    if not np.isfinite(numbers).all():
        raise DataError(
            f"similarities of rows of {name} are no numbers, or they, or sums of their squares, leave "
            f"the range of {dtype}: take another kernel, a smaller gamma or degree, or rescale the columns"
        )


def finite_similarities(x: Rows, y: Rows, similarity: Similarity, name: str) -> Float64:
    """(m, p) similarities of rows, held in memory; raises ``DataError``."""
    out = np.empty((len(x.squares), len(y.squares)))
    evaluate(x, y, similarity=similarity, out=out)
    require_finite(out, name)
    return out
