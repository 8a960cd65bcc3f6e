"""Base of tasks that move all rows in rounds, along the edges of a graph: the layout of UMAP, and t-SNE.

Processes share the edges by rows. Each of them holds the positions of all rows.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from rankfold.methods.argument import is_word
from rankfold.methods.embedding.arguments import CUSTOM, INITS
from rankfold.methods.embedding.components import require_matrix
from rankfold.methods.embedding.start import given_positions
from rankfold.methods.parts.outputs import create_output
from rankfold.methods.task import Output, count
from rankfold.pipeline.data.names import names_of_result
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.planning.passes import RESERVE_BYTES, Pass
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.planner import FittedSweeps, TaskFacts, plan_task
from rankfold.pipeline.storage.chunk_writer import write_whole_chunks
from rankfold.pipeline.storage.result import Result
from rankfold.pipeline.units import format_bytes

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]

CHUNK_ROWS = 2**18
"""Fewest rows of a chunk of the embedding; larger embeddings have ``TARGET_CHUNKS`` chunks."""

TARGET_CHUNKS = 8192

PART_ROWS = 1000
"""Fewest rows for each process: with fewer, exchanging positions takes longer than moving them."""

PENDING_START: Any = object()
"""Value of ``init`` when a plan is made, for initial positions that do not exist yet."""


@dataclass(frozen=True, slots=True)
class MovingRows:
    """Task that moves all rows of an embedding in rounds, by the graph of their neighbors."""

    source: Source
    """Matrix of the distances that the graph is made of, or the graph itself, if it is given."""

    edges: int
    """Upper bound on the number of edges of the graph, counted in both directions."""

    parameters: Any
    """Arguments of the method, such as ``UmapArguments``; ``init`` is a name, never positions."""

    given: Float64 | None = None
    """(rows or fewer, dimensions) initial positions given by the caller; None if there are none."""

    graph: Path | None = None
    """Path of the result that holds the graph; None before it is made."""

    made_by: Mapping[str, Any] | None = None
    """Request of the task that makes the graph; None if the graph is given."""

    start: Path | None = None
    """Path of a result with initial positions: eigenvectors of the graph, or principal components. None
    without."""

    matrix: str = ""
    """Fingerprint of the matrix whose principal components are initial positions; empty without these."""

    kind: ClassVar[str]
    phase: ClassVar[str]
    """Name of the pass that makes the rounds, in plans and progress."""

    round_word: ClassVar[str]
    """Word in plans for a round that moves all rows: ``"epoch"`` or ``"step"``."""

    # What a method says ---------------------------------------------------------------------------

    @property
    @abstractmethod
    def method(self) -> str:
        """Name of the algorithm, for plans and facts."""

    @property
    @abstractmethod
    def rounds(self) -> int:
        """Number of rounds, each of which moves all rows."""

    @property
    def moved_columns(self) -> int:
        """Values per row that processes exchange in a round."""
        return self.width

    @property
    def written_columns(self) -> int:
        """Values per row of the result."""
        return self.width

    @property
    @abstractmethod
    def checkpoint_columns(self) -> int:
        """Values per row of a checkpoint."""

    @abstractmethod
    def flops(self, parts: int) -> float:
        """Estimated floating-point operations that take as long as all rounds.

        They are those of all ``parts`` processes together.
        """

    @abstractmethod
    def memory_bytes(self, parts: int) -> int:
        """Bytes planned for each of ``parts`` processes that share the rows."""

    @abstractmethod
    def memory_details(self, share: str, parts: int) -> str:
        """Return text for the plan: what the memory of each process is for, with the bytes of each use.

        ``parts`` is the number of processes. ``share`` is text that is put behind the bytes of edges, such as
        ``" in each of 3 processes"``; empty for a single one.
        """

    # The same for all -----------------------------------------------------------------------------

    @property
    def rows(self) -> int:
        """Number of vertices."""
        return self.source.shape[0]

    @property
    def width(self) -> int:
        """Number of dimensions of the embedding."""
        return int(self.parameters.n_components)

    @property
    def chunk_rows(self) -> int:
        """Rows of a chunk of the embedding."""
        return min(self.rows, max(CHUNK_ROWS, self.rows // TARGET_CHUNKS))

    def embedding(self) -> Output:
        """Declare the array ``embedding`` of the result: positions (rows, width) in float32."""
        shape, chunks = (self.rows, self.width), count(self.rows, self.chunk_rows)
        return Output("embedding", shape, np.dtype(np.float32), chunks)

    def plan(self, budget: Budget) -> Plan:
        """Plan of the rounds, with rows split among as many processes as are of use."""
        parts = self.parts(budget.workers)
        share = f" in each of {parts} processes" * (parts > 1)
        details = [("memory", self.memory_details(share, parts))]
        if parts > 1:
            moved = format_bytes(self._exchange_bytes(parts))
            details.append(
                ("exchange", f"{moved} to each process in each of {self.rounds} {self.round_word}s")
            )
        task_facts = TaskFacts(
            self.kind,
            self.method,
            self.source,
            np.dtype(np.float32),
            f"{self.width} dimensions, {self.rounds} {self.round_word}s",
            self.width,
            result_bytes=4 * self.rows * self.written_columns,
            scratch_bytes=4 * self.rows * self.checkpoint_columns,
            subject=f"{self.kind} of {self.rows} rows and {self.edges} edges",
            details=tuple(details),
        )
        return plan_task(task_facts, self, budget)

    def arrange(self, budget: Budget) -> FittedSweeps:
        """Arrange one pass, by processes that share the rows, each with all of its threads."""
        parts = self.parts(budget.workers)
        memory, lanes = self.memory_bytes(parts), budget.threads * parts
        sweep = Pass(
            self.phase,
            "matrix",
            12 * self.edges,
            4 * self.rows * self.width,
            self.flops(parts),
            memory,
            parts,
            lanes,
            blas_bytes=0,
            numbers=self.edges,
            exchange_bytes=self._exchange_bytes(parts) * self.rounds,
        )
        each = RESERVE_BYTES + memory, memory, 4 * self.rows * self.checkpoint_columns
        return FittedSweeps((sweep,), budget.threads, *each, lanes, self.rows, self.rows, 1, 1)

    def parts(self, workers: int) -> int:
        """Number of processes that rows are split among, at most ``workers`` and at least 1."""
        return max(1, min(workers, self.rows // PART_ROWS))

    def processes(self, run: Run) -> range:
        """Range of numbers of processes: from the fewest with enough memory to the most of any use."""
        most = self.parts(run.at_once // run.concurrency)
        enough = (n for n in range(1, most) if RESERVE_BYTES + self.memory_bytes(n) <= run.memory_bytes)
        return range(next(enough, most), most + 1)

    def share_of_edges(self, parts: int) -> int:
        """Return an upper bound on the edges of one of ``parts`` processes.

        This is an equal share, and the edges of one more row at its border.
        """
        return min(self.edges, self.edges // parts + self.rows * (parts > 1))

    def _exchange_bytes(self, parts: int) -> int:
        """Bytes of positions that each of ``parts`` processes receives from the others in a round."""
        return 4 * self.rows * self.moved_columns * (parts - 1) // parts

    def write_embedding(self, run: Run, positions: Float32) -> None:
        """Write ``positions`` (rows, width) into the result as ``embedding``."""
        shape, chunk = (self.rows, self.width), (self.chunk_rows, self.width)
        array = create_output(run.result, "embedding", shape, np.float32, chunk)
        write_whole_chunks(array, positions, (0, self.rows), (0, self.width))
        run.passes += 1


Arguments = TypeVar("Arguments", bound=Any)


def named_start(
    arguments: Arguments, matrix: object, result: Result, rows: int, others: str
) -> tuple[Arguments, Float64 | None]:
    """Arguments of a task with a name for ``init``, and the initial positions that a caller gave, or None.

    Parameters
    ----------
    arguments
        Arguments of a method, whose ``init`` is a name, positions, a result, or ``PENDING_START``.
    matrix : object
        Matrix of the principal components to begin at, or None.
    result : Result
        Lists of neighbors or graph. If its rows have names, given positions are sorted like these.
    rows : int
        Number of rows that are laid out.
    others : str
        Kinds of results to begin at, for a message.

    Returns
    -------
    arguments
        Copy with the name of ``init``, ``"custom"`` for positions, and without ``matrix`` and ``quality``.
    positions : (rows or fewer, dimensions) float64, or None
    """
    init: object = arguments.init
    is_name = is_word(init, INITS)
    name = str(init) if is_name else CUSTOM
    # Workers get the parameters: no matrix is among them.
    parameters = dataclasses.replace(arguments, init=name, matrix=None, quality=None)
    parameters.check()
    if is_name and name == CUSTOM:
        raise InputError(f"init custom has no name: give positions, or a result of {others}")
    require_matrix(name, matrix)
    if is_name or init is PENDING_START:
        return parameters, None
    names = names_of_result(result.path, result.attrs, 0)
    return parameters, given_positions(init, rows, parameters.n_components, names)
