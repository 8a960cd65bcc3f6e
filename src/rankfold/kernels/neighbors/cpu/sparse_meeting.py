"""Compare two blocks of sparse rows on the host. See ``kernels/neighbors/sparse_meeting.py``.

As in ``meeting.py`` for dense rows: products of tiles shortlist candidates, these are measured, and rows
whose shortlist was too short are compared with all others in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rankfold.kernels._dispatch import plain, writable, write_back
from rankfold.kernels.neighbors.bounds import EXTRA, near, pieces
from rankfold.kernels.neighbors.cpu._distances import inner_product
from rankfold.kernels.neighbors.cpu._sparse_pairs import exhaust, refine, sum_squares
from rankfold.kernels.neighbors.cpu.meeting import UNCERTAIN
from rankfold.kernels.neighbors.lists import LANES, half, scan_pairs
from rankfold.kernels.neighbors.meeting import Lists, shortlist_length
from rankfold.kernels.neighbors.sparse_meeting import TILE, SparseRows
from rankfold.kernels.sparse.cpu._order import positions
from rankfold.kernels.sparse.products import order_columns
from rankfold.kernels.sparse.row_products import add_row_products, part_columns

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

MOST_TERMS = 2**17
"""Stored entries of a row beyond which float32 may lose all digits of a product."""


class _Parted(NamedTuple):
    """Rows prepared for products: a dense block of common columns, and the other columns as CSR or CSC.

    ``block`` is (rows, h). ``places`` are the column numbers of CSR, or the row numbers of CSC.
    """

    block: Array
    pointers: Int64
    places: Array
    values: Array


@dataclass(frozen=True, slots=True)
class _Side:
    """Rows of one side of a pair of blocks, their lists, and their shortlists.

    ``bounds`` and ``places`` are the shortlists, as in ``lists.py``; ``near`` has the terms of rows in
    bounds, as ``bounds.near`` returns them.
    """

    rows: SparseRows
    lists: Lists | None
    near: Array
    bounds: Array
    places: npt.NDArray[np.int32]


def meet_sparse_rows(
    x: SparseRows,
    y: SparseRows,
    *,
    common: Int64,
    lists_i: Lists,
    lists_j: Lists | None,
    metric: int,
    same: bool,
    precise: bool,
    room: Callable[..., Array],
) -> bool:
    """See the contract; lists are contiguous arrays. Inserts all pairs of two blocks into lists."""
    terms = max(x.longest, y.longest)
    dtype = np.dtype(np.float64 if precise or terms > MOST_TERMS else np.float32)
    task = _Meeting(SparseTiles(common, room), int(metric), room, terms, lists_i.keys.shape[1])
    one = task.side("left", x, lists_i, dtype)
    two = one if same else task.side("right", y, lists_j, dtype)
    task.scan(one, two, dtype, same=same)
    uncertain = task.settle(one, y, same=same)
    if lists_j is not None:
        uncertain += task.settle(two, x, same=False)
    return uncertain > UNCERTAIN * (len(x) + len(y))


def square_rows(indptr: Array, indices: Array, data: Array, scale: Float64, *, squares: Float64) -> bool:
    """See the contract. Squared norms of rows in twice the precision; True if columns increase."""
    inputs, into = (positions(indptr), plain(indices), plain(data), plain(scale)), writable(squares)
    ordered: bool = sum_squares(*inputs, into)
    write_back(into, squares)
    return ordered


@dataclass(frozen=True, slots=True)
class SparseTiles:
    """Products of sparse rows with sparse rows, tile by tile."""

    common: Int64
    """Columns that are multiplied as a dense block."""

    room: Callable[..., Array]

    def places(self, columns: int) -> npt.NDArray[np.int32]:
        """(columns,) position of each common column in the dense block, -1 for other columns."""
        places: npt.NDArray[np.int32] = self.room("places", (columns,), np.int32)
        places[:] = -1
        places[self.common] = np.arange(len(self.common))
        return places

    def part(self, name: str, rows: SparseRows, places: Array, dtype: np.dtype[Any]) -> _Parted:
        """Split rows into a dense block of their common columns, and the other columns as CSR.

        ``name`` tells buffers of ``room`` apart.
        """
        numbers = int(rows.indptr[-1] - rows.indptr[0])
        into = _Parted(
            self.room(f"{name} block", (len(rows), len(self.common)), dtype),
            self.room(f"{name} pointers", (len(rows) + 1,), np.int64),
            self.room(f"{name} columns", (numbers,), rows.indices.dtype),
            self.room(f"{name} values", (numbers,), dtype),
        )
        part_columns(
            rows.indptr,
            rows.indices,
            rows.data,
            rows.scale,
            places,
            block=into.block,
            pointers=into.pointers,
            columns=into.places,
            values=into.values,
        )
        return into

    def by_columns(self, rows: SparseRows, places: Array, dtype: np.dtype[Any]) -> _Parted:
        """Split rows into a dense block of their common columns, and the other columns as CSC."""
        parted = self.part("listed", rows, places, dtype)
        numbers = int(parted.pointers[-1])
        pointers = self.room("lists", (rows.columns + 1,), np.int64)
        members = self.room("members", (numbers,), np.int32)
        values = self.room("member values", (numbers,), dtype)
        order_columns(*parted[1:], pointers=pointers, rows=members, values=values)
        return _Parted(parted.block, pointers, members, values)

    def products(self, by_rows: _Parted, by_columns: _Parted, first: int = 0) -> Array:
        """(p, q - first) inner products of the p rows in ``by_rows`` with rows ``first:q`` of ``by_columns``.

        ``by_rows`` is a result of ``SparseTiles.part``, ``by_columns`` one of ``SparseTiles.by_columns``; the
        products are in a buffer of ``room``.
        """
        a, b = by_rows.block, by_columns.block[first:]
        tile = self.room("tile", (len(a), len(b)), a.dtype)
        if len(self.common):
            np.matmul(a, b.T, out=tile)
        else:
            tile[...] = 0
        _, pointers, members, values = by_columns
        lists: dict[str, Any] = {"pointers": pointers, "rows": members, "values": values}
        add_row_products(*by_rows[1:], **lists, first=first, products=tile)
        return tile


@dataclass(frozen=True, slots=True)
class _Meeting:
    """Parameters of one ``meet_sparse_rows`` call, and its steps.

    ``tiles`` computes inner products of rows of both sides; ``k`` is the length of the lists of x.
    """

    tiles: SparseTiles
    metric: int
    room: Callable[..., Array]
    terms: int
    """Stored entries of the longest row: the most products other than zero in a sum."""

    k: int

    def side(self, name: str, rows: SparseRows, lists: Lists | None, dtype: np.dtype[Any]) -> _Side:
        """Side of ``rows`` with empty shortlists, which accept only bounds that may still enter its lists.

        ``name`` tells its buffers apart from those of the other side.
        """
        count, most, row_terms = len(rows), shortlist_length(self.k), self._near(rows, dtype)
        if lists is None:  # rows without lists accept nothing
            bounds, places = np.full((count, 1), -np.inf, dtype), np.full((count, 1), -1, np.int32)
            return _Side(rows, None, row_terms, bounds, places)
        bounds = self.room(f"{name} bounds", (count, most), dtype)
        places = self.room(f"{name} places", (count, most), np.int32)
        limits = half(lists.keys[:, 0], self.metric)
        with np.errstate(over="ignore"):
            bounds[...] = np.nextafter(limits.astype(dtype), dtype.type(np.inf))[:, None]
        places[...] = -1
        return _Side(rows, lists, row_terms, bounds, places)

    def _near(self, rows: SparseRows, dtype: np.dtype[Any]) -> Array:
        """(rows,) terms in lower bounds, as ``bounds.near``, for sums of ``terms`` products in any order."""
        roundoff = float(np.finfo(dtype).eps) / 2
        share = (self.terms + EXTRA) * roundoff + 2 * self.terms * float(np.finfo(np.float64).eps)
        return near(rows.norms, self.terms, self.metric, dtype, 1.02 * share)

    def scan(self, one: _Side, two: _Side, dtype: np.dtype[Any], *, same: bool) -> None:
        """Insert all pairs of rows of both sides into the shortlists of both, by products in ``dtype``.

        If ``same``, the sides are one; each pair is then inserted once, and no row with itself.
        """
        places = self.tiles.places(one.rows.columns)
        for top, end in pieces(len(two.rows), TILE[1]):
            by_columns = self.tiles.by_columns(two.rows.part(top, end), places, dtype)
            for first, last in pieces(len(one.rows), TILE[0]):
                if same and first >= end - 1:
                    continue
                by_rows = self.tiles.part("held", one.rows.part(first, last), places, dtype)
                begin = max(top, first + 1) if same else top
                scan_pairs(
                    self.tiles.products(by_rows, by_columns, begin - top),
                    one.near[first:last],
                    two.near[begin:end],
                    bounds_i=one.bounds[first:last],
                    places_i=one.places[first:last],
                    bounds_j=two.bounds[begin:end],
                    places_j=two.places[begin:end],
                    first_i=first,
                    first_j=begin,
                    diagonal=first - begin + 1 if same else first - last,
                )

    def _zeros(self, columns: int) -> tuple[Array, ...]:
        """Buffers of an open row: values and flags by column, all zero, and one for positions of entries."""
        row, flags = (
            self.room("row", (columns,), np.float64),
            self.room("flags", (columns,), np.bool_),
        )
        row[:], flags[:] = 0, False
        return row, flags, self.room("matches", (self.terms + 1,), np.int64)

    def settle(self, side: _Side, others: SparseRows, *, same: bool) -> int:
        """Measure the shortlists of a side, into its lists, then compare uncertain rows with all ``others``.

        Returns the number of uncertain rows, and adds it to ``side.lists.uncertain``.
        """
        assert side.lists is not None  # noqa: S101 - only sides with lists are settled
        keys, ids, uncertain = side.lists
        certain, most = np.empty(len(keys), np.bool_), side.bounds.shape[1]
        refine(
            _plain(side.rows),
            _plain(others),
            self.metric,
            inner_product(self.metric),
            others.first,
            side.bounds.astype(np.float64, copy=False),
            side.places,
            keys,
            ids,
            certain,
            self._zeros(others.columns),
            np.empty(LANES),
            np.empty(most),
            np.empty(most, np.int64),
        )
        rows = np.flatnonzero(~certain)
        if len(rows):
            self._exhaust(side, rows, others, same=same)
        uncertain += len(rows)
        return len(rows)

    def _exhaust(self, side: _Side, rows: Int64, others: SparseRows, *, same: bool) -> None:
        """Insert pairs of rows ``rows`` of ``side`` with ``others`` into the lists of these rows.

        All pairs are measured but those that products in float64 rule out.
        """
        assert side.lists is not None  # noqa: S101
        double, places = np.dtype(np.float64), self.tiles.places(others.columns)
        near_i, near_j = self._near(side.rows, double), self._near(others, double)
        one, two, inner = _plain(side.rows), _plain(others), inner_product(self.metric)
        zeros = self._zeros(others.columns)
        for top, end in pieces(len(others), TILE[1]):
            by_columns = self.tiles.by_columns(others.part(top, end), places, double)
            for start in range(0, len(rows), TILE[0]):
                some = rows[start : start + TILE[0]]
                tile = self.tiles.products(
                    self.tiles.part("held", _pick(side.rows, some), places, double), by_columns
                )
                where = some, one, top, two, self.metric, inner, others.first, same
                exhaust(tile, near_i, near_j[top:end], *where, *side.lists[:2], zeros, np.empty(LANES))


def _plain(rows: SparseRows) -> tuple[Array, ...]:
    """Arrays of rows in the layout that loops are compiled for."""
    arrays = rows.indptr, rows.indices, rows.data, rows.scale, rows.squares
    return tuple(plain(a) for a in arrays)


def _pick(rows: SparseRows, some: Int64) -> SparseRows:
    """Copy of some rows, in the order of their positions ``some``."""
    lengths = np.diff(rows.indptr)[some]
    pointers = np.concatenate([[0], np.cumsum(lengths)])
    at = np.arange(pointers[-1]) + np.repeat(rows.indptr[some] - pointers[:-1], lengths)
    arrays = rows.indices[at], rows.data[at], rows.norms[some], rows.scale[some], rows.squares[some]
    return SparseRows(rows.first, rows.columns, pointers, *arrays)
