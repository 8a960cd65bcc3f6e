"""Steps of a random walk on a graph, block by block of its rows, in any threads."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.graph.walk import Steps, step_rows
from rankfold.methods.spectral.walk.blocks import GraphBlocks
from rankfold.pipeline.data.source import Csr

Float64 = npt.NDArray[np.float64]

PIECES = 4
"""Pieces of a block for each thread, since rows have different numbers of edges."""


class Walk:
    """A stored graph and a pool of threads, for products of the graph with blocks of vectors."""

    def __init__(self, blocks: GraphBlocks, threads: int) -> None:
        self.blocks, self.threads = blocks, threads
        self.reads = 0
        """Sweeps over the graph so far."""
        self._pool = ThreadPoolExecutor(threads, "rankfold-walk")

    def __enter__(self) -> Walk:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown()

    def step(self, u: Float64, before: Float64 | None, steps: Steps, out: Float64 | None = None) -> Float64:
        """``walk * (W @ u) + stay * u + back * before`` at all vertices, (m, b): see ``step_rows``.

        ``before`` may be None where it does not count; ``out`` is allocated if it is not given.
        """
        into = np.empty(u.shape) if out is None else out
        then = u if before is None else before
        for first, block in self.blocks:
            height = len(block.indptr) - 1
            pieces = 1 if self.threads == 1 else PIECES * self.threads
            edges = [height * i // pieces for i in range(pieces + 1)]

            def move(ends: tuple[int, int], block: Csr = block, first: int = first) -> None:
                rows = slice(first + ends[0], first + ends[1])
                some = Steps(steps.walk[rows], steps.stay[rows], steps.back)
                beside: dict[str, Any] = {"own": u[rows], "before": then[rows], "steps": some}
                starts = block.indptr[ends[0] : ends[1] + 1]
                step_rows(starts, block.indices, block.data, u, **beside, out=into[rows])

            for _ in self._pool.map(move, itertools.pairwise(edges)):
                pass
        self.reads += 1
        return into
