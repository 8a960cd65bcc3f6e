"""Orientation of sweeps over a matrix, width of blocks, and the largest number of passes.

Pure functions of the request and of the shape, type and native chunks of the matrix.
"""

from __future__ import annotations

import math

from rankfold.methods.svd.request import DEFAULT_PASSES, Request
from rankfold.methods.svd.solvers.solver import SOLVERS
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.data.real_parts import RealParts
from rankfold.pipeline.data.source import Source, sparse
from rankfold.pipeline.data.view import Orientation, View, working_dtype
from rankfold.pipeline.engine.blocks import grain_rows

ADAPTIVE_WIDTH = 256
"""Largest number of columns of a block where the rank is found from a tolerance."""

FLAT_COLUMNS = 5
"""Largest number of columns, for each component, that an iteration with single vectors multiplies where
singular values lie close together."""

BASIS_SQUARES = 14
"""Number of (p, p) matrices in memory for a basis of p columns, with those that decomposing one takes."""

SQUARES_BYTES = 2**28
"""Largest number of bytes of the ``BASIS_SQUARES`` matrices of a basis up to which more passes are the
default."""


def orientation_of(request: Request, source: Source, device: str = "cpu") -> Orientation:
    """Orientation of sweeps for a request on a kind of ``device``: along the lines of the store if sparse.

    That holds if passes multiply stored numbers alone. Otherwise it is that of ``choose_orientation``.
    """
    stored, method = sparse(source), request.method
    takes_stored = method == "auto" or (
        SOLVERS[method].multiplies_stored and not SOLVERS[method].keeps_square
    )
    if stored is None or request.kind == "qr" or device != "cpu" or not takes_stored:
        return choose_orientation(source, request.rank, request.kind)
    return Orientation.ROWS if stored.by == "rows" else Orientation.COLUMNS


def choose_orientation(source: Source, rank: int, kind: str = "svd") -> Orientation:
    """Orientation along the longer axis, unless a panel takes over 1 GiB that way, and less the other way.

    Always along the longer axis for ``kind`` ``"qr"``. Never along an axis whose pieces are scattered over
    the store, as the columns of CSR are.
    """
    if isinstance(source, RealParts):
        return source.orientation
    if kind == "qr":
        return Orientation.ROWS if source.shape[0] >= source.shape[1] else Orientation.COLUMNS
    if source.row_grid.scattered or source.column_grid.scattered:
        return Orientation.COLUMNS if source.row_grid.scattered else Orientation.ROWS
    rows, columns = source.shape
    item = working_dtype(source.dtype).itemsize
    width = block_width(rank, min(rows, columns))

    def working_set(grid: Grid, short: int) -> int:
        panel = grain_rows(short * item) if grid.splittable else max(grid.longest, 1)
        return panel * short * item + 16 * short * width

    by_rows, by_columns = working_set(source.row_grid, columns), working_set(source.column_grid, rows)
    long_is_rows = rows >= columns
    along, across = (by_rows, by_columns) if long_is_rows else (by_columns, by_rows)
    if along > 2**30 and across < along:
        long_is_rows = not long_is_rows
    return Orientation.ROWS if long_is_rows else Orientation.COLUMNS


def long_side(source: Source) -> Orientation:
    """Orientation along the longer axis, however the matrix is stored."""
    return Orientation.ROWS if source.shape[0] >= source.shape[1] else Orientation.COLUMNS


def sweeps_stored_entries(view: View) -> bool:
    """True if sweeps multiply stored numbers of a sparse matrix alone: on a host, along its stored lines."""
    stored = sparse(view.source)
    if stored is None or view.device != "cpu":
        return False
    return (view.orientation is Orientation.ROWS) == (stored.by == "rows")


def factors_leading_square(request: Request, view: View) -> bool:
    """True if the request is a QR factorization of a wide matrix, which starts from its leading square."""
    return request.kind == "qr" and view.orientation is Orientation.COLUMNS


def block_width(rank: int, short: int, oversampling: int | None = None, *, passes: int = 8) -> int:
    """Number of columns of a block in whole sixteens, at most ``short``: a quarter more than ``rank``.

    At least 8 more, or ``oversampling`` more if given. A single pass has no other to correct what it misses,
    and is given four times the rank.

    >>> block_width(50, 2000), block_width(10, 2000), block_width(50, 55)
    (64, 32, 55)
    >>> block_width(50, 2000, 200), block_width(50, 2000, passes=1)
    (256, 208)
    """
    if oversampling is None:
        oversampling = 3 * rank if passes == 1 else max(8, -(-rank // 4))
    return min(short, -(-(rank + oversampling) // 16) * 16)


def default_passes(request: Request, source: Source) -> int:
    """Largest number of passes by default: 8, and more for sparse matrices.

    Spectra of counts are flat. Blocks of ``b`` columns then take ``D / b + c`` passes: D up to 5 for each
    component, c up to 2 plus two for each digit of the tolerance (measured on cells, on words, on a graph).
    """
    if request.adaptive or sparse(source) is None or request.method not in ("auto", "krylov"):
        return DEFAULT_PASSES
    width = block_width(request.rank, min(source.shape), request.oversampling)
    passes = FLAT_COLUMNS * request.rank / width + 2 - 2 * math.log10(request.tol)
    room = math.isqrt(SQUARES_BYTES // (8 * BASIS_SQUARES)) // width
    return max(DEFAULT_PASSES, min(math.ceil(passes), room))


def adaptive_width(short: int) -> int:
    """Number of columns of a block where the rank is found: an eighth of ``short``, in whole sixteens.

    At most ``ADAPTIVE_WIDTH``.

    >>> adaptive_width(40), adaptive_width(1000), adaptive_width(10**6)
    (16, 128, 256)
    """
    return min(short, ADAPTIVE_WIDTH, -(-short // 128) * 16)
