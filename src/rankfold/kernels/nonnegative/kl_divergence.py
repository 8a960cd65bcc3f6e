"""Quotient of data and model, and the Kullback-Leibler divergence between both, in one read of a block."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]


@kernel
def quotients(x: Array, product: Array, *, total: Float64) -> None:
    """Replace a model by data divided by it, and add the divergence between data and model to ``total``.

    Parameters
    ----------
    x : (r, n) float32 or float64, finite, not negative
        The data.
    product : (r, n) of that type, finite, not negative; overwritten
        The model. Becomes ``x / product``: 0 where ``x`` is. A model below the smallest normal number of the
        type counts as that number. The result is finite: a quotient above the largest number becomes that.
    total : (1,) float64, added to
        ``sum(x log(x / product) - x + product)``, with ``0 log 0 = 0``.

    Notes
    -----
    Quotients, logarithms and sums are float64, rows are added up in order. The error of a term is two
    roundings of ``x``, however small the term is: near a perfect fit the result is only rounding.
    Work r n logarithms; scratch 64 r n bytes.

    References
    ----------
    Lee, Seung, Algorithms for non-negative matrix factorization, NIPS 13, 2001: the divergence, and the
    quotient that its multiplicative updates take.
    """
    limits, wide = np.finfo(product.dtype), np.finfo(np.float64)
    data = x.astype(np.float64)
    model = np.maximum(product.astype(np.float64), float(limits.tiny))
    with np.errstate(over="ignore"):
        quotient = data / model
    # What is lost where the quotient is not normal is below any rounding of the model.
    logarithm = np.log(np.clip(quotient, wide.tiny, wide.max))
    apart = np.log(np.maximum(data, wide.tiny)) - np.log(model)
    terms = data * np.where(np.isinf(quotient), apart, logarithm) + (model - data)
    product[...] = np.minimum(quotient, float(limits.max))
    total += np.cumsum(np.append(0.0, terms.sum(axis=1)))[-1]
