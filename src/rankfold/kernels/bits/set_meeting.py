"""Compare two blocks of sparse rows as sets: exact nearest neighbors of either block in the other.

The number of members that two rows share is the inner product of their ones. These products are whole
numbers, exact in float32 up to 2^24, so a tile of products is a tile of counts, and keys follow: see
``set_keys.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import kernel
from rankfold.kernels.bits.set_keys import set_key
from rankfold.kernels.neighbors.lists import _take
from rankfold.kernels.neighbors.meeting import Lists
from rankfold.kernels.neighbors.sparse_meeting import TILE, SparseRows
from rankfold.kernels.neighbors.sparse_meeting import scratch_bytes as sparse_scratch_bytes

Array = npt.NDArray[Any]
Int64 = npt.NDArray[np.int64]


@kernel
def meet_sets(
    x: SparseRows,
    y: SparseRows,
    *,
    common: Int64,
    lists_i: Lists,
    lists_j: Lists | None,
    metric: int,
    same: bool,
    room: Callable[..., Array],
) -> None:
    """Compare all pairs of rows of two blocks, and insert them into the neighbor lists of both, in place.

    Parameters
    ----------
    x, y : SparseRows
        p and q rows of the same columns. Column numbers of a row increase, and each counts as a member.
        ``y`` is ``x`` where ``same``.
    common : (h,) int64
        Columns that are multiplied as a dense block: see ``meet_sparse_rows``.
    lists_i, lists_j, metric, same
        Neighbor lists of both blocks, and more: see ``meet_bits``.
    room : callable
        ``room(name, shape, dtype)``, a buffer that is kept for the next call.

    Notes
    -----
    Work: an addition for each pair of entries of x and y in the same column, and a comparison for each pair
    of rows.
    """
    for i in range(len(x)):
        row = x.indices[x.indptr[i] : x.indptr[i + 1]]
        for j in range(len(y)):
            if same and i == j:
                continue
            other = y.indices[y.indptr[j] : y.indptr[j + 1]]
            shared = len(np.intersect1d(row, other, assume_unique=True))
            key = set_key(shared, len(row), len(other), x.columns, metric)
            _take(lists_i.keys[i], lists_i.ids[i], key, y.first + j)
            if lists_j is not None:
                _take(lists_j.keys[j], lists_j.ids[j], key, x.first + i)


def scratch_bytes(numbers: int, longest: int, columns: int, rows: int) -> int:
    """Upper bound on the scratch bytes of ``meet_sets``.

    The larger block has ``rows`` rows with ``numbers`` stored entries, the longest row ``longest`` of them;
    the matrix has ``columns`` columns.
    """
    return sparse_scratch_bytes(numbers, longest, columns, 0, rows) + 8 * sum(TILE)
