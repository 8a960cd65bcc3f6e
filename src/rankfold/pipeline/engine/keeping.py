"""What becomes of the files of a run: who may need them again, and when they have to be on the disk.

A run whose result is temporary cannot be resumed by anybody: nothing is recorded, nothing flushed. Any other
records what it writes, and flushes in a thread of its own while the next sweep is under way: first what a
sweep wrote, then its total, which says that it is there. What the total makes superfluous goes after that.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rankfold.pipeline.errors import DamagedStateError
from rankfold.pipeline.storage.ledger import Ledger, damaged_block


@dataclass(frozen=True, slots=True)
class Keeping:
    """How the files of a run are kept. Pickles without the thread: workers have no use for it."""

    resumable: bool = True
    """Whether the same command may go on from what is on disk."""

    is_remote: bool = False
    """Whether machines other than the driver's write, which may be lost while the driver goes on."""

    folders: tuple[Path, ...] = ()
    """State, scratch and growing result."""

    background: Background | None = field(default=None, compare=False)

    def __reduce__(self) -> tuple[object, ...]:
        return Keeping, (self.resumable, self.is_remote, self.folders)

    @property
    def durable(self) -> bool:
        """Whether totals are on the disk before they are trusted: where there is a thread that sees to it."""
        return self.resumable and self.background is not None

    def paths(self, ledger: Ledger) -> list[Path]:
        """The files of a ledger."""
        return [self.path_of(name) for name in ledger.blocks]

    def path_of(self, name: str) -> Path:
        """A file by its name within the run."""
        first, _, rest = name.partition("/")
        for folder in self.folders:
            if folder.name == first:
                return folder / rest
        return Path(name)

    def damage(self, ledger: Ledger) -> DamagedStateError | None:
        """What is wrong with the files of a ledger, which are read; None if nothing is."""
        for name, blocks in ledger.blocks.items():
            path = self.path_of(name)
            reason = damaged_block(path, blocks.items())
            if reason is not None:
                return DamagedStateError(path, reason)
        return None

    def after_settling(self, work: Callable[[], None]) -> None:
        """Do something once all totals so far are trusted."""
        if self.resumable and self.background is not None:
            self.background.put(work)
        else:
            work()


class Background:
    """One thread that does what it is given, in that order; what fails there fails the run."""

    def __init__(self) -> None:
        self._work: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def put(self, work: Callable[[], None]) -> None:
        """Have something done when all that came before is; raises what failed since the last call."""
        self._raise()
        if self._thread is None:
            thread = threading.Thread(target=self._loop, name="rankfold-settle", daemon=True)
            thread.start()
            self._thread = thread  # last: an interrupt in between leaves none that cannot be waited for
        self._work.put(work)

    def finish(self) -> None:
        """Wait until everything is done; raises what failed."""
        self.stop()
        self._raise()

    def stop(self) -> None:
        """Wait until everything is done, and end the thread."""
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
