"""Products as cuBLAS forms them: columns lie whole, and matrices are pointers with a leading dimension."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

CUBLAS_OP_N, CUBLAS_OP_T = 0, 1
CUBLAS_FILL_MODE_LOWER, CUBLAS_FILL_MODE_UPPER = 0, 1
CUBLAS_GEMM_DEFAULT = -1
CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_64F, CUBLAS_COMPUTE_32F_FAST_TF32 = 68, 70, 77
CUBLAS_POINTER_MODE_HOST = 0
TYPES = {0: np.float32, 1: np.float64}
TF32_MASK = np.uint32(0xFFFFE000)


def matrix(pointer: int, rows: int, columns: int, leading: int, dtype: Any) -> Any:
    """The memory that a call is given, by columns."""
    if leading < max(1, rows):
        raise ValueError(f"a leading dimension of {leading} is below {rows} rows")
    if not (rows and columns):
        return np.empty((rows, columns), dtype)
    count = leading * (columns - 1) + rows
    flat = np.ctypeslib.as_array((ctypes.c_byte * (count * np.dtype(dtype).itemsize)).from_address(pointer))
    strides = (np.dtype(dtype).itemsize, leading * np.dtype(dtype).itemsize)
    return np.lib.stride_tricks.as_strided(flat.view(dtype), (rows, columns), strides)


def _operand(pointer: int, turned: int, rows: int, columns: int, leading: int, dtype: Any) -> Any:
    shape = (columns, rows) if turned else (rows, columns)
    found = matrix(pointer, *shape, leading, dtype)
    return found.T if turned else found


def _scalar(pointer: int, dtype: Any) -> Any:
    return matrix(pointer, 1, 1, 1, dtype)[0, 0]


def gemmEx(
    handle: int,
    transa: int,
    transb: int,
    m: int,
    n: int,
    k: int,
    alpha: int,
    a: int,
    a_type: int,
    lda: int,
    b: int,
    b_type: int,
    ldb: int,
    beta: int,
    c: int,
    c_type: int,
    ldc: int,
    compute_type: int,
    algo: int,
) -> None:
    """``C = alpha op(A) op(B) + beta C``."""
    wide = compute_type == CUBLAS_COMPUTE_64F
    if {a_type, b_type, c_type} != {1 if wide else 0}:
        raise ValueError("types of operands do not fit the type of the computation")
    dtype = TYPES[c_type]
    left = _operand(a, transa, m, k, lda, dtype)
    right = _operand(b, transb, k, n, ldb, dtype)
    if compute_type == CUBLAS_COMPUTE_32F_FAST_TF32:
        left, right = (
            (np.ascontiguousarray(x).view(np.uint32) & TF32_MASK).view(np.float32) for x in (left, right)
        )
    out, factor = matrix(c, m, n, ldc, dtype), _scalar(beta, dtype)
    before = out * factor if factor else 0
    out[...] = _scalar(alpha, dtype) * (left @ right) + before


def _syrk(
    uplo: int,
    trans: int,
    n: int,
    k: int,
    alpha: int,
    a: int,
    lda: int,
    beta: int,
    c: int,
    ldc: int,
    kind: Any,
) -> None:
    x = _operand(a, trans, n, k, lda, kind)
    out, factor = matrix(c, n, n, ldc, kind), _scalar(beta, kind)
    with np.errstate(all="ignore"):
        found = _scalar(alpha, kind) * (x @ x.T) + (out * factor if factor else 0)
    side = np.tril_indices(n) if uplo == CUBLAS_FILL_MODE_LOWER else np.triu_indices(n)
    out[side] = found[side]


def dsyrk(
    handle: int,
    uplo: int,
    trans: int,
    n: int,
    k: int,
    alpha: int,
    a: int,
    lda: int,
    beta: int,
    c: int,
    ldc: int,
) -> None:
    """One triangle of ``C = alpha op(A) op(A)' + beta C``."""
    _syrk(uplo, trans, n, k, alpha, a, lda, beta, c, ldc, np.float64)


def ssyrk(
    handle: int,
    uplo: int,
    trans: int,
    n: int,
    k: int,
    alpha: int,
    a: int,
    lda: int,
    beta: int,
    c: int,
    ldc: int,
) -> None:
    """The same in float32."""
    _syrk(uplo, trans, n, k, alpha, a, lda, beta, c, ldc, np.float32)


def getVersion(handle: int) -> int:
    """Of a cuBLAS 13."""
    return 130000


def getPointerMode(handle: int) -> int:
    """Scalars are on the host."""
    return CUBLAS_POINTER_MODE_HOST


def setPointerMode(handle: int, mode: int) -> None:
    """They stay there."""
