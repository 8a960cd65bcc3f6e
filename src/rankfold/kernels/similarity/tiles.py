"""Similarities of a tile of rows and another, and their products with blocks of vectors in one pass.

A tile of similarities is computed by a product, transformed by the kernel function in place, and multiplied
with vectors from both sides while it is in cache. A sweep over n rows takes (2 d + 4 q) flops and one
evaluation of the function for each pair, and no memory that grows with the number of pairs.

Squared distances are |x|^2 + |y|^2 - 2 x'y, which cancels: for rows that are close together but far from the
shift no digits may be left. Where that could show in similarities, squares of pairs nearer than ``NEAR`` of
their norms are summed from differences.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel
from rankfold.kernels.similarity.functions import Kind, Rows, Similarity, of_products

Float64 = npt.NDArray[np.float64]

HEIGHT, WIDTH = 256, 512
"""Rows of either side in a tile, which then takes 1 MiB."""

NEAR = 2.0**-10
"""Share of the sum of both squared norms below which a squared distance is summed from differences."""

LOSS = 2.0**-43
"""Largest error of similarities by products that is accepted without summing differences."""

EPS = float(np.finfo(np.float64).eps)


def needs_differences(x: Rows, y: Rows, similarity: Similarity) -> bool:
    """True if cancellation in products of some of these rows could show in similarities (above ``LOSS``)."""
    if similarity.kind != Kind.RBF or not len(x.squares) or not len(y.squares):
        return False
    norms = float(x.squares.max()) + float(y.squares.max())
    return bool(4 * EPS * similarity.gamma * norms > LOSS)


def tile_bytes(rows: int, others: int, columns: int, *, transposes: bool) -> int:
    """Scratch bytes of ``multiply`` on blocks of ``rows`` and of ``others`` rows, of ``columns`` columns.

    These are two tiles and, if ``transposes`` (``Kind.LAPLACIAN``), the transposed rows of a tile.
    """
    across = min(WIDTH, others)
    return 8 * (min(HEIGHT, rows) * 2 * across + across * columns * transposes)


@kernel
def evaluate(x: Rows, y: Rows, *, similarity: Similarity, out: Float64) -> None:
    """Similarities of all pairs of two tiles of rows.

    Parameters
    ----------
    x, y : Rows, of (m, d) and (p, d)
        By ``rows_of`` with the same shift. Left untouched.
    similarity : Similarity
    out : (m, p)
        Written.

    Raises
    ------
    Exception
        Any exception that a caller's own function raises.

    Notes
    -----
    Work 2 m p d flops (3 m p d for laplacian) and m p evaluations; scratch m p numbers in the reference, of
    the tuned body one row.

    Errors: similarities by rbf are within 1e-12 of the exact ones for any rows and bandwidth. Where products
    are trusted the squared distance is off by about eps (|x|^2 + |y|^2), which times gamma is ``LOSS`` at
    most; elsewhere it is off by 2^10 eps of itself, and z exp(-z) is at most 1/e. Other kinds are off by
    d eps gamma |x| |y| times the slope of the function.
    """
    kind = similarity.kind
    if kind == Kind.FUNCTION:
        assert similarity.function is not None  # noqa: S101 - it has one of this kind
        for i, row in enumerate(x.values):
            for j, other in enumerate(y.values):
                out[i, j] = similarity.function(row, other)
        return
    if kind == Kind.LAPLACIAN:
        for i, row in enumerate(x.values):
            out[i] = np.abs(y.values - row).sum(axis=1)
    else:
        np.matmul(x.values, y.values.T, out=out)
    if kind == Kind.RBF:
        norms = x.squares[:, None] + y.squares
        squares = np.maximum(norms - 2 * out, 0.0)
        if needs_differences(x, y, similarity):
            for i, j in zip(*np.nonzero(squares < NEAR * norms), strict=True):
                squares[i, j] = np.square(x.values[i] - y.values[j]).sum()
        out[...] = squares
    if similarity.is_of_differences:
        np.exp(-similarity.gamma * out, out=out)
    elif kind in (Kind.POLYNOMIAL, Kind.SIGMOID):
        of_products(out, similarity)


def multiply(
    x: Rows,
    y: Rows,
    *,
    similarity: Similarity,
    v: Float64,
    out: Float64,
    w: Float64 | None = None,
    beside: Float64 | None = None,
) -> None:
    """Products of the similarities K of two blocks of rows with vectors from both sides, tile by tile.

    Parameters
    ----------
    x, y : Rows, of (m, d) and (p, d)
        The same object for a block with itself; each pair is then evaluated once.
    v, w : (p, q), (m, q)
        ``w`` is None if K' w is not wanted, or if both blocks are the same.
    out, beside : (m, q), (p, q)
        K v is added to ``out``, K' w to ``beside``.

    Notes
    -----
    Work (2 d + 4 q) m p flops, half of that for a block with itself; scratch a tile. Sums are in the order of
    tiles, which begin with the blocks.
    """
    same = x is y
    tile, (m, p) = np.empty(HEIGHT * WIDTH), (len(x.values), len(y.values))
    # Similarities out of range give sums that are NaN or infinite, which the caller checks.
    with np.errstate(over="ignore", invalid="ignore"):
        for top in range(0, m, HEIGHT):
            rows = slice(top, min(m, top + HEIGHT))
            for left in range(rows.stop if same else 0, p, WIDTH):
                columns = slice(left, min(p, left + WIDTH))
                k = _tile(tile, x, y, rows, columns, similarity)
                out[rows] += k @ v[columns]
                if same:
                    out[columns] += k.T @ v[rows]
                elif w is not None and beside is not None:
                    beside[columns] += k.T @ w[rows]
            if same:
                out[rows] += _tile(tile, x, y, rows, rows, similarity) @ v[rows]


def _tile(room: Float64, x: Rows, y: Rows, rows: slice, columns: slice, similarity: Similarity) -> Float64:
    shape = rows.stop - rows.start, columns.stop - columns.start
    k = room[: shape[0] * shape[1]].reshape(shape)
    evaluate(x.part(rows), y.part(columns), similarity=similarity, out=k)
    return k
