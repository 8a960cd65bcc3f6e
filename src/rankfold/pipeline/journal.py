"""What happened when, and where: lines of JSON that each process writes for itself.

A segment has a line when it begins and one when it ends; one that was killed has the first alone. Workers
note that they came, drivers that one is gone. Files of one process each need no lock, on any file system;
they are gathered into one when a run ends. For people and reports: nothing computed depends on them.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = "journal"
"""In the state of a run."""

GATHERED = "journal.jsonl"
"""In the folder of a run, once it has ended."""

_COUNT = itertools.count()


@dataclass(frozen=True, slots=True)
class Journal:
    """Where lines go; nowhere without a folder."""

    folder: Path | None = None
    sweep: str = ""

    def note(self, what: str, **facts: Any) -> None:
        """Add a line of this process. What cannot be written is left out: no run fails for its journal."""
        if self.folder is None:
            return
        line = json.dumps({"at": time.time(), "what": what, **facts}) + "\n"
        with contextlib.suppress(OSError), open(self.folder / f"{_process()}.jsonl", "ab", 0) as file:
            file.write(line.encode())

    @contextlib.contextmanager
    def segment(self, part: object) -> Iterator[dict[str, Any]]:
        """Note a part of the sweep from its beginning to its end, with what the block puts in."""
        number, done = next(_COUNT), dict[str, Any]()
        self.note("segment", sweep=self.sweep, part=str(part), id=number)
        try:
            yield done
        except BaseException as error:
            self.note("end", id=number, **done, cut=type(error).__name__)
            raise
        self.note("end", id=number, **done)


@functools.cache
def _names(pid: int) -> str:
    return f"{socket.gethostname()}-{pid}"


def _process() -> str:
    return _names(os.getpid())


def lines_of(run: Path) -> list[dict[str, Any]]:
    """Everything noted in the folder of a run, in order of time; each line says of which ``process``."""
    found: dict[tuple[str, float, str], dict[str, Any]] = {}
    for path in [run / GATHERED, *run.glob(f"state-*/{FOLDER}/*.jsonl")]:
        with contextlib.suppress(OSError):
            for text in path.read_text().splitlines():
                with contextlib.suppress(ValueError):  # the last line of a process that was killed
                    line = {"process": path.stem, **json.loads(text)}
                    found[line["process"], line["at"], line["what"]] = line
    return sorted(found.values(), key=lambda line: line["at"])


def gather(run: Path) -> None:
    """Put all lines into one file beside the record of a run, before its state goes."""
    lines = lines_of(run)
    if lines:
        temporary = run / f".{GATHERED}"
        with contextlib.suppress(OSError):
            temporary.write_text("".join(json.dumps(line) + "\n" for line in lines))
            os.replace(temporary, run / GATHERED)
