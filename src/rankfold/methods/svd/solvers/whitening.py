"""A basis in which the columns of a matrix are orthonormal, from the R factor of some of its rows.

References
----------
Avron, Maymounkov, Toledo, Blendenpik: supercharging LAPACK's least-squares solver, SIAM J. Sci. Comput.
32(3), 2010: the R factor of a sample as a preconditioner. They mix rows before they sample; here a test of
the whole product finds samples that do not represent the other rows, and reflections replace them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.dense import adjoint
from rankfold.kernels.linear.qr import panel_r
from rankfold.pipeline.data.real_parts import numbers_of_parts
from rankfold.pipeline.storage.checkpoint import State

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]

LEAST_SINGULAR_VALUE = 1e-10
"""Smallest singular value of a sample, relative to its largest, from which a basis can be made."""

CONSTANT_NORM = 8 * float(np.finfo(np.float64).eps)
"""Root mean square of a column about its mean, relative to the mean, up to which it is rounding."""

SAMPLE_ROWS = 1024
"""Number of rows of a sample that are factorized at a time."""


@dataclass(frozen=True, slots=True)
class ColumnBasis:
    """Basis W in which the columns of a matrix are orthonormal, from the SVD of its R factor.

    Columns are first divided by powers of two; V and s are right vectors and singular values of what remains.
    """

    vectors: Float64
    """(short, p) V / s, with orthogonal columns, for the divided columns."""

    scale: Float64
    """(short,) powers of two that the columns of the matrix are divided by first."""

    @classmethod
    def of(cls, r: Float64, smallest: float) -> ColumnBasis:
        """The basis from R (short, short), without singular values up to ``smallest`` times the largest."""
        lengths = np.linalg.norm(r, axis=0)
        scale = np.where(lengths > 0, np.exp2(np.frexp(lengths)[1]), 1.0)
        _, s, vt = np.linalg.svd(r / scale)
        count = int((s > smallest * s[0]).sum())
        return cls(adjoint(vt[:count]) / s[:count], scale)

    @property
    def weights(self) -> Float64:
        """(short, p) W for the undivided matrix A: the columns of A W are orthonormal."""
        return self.vectors / self.scale[:, None]

    def back(self) -> Float64:
        """The matrix B (p, short) with ``A = A W B``, to rounding of each column."""
        squares = (np.abs(self.vectors) ** 2).sum(axis=0)
        return np.asarray(adjoint(self.vectors / squares) * self.scale)


def sampled_basis(d: Array, *, paired: bool = False) -> State:
    """Arrays ``q`` and ``scale`` of the ``ColumnBasis`` of sampled rows ``d`` (l, short).

    They are its ``vectors`` and ``scale``; ``q`` is empty if the columns are dependent. ``paired`` is True if
    the rows are the parts of complex ones.
    """
    r = np.zeros((d.shape[1], d.shape[1]))
    for start in range(0, len(d), SAMPLE_ROWS):
        r = panel_r(np.vstack([r, d[start : start + SAMPLE_ROWS]]))
    r = r_of_parts(r, paired=paired)
    basis = ColumnBasis.of(r, max(LEAST_SINGULAR_VALUE, 1e3 * float(np.finfo(d.dtype.name).eps)))
    full = basis.vectors.shape == r.shape
    return {"q": basis.vectors if full else np.zeros((0, 0)), "scale": basis.scale}


def is_constant(r: Float64, mean: Float64, rows: int) -> npt.NDArray[np.bool_]:
    """Mask (short,) of columns constant up to rounding, from R about their means, and the ``mean`` (short,).

    ``rows`` is the number of rows of the matrix.
    """
    return np.asarray(np.linalg.norm(r, axis=0) <= CONSTANT_NORM * np.abs(mean) * rows**0.5)


def r_of_parts(r: Float64, *, paired: bool) -> Float64:
    """R of a complex matrix from R of its real parts, half as large; R itself for a real matrix."""
    return panel_r(numbers_of_parts(r, paired=True)) if paired else r
