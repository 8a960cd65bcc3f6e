"""The rank-K approximation of a matrix from its result, written chunk by chunk as a plain array."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rankfold._version import __version__
from rankfold.pipeline.blas import one_blas_thread
from rankfold.pipeline.blocks import Cut, Grid, cut, grain_rows
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.fitted import Fitted
from rankfold.pipeline.folds.panels import Panels
from rankfold.pipeline.folds.rebuild import Rebuild
from rankfold.pipeline.ingest_layout import FULL_ROWS, FULL_ROWS_BYTES
from rankfold.pipeline.layout import NOMINAL_FLOPS, NOMINAL_READ
from rankfold.pipeline.narrow import Narrow
from rankfold.pipeline.plan import Plan
from rankfold.pipeline.result import create_matrix, write_matrix_facts
from rankfold.pipeline.run import Run
from rankfold.pipeline.scheduler import Budget
from rankfold.pipeline.source import Source, Span
from rankfold.pipeline.sweep_plan import SingleSweep, plan_single_sweep
from rankfold.pipeline.view import Orientation, View

CHUNK_BYTES = 16 * 2**20
"""Of a chunk that is written, as ``rankfold import`` writes them."""

_NOWHERE = Path("-")


@dataclass(frozen=True, slots=True)
class Reconstruction:
    """A model, its left factor, and what is wanted of them, as ``execution`` takes them."""

    fitted: Fitted
    left: Source
    rank: int
    rows: Span
    digest: str

    @classmethod
    def of(cls, fitted: Fitted, *, rank: int | None, rows: slice | None) -> Reconstruction:
        """Check what is asked for."""
        left = fitted.left()
        left.check()
        rank = fitted.rank if rank is None else rank
        if fitted.kind == "nmf" and rank != fitted.rank:
            raise InputError(f"components of {fitted.name} are in no order: leave out the rank, to take all")
        if not 1 <= rank <= fitted.rank:
            raise InputError(
                f"rank {rank} was asked for, but {fitted.name} holds {fitted.rank} components: ask for 1 to "
                f"{fitted.rank}, or fit again with --rank {rank}"
            )
        return cls(fitted, left, rank, _span(rows, fitted.shape[0]), fitted.digest())

    @property
    def shape(self) -> tuple[int, int]:
        """Of what is written."""
        return self.rows[1] - self.rows[0], self.fitted.shape[1]

    @property
    def by_rows(self) -> bool:
        """Whether the sweep runs along the rows: the longer side of what is written."""
        return self.shape[0] >= self.shape[1]

    @property
    def source(self) -> Source:
        """The factor that is swept."""
        return self.left if self.by_rows else self.fitted.right

    def request(self) -> dict[str, Any]:
        """See the protocol."""
        return {
            "kind": "reconstruct",
            "of": self.fitted.kind,
            "rank": self.rank,
            "rows": list(self.rows),
            "result": self.digest,
            "left": self.left.fingerprint(),
        }

    def plan(self, budget: Budget) -> Plan:
        """See the protocol."""
        rows, columns = self.shape
        data = rows * columns * self.fitted.dtype.itemsize
        task = SingleSweep(
            kind="reconstruct",
            method="product",
            source=self.source,
            dtype=self.fitted.dtype,
            orientation=self._orientation,
            rank=self.rank,
            flops=2.0 * rows * columns * self.rank,
            writes_bytes=data,
            result_bytes=data,
            scratch_bytes=16 * columns,
            accumulator_bytes=8,
            driver_bytes=6 * 8 * self.fitted.block_columns,
            remedy=", or fewer components with --rank",
        )
        return plan_single_sweep(task, lambda slots: self.fold(_NOWHERE, _NOWHERE, slots), budget)

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """See the protocol."""
        with one_blas_thread():
            fold = self.fold(run.scratch, run.result, run.slots)
            for start, stop in self.fitted.blocks():
                fold.columns.write(start, np.column_stack(self.fitted.columns(start, stop)))
            create_matrix(run.result, self.shape, self.fitted.dtype, self.chunks())
            run.pass_over_data("reconstruct", fold)
        facts = self._facts(fingerprint)
        write_matrix_facts(run.result, facts)
        return facts

    def fold(self, folder: Path, array: Path, slots: int) -> Rebuild:
        """The fold of the one sweep."""
        columns = Narrow(folder / "columns.bin", self.shape[1], 2, np.dtype(np.float64))
        height, width = self.chunks() if self.by_rows else self.chunks()[::-1]
        short, item = min(self.shape), self.fitted.dtype.itemsize
        return Rebuild(
            panels=Panels(View(self.source, self._orientation), self._cut(height), slots, self.source.dtype),
            first=self.rows[0] if self.by_rows else 0,
            other=self.fitted.right if self.by_rows else self.left,
            short=(0, short) if self.by_rows else self.rows,
            columns=columns,
            weights=self.fitted.row_weights()[: self.rank],
            array=array,
            width=width,
            row_seconds=short * (item / NOMINAL_READ + 2 * self.rank / NOMINAL_FLOPS[8]),
        )

    def chunks(self) -> tuple[int, int]:
        """Of what is written: full lines across the short side if they are short enough, in whole grains."""
        (long, short), item = self._sides(), self.fitted.dtype.itemsize
        if FULL_ROWS * short * item <= FULL_ROWS_BYTES:
            grain = grain_rows(short * item)
            height, width = max(FULL_ROWS, CHUNK_BYTES // (short * item)), short
            height -= height % grain if height > grain else 0
        else:
            height, width = FULL_ROWS, -(-short // -(-short * FULL_ROWS * item // CHUNK_BYTES))
        height = min(height, long)
        return (height, width) if self.by_rows else (width, height)

    @property
    def _orientation(self) -> Orientation:
        return Orientation.ROWS if self.by_rows else Orientation.COLUMNS

    def _sides(self) -> tuple[int, int]:
        return max(self.shape), min(self.shape)

    def _cut(self, height: int) -> Cut:
        """Panels are whole chunks of what is written; a stream counts rows, and no more."""
        long, short = self._sides()
        return cut(Grid.regular(long, height, splittable=False), 8 * short, 8)

    def _facts(self, fingerprint: str) -> dict[str, Any]:
        """Reproducible facts only."""
        attrs, floor = self.fitted.result.attrs, float(np.sqrt(np.finfo(self.fitted.dtype).eps))
        total = float(attrs.get("squared_norm") or 0.0)
        left = total - float((self.fitted.s[: self.rank] ** 2).sum())
        if self.fitted.kind == "nmf":
            left = total * float(attrs["relative_error"]) ** 2
        return {
            "kind": "reconstruct",
            "method": "product",
            "request": self.request(),
            "input": {
                "name": self.fitted.result.path.name,
                "shape": list(self.fitted.shape),
                "dtype": self.fitted.dtype.name,
                "fingerprint": fingerprint,
            },
            "version": __version__,
            "passes": 1,
            "relative_error": float(np.sqrt(max(left / total, floor**2))) if total > 0 else 0.0,
            "relative_error_floor": floor,
            "warnings": [],
        }


def _span(rows: slice | None, length: int) -> Span:
    """First and one past the last row of a slice without steps."""
    if rows is None:
        return 0, length
    if rows.step not in (None, 1):
        raise InputError(f"rows={rows} takes steps of {rows.step}; ask for consecutive rows")
    start, stop, _ = rows.indices(length)
    if stop <= start:
        raise InputError(f"rows {rows.start}:{rows.stop} holds none of the {length} rows, counted from 0")
    return start, stop
