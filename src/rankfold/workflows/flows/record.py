"""Record of a workflow in its folder of results: ``flow.json``, and a lock file.

A stage is ``running`` while its process holds the lock. If no process does, that process was killed, and the
next holder of the lock calls the stage ``interrupted``. The record is for people, and decides what may be
replaced; whether a stage is done is decided by its result alone.
"""

from __future__ import annotations

import functools
import logging
import os
import re
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rankfold._version import __version__
from rankfold.pipeline.errors import OutputError
from rankfold.pipeline.machine import command_line
from rankfold.pipeline.regular import read_text
from rankfold.pipeline.storage.checkpoint import load_with_checksum, move_aside, save_with_checksum
from rankfold.pipeline.storage.journal import is_number, is_text
from rankfold.pipeline.storage.lock import is_lock

LOG = logging.getLogger("rankfold")

RECORD = "flow.json"
LOCK = "flow.lock"

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
"""Pattern of the name of a stage, which is part of a file name too."""

PROGRESS_SECONDS = 2.0
"""Least seconds between two times at which progress is saved."""


def now() -> str:
    """The time now in UTC, in the format of records, such as 2026-11-25T03:00:00Z."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def read_record(outputs: Path) -> dict[str, Any]:
    """Values in ``flow.json`` in the folder ``outputs``; empty if there is none, or if it is damaged.

    Damage is logged.
    """
    values = _values_at(outputs / RECORD)
    if values is None and os.path.lexists(outputs / RECORD):
        _tell_of_damage(outputs / RECORD)
    return values or {}


def _values_at(path: Path) -> dict[str, Any] | None:
    values = load_with_checksum(path)
    return values if values is not None and isinstance(values.get("workflow"), str) else None


def require_own_record(outputs: Path) -> None:
    """Raise ``OutputError`` if ``flow.json`` or ``flow.lock`` in a folder of results is of somebody else."""
    recognized = _values_at(outputs / RECORD) is not None
    require_own_files(outputs / RECORD, outputs / LOCK, recognized=recognized)


def require_own_files(note: Path, lock: Path, *, recognized: bool) -> None:
    """Raise ``OutputError`` if a file ``note`` that is to be written, or its lock file, is of somebody else.

    ``recognized`` is True if rankfold wrote the note that is there. It writes both, so if one is recognized,
    the other may be damaged, and is made again.
    """
    if recognized or is_lock(lock):
        return
    for path in (note, lock):
        if os.path.lexists(path) and not (path == lock and _is_empty(lock)):
            raise OutputError(
                f"{path} was not made by rankfold, and a workflow keeps such a file among its results. "
                "Choose other outputs, or move that file away"
            )


def _is_empty(lock: Path) -> bool:
    """True for the lock file of a process that was killed before it wrote its name."""
    return lock.is_file() and not lock.is_symlink() and not lock.stat().st_size


def _is_list_of_text(value: object) -> bool:
    return isinstance(value, list) and all(map(is_text, value))


def _are_names(value: object) -> bool:
    return _is_list_of_text(value) and all(map(NAME.fullmatch, value))  # type: ignore[call-overload]


def _is_progress(value: object) -> bool:
    return (
        isinstance(value, dict)
        and is_text(value.get("sweep"))
        and all(is_number(value.get(name)) for name in ("done", "total"))
    )


def _is_place(value: object) -> bool:
    return isinstance(value, dict) and all(is_text(value.get(name, "")) for name in ("host", "job", "kind"))


def _are_pictures(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(one, dict) and is_text(one.get("kind")) and isinstance(one.get("options"), dict)
        for one in value
    )


def _are_tables(value: object) -> bool:
    kinds = {"of": is_text, "bytes": is_number, "time": is_number}
    return isinstance(value, dict) and all(
        isinstance(drafts, list)
        and all(isinstance(one, dict) and all(kinds[name](one.get(name)) for name in kinds) for one in drafts)
        for drafts in value.values()
    )


KINDS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("workflow", "file", "version", "text", "command"), is_text),
    **dict.fromkeys(("method", "state", "started", "ended", "message"), is_text),
    "steps": _are_names,
    "why": _is_list_of_text,
    **dict.fromkeys(("read", "stages"), lambda value: isinstance(value, dict)),
    "attempts": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "seconds": is_number,
    "progress": _is_progress,
    "where": _is_place,
    "pictures": _are_pictures,
    "tables": _are_tables,
}
"""Function for each fact of a workflow or stage that checks its type; facts that fail are left out."""


def _is_stage(name: str, facts: object) -> bool:
    return NAME.fullmatch(name) is not None and isinstance(facts, dict)


def _sound(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if name not in KINDS or KINDS[name](value)}


@functools.lru_cache(maxsize=64)  # once, however often the record is read
def _tell_of_damage(path: Path) -> None:
    LOG.warning("%s is damaged: when, where and how often stages ran is not known any more", path)


@dataclass(slots=True)
class Record:
    """Record of a workflow, kept in ``flow.json``."""

    outputs: Path
    values: dict[str, Any]
    _began: float = 0.0
    _before: float = 0.0
    _run_began: float = 0.0
    _save_time: float = field(default=0.0)

    @classmethod
    def of(cls, outputs: Path) -> Record:
        """Record of a folder of results; empty if nothing has run. Values of a wrong type are left out."""
        values = _sound(read_record(outputs))
        stages = values.get("stages", {}).items()
        kept = {name: _sound(facts) for name, facts in stages if _is_stage(name, facts)}
        return cls(outputs, {**values, "stages": kept})

    @property
    def stages(self) -> dict[str, dict[str, Any]]:
        """Facts of each stage that was begun, by name."""
        return self.values["stages"]  # type: ignore[no-any-return]

    @property
    def run(self) -> dict[str, Any]:
        """Facts of the last run of the workflow."""
        run = self.values.get("run")
        return run if isinstance(run, dict) else {}

    def outcome(self, name: str) -> dict[str, Any]:
        """Facts of a stage's last result; empty if there is none, or if it is older
        than the recording of facts.
        """
        outcome = self.stages.get(name, {}).get("outcome")
        return outcome if isinstance(outcome, dict) else {}

    def begin_run(self) -> None:
        """Note that a run of the workflow begins, and save; how the run before ended stays in the record."""
        ended = {key: self.run.get(key) for key in ("ended", "succeeded", "exit_code", "seconds")}
        self.values["run"] = {**ended, "began": time.time(), "active": 1, "read_bytes": 0, "stages": {}}
        self._run_began = time.monotonic()
        self.save()

    def count(self, action: str) -> None:
        """Count a stage for the current run by what was done with it, such as ``run`` or ``skip``."""
        counts = self.run["stages"]
        counts[action] = counts.get(action, 0) + 1

    def end_run(self, exit_code: int) -> None:
        """Note that the run of the workflow has ended, with its exit code, and save."""
        at = time.time()
        self.run.update(ended=at, exit_code=exit_code, active=0)
        self.run["seconds"] = round(time.monotonic() - self._run_began, 3)
        if exit_code == 0:
            self.run["succeeded"] = at
        self.save()

    def note_outcome(self, name: str, outcome: dict[str, Any]) -> None:
        """Note the facts (see ``news.outcome_of``) of the stage ``name``, which is done, and save."""
        self.stages[name]["outcome"] = outcome
        self.run["read_bytes"] += outcome.get("read_bytes_last") or 0
        self.save()

    def require(self, workflow: str) -> None:
        """Raise if the folder has results of a workflow of another name than ``workflow``."""
        other = self.values.get("workflow", workflow)
        if other != workflow:
            raise OutputError(
                f"{self.outputs} has results of the workflow {other!r}, not of {workflow!r}. Choose other "
                "outputs, or give the workflow its old name"
            )

    def describe(self, workflow: str, file: Path, read: dict[str, Any], steps: list[str]) -> None:
        """Note which workflow is run, from which file with which content and steps, and save.

        ``read`` is the checked content of the file, ``steps`` are the names of all steps. The caller has just
        taken the lock, so no stage is running yet.
        """
        for stage in self.stages.values():
            if stage.get("state") == "running":
                stage["state"] = "interrupted"
        self.values |= {"workflow": workflow, "file": str(file), "version": __version__, "read": read}
        self.values |= {"steps": steps, "text": read_text(file), "command": command_line()}
        if (self.outputs / RECORD).is_symlink():
            move_aside(self.outputs / RECORD)
        self.save()

    def begin(
        self, name: str, method: str, reasons: tuple[str, ...], where: dict[str, Any], *, anew: bool
    ) -> None:
        """Note that the stage ``name`` begins, or resumes unless ``anew``, and save.

        ``reasons`` are those of its plan, ``where`` the facts of its place of execution.
        """
        outcome = self.outcome(name)
        old = {} if anew else self.stages.get(name, {})
        self._began, self._before = time.monotonic(), float(old.get("seconds", 0.0))
        self.stages[name] = {
            "method": method,
            "state": "running",
            "why": list(reasons),
            "attempts": int(old.get("attempts", 0)) + 1,
            "seconds": self._before,
            "started": now(),
            "where": {**where, "host": socket.gethostname(), "pid": os.getpid()},
            "outcome": outcome,
        }
        self.save()

    def progress(self, name: str, sweep: str, units: int, total: int) -> None:
        """Note that ``units`` of ``total`` (rows or bytes) of a sweep of the stage ``name`` are done.

        The record is saved every few seconds only.
        """
        stage = self.stages[name]
        stage["progress"] = {"sweep": sweep, "done": units, "total": total}
        stage["seconds"] = self._seconds()
        if units == total or time.monotonic() - self._save_time > PROGRESS_SECONDS:
            self.save()

    def end(self, name: str, state: str, message: str = "") -> None:
        """Note that the stage ``name`` has ended, and save; ``message`` says why, if not by being done.

        ``state`` is ``done``, ``interrupted`` or ``failed``.
        """
        stage = self.stages[name]
        stage |= {"state": state, "seconds": self._seconds(), "ended": now()}
        if state == "done":
            stage.pop("progress", None)
        if message:
            stage["message"] = message
        self.save()

    def note_done(self, name: str, method: str) -> None:
        """Note that the stage ``name`` was finished before this run, and save."""
        if self.stages.get(name, {}).get("state") != "done":
            self.stages[name] = {**self.stages.get(name, {}), "method": method, "state": "done"}
            self.stages[name].pop("progress", None)
            self.save()

    def note_pictures(self, name: str, pictures: list[dict[str, Any]]) -> None:
        """Note the pictures of the stage ``name`` and how they were drawn (``Pictures.draw``), and save."""
        if self.stages[name].get("pictures") != pictures:
            self.stages[name]["pictures"] = pictures
            self.save()

    @property
    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """Facts of the last two versions of each table that the workflow has written, by path."""
        return self.values.setdefault("tables", {})  # type: ignore[no-any-return]

    def note_table(self, path: Path, facts: dict[str, Any]) -> None:
        """Note a table before it appears at ``path``; the version before it stays listed in case of a kill.

        ``facts`` has ``of``, the digest of what it shows, ``bytes``, its size, and ``time``, when it was
        written.
        """
        self.tables[str(path)] = [*self.tables.get(str(path), [])[-1:], facts]
        self.save()

    def save(self) -> None:
        """Write the record to its file."""
        self._save_time = time.monotonic()
        save_with_checksum(self.outputs / RECORD, self.values, durable=False)

    def _seconds(self) -> float:
        return round(self._before + time.monotonic() - self._began, 3)
