"""Find the logs of a workflow or an output, and show their last lines, also as they grow."""

from __future__ import annotations

import contextlib
import glob
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rankfold.cluster.slurm.queue import list_jobs
from rankfold.cluster.slurm.submission import PREFIX
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.regular import open_regular, read_last_lines
from rankfold.settings.yaml_file import no_such
from rankfold.workflows.operations.running import RUN, Work, with_parts

NEWEST = 8
"""Largest number of logs of workers that are shown for a run; a long run has as many logs as it had jobs."""

POLL_SECONDS = 0.5

ASK_SECONDS = 5.0
"""Seconds between two checks that a process or job still runs."""

LOOK_BYTES = 2**22
"""Largest number of bytes of a growing log that are read at a time."""


@dataclass(frozen=True, slots=True)
class LogFiles:
    """Paths of logs that are not empty, the oldest first, and numbers of further ones."""

    paths: tuple[Path, ...]
    older: dict[Path, int]
    """Number of further, older logs in each folder."""


def find_logs(work: Work, stage: str | None) -> LogFiles:
    """Logs of the last job and of workers; only of the workers of ``stage`` if it is given.

    Of the workers of each run they are the ``NEWEST`` at most.
    """
    runs = work.runs
    if stage is not None:
        if not work.workflow:
            raise InputError(f"{work.target} is one output and has no stages: leave out --stage")
        names = [run.name.removesuffix(f".zarr{RUN}") for run in work.own_runs]
        if stage not in names:
            raise InputError(no_such("stage that has run", stage, names or ["none"]))
        runs = with_parts(work.folder / f"{stage}.zarr{RUN}")
    paths: list[Path] = []
    older: dict[Path, int] = {}
    places = [(run / "logs", "*", NEWEST) for run in runs]
    if work.workflow and stage is None:
        places.insert(0, (work.folder, f"{PREFIX}{work.workflow}-*.log", 1))
    if not work.workflow and work.submission is not None:
        log = Path(work.submission.log)
        places.insert(0, (log.parent, glob.escape(log.name), 1))
    for folder, pattern, most in places:
        logs = _by_age(folder, pattern)
        paths += logs[-most:]
        if len(logs) > most:
            older[folder] = len(logs) - most
    return LogFiles(tuple(paths), older)


def _by_age(folder: Path, pattern: str) -> list[Path]:
    """Files of a folder whose names match a glob pattern and that are not empty, the oldest first."""
    files = []
    for name in glob.iglob(pattern, root_dir=folder):
        with contextlib.suppress(FileNotFoundError):  # those of a part of a run are removed with it
            about = (folder / name).stat()
            if stat.S_ISREG(about.st_mode) and about.st_size:
                files.append((about.st_mtime_ns, folder / name))
    return [path for _, path in sorted(files)]


def last_lines(path: Path, count: int) -> list[str]:
    """The last ``count`` lines of a log."""
    return read_last_lines(path)[-count:] if count else []


@dataclass(slots=True)
class Follower:
    """Calls ``tell`` with lines of logs, after a line with the path of their log.

    The logs are those of ``find_logs`` for ``work`` and ``stage``.
    """

    work: Work
    stage: str | None
    tell: Callable[[str], None]
    _read: dict[Path, int] = field(default_factory=dict)
    _last: Path | None = None

    def begin(self, lines: int) -> bool:
        """Show the last ``lines`` lines of each log; True if there are logs."""
        logs = find_logs(self.work, self.stage)
        for folder, count in logs.older.items():
            self.tell(f"({count} older in {folder})")
        for path in logs.paths:
            with contextlib.suppress(FileNotFoundError):
                self._read[path] = path.stat().st_size
                self._show(path, last_lines(path, lines))
        return bool(logs.paths)

    def follow(self) -> None:
        """Show new lines as long as a process works on the workflow or output, or a job of it waits."""
        working, last_check = True, time.monotonic()
        while working:
            time.sleep(POLL_SECONDS)
            if time.monotonic() - last_check > ASK_SECONDS:
                working, last_check = self._working(), time.monotonic()
            self._look()
        self._look()

    def _working(self) -> bool:
        return self.work.holder() is not None or bool(self.work.own_jobs(list_jobs() or ()))

    def _look(self) -> None:
        for path in find_logs(self.work, self.stage).paths:
            offset, new = self._read.get(path, 0), b""
            with contextlib.suppress(FileNotFoundError), open_regular(path) as file:
                file.seek(offset)
                new = file.read(LOOK_BYTES)
            # A line that is being written is shown when it is complete, or longer than one read.
            whole = new if len(new) == LOOK_BYTES else new[: new.rfind(b"\n") + 1]
            self._read[path] = offset + len(whole)
            self._show(path, whole.decode(errors="replace").splitlines())

    def _show(self, path: Path, lines: list[str]) -> None:
        if not lines:
            return
        if path != self._last:
            self.tell(f"==> {path} <==")
            self._last = path
        for line in lines:
            self.tell(line)
