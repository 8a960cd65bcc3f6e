"""One run of one request: its files, its scheduler, and what it has read so far."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from rankfold._version import __version__
from rankfold.pipeline.data.origin import layout_of
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.engine.durability import FilePolicy
from rankfold.pipeline.engine.fold import Fold
from rankfold.pipeline.engine.pair_sweep import PairFold, PairSweep
from rankfold.pipeline.engine.scheduler import Scheduler
from rankfold.pipeline.engine.sweep import TOTAL, Sweep
from rankfold.pipeline.errors import DamagedStateError
from rankfold.pipeline.machine import bytes_under
from rankfold.pipeline.prepare.alike import named
from rankfold.pipeline.prepare.prepared import described, fitted_of
from rankfold.pipeline.storage.checkpoint import (
    Ledger,
    State,
    load_if_whole,
    make_folder,
    name_in_run,
    record_writes,
    save_arrays,
    set_aside,
)
from rankfold.pipeline.storage.journal import FOLDER, Journal
from rankfold.pipeline.storage.result import LAZY_BYTES, write_group, write_small
from rankfold.pipeline.storage.scratch import ScratchMatrix

T = TypeVar("T")

Progress = Callable[[str, int, int], None]
"""Function that is called with the name of a sweep, the number of rows done, and of rows in all."""


@dataclass(slots=True)
class Run:
    """Folders and scheduler of a run of one request, and counts of what it has done."""

    folder: Path
    """Folder of the checkpoints of finished and unfinished sweeps."""

    scratch: Path
    """Folder of narrow intermediate matrices; on a file system that all workers see."""

    result: Path
    """Path of the result, which grows during the run."""

    scheduler: Scheduler
    concurrency: int
    """Number of segments that one process runs at once."""

    slots: int
    """Number of panel buffers of each segment, as in ``Fold``."""

    progress: Progress | None = None
    groups: int = 0
    """Number of groups (blocks of rows that a task holds in memory) in a sweep over pairs of rows."""

    at_once: int = 1
    """Number of tasks of a sweep over pairs of rows that run at once, in all processes."""

    memory_bytes: int = 0
    """Bytes of working memory of each process, above its baseline."""

    file_policy: FilePolicy = field(default_factory=FilePolicy)
    edition: int = 1
    """Edition of the method: a number that rises when the same request gets other bytes."""

    device: str = "cpu"
    """Device of the folds that have code for it, ``"cpu"`` or ``"gpu"``."""

    require_held: Callable[[], None] = lambda: None
    """Function that raises if another process works on the same run; called before anything is written."""

    passes: int = 0
    """Sweeps over the matrix so far, those of earlier attempts included."""

    earlier_passes: int = 0
    """Sweeps that made the matrix ready, which ``passes`` leaves out: limits of solvers do not count them."""

    warnings: list[str] = field(default_factory=list)
    """Texts that the result keeps as its warnings."""

    seconds: dict[str, float] = field(default_factory=dict)
    """Seconds of wall time of each sweep of this attempt, by its name."""

    notes: dict[str, Any] = field(default_factory=dict)
    """Additional facts on this attempt, by name, such as ``read_bytes`` of a sweep over pairs."""

    worker_bytes: int = 0
    """Peak bytes that a worker process held above its baseline, in this attempt."""

    written: Ledger = field(default_factory=Ledger)
    """Record (ledger) of the files that sweeps wrote to scratch and into the result, with checksums."""

    makers: dict[str, Path] = field(default_factory=dict)
    """For each file of the ledger, the path of the checkpoint of the sweep, or step, that wrote it."""

    earlier: set[str] = field(default_factory=set)
    """Names of files of the ledger that an earlier attempt wrote, and that are not checked for damage yet."""

    fitted: dict[str, Any] = field(default_factory=dict)
    """Arrays measured for the preparation steps of the matrix (``prepare=``), by name; the result keeps them.

    Each comes with the names of its axes.
    """

    request: dict[str, Any] | None = None
    """Request of the caller, which the result names, if the task of another request is run; else None."""

    matrix: Source | None = None
    """Matrix that the result names as its input, if the task uses something derived from it; else None."""

    missing_chunks: dict[str, Any] = field(default_factory=dict)
    """Number of chunks that the store of the matrix lacks, as ``Absence.as_dict`` gives it; empty if none."""

    growth: dict[str, Any] | None = None
    """Facts on the rows that a result is based on, if it may take in more rows later; else None."""

    def describe(self, facts: Mapping[str, Any]) -> None:
        """Write facts (metadata) into the result, which becomes a Zarr group, once all arrays are written.

        A small temporary result gets none on disk, as the caller gets its arrays without opening it.
        """
        self.require_held()
        for name, (values, axes) in self.fitted.items():
            write_small(self.result, {name: values}, *axes[: values.ndim])
        small = not self.file_policy.resumable and bytes_under(self.result) <= LAZY_BYTES
        if not small or (self.result / "graph").exists():
            write_group(self.result, facts)

    def part(self, *names: str) -> Path:
        """Path of the checkpoint file ``names[0]/names[1]/...`` in ``folder``; makes the folder it is in."""
        path = self.folder.joinpath(*names)
        make_folder(path.parent)
        return path

    def journal(self, sweep: str) -> Journal:
        """Journal to which segments (the units of work) of a sweep write when they ran."""
        return Journal(self.folder / FOLDER, sweep)

    def sweep(self, name: str, fold: Fold) -> State:
        """Run a sweep, or load its sums if it has finished before; returns the sums over all rows."""
        self.require_held()
        place = self.concurrency, self.journal(name), self.file_policy, self.device
        sweep = Sweep(name, fold, self.folder / name, *place)
        began = time.perf_counter()
        total = sweep.load_total(self.progress)
        if total is None:
            for narrow in values_in(fold, ScratchMatrix):
                self.require(narrow.path)
            total = sweep.make_total(self.scheduler, self.progress)
        self._note(total.ledger, self.folder / name / TOTAL, earlier=total.earlier)
        self.worker_bytes = max(self.worker_bytes, total.peak_bytes)
        self.seconds[name] = time.perf_counter() - began
        return total.state

    def _note(self, ledger: Ledger, maker: Path, *, earlier: bool) -> None:
        self.written.add(ledger)
        for name in ledger.blocks:
            self.makers[name] = maker
            (self.earlier.add if earlier else self.earlier.discard)(name)

    def require(self, path: Path) -> None:
        """Compare a file, or those in a folder, with what an earlier attempt wrote, before they are used.

        Raises
        ------
        DamagedStateError
            A file is not as it was written.
        """
        text = name_in_run(path) or str(path)
        names = [name for name in self.earlier if name == text or name.startswith(text + "/")]
        for name in sorted(names):
            damage = self.file_policy.damage(Ledger({name: self.written.blocks[name]}))
            if damage is not None:
                raise damage
            self.earlier.discard(name)

    def make_again(self, error: DamagedStateError) -> bool:
        """Set aside the checkpoint that led to a damaged file, to be made again; False if there is none."""
        if self.file_policy.background is not None:
            self.file_policy.background.finish()
        maker = self.makers.get(name_in_run(error.path) or str(error.path), error.path)
        if not maker.exists():
            return False
        set_aside(
            maker, error.reason if maker == error.path else f"led to {error.path}, which {error.reason}"
        )
        return True

    def prepare(self, path: Path, make: Callable[[], State]) -> State:
        """Load the arrays that an earlier attempt saved at ``path``, or save those that ``make()`` returns.

        Earlier arrays count if they and the scratch files that were written with them are undamaged.
        """
        state = load_if_whole(path)
        if state is not None:
            damage = self.file_policy.damage(Ledger.taken_from(state))
            if damage is None:
                return state
            set_aside(path, f"was written with {damage.path}, which {damage.reason}")
        ledger = Ledger()
        with record_writes(ledger if self.file_policy.resumable else None):
            arrays = make()
        save_arrays(path, {**arrays, **ledger.as_arrays()})
        self._note(ledger, path, earlier=False)
        return arrays

    def load(self, narrow: ScratchMatrix) -> npt.NDArray[Any]:
        """Load a whole scratch matrix; one that an earlier attempt wrote is first checked for damage."""
        self.require(narrow.path)
        return narrow.load()

    def forget(self, array: Path) -> None:
        """Forget the records of an array of the result, which the driver has written to since."""
        start = (name_in_run(array) or str(array)) + "/"
        for name in [name for name in self.written.blocks if name.startswith(start)]:
            del self.written.blocks[name], self.makers[name]
            self.earlier.discard(name)

    def result_sums(self) -> dict[str, tuple[int, int]]:
        """(bytes, checksum) of each file of the result that sweeps wrote, by its path in the result.

        Those that an earlier attempt wrote are compared with the disk.
        """
        self.require(self.result)
        start = f"{name_in_run(self.result) or self.result}/"
        return {
            name.removeprefix(start): next(iter(blocks.values()))
            for name, blocks in self.written.blocks.items()
            if name.startswith(start)
        }

    def drop(self, narrow: ScratchMatrix) -> None:
        """Remove a scratch matrix at once, not after a flush as ``release``: nothing is made from it."""
        self.earlier.discard(name_in_run(narrow.path) or str(narrow.path))
        narrow.remove()

    def release(self, narrow: ScratchMatrix) -> None:
        """Remove a scratch matrix, once everything made from it is flushed to disk."""
        self.earlier.discard(name_in_run(narrow.path) or str(narrow.path))
        self.file_policy.after_settling(narrow.remove)

    def pair_sweep(self, name: str, fold: PairFold, folder: Path) -> None:
        """Run a sweep over all pairs of rows; leaves its results (accumulators of blocks) in ``folder``."""
        self.require_held()
        self.passes += 1
        groups, journal = fold.pairs.groups(self.groups), self.journal(name)
        sweep = PairSweep(name, fold, folder, groups, self.concurrency, self.at_once, journal, self.device)
        began = time.perf_counter()
        report = sweep.run(self.scheduler, self.progress)
        self.worker_bytes = max(self.worker_bytes, report.peak_bytes)
        self.seconds[name] = time.perf_counter() - began
        self.notes["read_bytes"] = report.read_bytes

    def pass_over_data(self, name: str, fold: Fold) -> State:
        """Run a sweep that reads the matrix, and count it as a pass; returns the sums over all rows."""
        self.passes += 1
        return self.sweep(name, fold)

    @property
    def device_facts(self) -> dict[str, str]:
        """Facts of a result on the device it was computed on; empty for the host."""
        return {} if self.device == "cpu" else {"device": self.device}

    def facts(
        self, request: Mapping[str, Any], method: str, source: Source, fingerprint: str
    ) -> dict[str, Any]:
        """Facts (metadata) of a result of any kind: what was asked, by which method, and of which matrix.

        ``fingerprint`` is that of the matrix.
        """
        source = source if self.matrix is None else self.matrix
        columns = {1: "one", source.shape[1]: "column"}
        self.fitted = {
            name: (values, (columns.get(len(values), f"column before {name}"), f"component of {name}"))
            for name, values in fitted_of(source).items()
        }
        return {
            **self.device_facts,
            "kind": request["kind"],
            "method": method,
            "edition": self.edition,
            "request": dict(request if self.request is None else self.request),
            "input": {
                "name": source.name.rpartition("/")[2],
                "shape": list(source.shape),
                "dtype": source.dtype.name,
                "fingerprint": fingerprint,
                **described(source),
                **layout_of(source),
                **named(source),
                **({"missing_chunks": self.missing_chunks} if self.missing_chunks else {}),
            },
            "version": __version__,
            "passes": self.earlier_passes + self.passes,
            "warnings": list(self.warnings),
            **(self.growth or {}),
        }


_LEAVES = (str, bytes, int, float, complex, type(None), Path, np.ndarray, np.generic, np.dtype)
"""Types that hold no other values, and that are never searched for."""


def values_in(value: object, kind: type[T]) -> Iterator[T]:
    """Yield all values of type ``kind`` in ``value``: itself, or in its fields and items at any depth."""
    if isinstance(value, _LEAVES):  # most values are, and a check against a protocol takes longer
        return
    if isinstance(value, kind):
        yield value
    elif isinstance(value, tuple | list):
        for each in value:
            yield from values_in(each, kind)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from values_in(getattr(value, field.name), kind)
