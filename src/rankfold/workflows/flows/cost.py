"""Cost of a stage of a workflow: passes, bytes, memory, tasks, files, time.

Time is predicted from the speed of this machine, for information only.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from rankfold.methods.task import Task, count
from rankfold.pipeline.importing.chunking import chunks_of
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.seconds import Rates
from rankfold.workflows.flows.importing import CHUNK_BYTES as IMPORTED_CHUNK_BYTES
from rankfold.workflows.flows.importing import Importing


@dataclass(frozen=True, slots=True)
class Numbers:
    """Cost of a stage: passes over the matrix, as text; bytes; number of tasks and of files.

    ``peak_bytes`` is the largest memory of a worker.
    """

    passes: str
    reads_bytes: int
    peak_bytes: int
    scratch_bytes: int
    """Bytes of scratch (temporary files) and checkpoints together."""

    result_bytes: int
    tasks: int
    files: int | None
    """Largest number of files of the result: chunks and their metadata; None if that is unknown before the
    run."""

    def as_dict(self) -> dict[str, Any]:
        """The costs by name, for JSON."""
        return dataclasses.asdict(self)


def numbers_of(work: Task | Importing, plan: Plan | None) -> Numbers:
    """Cost of a task, from its plan and with the likely number of passes, or of an import, without a plan."""
    files = files_of(work)
    if isinstance(work, Importing):
        return Numbers("1", work.reads_bytes, work.memory, 0, work.result_bytes, 1, files)
    assert plan is not None  # noqa: S101
    likely, most = plan.likely_passes, plan.most_passes
    passes = str(likely) if likely == most else f"{likely} to {most}"
    reads = sum(p.reads_bytes for p in plan.likely_sweeps if p.over == "matrix")
    scratch = plan.scratch_bytes + plan.checkpoint_bytes
    return Numbers(passes, reads, plan.peak_bytes, scratch, plan.result_bytes, plan.tasks, files)


def import_seconds(work: Importing, rates: Rates) -> float | None:
    """Predicted seconds of an import; None for texts and sparse matrices, whose parsing time is unknown."""
    if work.shape is None or work.sparse:
        return None
    return (work.reads_bytes + work.result_bytes) / rates.read_bytes


# Files --------------------------------------------------------------------------------------------


def files_of(work: Task | Importing) -> int | None:
    """Largest number of files of a result: one for each chunk, metadata of each array and of the group, and a
    manifest.

    None for an import whose shape is unknown.
    """
    if isinstance(work, Importing):
        return _of_import(work)
    outputs = work.outputs()
    return 1 + all(each.name for each in outputs) + sum(each.files for each in outputs)


def _of_import(work: Importing) -> int | None:
    if work.shape is None or work.sparse:
        return None
    chunks = chunks_of(work.shape, work.dtype, IMPORTED_CHUNK_BYTES)
    return 2 + count(work.shape[0], chunks[0]) * count(work.shape[1], chunks[1])
