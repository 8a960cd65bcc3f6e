"""Summary of samples to which more can be added: number, mean, and a factor of their scatter matrix.

Two summaries merge into that of all samples, in any order and grouping. A summary whose factor is truncated
to fewer rows keeps a bound of the error of truncation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.qr import panel_r

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Summary:
    """Summary of samples of n features, about their mean; about 0, with a mean of 0, if not centered."""

    count: int
    mean: Float64
    """(n,) mean of the samples."""

    factor: Float64
    """(p, n), p <= n: ``factor' factor`` is the scatter of the samples, except for truncation."""

    squares: Float64
    """(n,) sums of squares of each feature, or (1,) their sum. Truncation does not change them."""

    truncation_bound: float = 0.0
    """Bound on how much truncation reduced any squared singular value."""

    @classmethod
    def of_rows(cls, rows: Float64, *, center: bool) -> Summary:
        """Summarize samples in memory, (m, n)."""
        mean = rows.mean(axis=0) if center else np.zeros(rows.shape[1])
        factor = rows - mean
        if center:  # for a mean of 1e8 and deviations of 1, one sum leaves an error of 1e-8
            mean_residual = factor.mean(axis=0)
            mean, factor = mean + mean_residual, factor - mean_residual
        return cls(len(rows), mean, _short(factor), np.einsum("ij,ij->j", factor, factor))

    @property
    def total(self) -> float:
        """Sum of squares of all features."""
        return float(self.squares.sum())

    def cut_to(self, rows: int) -> Summary:
        """Truncate the factor to at most ``rows`` rows, along the leading directions."""
        if rows >= len(self.factor):
            return self
        _, s, vt = np.linalg.svd(self.factor, full_matrices=False)
        return replace(
            self,
            factor=s[:rows, None] * vt[:rows],
            truncation_bound=self.truncation_bound + float(s[rows] ** 2),
        )


def merge_summaries(a: Summary, b: Summary) -> Summary:
    """Merge two summaries into that of all their samples.

    Notes
    -----
    Work 2 p n min(p, n) flops for p rows of both factors together, by Householder reflections, no squares.

    References
    ----------
    Chan, Golub, LeVeque, The American Statistician 37(3), 1983, for the contribution of the means to the
    scatter of two groups; it is one more row of the factor.
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
    """Reduce a factor to no more rows than columns, by QR."""
    return panel_r(factor) if len(factor) > factor.shape[1] else factor
