"""Description of a matrix for a person or a program: ``rankfold info STORE [--json]``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Protocol, runtime_checkable

from rankfold.pipeline.chunks.absence import REFUSAL
from rankfold.pipeline.data.grid import GRAIN_BYTES_CEILING
from rankfold.pipeline.data.source import Source, absence_of, compressed
from rankfold.pipeline.text import Lines
from rankfold.pipeline.units import format_bytes


@runtime_checkable
class StorageFacts(Protocol):
    """Properties that the sources of this package have in addition to those of ``Source``."""

    @property
    def format(self) -> str:
        """Kind of store."""

    @property
    def codec(self) -> str:
        """Compression of chunks."""

    def stored_bytes(self) -> int:
        """Bytes on disk."""


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """Description of a matrix: shape, type, chunks, sizes, and remarks on how it reads."""

    name: str
    format: str
    shape: tuple[int, int]
    dtype: str
    chunks: tuple[int, int]
    """Rows and columns of the largest native chunk."""

    chunk_count: int
    codec: str
    splittable: bool
    """True if parts of a chunk can be read without the rest."""

    memory_bytes: int
    """Bytes of all elements, zeros included."""

    stored_bytes: int
    """Bytes on disk; 0 for a matrix in memory."""

    remarks: tuple[str, ...]
    """Remarks on what makes reading slow or memory-intensive, with remedies."""

    def __str__(self) -> str:
        """The description as text."""
        rows, columns = self.shape
        sizes = format_bytes(self.memory_bytes)
        if self.stored_bytes:
            sizes += f", {format_bytes(self.stored_bytes)} on disk"
        lines = [
            f"{self.name}: {rows} x {columns} {self.dtype}, {self.format}",
            f"size      {sizes}",
            f"chunks    {self.chunk_count} of {self.chunks[0]} x {self.chunks[1]}, {self.codec}",
            *(f"note      {remark}" for remark in self.remarks),
        ]
        return Lines(*lines)

    def as_dict(self) -> dict[str, Any]:
        """All fields for ``json.dumps``."""
        return asdict(self)


def describe(source: Source) -> SourceInfo:
    """Describe a matrix; reads only the sizes of its files, no data."""
    rows, columns = source.row_grid, source.column_grid
    facts = source if isinstance(source, StorageFacts) else None
    return SourceInfo(
        name=source.name,
        format=facts.format if facts else type(source).__name__,
        shape=source.shape,
        dtype=source.dtype.name,
        chunks=(rows.longest, columns.longest),
        chunk_count=rows.count * columns.count,
        codec=facts.codec if facts else "unknown",
        splittable=rows.splittable and columns.splittable,
        memory_bytes=source.shape[0] * source.shape[1] * source.dtype.itemsize,
        stored_bytes=facts.stored_bytes() if facts else 0,
        remarks=tuple(_remarks(source)),
    )


def _remarks(source: Source) -> list[str]:
    rows, columns = source.shape
    itemsize, remarks = source.dtype.itemsize, []
    apart = source.row_grid.scattered or source.column_grid.scattered
    if apart:
        long, short = ("columns", "rows") if source.row_grid.scattered else ("rows", "columns")
        lengths = {"rows": rows, "columns": columns}
        kind = "Sparse" if compressed(source) is not None else "Rows are read whole"
        remarks.append(
            f"{kind}: sweeps run along the {lengths[long]} {long} and keep vectors of {lengths[short]} in "
            "memory."
        )
    elif rows >= columns:
        remarks.append(f"Tall: sweeps run along the {rows} rows and keep vectors of {columns} in memory.")
    else:
        remarks.append(f"Wide: sweeps run along the {columns} columns and keep vectors of {rows} in memory.")
    along, across = (source.row_grid, columns) if rows >= columns else (source.column_grid, rows)
    panel = along.longest * across * itemsize
    if not apart and not along.splittable and panel > GRAIN_BYTES_CEILING:
        remarks.append(
            f"A sweep must hold {format_bytes(panel)} at a time, since chunks are decoded whole; "
            "rankfold import SRC STORE.zarr cuts it smaller."
        )
    if "Fortran" in getattr(source, "format", ""):
        remarks.append(
            "Rows lie apart in the file, so reading them takes many small reads; "
            "rankfold import SRC STORE.zarr makes every pass faster."
        )
    if (absence := absence_of(source)) is not None and absence.count:
        remarks.append(f"{str(absence).capitalize()}; {REFUSAL}.")
    if source.dtype.kind in "iub":
        remarks.append("Whole numbers are converted to floating point panel by panel.")
    return remarks
