"""Lists of neighbors as the graph of a sparse matrix, in AnnData's layout.

By default the graph has ``k`` entries in each row, nearest first. Made symmetric, it has the edges that
either row, or both, have, sorted by column; distances from either side are equal to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.importing.csr_writer import CsrWriter, sorted_entries
from rankfold.pipeline.importing.readers.reader import Entries
from rankfold.pipeline.removal import remove
from rankfold.pipeline.storage.checkpoint import make_folder
from rankfold.pipeline.storage.chunk_writer import create_vector, write_whole_chunks

SORT_BYTES = 64 * 2**20
"""Bytes of memory for sorting edges, and of the largest file of edges."""

EDGES = 2**17
"""Number of edges that are sorted into files at a time."""

POINTERS = 2**17
"""Number of entries of ``indptr`` in a chunk."""

NAME = "graph"

CHUNK_BYTES = (2**20, 16 * 2**20)
"""Least and most bytes of a chunk of lists; between these limits there are about ``TARGET_CHUNKS`` chunks."""

TARGET_CHUNKS = 8192

Array = npt.NDArray[Any]


def chunk_rows(rows: int, k: int) -> int:
    """Number of rows whose lists of ``k`` neighbors are one chunk of a result."""
    least, most = (size // (8 * k) for size in CHUNK_BYTES)
    return min(rows, max(1, min(max(rows // TARGET_CHUNKS, least), most)))


def create_graph(result: Path, shape: tuple[int, int], k: int, chunk_rows: int) -> None:
    """Create the Zarr group of the graph (CSR) with room for the lists of all rows, and write ``indptr``.

    It is in the folder ``result``. ``shape`` is that of the graph, with ``k`` entries in each row and those
    of ``chunk_rows`` rows in a chunk.
    """
    folder = result / NAME
    create_group(folder, shape)
    length = shape[0] * k
    for name, dtype in (("data", np.float64), ("indices", np.int64)):
        create_vector(folder / name, length, dtype, chunk_rows * k)
    create_vector(folder / "indptr", shape[0] + 1, np.int64, POINTERS)
    for start in range(0, shape[0] + 1, POINTERS):
        stop = min(shape[0] + 1, start + POINTERS)
        write_whole_chunks(folder / "indptr", np.arange(start, stop, dtype=np.int64) * k, (start, stop))


def write_symmetric_graph(result: Path, scratch: Path, shape: tuple[int, int], *, mutual: bool) -> None:
    """Write the graph of all edges that either of two rows has in its list, or with ``mutual`` both have.

    The lists are the arrays ``indices`` and ``distances`` in the folder ``result``, and so is the graph, of
    this ``shape``. ``scratch`` is a folder for files of the sort.
    """
    from rankfold.pipeline.chunks.regular_store import zarr_array

    folder, between = result / NAME, scratch / "edges"
    for old in (folder, between):
        remove(old)
    between.mkdir()
    indices, distances = (zarr_array(result / name) for name in ("indices", "distances"))
    both = _both_ways(indices, distances)
    write_edges(both, folder, between, shape, 2 * indices.size, name=str(result), mutual=mutual)
    remove(between)


def write_edges(
    both: Iterable[Entries],
    folder: Path,
    between: Path,
    shape: tuple[int, int],
    most: int,
    *,
    name: str,
    mutual: bool,
) -> None:
    """Write at most ``most`` edges as a sparse matrix (CSR) of this ``shape`` into ``folder``.

    ``both`` yields entries ``d + 1j``, where ``d`` is the distance: one or two for each edge, from either of
    its rows. With ``mutual`` only edges that have two are kept. ``between`` is a folder for files of the
    sort, ``name`` that of the result, for messages.
    """
    writer = CsrWriter(folder, shape, np.dtype(np.float64), most, name)
    for edges in sorted_entries(both, shape, np.dtype(np.complex128), between, SORT_BYTES):
        # The imaginary part counts how often an edge came; the real part is its distance, added as often.
        keep = edges.values.imag > 1 if mutual else np.ones(len(edges.values), np.bool_)
        if keep.any():
            values = edges.values[keep].real / edges.values[keep].imag
            writer.append(Entries(edges.rows[keep], edges.columns[keep], values))
    writer.finish()


def _both_ways(indices: Any, distances: Any) -> Iterator[Entries]:
    """Yield every edge and its reverse, with values ``d + 1j`` for a distance d, from arrays (rows, k).

    Chunks are read whole and processed in pieces.
    """
    height, k = indices.chunks[0], indices.shape[1]
    step = max(1, EDGES // k)
    for start in range(0, indices.shape[0], height):
        ids = np.asarray(indices[start : start + height])
        keys = np.asarray(distances[start : start + height])
        for top in range(0, len(ids), step):
            columns = ids[top : top + step].reshape(-1)
            values = keys[top : top + step].reshape(-1) + 1j
            rows = np.repeat(np.arange(start + top, start + top + len(columns) // k), k)
            yield Entries(rows, columns, values)
            yield Entries(columns, rows, values)


def create_group(folder: Path, shape: tuple[int, int]) -> None:
    """Create the Zarr group of a sparse matrix (CSR), with attributes but without its arrays."""
    import zarr

    from rankfold.pipeline.chunks.regular_store import RegularStore

    make_folder(folder)
    remove(folder / "zarr.json")
    group = zarr.open_group(RegularStore(folder), mode="a", zarr_format=3)
    group.attrs.update(
        {"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [int(n) for n in shape]}
    )
