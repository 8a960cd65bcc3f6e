"""What is kept of samples so that more can be added: their number, mean, and a factor of their scatter.

Two summaries merge into that of all samples, in any order and grouping. A summary cut to fewer rows says
how much that may have cost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.qr import panel_r

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Summary:
    """Samples of n features, about their mean; about 0, and with a mean of 0, where none is taken off."""

    count: int
    mean: Float64
    """(n,)."""

    factor: Float64
    """(p, n), p <= n: ``factor' factor`` is the scatter of the samples, but for what was cut off."""

    squares: Float64
    """(n,) sums of squares of each feature, or (1,) of all. Nothing is cut off from them."""

    truncation_bound: float = 0.0
    """Bound on what any squared singular value lacks for what was cut off."""

    @classmethod
    def of_rows(cls, rows: Float64, *, center: bool) -> Summary:
        """The summary of samples in memory, (m, n)."""
        mean = rows.mean(axis=0) if center else np.zeros(rows.shape[1])
        factor = rows - mean
        if center:  # for a mean of 1e8 and deviations of 1, one sum leaves 1e-8 of it
            mean_residual = factor.mean(axis=0)
            mean, factor = mean + mean_residual, factor - mean_residual
        return cls(len(rows), mean, _short(factor), np.einsum("ij,ij->j", factor, factor))

    @property
    def total(self) -> float:
        """Sum of all squares."""
        return float(self.squares.sum())

    def cut_to(self, rows: int) -> Summary:
        """The same with a factor of at most so many rows: the leading directions."""
        if rows >= len(self.factor):
            return self
        _, s, vt = np.linalg.svd(self.factor, full_matrices=False)
        return replace(
            self,
            factor=s[:rows, None] * vt[:rows],
            truncation_bound=self.truncation_bound + float(s[rows] ** 2),
        )


def merge_summaries(a: Summary, b: Summary) -> Summary:
    """The summary of both.

    Notes
    -----
    Work 2 p n min(p, n) flops for p rows of both factors together, by reflections: nothing is squared.

    References
    ----------
    Chan, Golub, LeVeque, The American Statistician 37(3), 1983, for the mean's part in the scatter of two
    groups; it enters as one more row of the factor.
    """
    count = a.count + b.count
    apart = b.mean - a.mean
    between = np.sqrt(a.count * b.count / count) * apart
    squares = between**2
    return Summary(
        count,
        a.mean + apart * (b.count / count),
        _short(np.vstack([a.factor, b.factor, between])),
        a.squares + b.squares + (squares if len(a.squares) == len(squares) else squares.sum()),
        a.truncation_bound + b.truncation_bound,
    )


def _short(factor: Float64) -> Float64:
    """A factor of no more rows than columns."""
    return panel_r(factor) if len(factor) > factor.shape[1] else factor
