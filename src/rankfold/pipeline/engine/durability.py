"""Durability of the files of a run: which are recorded, and when they are flushed to the disk.

A run whose result is temporary cannot be resumed: nothing is recorded or flushed. Any other run records what
it writes, and flushes it in a separate thread while the next sweep is under way: first the files that a sweep
wrote, then its total (the sums over all rows), which says that they are there. Files that the total makes
superfluous are removed after that.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rankfold.pipeline.errors import DamagedStateError
from rankfold.pipeline.storage.checkpoint import Ledger, damaged_block


@dataclass(frozen=True, slots=True)
class FilePolicy:
    """How the files of a run are recorded and flushed.

    It is pickled without the thread, which workers do not use.
    """

    resumable: bool = True
    """True if the same command may go on from what is on disk."""

    is_remote: bool = False
    """True if machines other than the driver's write files, which may be lost while the driver goes on.

    Checkpoints are then flushed to the disk as they are saved.
    """

    folders: tuple[Path, ...] = ()
    """Folders of checkpoints, of scratch, and of the growing result."""

    background: Background | None = field(default=None, compare=False)
    """Thread that flushes files while the run goes on; None in workers, or if nothing is flushed by it."""

    def __reduce__(self) -> tuple[object, ...]:
        return FilePolicy, (self.resumable, self.is_remote, self.folders)

    @property
    def durable(self) -> bool:
        """True if the sums of a finished sweep are flushed to disk, by a thread, before they are trusted."""
        return self.resumable and self.background is not None

    def paths(self, ledger: Ledger) -> list[Path]:
        """Paths of the files in a ledger, the record of what was written with checksums."""
        return [self.path_of(name) for name in ledger.blocks]

    def path_of(self, name: str) -> Path:
        """Path of a file by its name in a ledger: the name of one of ``folders``, and the path below it.

        A name that begins otherwise is itself the path.
        """
        first, _, rest = name.partition("/")
        for folder in self.folders:
            if folder.name == first:
                return folder / rest
        return Path(name)

    def damage(self, ledger: Ledger) -> DamagedStateError | None:
        """Compare the files in a ledger with the disk; returns an error for a damaged one, or None."""
        for name, blocks in ledger.blocks.items():
            path = self.path_of(name)
            reason = damaged_block(path, blocks.items())
            if reason is not None:
                return DamagedStateError(path, reason)
        return None

    def after_settling(self, work: Callable[[], None]) -> None:
        """Call ``work`` once the sums of all finished sweeps are flushed; at once if they are not to be."""
        if self.resumable and self.background is not None:
            self.background.put(work)
        else:
            work()


class Background:
    """A thread that runs functions in order; an error of one is raised by the next ``put`` or ``finish``."""

    def __init__(self) -> None:
        self._work: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def put(self, work: Callable[[], None]) -> None:
        """Queue a function to run after all earlier ones; raises the error of an earlier one that failed."""
        self._raise()
        if self._thread is None:
            thread = threading.Thread(target=self._loop, name="rankfold-settle", daemon=True)
            thread.start()
            self._thread = thread  # last: an interrupt in between leaves none that cannot be waited for
        self._work.put(work)

    def finish(self) -> None:
        """Wait until all functions have run; raises the error of one that failed."""
        self.stop()
        self._raise()

    def stop(self) -> None:
        """Wait until all functions have run, and end the thread."""
        if self._thread is not None:
            self._work.put(None)
            self._thread.join()
            self._thread = None

    def _raise(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _loop(self) -> None:
        while (work := self._work.get()) is not None:
            if self._error is None:
                try:
                    work()
                except BaseException as error:  # noqa: BLE001 - raised again where the run can see it
                    self._error = error
