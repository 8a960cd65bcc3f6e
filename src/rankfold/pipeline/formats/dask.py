"""Dask arrays: computes the blocks that a read needs, one after the other, each once for all its boxes.

The source carries the graph, and the thread that reads computes it (``scheduler="synchronous"``), so a sweep
keeps its own parallelism. Memory that a block takes while it is computed depends on the graph and is not
controlled here.

The number of stored entries of sparse blocks is known only after computing them, and a plan needs it. So they
are counted when the array is opened. Lines are rows, if blocks hold whole rows, or columns, if they hold
those.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from rankfold.pipeline.chunks.geometry import Box, Piece, Span, intersect, local
from rankfold.pipeline.data.cf_attributes import NAMES, Attributes, meaning_of
from rankfold.pipeline.data.dtypes import cut, native, require_matrix
from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.data.names import Axis, Named
from rankfold.pipeline.data.selection import Readable
from rankfold.pipeline.data.source import Csr, Matrix, index_dtype
from rankfold.pipeline.errors import ChunkError, InputError
from rankfold.pipeline.formats.arrays import lines_of


@dataclass(frozen=True, slots=True, eq=False)
class DaskBlocks(Named):
    """A Dask array with chunks of known, possibly unequal, sizes."""

    array: Any
    named: tuple[Axis, ...] = field(default=(), kw_only=True)
    attributes: Attributes = field(default_factory=dict, kw_only=True)
    dims: tuple[str, ...] = field(default=(), kw_only=True)
    """Names of both axes of a DataArray; empty for others, such as frames, which have only labels."""

    codec = "computed"
    path = None

    @property
    def name(self) -> str:
        """Name in messages, with Dask's name."""
        return f"dask array {self.array.name}"

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements in native byte order."""
        return native(self.array.dtype)

    @property
    def grids(self) -> tuple[Grid, ...]:
        """Blocks along every axis."""
        return tuple(Grid(np.unique(block_edges(sizes)), splittable=False) for sizes in self.array.chunks)

    def read_boxes(self, pieces: Sequence[Piece]) -> None:
        """Compute each block that boxes overlap, once, and copy its parts into ``out`` of their pieces."""
        edges = [block_edges(sizes) for sizes in self.array.chunks]
        blocks: dict[tuple[int, ...], Box] = {}
        for piece in pieces:
            hits = (blocks_within(along, span) for along, span in zip(edges, piece.box, strict=True))
            for index in itertools.product(*hits):
                blocks[index] = tuple((int(e[i]), int(e[i + 1])) for e, i in zip(edges, index, strict=True))
        for index, box in sorted(blocks.items()):
            block = computed_block(self.array, index)
            for piece in pieces:
                if part := intersect(piece, box):
                    np.copyto(part.out, block[local(part.box, box)], casting="unsafe")

    def check(self) -> None:
        """No-op: damage cannot be found without computing."""

    def fingerprint(self) -> str:
        """Digest of the chunks and of Dask's name, which is a token of how the array is computed."""
        text = f"{self.array.name} {self.dtype.str} {self.array.chunks}"
        return self.named_digest(hashlib.blake2b(text.encode(), digest_size=16).hexdigest())

    def stored_bytes(self) -> int:
        """Bytes on disk: 0, since they are not known for a graph."""
        return 0

    @property
    def _computed_bytes(self) -> int:
        """Bytes of the largest block, twice: the block, and the input of the last step of its graph."""
        return 2 * math.prod(grid.longest for grid in self.grids) * self.dtype.itemsize


class DaskSource(Readable, Matrix, DaskBlocks):
    """A Dask array as a matrix of its two axes."""

    __slots__ = ()
    format = "Dask array"

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        rows, columns = self.array.shape
        return int(rows), int(columns)

    def read_bytes(self, rows: int, columns: int) -> int:
        """Upper bound in bytes on the memory of one ``read_into`` of any size, in addition to ``out``."""
        return self._computed_bytes


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DaskSparse(DaskSource):
    """A Dask array of sparse blocks of whole rows or columns, which can be read sparsely."""

    by: str
    """``rows`` if blocks hold whole rows, which are read as CSR; ``columns`` if they hold whole columns."""

    ends: npt.NDArray[np.int64]
    """Cumulative number of stored entries before each row (or column, see ``by``), and in all, (n + 1,)."""

    format = "Dask array of sparse blocks"

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return int(self.ends[-1])

    @property
    def row_grid(self) -> Grid:
        """Blocks along the rows; scattered if blocks hold whole columns: a row then needs all of them."""
        return self._grid(0)

    @property
    def column_grid(self) -> Grid:
        """Blocks along the columns; scattered if blocks hold whole rows: a column then needs all of them."""
        return self._grid(1)

    def _grid(self, axis: int) -> Grid:
        grid = self.grids[axis]
        return grid if axis == self._axis else Grid(grid.cuts, grid.splittable, scattered=True)

    @property
    def _axis(self) -> int:
        return 0 if self.by == "rows" else 1

    def pointers(self, top: int, bottom: int) -> npt.NDArray[np.int64]:
        """``ends[top : bottom + 1]``: number of stored entries before each of these rows (or columns)."""
        return self.ends[top : bottom + 1]

    def read_sparse(self, lines: Span) -> Csr:
        """Rows (or columns, see ``by``) in the span ``lines``, computed block by block, as CSR (or CSC).

        See ``CompressedSource``.
        """
        start, stop = lines
        index = index_dtype(*self.shape, self.nnz)
        pointers = self.ends[start : stop + 1] - self.ends[start]
        indices, data = np.empty(int(pointers[-1]), index), np.empty(int(pointers[-1]), self.dtype)
        edges = block_edges(self.array.chunks[self._axis])
        for number in blocks_within(edges, lines):
            top, bottom = int(edges[number]), int(edges[number + 1])
            first, last = max(start, top), min(stop, bottom)
            block = computed_lines(self.array, number, self.by)
            found, wanted = (
                block.indptr[first - top : last - top + 1],
                pointers[first - start : last - start + 1],
            )
            if not np.array_equal(np.diff(found), np.diff(wanted)):
                raise ChunkError(
                    f"{self.name}: block {number} holds other places than when they were counted. Give an "
                    "array that is computed the same each time"
                )
            at, here = slice(wanted[0], wanted[-1]), slice(found[0], found[-1])
            indices[at], data[at] = block.indices[here], block.data[here]
        return Csr(pointers.astype(index), indices, data)

    def sparse_bytes(self, numbers: int) -> int:
        """Upper bound in bytes on the memory of one ``read_sparse``, for any number of entries.

        It covers the fullest block as computed and sorted, the part read of it, and pointers.
        """
        edges = block_edges(self.array.chunks[self._axis])
        fullest = int(np.diff(self.ends[edges]).max())
        return 3 * fullest * (self.dtype.itemsize + 8) + 4 * 8 * int(np.diff(edges).max())


@dataclass(frozen=True, slots=True, eq=False)
class DaskVolume(DaskBlocks):
    """A Dask array with names for its axes."""

    axes: tuple[str, ...]
    format: str = "Dask array"

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of every axis."""
        return tuple(int(length) for length in self.array.shape)

    def read_bytes(self, elements: int) -> int:
        """Upper bound in bytes on the memory of one ``read_boxes``, in addition to its destinations."""
        return self._computed_bytes


def computed_block(array: Any, index: tuple[int, ...], form: Callable[[Any], Any] | None = None) -> Any:
    """Compute the block of a Dask array at an index of its grid of blocks, in this thread.

    Returns a dense NumPy array, or what the function ``form`` makes of the block.
    """
    try:
        block = (form or _filled)(array.blocks[index].compute(scheduler="synchronous"))
    except MemoryError:
        raise
    except Exception as error:
        raise ChunkError(
            f"dask array {array.name}: block {index} could not be computed: {type(error).__name__}: {error}"
        ) from error
    shape = tuple(sizes[i] for sizes, i in zip(array.chunks, index, strict=True))
    if block.shape != shape:
        raise ChunkError(
            f"dask array {array.name}: block {index} has shape {block.shape}, promised was {shape}"
        )
    _require_type(array, index, block)
    return block


def _require_type(array: Any, index: tuple[int, ...], block: Any) -> None:
    """Raise ``ChunkError`` if values of a computed block would change in the declared type of the array."""
    is_wide = block.dtype.kind in "iu" and block.dtype.itemsize > 4  # float64 does not hold all of them
    if block.dtype == array.dtype or (np.can_cast(block.dtype, array.dtype, "safe") and not is_wide):
        return
    numbers = block.data if scipy.sparse.issparse(block) else block
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about imaginary parts that are discarded
        back = numbers.astype(array.dtype).astype(block.dtype)
    if not np.array_equal(back, numbers, equal_nan=numbers.dtype.kind in "fc"):
        raise ChunkError(
            f"dask array {array.name}: block {index} holds {block.dtype}, and the array is declared as "
            f"{array.dtype}, which would change its numbers. Declare what it is, as x.astype({block.dtype})"
        )


def _filled(block: Any) -> npt.NDArray[Any]:
    if isinstance(block, np.ma.MaskedArray):
        if block.dtype.kind not in "fc" and np.ma.is_masked(block):
            raise ValueError(f"it is a masked array of {block.dtype}, which has no NaN for its gaps")
        block = block.filled(np.nan) if block.dtype.kind in "fc" else block.data
    if scipy.sparse.issparse(block):
        block = lines_of(block, "rows")
    return np.asarray(block.todense() if hasattr(block, "todense") else block)


def _compressed(block: Any, by: str) -> Any:
    """A sparse block of SciPy, checked, in CSR (``by`` rows) or CSC, with duplicate entries summed."""
    block = block.to_scipy_sparse() if hasattr(block, "to_scipy_sparse") else block
    if hasattr(block, "check_format"):
        block.check_format(full_check=True)
    return lines_of(block, by)


def computed_lines(array: Any, number: int, by: str) -> Any:
    """Compute block ``number`` of whole rows (``by`` is ``rows``) or columns, as CSR (or CSC) of SciPy."""
    index = (number, 0) if by == "rows" else (0, number)
    return computed_block(array, index, functools.partial(_compressed, by=by))


def lines_of_blocks(array: Any) -> str | None:
    """``rows`` or ``columns`` if the blocks of a Dask array are sparse and hold whole ones; else None."""
    module = type(array._meta).__module__.partition(".")[0]
    if module == "sparse" or (module == "scipy" and scipy.sparse.issparse(array._meta)):
        down, across = array.numblocks
        stored_by_columns = getattr(array._meta, "format", "csr") == "csc"
        if across == 1 and not (stored_by_columns and down == 1):
            return "rows"
        return "columns" if down == 1 else None
    return None


def require_known_chunks(array: Any) -> None:
    """Raise ``InputError`` for a Dask array with blocks of unknown size."""
    if any(math.isnan(size) for sizes in array.chunks for size in sizes):
        raise InputError(
            "the Dask array has chunks of unknown size, so its rows cannot be cut; "
            "call x.compute_chunk_sizes() first"
        )


AS_THEY_ARE = ("rechunk-", "getitem-")
"""Prefixes of names of graph layers that pass on values unchanged."""


def stored_below(array: Any) -> Any:
    """Zarr array or HDF5 dataset whose values a Dask array passes on unchanged; None if it computes them."""
    layers, dependencies = (getattr(array.dask, each, {}) for each in ("layers", "dependencies"))
    name = array.name
    while name in layers and len(below := dependencies.get(name, ())) == 1:
        (following,) = below
        if following == f"original-{name}":
            (found, *others) = layers[following].values()
            is_known = type(found).__module__.partition(".")[0] in ("zarr", "h5py") and hasattr(
                found, "attrs"
            )
            return found if is_known and not others else None
        if not name.startswith(AS_THEY_ARE):
            return None
        name = following
    return None


def require_decoded(array: Any) -> None:
    """Raise ``InputError`` if values come unchanged from a store whose attributes say to decode them."""
    if (stored := stored_below(array)) is None:
        return
    name = f"dask array {array.name}"
    said = {each: stored.attrs[each] for each in NAMES if each in stored.attrs}
    if type(stored).__module__.startswith("zarr"):
        from rankfold.pipeline.formats.zarr.metadata import meaning_in

        meaning = meaning_in(name, stored)
    else:
        meaning = meaning_of(name, native(stored.dtype), said)
    if meaning is not None:
        raise InputError(
            f"{name} holds numbers of {cut(str(stored))} as they are stored, which mean something else by "
            f"its {', '.join(said) or 'fill value'}. Give the store itself, as STORE::array, or open it with "
            "xarray, which decodes them"
        )


def dask_source(array: Any) -> DaskSource:
    """Check a Dask array of two axes and make a ``Source`` of it.

    If its blocks are sparse, it computes them to count their entries.
    """
    require_known_chunks(array)
    require_decoded(array)
    require_matrix(f"dask array {array.name}", array.shape, array.dtype)
    by = lines_of_blocks(array)
    if by is None:
        return DaskSource(array)
    sizes = array.chunks[0 if by == "rows" else 1]
    counts = [np.zeros(1, np.int64)]
    counts += [np.diff(computed_lines(array, i, by).indptr) for i, size in enumerate(sizes) if size]
    return DaskSparse(array, by, np.cumsum(np.concatenate(counts), dtype=np.int64))


def dask_volume(array: Any, axes: tuple[str, ...], *, format: str = "Dask array") -> DaskVolume:
    """Check a Dask array of any number of axes and make a ``Volume`` of it."""
    require_known_chunks(array)
    require_decoded(array)
    return DaskVolume(array, axes, format)


def block_edges(sizes: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """Edges of the blocks along an axis, from 0, (blocks + 1,), by their sizes; repeated for empty blocks."""
    return np.asarray([0, *itertools.accumulate(sizes)], dtype=np.int64)


def blocks_within(edges: npt.NDArray[np.int64], span: Span) -> list[int]:
    """Numbers of the blocks with the given edges that overlap a span, without empty ones."""
    start = int(np.searchsorted(edges, span[0], side="right")) - 1
    stop = int(np.searchsorted(edges, span[1], side="left"))
    return [i for i in range(start, stop) if max(span[0], edges[i]) < min(span[1], edges[i + 1])]
