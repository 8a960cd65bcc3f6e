"""A low-rank model of rows with gaps, and the next one from sums over all rows.

Rows are ``mean + W z + noise``, see ``kernels/linear/complete_rows.py``. The pass finds the posterior of z
for each row. That of row j of W follows from its sums S_j and b_j over the rows where column j is there,

    S_j = sum T_i + noise diag(1 / variance, 0),   (w_j, shift_j) = S_j^-1 b_j,   covariance_j = noise S_j^-1,

with ``variance`` that of each component's loadings: it falls to zero for components that the data do not
support, so a rank beyond that of the matrix does no harm. This is variational Bayesian PCA [IR10], except
that covariances of rows of W are replaced by their mean: one (k, k) matrix in place of n.

Coordinates are then centered and whitened, and W compensates for that [LI10]: otherwise directions of little
variance take ten times as many passes. Where the S_j of all columns take too much memory, missing numbers are
replaced by their expectations and all columns share one S: nearly the same limit, in twice as many passes or
more.

References
----------
[IR10] Ilin, Raiko, Practical approaches to principal component analysis in the presence of missing values,
JMLR 11, 2010. [LI10] Luttinen, Ilin, Transformations in variational Bayesian factor analysis to speed up
learning, Neurocomputing 73, 2010.

Anderson acceleration of the completion: each model is mixed from those of the last passes.

A pass maps a model x to the next one, g(x), and changes little where components explain hardly more than
noise does. The changes of the last passes show how that goes on: of all affine combinations of their models,
the one whose changes g(x) - x nearly cancel is taken, and g of it [WN11]. Loadings are rotated to those that
they are compared with, since a model does not depend on a rotation of its coordinates.

References
----------
[WN11] Walker, Ni, Anderson acceleration for fixed-point iterations, SIAM J. Numer. Anal. 49(4), 2011.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.complete_rows import RowModel

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Sums = dict[str, Array]

LEAST_NOISE = 1e-10
"""Smallest variance of noise, relative to that of the numbers: rows of fewer than k numbers need some."""

TINY = 1e-200
"""Smallest variance of loadings that noise is divided by."""

BLOCK_BYTES = 2**22
"""Bytes of matrices S_j, one for each column, that are inverted at a time, about."""


def row_model(mean: Float64, loadings: Float64, spread: Float64, noise: float) -> RowModel:
    """Make a model from its arrays, with the Gram matrix of its loadings.

    ``mean`` (n,), ``loadings`` (n, k), ``spread`` (k, k) and ``noise`` are as in ``RowModel``.
    """
    return RowModel(mean, loadings, loadings.T @ loadings, spread, np.array([noise]))


def next_model(model: RowModel, sums: Sums, rows: int, *, prunes: bool = True) -> RowModel:
    """Compute the next model from the current one and from the sums of a pass with it.

    Parameters
    ----------
    model : RowModel
    sums : dict
        Sums of ``CompletionPass`` over all rows, by name.
    rows : int
        Number of rows summed over.
    prunes : bool
        True if components that the data do not support may fall to zero; else all share one variance.

    Notes
    -----
    Work n k^3 if each column has its own sum S_j, or n k^2 where they share one.
    """
    n, k = model.loadings.shape
    noise, variance = float(model.noise[0]), np.diag(model.gram) / n + np.diag(model.spread)
    if not prunes:
        variance = np.full(k, variance.mean())
    ridge = noise / np.maximum(variance, TINY)
    fitted = rows - sums["columns"][0] - sums["columns"][1]
    squares = sums.get("squares", np.empty((0, 0)))
    exact = len(squares) > 0
    loadings, shift, spread = np.empty((n, k)), np.empty(n), np.zeros((k, k))
    left = float(sums["totals"][0])
    step = max(1, BLOCK_BYTES // (8 * (k + 1) ** 2)) if exact else n
    for first in range(0, n, step):
        here = slice(first, min(first + step, n))
        b = sums["products"][here]
        triangles = sums["shared"] + squares[here] if exact else sums["shared"][None]
        solution, covariance, lost = _solve(_full(triangles, k), b, ridge, noise)
        loadings[here], shift[here] = solution[:, :k], solution[:, k]
        spread += covariance * (1 if exact else n) / n
        left += lost
    count = float(fitted.sum())
    if not exact:
        left, count = left + float(sums["totals"][7]), float(rows) * n
    # If all numbers of a column were held out, their mean is that of the column.
    alone = (fitted == 0) & (sums["columns"][1] > 0)
    shift[alone] = (sums["columns"][2] / np.maximum(sums["columns"][1], 1))[alone]
    loadings[alone] = 0.0
    level = float(sums["totals"][0]) / max(float(fitted.sum()), 1.0)
    least = LEAST_NOISE * level if level > 0 else 1.0
    noise = max(left / max(count, 1.0), least)
    return _whiten(model.mean + shift, loadings, spread, noise, sums["moments"] / rows)


def _full(triangles: Float64, k: int) -> Float64:
    """Symmetric matrices (c, k + 1, k + 1) from upper triangles by rows, (c, (k + 1) (k + 2) / 2)."""
    full = np.empty((len(triangles), k + 1, k + 1))
    upper = np.triu_indices(k + 1)
    full[:, upper[0], upper[1]] = triangles
    full[:, upper[1], upper[0]] = triangles
    return full


def _solve(s: Float64, b: Float64, ridge: Float64, noise: float) -> tuple[Float64, Float64, float]:
    """Solve for loadings and shifts of c columns; return them, a sum of covariances, and a change of error.

    ``s`` is (c, k + 1, k + 1), or (1, k + 1, k + 1) shared by all columns, ``b`` (c, k + 1), ``ridge`` (k,)
    what is added to the diagonals of ``s``, and ``noise`` a variance. Returns the rows of (W, shift), (c, k +
    1); the sum (k, k) of the covariances of rows of W, of one of them if shared; and the change of the sum of
    squared residuals by the fit.
    """
    k = len(ridge)
    regular, diagonal = s.copy(), np.arange(k)
    regular[:, diagonal, diagonal] += ridge
    regular[:, k, k] += s[:, k, k] <= 0  # for a column without any number
    inverse = np.linalg.inv(regular)
    inverse = (inverse + inverse.transpose(0, 2, 1)) / 2
    solution = np.einsum("jab,jb->ja", inverse, b) if len(s) == len(b) else b @ inverse[0]
    # A step of refinement: inverses of squares of the same size lose digits that solutions keep.
    if len(s) == len(b):
        rest = b - np.einsum("jab,jb->ja", regular, solution)
        solution = solution + np.einsum("jab,jb->ja", inverse, rest)
        told = np.einsum("ja,jab,jb->", solution, s, solution)
    else:
        solution = solution + (b - solution @ regular[0]) @ inverse[0]
        told = float(np.einsum("ja,ja->", solution @ s[0], solution))
    covariances = noise * inverse[:, :k, :k]
    blur = float(np.einsum("jab,jab->", covariances, s[:, :k, :k])) * (len(b) / len(s))
    lost = float(told) - 2 * float((solution * b).sum()) + blur
    return np.asarray(solution), covariances.sum(axis=0), lost


def _whiten(mean: Float64, loadings: Float64, spread: Float64, noise: float, moments: Float64) -> RowModel:
    """Convert a model to coordinates that are centered, white and ordered by the variance they explain.

    ``moments`` is the upper triangle, as in ``RowSums``, of the mean over all rows of outer products of (z,
    1).
    """
    n, k = loadings.shape
    full = _full(moments[None], k)[0]
    center = full[:k, k]
    root = np.linalg.cholesky(full[:k, :k] - np.outer(center, center))
    mean, loadings, spread = mean + loadings @ center, loadings @ root, root.T @ spread @ root
    _, turn = np.linalg.eigh(loadings.T @ loadings + n * spread)
    turn = turn[:, ::-1]
    return row_model(mean, loadings @ turn, turn.T @ spread @ turn, noise)


# Parts --------------------------------------------------------------------------------------------


def as_arrays(model: RowModel, before: RowModel) -> dict[str, Array]:
    """Arrays of a model by name, and of the one before with ``_before`` added, for the file of a pass."""
    return {**model._asdict(), **{f"{name}_before": each for name, each in before._asdict().items()}}


def from_arrays(arrays: dict[str, Array], suffix: str = "") -> RowModel:
    """The model from ``arrays`` of ``as_arrays``, or with the suffix ``"_before"`` the one before it."""
    return RowModel(*(np.asarray(arrays[name + suffix]) for name in RowModel._fields))


DEPTH = 5
"""Largest number of earlier passes whose models are mixed."""

GROWTH = 2.0
"""Ratio of the norm of a change to that of the one before, above which earlier passes are forgotten."""

REGULAR = 1e-10
"""Relative increase of the diagonal of the Gram matrix of differences of changes, which may nearly depend."""


@dataclass(slots=True)
class Acceleration:
    """Models of the last passes, and by how much each pass changed its model, all in the same coordinates."""

    models: list[Float64] = field(default_factory=list)
    """(n, k + 1) loadings and mean of each model."""

    changes: list[Float64] = field(default_factory=list)
    """(n, k + 1) changes g(x) - x of each model by a pass."""

    def following(self, model: RowModel, plain: RowModel) -> RowModel:
        """Model for the next pass, from ``model`` and the model ``plain`` that a pass with it leads to.

        ``model`` and its change are recorded in ``models`` and ``changes``.
        """
        k = len(model.gram)
        left, _, right = np.linalg.svd(plain.loadings.T @ model.loadings)
        turn = left @ right
        x = np.column_stack([model.loadings, model.mean])
        change = np.column_stack([plain.loadings @ turn, plain.mean]) - x
        if self.changes and np.linalg.norm(change) > GROWTH * np.linalg.norm(self.changes[-1]):
            self.models.clear()
            self.changes.clear()
        self.models, self.changes = [*self.models[-DEPTH:], x], [*self.changes[-DEPTH:], change]
        mixed = x + change
        if len(self.models) > 1:
            changes = [after - before for before, after in zip(self.changes, self.changes[1:], strict=False)]
            steps = [after - before for before, after in zip(self.models, self.models[1:], strict=False)]
            gram = np.array([[float((a * b).sum()) for b in changes] for a in changes])
            gram[np.diag_indices(len(gram))] *= 1 + REGULAR
            weights = np.linalg.lstsq(gram, np.array([float((a * change).sum()) for a in changes]))[0]
            for weight, step, each in zip(weights, steps, changes, strict=True):
                mixed = mixed - weight * (step + each)
        spread = turn.T @ plain.spread @ turn
        loadings, mean = mixed[:, :k], mixed[:, k]
        _, turn = np.linalg.eigh(loadings.T @ loadings + len(loadings) * spread)
        turn = turn[:, ::-1]
        for each in (*self.models, *self.changes):
            each[:, :k] = each[:, :k] @ turn
        return row_model(mean, loadings @ turn, turn.T @ spread @ turn, float(plain.noise[0]))
