"""QR and SVD of ``dask.array.linalg`` by rankfold: lazy, with keys that follow from what was asked.

A task holds a Dask array, not its blocks: rankfold reads them as it would for a user.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np
import numpy.typing as npt
from dask import delayed
from dask.array.utils import svd_flip
from dask.base import tokenize
from scipy.linalg import null_space

import rankfold as rf
from rankfold.pipeline.errors import InputError

Arrays = tuple[npt.NDArray[Any], ...]


def tsqr(data: Any, compute_svd: bool = False, _max_vchunk_size: int | None = None) -> tuple[Any, ...]:
    """See ``dask.array.linalg.tsqr``. Its V is square: the rows that ours lacks are any that fit."""
    if not compute_svd:
        return qr(data)
    m, n, k = sizes(data)
    return lazily(svd_with_square_v, data, ((m, k), (k,), (n, n)))


def sfqr(data: Any, name: str | None = None) -> tuple[Any, ...]:
    """See ``dask.array.linalg.sfqr``."""
    return qr(data)


def qr(a: Any) -> tuple[Any, ...]:
    """See ``dask.array.linalg.qr``."""
    m, n, k = sizes(a)
    return lazily(qr_factors, a, ((m, k), (k, n)))


def svd(a: Any, coerce_signs: bool = True, full_matrices: bool = False) -> tuple[Any, ...]:
    """See ``dask.array.linalg.svd``."""
    if full_matrices:
        raise NotImplementedError("full_matrices=True is not what rankfold computes")
    m, n, k = sizes(a)
    u, s, v = lazily(svd_factors, a, ((m, k), (k,), (k, n)))
    return signed(u, s, v) if coerce_signs else (u, s, v)


def svd_compressed(
    a: Any,
    k: int,
    iterator: str = "power",
    n_power_iter: int = 0,
    n_oversamples: int = 10,
    seed: int | None = None,
    compute: bool = False,
    coerce_signs: bool = True,
) -> tuple[Any, ...]:
    """See ``dask.array.linalg.svd_compressed``. Both iterators are block Krylov with as many passes more."""
    m, n, most = sizes(a)
    k = min(k, most)
    asked = {"rank": k, "passes": 2 + n_power_iter, "oversampling": n_oversamples, "seed": seed or 0}
    if compute:
        u, s, v = (da.from_array(part, chunks=-1) for part in leading_factors(a, **asked))
    else:
        u, s, v = lazily(leading_factors, a, ((m, k), (k,), (k, n)), **asked)
    return signed(u, s, v) if coerce_signs else (u, s, v)


def sizes(a: Any) -> tuple[Any, Any, Any]:
    """Rows, columns, and the lesser of them; what is not known is NaN."""
    if not any(math.isnan(length) for length in a.shape):
        try:
            rf.open(a)
        except InputError as error:
            raise ValueError(f"Array must be 2D: {error}") from error
    m, n = a.shape
    return m, n, math.nan if math.isnan(m + n) else min(m, n)


def lazily(
    work: Callable[..., Arrays], a: Any, shapes: tuple[tuple[Any, ...], ...], **asked: Any
) -> tuple[Any, ...]:
    """What ``work`` makes of ``a``, as Dask arrays of these shapes that are not computed yet."""

    def task() -> Arrays:
        # What follows a mask knows its size only when it is computed.
        known = a.copy().compute_chunk_sizes() if math.isnan(sum(map(sum, a.chunks))) else a
        return work(known, **asked)

    key = f"{work.__name__}-{tokenize(a, asked)}"
    found = delayed(task, name=f"task-{key}", nout=len(shapes), pure=True)(dask_key_name=key)
    dtype = float_type(a)
    return tuple(da.from_delayed(part, shape, dtype) for part, shape in zip(found, shapes, strict=True))


def qr_factors(a: Any) -> Arrays:
    """Q and R."""
    found = rf.qr(a)
    return as_numpy(a, found.Q, found.R)


def svd_factors(a: Any) -> Arrays:
    """All of U, s and Vt."""
    found = rf.svd(a, solver="tsqr")
    return as_numpy(a, found.U, found.s, found.Vt)


def svd_with_square_v(a: Any) -> Arrays:
    """The same, Vt with as many rows as columns."""
    u, s, v = svd_factors(a)
    return u, s, np.vstack([v, null_space(v).T]) if len(v) < v.shape[1] else v


def leading_factors(a: Any, **asked: Any) -> Arrays:
    """U, s and Vt of some of the singular values."""
    found = rf.svd(a, solver="krylov", **asked)
    return as_numpy(a, found.U, found.s, found.Vt)


def signed(u: Any, s: Any, v: Any) -> tuple[Any, ...]:
    """With Dask's choice of signs."""
    u, v = svd_flip(u, v)
    return u, s, v


def as_numpy(a: Any, *parts: Any) -> Arrays:
    """Arrays of a result in memory, in the type that Dask would give them."""
    return tuple(np.asarray(part[...], float_type(a)) for part in parts)


def float_type(a: Any) -> np.dtype[Any]:
    """The type of the factors of ``a``."""
    return a.dtype if a.dtype.kind == "f" else np.dtype(np.float64)
