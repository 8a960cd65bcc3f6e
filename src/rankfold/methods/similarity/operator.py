"""The matrix of all similarities, times vectors: a sweep over pairs of blocks (runs) of rows.

A similarity is a value of the kernel function. Block a is compared with every block b >= a once. Their
similarities, a tile at a time, are multiplied with the vectors of b for the rows of a and, as the matrix is
symmetric, with those of a for the rows of b. The products that a block gets from later blocks and from
earlier ones are added up separately, each in the order of blocks. The sums are the same whichever blocks stay
in memory, and for any number of threads, since only one thread adds.

``PairSweep`` is for work that may be done twice. A sum may not, so this sweep stores its own state, between
groups of blocks that have been compared with all others.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rankfold.kernels.similarity.functions import Kind, Rows, own_similarities
from rankfold.kernels.similarity.tiles import multiply, tile_bytes
from rankfold.methods.similarity.blocks import (
    RowBlocks,
    block_bytes,
    edges_of,
    reading_bytes,
    require_finite,
    tallest,
)
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.engine import sweep
from rankfold.pipeline.planning.passes import BLAS_BYTES
from rankfold.pipeline.removal import remove
from rankfold.pipeline.storage.checkpoint import load_if_whole, save_arrays

Float64 = npt.NDArray[np.float64]
Products = tuple[Float64, Float64]

AHEAD = 2
"""Number of pairs of blocks, for each thread, that are being computed or wait to be added up."""


@dataclass(slots=True)
class SimilarityMatrix:
    """The (n, n) matrix of similarities of all n rows, as a linear operator."""

    blocks: RowBlocks
    threads: int
    group: int
    """Number of blocks of rows that are in memory while all later blocks are compared with them; it has no
    effect on the sums."""

    tell: Callable[[int], None] = lambda rows: None
    """Callback for progress, called with a number of rows: see ``_done``."""

    def trace(self) -> float:
        """Trace of the matrix: the sum of similarities of rows with themselves."""
        blocks, similarity = self.blocks, self.blocks.similarity
        if similarity.is_of_differences:
            return float(blocks.rows)
        own = (own_similarities(blocks.block(index), similarity).sum() for index in range(blocks.count))
        return float(sum(own))

    def multiply(self, v: Float64, part: Path | None = None) -> Float64:
        """(n, q) products of the matrix with vectors ``v`` (n, q).

        ``part`` is a checkpoint file for the sums so far, which is removed in the end; None to save none.

        Raises
        ------
        DataError
            Similarities are NaN, or sums of them out of range.

        Notes
        -----
        n^2 / 2 similarities and 2 n^2 (d / 2 + q) flops more; (n / group rows) / 2 reads of the matrix where
        blocks do not stay in memory.
        """
        later, earlier, first = self._begin(v, part)
        last_save = time.monotonic()
        with ThreadPoolExecutor(self.threads, "rankfold-pairs") as pool:
            while first < self.blocks.count:
                until = min(self.blocks.count, first + self.group)
                self._meet(pool, first, until, v, later, earlier)
                first = until
                self.tell(self._done(first))
                if part is not None and time.monotonic() - last_save > sweep.SEGMENT_SECONDS:
                    save_arrays(part, {"later": later, "earlier": earlier, "first": np.array([first])})
                    last_save = time.monotonic()
        earlier += later
        require_finite(earlier, self.blocks.source.name)
        if part is not None:
            remove(part)
        return earlier

    def _begin(self, v: Float64, part: Path | None) -> tuple[Float64, Float64, int]:
        state = None if part is None else load_if_whole(part)
        if state is None or state["later"].shape != v.shape:
            return np.zeros(v.shape), np.zeros(v.shape), 0
        return state["later"], state["earlier"], int(state["first"][0])

    def _done(self, first: int) -> int:
        """Progress as a number of rows: all, times the share of pairs with a block before block ``first``."""
        rows, met = self.blocks.rows, int(self.blocks.edges[first])
        return rows * (met * (2 * rows - met)) // rows**2

    def _meet(
        self, pool: ThreadPoolExecutor, first: int, until: int, v: Float64, later: Float64, earlier: Float64
    ) -> None:
        """Add the products of all pairs of blocks ``first:until`` with blocks from ``first`` on to the sums.

        ``v`` (n, q) are the vectors. ``later`` (n, q) sums what a block gets from itself and later blocks,
        ``earlier`` (n, q) what it gets from earlier ones; both are changed in place.
        """
        blocks, here = self.blocks, {a: self.blocks.block(a) for a in range(first, until)}
        pending: deque[tuple[int, int, Future[Products]]] = deque()

        def add() -> None:
            a, b, future = pending.popleft()
            out, beside = future.result()
            later[blocks.span(a)] += out
            if a != b:
                earlier[blocks.span(b)] += beside

        for b in range(first, blocks.count):
            y = here[b] if b in here else blocks.block(b)
            for a in range(first, min(until, b + 1)):
                pending.append(
                    (a, b, pool.submit(self._products, here[a], y, v[blocks.span(a)], v[blocks.span(b)]))
                )
                while len(pending) > AHEAD * self.threads:
                    add()
        while pending:
            add()

    def _products(self, x: Rows, y: Rows, v_x: Float64, v_y: Float64) -> Products:
        """Products with the similarities of two blocks: for the rows of ``x``, and for the rows of ``y``.

        ``v_x`` and ``v_y`` (rows, q) are the vectors at the rows of both blocks. The second product is empty
        if both are one block.
        """
        out = np.zeros(v_x.shape)
        beside = out[:0] if x is y else np.zeros(v_y.shape)
        sides = {} if x is y else {"w": v_x, "beside": beside}
        multiply(x, y, similarity=self.blocks.similarity, v=v_y, out=out, **sides)
        return out, beside


def passing_bytes(source: Source, kind: int, threads: int, width: int, *, stays: bool) -> int:
    """Bytes of comparing pairs of blocks in ``threads`` threads: tiles, products, blocks read, BLAS buffers.

    ``kind`` is the ``Kind`` of kernel function, ``width`` the number of vectors. With ``stays``, all blocks
    are in memory and none is read; else as many are as pairs need, and never more than there are.
    """
    rows, pairs = tallest(source), AHEAD * threads + 1
    tile = tile_bytes(rows, rows, source.shape[1], transposes=kind == Kind.LAPLACIAN)
    products = pairs * 2 * 8 * rows * width
    blocks = 0 if stays else min(pairs + 1, len(edges_of(source)) - 1)
    passing = blocks * block_bytes(source, rows) + reading_bytes(source, rows)
    return threads * (tile + BLAS_BYTES) + products + passing
