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
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = "journal"
"""In the state of a run."""

JOURNAL = "journal.jsonl"
"""In the folder of a run, once it has ended."""

END_OF_TIME = 1e11
"""No line is of a later second since 1970."""

REQUIRED_FACTS: dict[str, dict[str, Any]] = {"segment": {"id": int, "sweep": str}, "end": {"id": int}}
"""What a line must say, by what it tells of, and of which type."""

OPTIONAL_FACTS: dict[str, Any] = {
    "rows": int,
    "read_bytes": int,
    "cut": str,
    "worker": str,
    "why": str | None,
}
"""What it may say."""

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
        number, facts = next(_COUNT), dict[str, Any]()
        self.note("segment", sweep=self.sweep, part=str(part), id=number)
        try:
            yield facts
        except BaseException as error:
            self.note("end", id=number, **facts, cut=type(error).__name__)
            raise
        self.note("end", id=number, **facts)


@functools.cache
def _names(pid: int) -> str:
    # Numbers of processes come again, in containers above all: 1 each time.
    return f"{socket.gethostname()}-{pid}.{uuid.uuid4().hex[:6]}"


def _process() -> str:
    return _names(os.getpid())


def lines_of(run: Path, request: str | None = None) -> list[dict[str, Any]]:
    """What is noted in the folder of a run, in order of time: for one request, or for all that it knows of.

    Each line says of which ``process`` and for which request, ``run``. What a run within the state of another
    noted, such as a search for neighbors whose ranks are counted then, is of that other.
    """
    lines: dict[tuple[str, float, str], dict[str, Any]] = {}
    within = (run.glob(f"state-*/**/{name}") for name in (f"{FOLDER}/*.jsonl", JOURNAL))
    for path in [run / JOURNAL, *itertools.chain.from_iterable(within)]:
        first = path.relative_to(run).parts[0]
        own = {"run": first.removeprefix("state-")} if first.startswith("state-") else {}
        with contextlib.suppress(OSError):
            for text in path.read_text(errors="replace").splitlines():
                line = _line(text, {"process": path.stem}, own)
                if line is not None and (request is None or line.get("run") == request):
                    lines[line["process"], line["at"], line["what"]] = line
    return sorted(lines.values(), key=lambda line: line["at"])


def _line(text: str, process: dict[str, Any], own: dict[str, Any]) -> dict[str, Any] | None:
    """What a line says; None of the last one of a process that was killed, and of what is no line."""
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict):
        return None
    line = process | entry | own
    types = {"process": str, "at": int | float, "what": str, **REQUIRED_FACTS.get(str(line.get("what")), {})}
    if not all(isinstance(line.get(name), kind) for name, kind in types.items()):
        return None
    if not all(isinstance(line[name], kind) for name, kind in OPTIONAL_FACTS.items() if name in line):
        return None
    return line if 0 <= line["at"] < END_OF_TIME else None


def gather(run: Path, request: str) -> None:
    """Put the lines of a request into one file beside the record of its run, before its state goes."""
    lines = lines_of(run, request)
    if lines:
        temporary = run / f".{JOURNAL}"
        with contextlib.suppress(OSError):
            temporary.write_text("".join(json.dumps(line) + "\n" for line in lines))
            os.replace(temporary, run / JOURNAL)
