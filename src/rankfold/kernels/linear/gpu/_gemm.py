"""Products of device arrays by cuBLAS: also of parts of wider arrays, added to a result, in any precision.

``cupy.matmul`` copies operands and results that are parts of wider arrays, cannot add to its result, and
takes its precision from a setting of the process. cuBLAS is column-major where NumPy is row-major: a product
by rows is that of the transposes, in the other order, by columns.
"""

from __future__ import annotations

import functools
from typing import Any

import cupy
import numpy as np
from cupy.cuda import device, runtime
from cupy_backends.cuda.libs import cublas

from rankfold.kernels.linear.products import MIRROR_ROWS

Array = Any

RUN_ROWS = 4096
"""Rows whose products are formed in float32, before they are added up in float64."""


def multiply(a: Array, b: Array, *, out: Array, add: bool = False, tf32: bool = False) -> None:
    """``out = a @ b``, or ``out += a @ b``, in the type of ``out``: float32 or float64.

    Parameters
    ----------
    a : (m, k), b : (k, n)
        Copied if they have another type, or if neither rows nor columns are contiguous.
    out : (m, n)
        With contiguous rows or columns.
    add : bool
    tf32 : bool
        Round float32 operands to 11 bits, which tensor cores multiply several times faster.
    """
    if not (out.shape[0] and out.shape[1]):
        return
    if not a.shape[1]:
        if not add:
            out[...] = 0
        return
    if out.strides[1] != out.itemsize and out.shape[1] > 1:
        a, b, out = b.T, a.T, out.T
    (a, turned_a, lead_a), (b, turned_b, lead_b) = (_operand(each, out.dtype) for each in (a, b))
    kind, compute = _TYPES[out.dtype]
    if tf32 and out.dtype == np.float32:
        compute = cublas.CUBLAS_COMPUTE_32F_FAST_TF32
    one, beta = _scalar(1, out.dtype), _scalar(int(add), out.dtype)
    (rows, columns), inner = out.shape, a.shape[1]
    cublas.gemmEx(
        device.get_cublas_handle(),
        *(turned_b, turned_a, columns, rows, inner),
        one.ctypes.data,
        *(b.data.ptr, kind, lead_b),
        *(a.data.ptr, kind, lead_a),
        beta.ctypes.data,
        *(out.data.ptr, kind, _leading(out)),
        compute,
        cublas.CUBLAS_GEMM_DEFAULT,
    )


def add_transpose_product(x: Array, y: Array, *, total: Array, work: Array, tf32: bool = False) -> None:
    """``total += x.T @ y``, in float64 whatever the type of ``x`` and ``y``.

    ``work``, of that type and of the shape of ``total``, is overwritten. The rounding error in float32 is
    that of ``RUN_ROWS`` rows.
    """
    rows = len(x)
    run = rows if x.dtype == np.float64 else RUN_ROWS
    for first in range(0, rows, max(run, 1)):
        multiply(x[first : first + run].T, y[first : first + run], out=work, tf32=tf32)
        cupy.add(total, work, out=total)


def gram(x: Array, *, out: Array) -> None:
    """``out = x.T @ x`` of (r, k), half of it computed and the other half copied; float32 or float64."""
    k = x.shape[1]
    if not len(x):
        out[...] = 0
        return
    x, turned, lead = _operand(x, out.dtype)
    if out.strides[1] != out.itemsize and k > 1:
        out = out.T  # of what is symmetric
    rank_update = cublas.dsyrk if out.dtype == np.float64 else cublas.ssyrk
    rank_update(
        device.get_cublas_handle(),
        # The upper half by columns is the lower one by rows; read by columns, x is x'.
        cublas.CUBLAS_FILL_MODE_UPPER,
        turned,
        *(k, len(x)),
        *(_scalar(1, out.dtype).ctypes.data, x.data.ptr, lead),
        *(_scalar(0, out.dtype).ctypes.data, out.data.ptr, _leading(out)),
    )
    for first in range(0, k, MIRROR_ROWS):
        last = min(k, first + MIRROR_ROWS)
        square = cupy.tril(out[first:last, first:last])
        out[first:last, first:last] = square + cupy.tril(square, -1).T
        out[first:last, last:] = out[last:, first:last].T


_TYPES = {
    np.dtype(np.float32): (runtime.CUDA_R_32F, cublas.CUBLAS_COMPUTE_32F),
    np.dtype(np.float64): (runtime.CUDA_R_64F, cublas.CUBLAS_COMPUTE_64F),
}


@functools.cache
def _scalar(value: int, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    return np.array([value], dtype)


def _leading(x: Array) -> int:
    """Number of elements from one row to the next of an array with contiguous rows."""
    step = int(x.strides[0] // x.itemsize) if len(x) > 1 else 0
    return max(step, int(x.shape[1]), 1)


def _operand(x: Array, dtype: np.dtype[Any]) -> tuple[Array, int, int]:
    """Operand with contiguous rows or columns, its operation (transposed for columns), leading dimension."""
    x = x.astype(dtype, copy=False)
    item, (rows, columns) = x.itemsize, x.shape
    if (columns == 1 or x.strides[1] == item) and (rows == 1 or x.strides[0] >= columns * item):
        return x, cublas.CUBLAS_OP_N, _leading(x)
    if (rows == 1 or x.strides[0] == item) and (columns == 1 or x.strides[1] >= rows * item):
        return x, cublas.CUBLAS_OP_T, _leading(x.T)
    return cupy.ascontiguousarray(x), cublas.CUBLAS_OP_N, max(columns, 1)
