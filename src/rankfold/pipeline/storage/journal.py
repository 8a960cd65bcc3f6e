"""Attempts at a result, and journals: lines of JSON about events, with times and processes.

A segment (the unit of work of a worker: 10 to 60 seconds of a sweep) has a line when it begins and one when
it ends; one that was killed has only the first. Workers note that they joined, drivers that a worker is gone.
Each process writes a file of its own, which needs no lock on any file system; the files are merged into one
when a run ends. They serve people and reports: no computation depends on them, and invalid entries are left
out.
"""

from __future__ import annotations

import calendar
import contextlib
import functools
import itertools
import json
import os
import socket
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankfold.pipeline.durable import rename
from rankfold.pipeline.regular import TABLE_BYTES, open_regular
from rankfold.pipeline.storage.checkpoint import load_json

FOLDER = "journal"
"""Name of the folder of journals in the state folder of a run."""

JOURNAL = "journal.jsonl"
"""Name of the merged journal in the folder of a run that has ended."""

MOST_BYTES, LONGEST_LINE = 2**26, 2**16
"""Largest number of characters that are read of a journal, and of a line in it."""

END_OF_TIME = 1e11
"""Seconds since 1970 beyond which the time of a line is invalid."""

REQUIRED_FACTS: dict[str, dict[str, Any]] = {"segment": {"id": int, "sweep": str}, "end": {"id": int}}
"""Fields that a line must have besides time and kind, with their types, by the kind of event (``what``)."""

OPTIONAL_FACTS: dict[str, Any] = {
    "rows": int,
    "read_bytes": int,
    "cut": str,
    "worker": str,
    "why": str | None,
}
"""Fields that a line may have, with their types."""

_COUNT = itertools.count()


@dataclass(frozen=True, slots=True)
class Journal:
    """Writes lines of events into a folder; without a folder it does nothing. Picklable."""

    folder: Path | None = None
    sweep: str = ""
    """Name of the sweep that segments belong to."""

    def note(self, what: str, **facts: Any) -> None:
        """Add a line about an event of kind ``what``, with the time, to the file of this process.

        Errors of writing are ignored: no run fails for its journal.
        """
        if self.folder is None:
            return
        line = json.dumps({"at": time.time(), "what": what, **facts}) + "\n"
        with (
            contextlib.suppress(OSError),
            open_regular(self.folder / f"{_process()}.jsonl", "ab", buffering=0) as file,
        ):
            file.write(line.encode())

    @contextlib.contextmanager
    def segment(self, part: object) -> Iterator[dict[str, Any]]:
        """Add a line before and after the block, which works on one part of a sweep.

        ``part`` names the part in both. Yields a dict, whose entries are added to the line at the end.
        """
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
    # Process ids repeat, in containers above all, where each is 1.
    return f"{socket.gethostname()}-{pid}.{uuid.uuid4().hex[:6]}"


def _process() -> str:
    return _names(os.getpid())


def lines_of(run: Path, request: str | None = None) -> list[dict[str, Any]]:
    """Valid lines of all journals in the folder of a run, in order of time.

    ``request`` is the digest of the request whose lines are wanted; None for those of all requests. Each line
    is a dict that names its ``process`` and its request, ``run``. A run within the state of another one, such
    as a search for neighbors whose ranks are then counted, belongs to the outer run.
    """
    lines: dict[tuple[str, float, str], dict[str, Any]] = {}
    for path in [run / JOURNAL, *_journals(run)]:
        first = path.relative_to(run).parts[0]
        own = {"run": first.removeprefix("state-")} if first.startswith("state-") else {}
        for text in _texts(path):
            line = _line(text, {"process": path.stem}, own)
            if line is not None and (request is None or line.get("run") == request):
                lines[line["process"], line["at"], line["what"]] = line
    return sorted(lines.values(), key=lambda line: line["at"])


def _journals(run: Path) -> Iterator[Path]:
    """Yield the paths of journals in the state folders of a run, and of runs within these."""
    for state in run.glob("state-*"):
        for parent, _, names in os.walk(state):
            of_processes = os.path.basename(parent) == FOLDER
            for name in names:
                if name == JOURNAL or (of_processes and name.endswith(".jsonl")):
                    yield Path(parent, name)


def _texts(path: Path) -> Iterator[str]:
    """Yield lines in the first ``MOST_BYTES`` of a file; a line that is too long is cut, and so invalid."""
    length = 0
    with contextlib.suppress(OSError), open_regular(path, "r", errors="replace") as file:
        while length < MOST_BYTES and (text := file.readline(LONGEST_LINE)):
            length += len(text)
            yield text


def _line(text: str, process: dict[str, Any], own: dict[str, Any]) -> dict[str, Any] | None:
    """Parse a line of a journal; ``process`` are default entries, ``own`` replace entries of the line.

    None for invalid lines, such as the last one of a process that was killed.
    """
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
    """Merge the lines of a request into ``journal.jsonl`` in the folder of its run.

    Called before the state of the run, with the journals of all processes, is removed.
    """
    lines = lines_of(run, request)
    if lines:
        temporary = run / f".{JOURNAL}"
        with contextlib.suppress(OSError):
            temporary.write_text("".join(json.dumps(line) + "\n" for line in lines))
            rename(temporary, run / JOURNAL)


# Attempts -------------------------------------------------------------------------------------------


def load_record(path: Path) -> dict[str, Any]:
    """Read ``run.json``, the record of a run, at ``path``; invalid entries are left out.

    A dict with ``attempts``, the starts of the run. Of a chain of tasks also ``steps``, the attempts at the
    result of each step by its name, and ``plan``, that of the whole chain.
    """
    record = load_json(path, dict, TABLE_BYTES) or {}
    attempts, steps = record.pop("attempts", None), record.pop("steps", None)
    if "plan" in record and not _has(record["plan"], PLAN):
        del record["plan"]
    if isinstance(steps, dict):
        record["steps"] = {name: _attempts(one) for name, one in steps.items()}
    return {**record, "attempts": _attempts(attempts)}


def _attempts(values: object) -> list[dict[str, Any]]:
    found = [one for one in values if isinstance(one, dict)] if isinstance(values, list) else []
    return [{key: fact for key, fact in one.items() if ATTEMPT.get(key, _is_any)(fact)} for one in found]


def epoch_of(text: str) -> float:
    """Seconds since 1970 of a time in UTC, in the format of records."""
    whole, _, part = text.removesuffix("Z").partition(".")
    return calendar.timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) + float(f"0.{part or 0}")


def _is_any(value: object) -> bool:
    return True


def is_text(value: object) -> bool:
    """True if a value from JSON is text."""
    return isinstance(value, str)


def is_number(value: object) -> bool:
    """True if a value from JSON is a number that floats can hold, but not NaN."""
    is_real = isinstance(value, int | float) and not isinstance(value, bool)
    return is_real and abs(value) <= sys.float_info.max  # type: ignore[arg-type]


def _is_amount(value: object) -> bool:
    return is_number(value) and value >= 0  # type: ignore[operator]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_moment(value: object) -> bool:
    try:
        return isinstance(value, str) and 0 <= epoch_of(value) < END_OF_TIME
    except (ValueError, OverflowError):
        return False


def _is_amount_or_none(value: object) -> bool:
    return value is None or _is_amount(value)


def _has(value: object, kinds: Mapping[str, Callable[[Any], bool]]) -> bool:
    return isinstance(value, dict) and all(is_kind(value.get(name)) for name, is_kind in kinds.items())


def _are_all(is_kind: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list) and all(map(is_kind, value))


PLACE = {**dict.fromkeys(("kind", "job"), is_text), **dict.fromkeys(("workers", "threads"), _is_count)}

SWEEP = {
    **dict.fromkeys(("name", "over"), is_text),
    **dict.fromkeys(("reads_bytes", "writes_bytes", "flops"), _is_amount),
}

PLAN: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("kind", "orientation", "dtype", "working_dtype"), is_text),
    **dict.fromkeys(("likely_passes", "most_passes", "reads_bytes", "peak_bytes"), _is_amount),
    **dict.fromkeys(("budget_bytes", "scratch_bytes", "tasks"), _is_amount),
    "concurrency": _is_count,
    "shape": lambda value: _are_all(_is_amount)(value) and len(value) == 2,
    "passes": _are_all(lambda value: _has(value, SWEEP)),
    "seconds": _is_amount_or_none,
}

ATTEMPT: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("run", "host", "command", "folder", "python", "system", "blas"), is_text),
    **dict.fromkeys(("seconds", "wait_seconds", "compile_seconds", "load_seconds"), _is_amount),
    **dict.fromkeys(("planned_bytes", "passes", "pid"), _is_amount),
    **dict.fromkeys(("measured_bytes", "baseline_bytes", "peak_bytes"), _is_amount_or_none),
    "started": _is_moment,
    "place": lambda value: isinstance(value, dict) and all(PLACE.get(k, _is_any)(value[k]) for k in value),
    "plan": lambda value: _has(value, PLAN),
    "sweep_seconds": lambda value: isinstance(value, dict) and all(map(_is_amount, value.values())),
}
"""Functions that check the facts of an attempt, by name.

A ``place`` (the executor and its workers) may lack facts that are checked; a plan and each of its sweeps must
have all of theirs.
"""
