"""Predicted seconds of a plan: to start, to read, to decode or put numbers in place, and to multiply.

Rates of the machine are measured once and kept. How fast a store is read depends on its codec, its chunks and
how sparse it is, so one panel of it is read, as a sweep would read it, when somebody asks for a time. Results
do not depend on any of this.

The trap: reading a sparse matrix holds the interpreter's lock, so threads do not share that work.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rankfold.pipeline.data.source import CompressedSource, Source, compressed, number_bytes
from rankfold.pipeline.data.view import Orientation, View
from rankfold.pipeline.errors import RankfoldError
from rankfold.pipeline.planning.shape_only import ShapeOnly

if TYPE_CHECKING:
    from rankfold.pipeline.planning.passes import Pass
    from rankfold.pipeline.planning.plan import Plan

PROBE_BYTES = 32 * 2**20
"""Largest number of bytes of a panel that is read to measure its speed.

Native chunks are read whole up to twice that; nothing is read of stores with larger ones.
"""

PROBE_SECONDS = 0.1
"""Seconds above which a panel is not read again; a faster one is, since its pages are new the first time."""

ELEMENT_SECONDS = 0.5e-9
"""Seconds of one core to measure, center and convert one element of a panel, besides products."""

SWEEP_SECONDS = 0.03
"""Seconds of overhead of a sweep: task graph, constants, checkpoints and algebra, whatever the matrix."""

TASK_SECONDS = 0.003
"""Seconds of overhead for each task of a sweep."""

DRIVER_PRODUCTS = 30
"""Number of products of blocks of vectors of the shorter side between two passes: bases, Ritz vectors."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Measured speeds of one core, used only to predict seconds."""

    flops_float32: float
    """Operations per second of matrix products in float32."""

    flops_float64: float
    """Operations per second of matrix products in float64."""

    read_bytes: float
    """Bytes per second that are read from page cache, without decoding."""

    start_seconds: float = 0.0
    """Seconds of a whole run on almost no data: interpreter, imports, compiled kernels."""


@dataclass(frozen=True, slots=True)
class Seconds:
    """Parts of the predicted time of a plan, in seconds."""

    start: float
    read: float
    decode: float
    """Seconds beyond reading as many plain bytes: decompression, or putting stored entries in place."""

    compute: float

    @property
    def total(self) -> float:
        """Sum of all parts, as if none overlapped."""
        return self.start + self.read + self.decode + self.compute

    def __str__(self) -> str:
        parts = ("start", "read", "decode", "compute")
        return ", ".join(f"{name} {getattr(self, name):.2g}" for name in parts)


@dataclass(frozen=True, slots=True)
class Reading:
    """Measured speed of reading a matrix."""

    byte_seconds: float
    """Seconds for each byte of the dense matrix, or of the stored entries with their indices."""

    alone: bool
    """True if threads of a process wait for one another while they read."""


def measured_reading(source: Source, orientation: Orientation, panel_rows: int) -> Reading | None:
    """Measure the speed of reading a matrix by one panel from its middle, read twice if that is quick.

    The panel has at most ``panel_rows`` rows, or columns if ``orientation`` says so.

    Takes at most about 0.2 s and ``2 * PROBE_BYTES``; None where chunks are larger, or cannot be read: the
    run reports why.
    """
    if isinstance(source, ShapeOnly):
        return None  # an earlier stage has yet to write it
    view, sparse = View(source, orientation), source.row_grid.scattered or source.column_grid.scattered
    rows = _probed_rows(view, panel_rows)
    if not rows:
        return None
    start = min(view.long // 2, view.long - rows)
    if not view.grid.splittable:
        start, _ = view.grid.chunk_of(start)
    stop = min(view.long, start + rows)
    seconds = 0.0
    try:
        panel = view.panel_buffer(stop - start, source.dtype)
        for _ in range(2):
            began = time.perf_counter(), time.process_time()
            view.read(panel, start, stop)
            # Without time spent waiting: predictions are for data in page cache.
            seconds = min(time.perf_counter() - began[0], time.process_time() - began[1])
            if seconds > PROBE_SECONDS:
                break
    except (RankfoldError, OSError):
        return None
    return Reading(seconds / panel.nbytes, alone=sparse)


def measured_stored_reading(source: CompressedSource, lines: int) -> Reading | None:
    """Measure the speed of reading stored entries, with their indices, by lines from the middle of a matrix.

    Lines are its rows, or its columns if it is stored by these; at most ``lines`` are read. None if there are
    no entries, or lines are too large or cannot be read.
    """
    if isinstance(source, ShapeOnly) or not source.nnz:
        return None
    long = source.shape[0 if source.by == "rows" else 1]
    item = number_bytes(source)
    lines = max(1, min(lines, long, PROBE_BYTES * long // (source.nnz * item)))
    start, seconds, size = (long - lines) // 2, 0.0, 0
    try:
        ends = source.pointers(start, start + lines)
        if (ends[-1] - ends[0]) * item > 2 * PROBE_BYTES or ends[-1] == ends[0]:
            return None
        for _ in range(2):
            began = time.perf_counter(), time.process_time()
            stored = source.read_sparse((start, start + lines))
            seconds = min(time.perf_counter() - began[0], time.process_time() - began[1])
            size = len(stored.data) * item
            if seconds > PROBE_SECONDS:
                break
    except (RankfoldError, OSError):
        return None
    return Reading(seconds / size, alone=False)


_READINGS: dict[tuple[object, ...], Reading | None] = {}


def _known_reading(
    source: Source, orientation: Orientation, panel_rows: int, *, takes_stored: bool
) -> Reading | None:
    """Speed of reading a matrix, measured once in a process, so that all times in a table agree.

    ``takes_stored`` is True if sweeps read only the stored entries of a sparse matrix.
    """
    version = getattr(source, "version", "")
    key = (source.name, version, source.shape, source.dtype.str, orientation, panel_rows, takes_stored)
    if key not in _READINGS:
        stored = compressed(source) if takes_stored else None
        if stored is not None:
            _READINGS[key] = measured_stored_reading(stored, panel_rows)
        else:
            _READINGS[key] = measured_reading(source, orientation, panel_rows)
    return _READINGS[key]


def _probed_rows(view: View, panel_rows: int) -> int:
    """Number of rows (or columns, by orientation) to measure reading by; 0 if they would be too large."""
    row_bytes = max(1, view.short * view.source.dtype.itemsize)
    rows = min(panel_rows, view.long, max(1, PROBE_BYTES // row_bytes))
    if not view.grid.splittable:
        tall = view.grid.longest
        rows = min(max(tall, rows - rows % tall), view.long)
    return rows if rows * row_bytes <= 2 * PROBE_BYTES else 0


def predicted_seconds(plan: Plan, rates: Rates, source: Source, workers: int) -> Seconds:
    """Predicted time of the likely passes of a plan on ``workers`` processes, with the data in page cache."""
    # Pairs of blocks are read by rows.
    orientation = Orientation.COLUMNS if plan.orientation == "columns" else Orientation.ROWS
    takes_stored = any(sweep.numbers for sweep in plan.passes)
    reading = _known_reading(source, orientation, plan.panel_rows, takes_stored=takes_stored)
    if reading is None:
        reading = Reading(1 / rates.read_bytes, alone=False)
    read = decode = compute = 0.0
    for sweep in plan.likely_sweeps:
        lanes = max(1, min(plan.concurrency * workers, sweep.streams))
        work = work_seconds(plan, sweep, rates, reading)
        read += work.read / lanes
        decode += work.decode / (min(workers, lanes) if reading.alone else lanes)
        compute += work.compute / lanes + sweep.tasks * TASK_SECONDS / lanes + SWEEP_SECONDS
    return Seconds(rates.start_seconds, read, decode, compute + _driver_seconds(plan, rates))


def work_seconds(plan: Plan, sweep: Pass, rates: Rates, reading: Reading) -> Seconds:
    """Time of all segments of a sweep, if they ran one after the other in one thread.

    ``rates`` are those of a core, ``reading`` is the speed of reading the matrix.
    """
    plain = (sweep.reads_bytes + sweep.writes_bytes) / rates.read_bytes
    beyond = 0.0
    if sweep.over == "matrix":
        beyond = max(0.0, sweep.reads_bytes * (reading.byte_seconds - 1 / rates.read_bytes))
    working = sweep.flops / _speed(plan, sweep, rates)
    if sweep.over == "matrix" and sweep.numbers:
        working += sweep.numbers * ORDER_SECONDS
    elif sweep.over == "matrix":
        working += plan.shape[0] * plan.shape[1] * ELEMENT_SECONDS * (not plan.groups)
    return Seconds(0.0, plain, beyond, working)


def _speed(plan: Plan, sweep: Pass, rates: Rates) -> float:
    if sweep.over != "matrix":
        return rates.flops_float64 / 2
    narrow = (sweep.item or np.dtype(plan.working_dtype).itemsize) == 4
    if sweep.numbers:
        return NOMINAL_GATHERED_FLOPS[4 if narrow else 8]
    return rates.flops_float32 if narrow else rates.flops_float64


def _driver_seconds(plan: Plan, rates: Rates) -> float:
    """Seconds of algebra between passes on blocks of vectors of the shorter side, in one thread."""
    if plan.groups:
        return 0.0
    short = plan.shape[1 if plan.orientation == "rows" else 0]
    width = min(plan.width, short)
    sweeps = sum(sweep.over == "matrix" for sweep in plan.likely_sweeps)
    return DRIVER_PRODUCTS * float(short) * width**2 * sweeps / rates.flops_float64


# Nominal rates ------------------------------------------------------------------------------------


NOMINAL_FLOPS = {4: 80e9, 8: 35e9}
"""Nominal operations per second of matrix products of one core, by bytes of an element.

They are used to weigh methods and to cut segments, and are not measured here.
"""

NOMINAL_GATHERED_FLOPS = {4: 20e9, 8: 10e9}
"""Nominal operations per second of sparse products of one core, by bytes of an element.

These are products of stored entries with gathered rows of a block.
"""

ORDER_SECONDS = 10e-9
"""Seconds of one core to bring a stored entry into the order of columns, or to check and measure it."""

NOMINAL_READ = 1.5e9
"""Nominal bytes per second that one core reads into memory and uses."""
