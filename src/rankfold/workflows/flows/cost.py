"""What a stage takes in numbers: passes, bytes, memory, tasks, files, time; and whether all results fit.

Time is predicted from the speed of this machine, and decides nothing.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankfold.methods.knn.graph import POINTERS
from rankfold.methods.knn.knn import CHUNKS_WANTED, Neighbours
from rankfold.methods.model.check import Verification
from rankfold.methods.model.reconstruct import Reconstruction
from rankfold.methods.model.transform import Projection
from rankfold.methods.model.transform_pass import ProjectRows
from rankfold.methods.model.update import Update
from rankfold.methods.nmf.nmf import Nonnegative
from rankfold.methods.svd.request import Request
from rankfold.methods.svd.strategy import Layout, lay_out
from rankfold.methods.svd.svd import Reduction
from rankfold.pipeline.importing.chunking import chunks_of
from rankfold.pipeline.importing.csr_writer import CHUNK_LENGTHS
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.seconds import Rates
from rankfold.workflows.flows.importing import CHUNK_BYTES as IMPORTED_CHUNK_BYTES
from rankfold.workflows.flows.importing import Importing
from rankfold.workflows.flows.stages import Work

_NOWHERE = Path("-")


@dataclass(frozen=True, slots=True)
class Numbers:
    """What a stage takes."""

    passes: str
    reads_bytes: int
    peak_bytes: int
    scratch_bytes: int
    """With its checkpoints."""

    result_bytes: int
    tasks: int
    files: int | None
    """Of the result: chunks and their metadata, at most. None where that is not known before."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dataclasses.asdict(self)


def numbers_of(work: Work | Importing, plan: Plan | None) -> Numbers:
    """Of the passes that are likely; an import has no plan."""
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
    """Of what can be read at any place; how long a text takes to be parsed is not known."""
    if work.shape is None or work.sparse:
        return None
    return (work.reads_bytes + work.result_bytes) / rates.read_bytes


# Files ---------------------------------------------------------------------------------------------


def files_of(work: Work | Importing) -> int | None:
    """Files of a result, at most: a chunk each, metadata of every array and of the group, and a manifest."""
    return _of_import(work) if isinstance(work, Importing) else 1 + _of_arrays(work)


def _of_arrays(work: Work) -> int:
    if isinstance(work, Reduction):
        layout = lay_out(work.asked, work.source)
        asked = work.asked
        if asked.kind == "qr":
            tall = layout.view.orientation.value == "rows"
            return 1 + _long(layout) * (asked.rows or not tall) + 2 * (asked.rows or tall)
        small = {"svd": 3, "pca": 6}[asked.kind] + asked.scale
        by_rows = layout.view.orientation.value == "rows"
        left, right = (_long(layout), 2) if by_rows else (2, _long(layout))
        return 1 + 2 * small + right + left * asked.rows
    if isinstance(work, Nonnegative):
        return 3 + _long(lay_out(Request("svd", work.asked.rank, method="subspace"), work.source))
    if isinstance(work, Neighbours):
        return _of_lists(work)
    if isinstance(work, Projection):
        by_rows = isinstance(work.fold(_NOWHERE, _NOWHERE, 1), ProjectRows)
        return 2 + (_count(work.source.shape[0], work.row_chunk()) if by_rows else 1)
    if isinstance(work, Reconstruction):
        return 1 + _count(work.shape[0], work.chunks()[0]) * _count(work.shape[1], work.chunks()[1])
    if isinstance(work, Update):
        return 1 + 2 * (7 + bool(work.request()["scale"]))
    return 5 if isinstance(work, Verification) else 1


def _long(layout: Layout) -> int:
    """Of the factor along the long side."""
    return 1 + _count(layout.view.long, min(layout.out_chunk, layout.view.long))


def _of_lists(work: Neighbours) -> int:
    rows, k = work.left.shape[0], work.asked.k
    chunks = _count(rows, work.lists_cut().panel_rows)
    pointers = _count(rows + 1, POINTERS)
    edges = chunks
    if work.asked.symmetric is not None:
        both = 2 * rows * k
        edges = _count(both, min(max(both // CHUNKS_WANTED, CHUNK_LENGTHS[0]), CHUNK_LENGTHS[1]))
    return 1 + 2 * (1 + chunks) + 1 + 2 * (1 + edges) + (1 + pointers)


def _of_import(work: Importing) -> int | None:
    if work.shape is None or work.sparse:
        return None
    chunks = chunks_of(work.shape, work.dtype, IMPORTED_CHUNK_BYTES)
    return 2 + _count(work.shape[0], chunks[0]) * _count(work.shape[1], chunks[1])


def _count(length: int, chunk: int) -> int:
    return -(-length // max(1, chunk))
