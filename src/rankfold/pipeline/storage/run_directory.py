"""The folder next to an output in which a run works until the output is complete.

``R.zarr`` appears by one rename when everything in it is written, so an output that exists is
complete. Until then ``R.zarr.run/`` holds the request, the checkpoints, scratch and the growing result;
afterwards it keeps ``run.json``, the journal and logs. Whoever works in it holds a lock that the
kernel releases when the process dies, however it dies.

Ownership of folders of a run: contents that others may change are not trusted.

The state of a run (its checkpoints) decides the result, so it must belong to the user who runs the command,
and not be writable by all.
A group may write if the site allows it, as in folders of a project with the set-group-ID bit: its members can
corrupt numbers there, as they can those of the input and of the result. They cannot inject code: see
``by_reference``.

The trap: some file systems give all files to one owner, or have no permissions (root over NFS, FAT, shares of
containers). The owner and mode of a newly made file reveal this.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import pwd
import re
import stat
import tempfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rankfold._version import __version__
from rankfold.pipeline.durable import flush, flush_tree, rename_durably, rename_new
from rankfold.pipeline.errors import LockedError, OutputError
from rankfold.pipeline.machine import core_type
from rankfold.pipeline.outputs import APPEARED, carries, publish_folder
from rankfold.pipeline.removal import remove, remove_empty
from rankfold.pipeline.storage.checkpoint import (
    disk_errors,
    give_way,
    is_sealed,
    load_json,
    load_with_checksum,
    move_aside,
    save_json,
    save_with_checksum,
    set_aside,
)
from rankfold.pipeline.storage.journal import FOLDER, Journal, gather, load_record
from rankfold.pipeline.storage.lock import Lock, hold_lock, is_lock
from rankfold.pipeline.storage.manifest import DRAFT_NAME, not_ours, remove_drafts, request_in
from rankfold.pipeline.text import shell_words

LOG = logging.getLogger("rankfold")

MARK = "mark.json"
"""Name of a file in the folders of state and scratch, with equal random content if they belong together."""

PREVIOUS = "replaced.zarr"
"""Name, in the folder of the run, of a result that is being replaced."""

KEYS = "tls-"
"""Prefix of the names of folders with TLS keys of one driver, the process that hands work to workers."""

_OF_REQUEST = re.compile(r"(state|scratch)-[0-9a-f]{32}|result-[0-9a-f]{32}\.zarr")
"""Pattern of the names of folders that only an unfinished run needs."""

_OF_DRIVER = re.compile(rf"{KEYS}[a-z0-9_]{{8}}")
"""Pattern of the names of folders with TLS keys, as ``tempfile.mkdtemp`` makes them."""

_OF_RUN = ("lock", "run.json", "request.json", "jobs.json", "submitted.json", "journal.jsonl")
"""Names of files that a run may have in its folder."""

PAGE, PAGE_MARK = "report.html", " · rankfold</title>"
"""Name of the report in the folder of a run, and the text in it by which rankfold's pages are recognized."""

_LOG = re.compile(r"(worker|srun|rf|rankfold)-.+\.(log|out|err)")
"""Pattern of the names of logs of workers and jobs."""

Difference = Callable[[dict[str, Any], dict[str, Any]], str]
"""Function that takes the identities of an unfinished and a new run, and returns text on their difference."""

STATE_VERSION = 4
"""Version of everything in a run folder; another version cannot continue from it."""


def digest(value: object) -> str:
    """Digest, as 32 hexadecimal digits, of a value that JSON can hold."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """Paths of one run, and operations on them.

    ``output`` is the result that it makes, ``folder`` is ``OUTPUT.run``, ``scratch`` holds its intermediate
    files, ``request`` is the digest of its request.
    """

    output: Path
    folder: Path
    scratch: Path
    request: str = ""
    resumable: bool = True
    """True if a later process can continue the run; else nothing has to survive this process."""

    lock: Lock | None = None
    """Lock that a process holds while it works in the folder."""

    replaces: tuple[int, int] | None = None
    """Device and inode of the folder at the output that is to be replaced, if any."""

    @classmethod
    def beside(
        cls, output: Path, scratch: Path | None, request_hash: str, *, resumable: bool = True
    ) -> RunDirectory:
        """Make the paths of the run of an output; ``request_hash`` is the digest of its request.

        Its scratch is within the folder of the run, or in a folder of its own under ``scratch``, if given.
        ``resumable`` is False if nothing has to survive this process.
        """
        folder = output.with_name(output.name + ".run")
        narrow = (
            folder / f"scratch-{request_hash}" if scratch is None else _scratch_within(scratch, request_hash)
        )
        return cls(output, folder, narrow, request_hash, resumable)

    @property
    def state(self) -> Path:
        """Folder of the state of the run: checkpoints, and arrays that sweeps load."""
        return self.folder / f"state-{self.request}"

    @property
    def result(self) -> Path:
        """Folder of the growing result."""
        return self.folder / f"result-{self.request}.zarr"

    @property
    def record(self) -> Path:
        """Path of ``run.json``, the record of attempts at the result."""
        return self.folder / "run.json"

    @property
    def journal(self) -> Journal:
        """Writer of events of the driver (the process that hands out work) and of its workers."""
        return Journal(self.state / FOLDER)

    def replacing(self) -> RunDirectory:
        """Copy of this run that may replace what is at the output now: a result, as the caller knows."""
        try:
            about = os.lstat(self.output)
        except OSError:
            return replace(self, replaces=None)
        return replace(self, replaces=(about.st_dev, about.st_ino))

    @contextlib.contextmanager
    def claim(
        self, identity: dict[str, Any], *, overwrite: bool, difference: Difference | None = None
    ) -> Iterator[RunDirectory]:
        """Lock the run for this process during the block, and prepare its folders to start or to continue.

        Parameters
        ----------
        identity : dict
            The request and all else that decides the result. An unfinished run is continued only if its
            identity is the same.
        overwrite : bool
            True to discard an unfinished run of another identity, instead of an ``OutputError``.
        difference : function, optional
            Takes the identities of the unfinished run and of this one, and returns text on how they differ.

        Yields
        ------
        RunDirectory
            The run with its lock, which may be published.
        """
        with disk_errors(self.folder):
            if os.path.lexists(self.folder) and not self.folder.is_dir():
                self._make_way(overwrite=overwrite)
            make_own_folder(self.folder)
            self.require_known()
        require_own(self.folder)
        with hold_lock(self.folder / "lock", self.output) as lock:
            self._put_back()
            self._accept(identity, difference or _difference, overwrite=overwrite)
            self._join_scratch()
            if not (self.state / FOLDER).is_dir():
                remove(self.state / FOLDER)
                (self.state / FOLDER).mkdir()
            if self.record.is_dir():
                move_aside(self.record)
            held = replace(self, lock=lock)
            try:
                yield held
            except Exception:
                held.require_held()  # if two processes write one run, their errors are misleading
                raise

    def require_held(self) -> None:
        """Raise ``LockedError`` if this process does not hold the run, or another one works in it as well."""
        if self.lock is None:
            raise LockedError(f"{self.folder} is not held by this process")
        self.lock.require()

    def _put_back(self) -> None:
        """Give back its name to a result that was being replaced when a process was killed."""
        previous = self.folder / PREVIOUS
        if os.path.lexists(previous) and not os.path.lexists(self.output):
            rename_durably(previous, self.output)

    def _make_way(self, *, overwrite: bool) -> None:
        """Rename a file that has the name of the run folder: rankfold did not make it, so it is kept."""
        if not overwrite:
            raise OutputError(
                f"{self.folder} is a file where the run has to be. Choose another out= (--out), or rename it "
                "with overwrite=True (--overwrite)."
            )
        move_aside(self.folder)

    def require_known(self) -> None:
        """Raise if the folder exists but belongs to no run: its files are foreign, whatever their names."""
        entries = sorted(self.folder.iterdir()) if self.folder.is_dir() else []
        if not any(map(_is_of_run, entries)):
            for path in entries:
                if path.name == "lock" and path.is_file() and not path.stat().st_size:
                    continue  # a run was killed before it wrote anything
                raise OutputError(
                    f"{self.folder} is where the run has to be, and holds {path.name}, which is of no run. "
                    "Choose another out= (--out), or move that folder away"
                )

    def _join_scratch(self) -> None:
        """Check that the folders of state, scratch and result belong together; else make all of them anew."""
        folders = (self.state, self.scratch, self.result)
        for folder in folders:
            if os.path.lexists(folder) and folder.is_dir():
                require_own(folder, "--out" if self.folder in folder.parents else "--scratch")
        marks = [load_json(folder / MARK, str) for folder in folders[:2]]
        if marks[0] is not None and marks[0] == marks[1] and self.result.is_dir():
            for path in self.scratch.iterdir():
                if path.is_symlink():
                    set_aside(path, "is a link where a file belongs")
            return
        if any(os.path.lexists(folder) for folder in folders):
            set_aside(self.state, "does not belong to what is in scratch and in the result")
        mark = uuid.uuid4().hex
        with disk_errors(self.scratch):
            for folder in folders:
                remove(folder)
                make_own_folder(folder)
            for folder in folders[:2]:
                save_json(folder / MARK, mark, durable=self.resumable)
            if self.resumable:
                for folder in {folder.parent for folder in folders}:
                    flush(folder)

    def marks(self) -> dict[str, str]:
        """Content of the mark files of state and scratch by folder: workers must find the same.

        So a worker that sees another file system notices it.
        """
        return {str(folder): load_json(folder / MARK, str) or "" for folder in (self.state, self.scratch)}

    def _accept(self, identity: dict[str, Any], difference: Difference, *, overwrite: bool) -> None:
        path = self.folder / "request.json"
        earlier = load_with_checksum(path)
        if earlier is None and (os.path.lexists(path) or any(self.folder.glob("state-*"))):
            # The request that the state belongs to is unknown.
            set_aside(path, "is missing or not whole, and with it what the run has done so far")
            self.clear()
        mine = {**identity, "state_version": STATE_VERSION, "version": __version__, "blas": core_type()}
        if earlier is not None and earlier != mine:
            if not overwrite:
                raise OutputError(
                    f"{self.folder} holds an unfinished run that differs in {difference(earlier, mine)}. "
                    "Give the command that started it to go on, choose another out= (--out), or discard it "
                    "with overwrite=True (--overwrite)."
                )
            self.clear()
            earlier = None
        if earlier is None:
            save_with_checksum(path, mine, durable=self.resumable)

    def clear(self) -> None:
        """Remove state, scratch, unpublished results and the request, which only an unfinished run needs."""
        folders = (path for path in self.folder.iterdir() if _OF_REQUEST.fullmatch(path.name))
        for path in (*folders, self.scratch, *self._strays()):
            remove(path)
        give_way(self.folder / "request.json")

    def tidy(self, identity: dict[str, Any]) -> None:
        """Remove what is left of a run whose process was killed just after it had published its result.

        The record of the request is removed only if it holds all entries of ``identity``.
        """
        earlier = load_with_checksum(self.folder / "request.json") or {}
        mine = all(earlier.get(name) == value for name, value in identity.items())
        remains = [*self._strays(), self.state, self.scratch, self.result]
        remains += [self.folder / "request.json"] if mine else []
        if not any(map(os.path.lexists, remains)):
            return
        with contextlib.suppress(OSError, OutputError), hold_lock(self.folder / "lock", self.output):
            for path in remains:
                if path.name == "request.json":
                    give_way(path)
                else:
                    remove(path)

    def _strays(self) -> list[Path]:
        """Leftovers that the holder of the lock may remove.

        These are unfinished files, a result being replaced, and keys of a driver that was killed.
        """
        if not self.folder.is_dir():
            return []
        patterns = (DRAFT_NAME, _OF_DRIVER)
        strays = [path for path in self.folder.iterdir() if any(p.fullmatch(path.name) for p in patterns)]
        previous = self.folder / PREVIOUS
        return [*strays, previous] if os.path.lexists(previous) and not_ours(previous) is None else strays

    def publish(self) -> None:
        """Move the finished result to its name, and remove state and scratch.

        All its files are flushed before it has that name, and the name before anything is removed that could
        make it again. A result that another process may be writing to is not published.
        """
        gather(self.folder, self.request)
        self._forget_others()
        if not self.resumable:
            rename_new(self.result, self.output)
            self.clear()
            return
        flush_tree(self.result)
        self.require_held()
        aside = self.folder / PREVIOUS
        if os.path.lexists(aside):
            if not_ours(aside) is None:
                remove(aside)
            else:
                move_aside(aside)
        if (reason := publish_folder(self.result, self.output, aside, self._may_go)) is not None:
            raise OutputError(
                f"{self.output} {reason}, so it is never replaced. The result is finished and stays in "
                f"{self.result}: move {self.output} away and give the same command again, which takes it then"
            )
        remove_drafts(self.output)  # of a concurrent run, if locks do not work here
        if self.lock is not None and self.lock.other is None:
            self.clear()

    def _may_go(self, found: Path) -> str | None:
        """Reason why ``found``, the folder at the output, may not be replaced; None if it may."""
        if (reason := not_ours(found)) is not None:
            return reason
        about = os.lstat(found)
        if self.replaces == (about.st_dev, about.st_ino) or request_in(found) == self.request:
            return None
        return APPEARED

    def _forget_others(self) -> None:
        """Keep only entries of this request in ``run.json``: results of other requests no longer exist."""
        record = load_record(self.record)
        before = dict(record)
        record["attempts"] = self._own(record["attempts"])
        steps = {name: self._own(attempts) for name, attempts in record.pop("steps", {}).items()}
        if any(steps.values()):
            record["steps"] = steps
        if record.get("plan", {}).get("run") != self.request:
            record.pop("plan", None)
        if record != before:
            save_json(self.record, record, durable=self.resumable)
        elif self.resumable:
            flush(self.record)
            flush(self.folder)

    def _own(self, attempts: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [facts for facts in attempts if facts.get("run") == self.request]

    def discard(self) -> None:
        """Remove a run that cannot lead to a result; the record and logs of an older result are kept."""
        self.require_held()
        if self.output.exists():
            self.clear()
            return
        self.clear()
        for log in (self.folder / "logs").glob("*"):
            if _LOG.fullmatch(log.name):
                remove(log)
        remove_empty(self.folder / "logs")
        page = self.folder / PAGE
        for name in (*_OF_RUN, PAGE) if page.is_file() and carries(PAGE_MARK)(page) is None else _OF_RUN:
            if (path := self.folder / name).is_file():
                remove(path)
        remove_empty(self.folder)

    def log_attempt(self, facts: dict[str, Any]) -> None:
        """Add facts on an attempt to ``run.json``; earlier facts with the same ``started`` are replaced."""
        record = load_record(self.record)
        attempts, facts = record["attempts"], {**facts, "run": self.request}
        if attempts and attempts[-1].get("started") == facts["started"]:
            attempts[-1] = facts
        else:
            attempts.append(facts)
        save_json(self.record, record, durable=False)

    def log_steps(self, steps: dict[str, list[dict[str, Any]]], plan: dict[str, Any]) -> None:
        """Note in ``run.json`` the attempts at the steps of a chain of tasks, and the plan of the chain.

        ``steps`` are lists of attempts, by the name of the step.
        """
        self.require_held()  # its unfinished file would be a stray to another holder
        record = load_record(self.record)
        noted = record.setdefault("steps", {})
        for name, attempts in steps.items():
            others = [facts for facts in noted.get(name, []) if facts.get("run") != self.request]
            noted[name] = [*others, *({**facts, "run": self.request} for facts in attempts)]
        record["plan"] = {**plan, "run": self.request}
        save_json(self.record, record, durable=False)


def _is_of_run(path: Path) -> bool:
    """True if a file or folder shows by its content, or by a digest in its name, that a run made it.

    The folder that it is in is then that of a run, in which other files may be damaged.
    """
    if path.name == "lock":
        return is_lock(path)
    if path.name in ("request.json", "submitted.json"):
        return is_sealed(path)
    if path.name == "run.json":
        return any("run" in attempt for attempt in load_record(path)["attempts"])
    return _OF_REQUEST.fullmatch(path.name) is not None


def scratch_of_runs(folder: Path, scratch: Path) -> list[Path]:
    """Paths in ``scratch`` of the scratch folders of unfinished runs in a run folder; they need not exist."""
    return [_scratch_within(scratch, state.name.removeprefix("state-")) for state in folder.glob("state-*")]


def _scratch_within(scratch: Path, request_hash: str) -> Path:
    return scratch / f"rankfold-{request_hash}"


def lies_in(path: str | Path, folder: str | Path) -> bool:
    """True if a path is a folder or lies in it; follows links, also circular ones."""
    inner, outer = (Path(os.path.realpath(each)) for each in (path, folder))
    return inner == outer or outer in inner.parents


def _difference(earlier: dict[str, Any], mine: dict[str, Any]) -> str:
    names = [name for name in sorted({*earlier, *mine}) if earlier.get(name) != mine.get(name)]
    return ", ".join(f"{name} ({earlier.get(name)} there, {mine.get(name)} now)" for name in names)


def make_own_folder(path: Path) -> None:
    """Make a folder of a run with default permissions; if these let others write, others get none at all.

    An existing folder stays as it is: ``require_own`` checks it.
    """
    try:
        path.mkdir(parents=True)
    except FileExistsError:
        return
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & stat.S_IWOTH:
        path.chmod(mode & ~stat.S_IRWXO)


def require_own(path: Path, option: str = "--out") -> None:
    """Raise unless a folder belongs to this user, and is not writable by everybody.

    Raises
    ------
    OutputError
        It belongs to another user, or all may write; ``option`` is the option that chooses the folder.
    """
    about = path.stat()
    foreign, open_to_all = about.st_uid != os.geteuid(), bool(about.st_mode & stat.S_IWOTH)
    if foreign or open_to_all:
        usual = _made_now(path)
        foreign = foreign and (usual is None or usual.st_uid != about.st_uid)
        open_to_all = open_to_all and (usual is None or not usual.st_mode & stat.S_IWOTH)
    if foreign:
        owner = _user(about.st_uid)
        raise OutputError(
            f"{path} belongs to {owner}, and you are {_user(os.geteuid())}: what a run has left decides its "
            f"result, so only its owner may go on with it. Have it removed by {owner}, or choose another "
            f"{option}"
        )
    if open_to_all:
        raise OutputError(
            f"{path} may be written by everybody (mode {stat.S_IMODE(about.st_mode):o}): what lies in it "
            f"decides the result, and may be anybody's. Remove it; or, if nobody else was there, give the "
            f"same command again after chmod -R o-w {shell_words([str(path)])}"
        )


def _made_now(folder: Path) -> os.stat_result | None:
    """``os.fstat`` of a new private file in a folder, with its owner and mode; None if none can be made."""
    with contextlib.suppress(OSError), tempfile.TemporaryFile(dir=folder) as file:
        return os.fstat(file.fileno())
    return None


def _user(number: int) -> str:
    with contextlib.suppress(KeyError):
        return f"{pwd.getpwuid(number).pw_name} (user {number})"
    return f"user {number}"
