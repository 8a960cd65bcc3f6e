"""Commands as one gives them: words in, an outcome out. Most run in processes that a server forks."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from command_server import Ending

SERVER = Path(__file__).with_name("command_server.py")

PATIENCE = 600.0
"""Seconds that a command may take on a machine that has other things to do."""

TOKEN = "RANKFOLD_CHAOS_COMMAND"
"""Environment variable by which all that a command has started is known, in whatever session it runs."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str
    seconds: float
    peak_bytes: int = 0
    operations: int = 0
    """On files below the folder of the ending, if there was one."""

    expired: bool = False
    """It was killed since it took too long."""

    @property
    def last_words(self) -> str:
        """The last line that it said."""
        lines = (self.err.strip() or self.out.strip()).splitlines()
        return lines[-1][:300] if lines else ""


class CommandLine:
    """``rankfold`` as one gives it: words in, an outcome out. One command at a time."""

    def __init__(self, folder: Path, env: Mapping[str, str] | None = None) -> None:
        self.folder, self.env = folder, dict(env or {})
        folder.mkdir(parents=True, exist_ok=True)
        self._server: subprocess.Popen[bytes] | None = None
        self._unread = b""

    def __enter__(self) -> CommandLine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the server and what still runs."""
        if self._server is not None:
            self._server.kill()
            self._server.wait()
            for pipe in (self._server.stdin, self._server.stdout):
                if pipe:
                    pipe.close()
            self._server = None

    def run(self, words: Sequence[str], cwd: Path, **options: Any) -> Outcome:
        """Give a command and wait for its end."""
        return self.start(words, cwd, **options).outcome()

    def start(
        self,
        words: Sequence[str],
        cwd: Path,
        *,
        ending: Ending | None = None,
        env: Mapping[str, str] | None = None,
        limits: Mapping[str, Any] | None = None,
        patience: float = PATIENCE,
        own_interpreter: bool = False,
    ) -> Command:
        """Give a command; ``own_interpreter`` for one that starts workers, which import its main module."""
        command = _Own if own_interpreter else _Forked
        # What is measured of this machine is not shared with other versions of rankfold.
        environment = {"XDG_CACHE_HOME": str(self.folder / "cache")} | self.env | dict(env or {})
        return command(self, words, cwd, ending, environment, dict(limits or {}), patience)

    def server(self) -> subprocess.Popen[bytes]:
        """The server, which is started when it is first needed."""
        if self._server is None or self._server.poll() is not None:
            self._server = subprocess.Popen(
                [sys.executable, "-W", "ignore::DeprecationWarning", str(SERVER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=os.environ | self.env,
            )
            self._unread = b""
            self.answer(PATIENCE)
        return self._server

    def answer(self, patience: float) -> dict[str, Any] | None:
        """What the server says next; None if it says nothing for so long."""
        assert self._server is not None and self._server.stdout is not None
        pipe, until = self._server.stdout.fileno(), time.monotonic() + patience
        while b"\n" not in self._unread:
            if not select.select([pipe], [], [], max(0.0, until - time.monotonic()))[0]:
                return None
            data = os.read(pipe, 65536)
            if not data:
                raise RuntimeError("the server of commands has ended")
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return json.loads(line)  # type: ignore[no-any-return]


class Command:
    """A command that runs."""

    pid: int

    def __init__(
        self,
        line: CommandLine,
        words: Sequence[str],
        cwd: Path,
        ending: Ending | None,
        env: dict[str, str],
        limits: dict[str, Any],
        patience: float,
    ) -> None:
        self.line, self.patience, self.began = line, patience, time.monotonic()
        self.token = uuid.uuid4().hex
        env = {**env, TOKEN: self.token}
        self.files = {name: line.folder / f"{name}.txt" for name in ("out", "err", "operations", "modules")}
        for path in self.files.values():
            path.unlink(missing_ok=True)
        self._begin(words, cwd, ending, env, limits)

    def _begin(
        self,
        words: Sequence[str],
        cwd: Path,
        ending: Ending | None,
        env: dict[str, str],
        limits: dict[str, Any],
    ) -> None:
        raise NotImplementedError

    def _wait(self, patience: float) -> tuple[int, int] | None:
        raise NotImplementedError

    def members(self) -> list[int]:
        """Numbers of the processes that the command and all that it has started run in."""
        mark, found = f"{TOKEN}={self.token}\0".encode(), []
        for name in os.listdir("/proc"):
            if name.isdigit():
                with contextlib.suppress(OSError, ValueError):
                    state = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
                    mine = int(state[3]) == self.pid or mark in Path("/proc", name, "environ").read_bytes()
                    if mine and state[0] != "Z":
                        found.append(int(name))
        return sorted(found)

    def kill(self) -> None:
        """Kill the command and all that it has started."""
        for pid in self.members():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def outcome(self) -> Outcome:
        """Wait for the end; a command that takes too long is killed with all that it has started."""
        end, expired = self._wait(self.patience), False
        if end is None:
            expired = True
            self.kill()
            end = self._wait(60) or (-9, 0)
        said = {name: _text(self.files[name]) for name in self.files}
        count = int(said["operations"] or 0)
        seconds = time.monotonic() - self.began
        return Outcome(end[0], said["out"], said["err"], seconds, end[1], count, expired)


class _Forked(Command):
    def _begin(
        self,
        words: Sequence[str],
        cwd: Path,
        ending: Ending | None,
        env: dict[str, str],
        limits: dict[str, Any],
    ) -> None:
        end = None if ending is None else {"folder": ending.folder, "at": ending.at, "how": ending.how}
        request = {"words": list(words), "cwd": str(cwd), "env": env, "limits": limits, "ending": end}
        request |= {name: str(path) for name, path in self.files.items()}
        server = self.line.server()
        assert server.stdin is not None
        server.stdin.write(json.dumps(request).encode() + b"\n")
        server.stdin.flush()
        started = self.line.answer(PATIENCE)
        assert started is not None
        self.pid = started["pid"]

    def _wait(self, patience: float) -> tuple[int, int] | None:
        end = self.line.answer(patience)
        return None if end is None else (end["code"], end["peak"])


class _Own(Command):
    def _begin(
        self,
        words: Sequence[str],
        cwd: Path,
        ending: Ending | None,
        env: dict[str, str],
        limits: dict[str, Any],
    ) -> None:
        if ending is not None or limits:
            raise ValueError("only a forked command ends itself, or is limited")
        with open(self.files["out"], "wb") as out, open(self.files["err"], "wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "rankfold", *words],
                cwd=cwd,
                env=os.environ | env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        self.pid = self.process.pid

    def _wait(self, patience: float) -> tuple[int, int] | None:
        try:
            return self.process.wait(patience), 0
        except subprocess.TimeoutExpired:
            return None


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except FileNotFoundError:
        return ""
