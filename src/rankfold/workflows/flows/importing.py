"""A stage that imports a matrix into a Zarr store: arguments, identity by which it is found done, and
execution.

An import has no checkpoints: it makes a whole store or none, and starts over. The identity of a store's
matrix is kept in ``STORE.run/request.json``, written before the store and marked as finished after it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rankfold.pipeline.data.dtypes import parse_dtype
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.formats.csr import CsrSource
from rankfold.pipeline.formats.tables.options import LATER, ReadOptions
from rankfold.pipeline.importing import ImportReport, import_array
from rankfold.pipeline.importing.chunking import chunks_of
from rankfold.pipeline.importing.identity import file_mark
from rankfold.pipeline.importing.readers import open_reader
from rankfold.pipeline.importing.readers.reader import EntryReader
from rankfold.pipeline.machine import machine_facts
from rankfold.pipeline.planning.shape_only import ShapeOnly
from rankfold.pipeline.storage.checkpoint import load_json, save_json
from rankfold.workflows.flows.stage_models import Import
from rankfold.workflows.flows.stage_tasks import StageInputs, StageResult

MEMORY = 256 * 2**20
CHUNK_BYTES = 16 * 2**20


@dataclass(frozen=True, slots=True)
class Importing:
    """An import to be done, with its cost.

    ``path`` is that of the store, ``matrix`` the source or its path, ``view`` holds the arguments of
    ``rankfold.open``. ``memory`` and ``reads_bytes`` are in bytes; ``dtype`` and ``sparse`` are of the store.
    """

    stage: Import
    path: Path
    matrix: str | Source
    view: dict[str, Any]
    memory: int
    reads_bytes: int
    shape: tuple[int, int] | None
    """Shape of the matrix; None if it is unknown before the last row is read."""

    dtype: np.dtype[Any]
    sparse: bool
    fingerprint: str

    @classmethod
    def of(cls, stage: Import, scene: StageInputs, path: Path, memory: int | None) -> Importing:
        """Make the import that a stage asks for; opens the source, but reads none of its values.

        ``path`` is that of the store to write, ``memory`` in bytes, by default ``MEMORY``.
        """
        reference, arguments = scene.of(stage.input), stage.arguments()
        matrix: str | Source
        matrix, view, reader = "", {}, None
        target_type = None if stage.dtype is None else parse_dtype(stage.dtype)
        if reference.input:
            matrix_input = scene.flow.inputs[reference.input]
            matrix, view = matrix_input.store, matrix_input.view()
            table_options = ("columns", "without", "header", "decimal", "thousands", "skip_lines")
            selection = ReadOptions(
                **{name: arguments[name] for name in table_options},
                dtype=target_type,
                numeric=matrix_input.numeric,
                index_col=matrix_input.index_col,
            )
            reader = open_reader(matrix_input.store, selection)
        memory = memory or MEMORY
        if reader is None:
            source = scene.matrix(stage.input)
            size = source.shape[0] * source.shape[1] * source.dtype.itemsize
            sparse = isinstance(source, CsrSource) and stage.layout == "auto"
            dtype, mark = target_type or source.dtype, source.fingerprint()
            return cls(stage, path, matrix or source, view, memory, size, source.shape, dtype, sparse, mark)
        entries = isinstance(reader, EntryReader)
        shape = reader.shape if isinstance(reader, EntryReader) else None
        dtype = target_type or np.dtype(getattr(reader, "dtype", np.float64))
        mark, sparse = file_mark(str(matrix)), entries and stage.layout == "auto"
        return cls(stage, path, matrix, view, memory, reader.total_bytes, shape, dtype, sparse, mark)

    def identity(self) -> dict[str, Any]:
        """Facts that decide the content of the store: request and fingerprint of the input."""
        view = {name: value for name, value in self.view.items() if value not in (None, False)}
        if self.view:
            view["missing"] = view.pop("missing_chunks", None) or "error"  # the name in earlier stores
        arguments = {
            name: list(v) if isinstance(v, tuple) else v
            for name, v in self.stage.arguments().items()
            if name not in LATER
        }
        written = {name: getattr(self.stage, name) for name in ("decimal", "thousands", "skip_lines")}
        arguments |= ReadOptions(**written).later()
        return {"request": {"kind": "import", **arguments, **view}, "input": self.fingerprint}

    @property
    def result_bytes(self) -> int:
        """Bytes of the store before compression; if it is sparse or its shape unknown, the bytes read."""
        if self.shape is None or self.sparse:
            return self.reads_bytes
        return self.shape[0] * self.shape[1] * self.dtype.itemsize

    def outcome(self, name: str) -> StageResult:
        """Description of the store that the import will leave, with shape and type as far as known.

        ``name`` is that of the step, as the name of the matrix.
        """
        if self.shape is None:
            return StageResult(self.path, False, to_come=True)
        if self.sparse:
            matrix = ShapeOnly.sparse(self.shape, self.dtype, name)
        else:
            matrix = ShapeOnly.with_chunks(
                self.shape, self.dtype, chunks_of(self.shape, self.dtype, CHUNK_BYTES), name
            )
        return StageResult(self.path, False, {"": matrix}, to_come=True)

    def carry_out(self, progress: Callable[[int, int], None]) -> ImportReport:
        """Write the store, replacing an earlier one; ``progress`` gets the bytes done, and all bytes."""
        folder = self.path.with_name(self.path.name + ".run")
        folder.mkdir(parents=True, exist_ok=True)
        began, facts = time.perf_counter(), machine_facts()
        save_json(folder / "request.json", {**self.identity(), "finished": False})
        arguments = self.stage.arguments()
        report = import_array(
            self.matrix,
            self.path,
            memory_bytes=self.memory,
            overwrite=True,
            progress=progress,
            **arguments,
            **self.view,
        )
        save_json(folder / "request.json", {**self.identity(), "finished": True})
        took = {"seconds": time.perf_counter() - began, "finished": True}
        save_json(folder / "run.json", {"attempts": [{**facts, **took}]})
        return report


def stored_identity(path: Path) -> dict[str, Any] | None:
    """Identity (see ``Importing.identity``) of what the store at ``path`` was made from.

    None unless an import of a workflow made and finished it.
    """
    request = load_json(path.with_name(path.name + ".run") / "request.json")
    if not isinstance(request, dict) or not request.pop("finished", False):
        return None
    return request
