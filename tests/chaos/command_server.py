"""Commands in processes of their own, without the seconds that imports take.

A server imports rankfold once and forks for every command: what runs is the entry point of the command line
in a fresh process, which can be killed, starved, or made to end itself at the n-th operation on files.

    python tests/chaos/command_server.py      reads requests from stdin, a line of JSON each

``CommandLine`` is the other side. The trap: a server must not have threads, which no fork carries over.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

PATIENCE = 240.0
"""Seconds that a command may take on a machine that has other things to do."""

EVENTS = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.truncate", "shutil.rmtree")
"""Operations on files that are counted, as Python's audit hooks name them."""

EXT4_SHUTDOWN, NO_LOG_FLUSH = 0x8004587D, 2

FILLER = "filler"
"""The file that takes all the room that is left."""

TOKEN = "RANKFOLD_CHAOS_COMMAND"
"""Environment variable by which all that a command has started is known, in whatever session it runs."""


@dataclass(frozen=True, slots=True)
class Ending:
    """At which operation below a folder a process ends itself, and how."""

    folder: str
    at: int
    how: str
    """``count`` (goes on, and counts), ``power`` (with the file system), ``fill`` (goes on, and there is no
    room left), or the name of a signal."""


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


# The server ----------------------------------------------------------------------------------------


def serve(requests: IO[str], answers: IO[str]) -> None:
    """Fork for each request; its number when it runs, its end when it has ended."""
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    import rankfold.workflows.cli  # noqa: F401

    _tell(answers, {"ready": True})
    for line in requests:
        request = json.loads(line)
        began = time.monotonic()
        pid = os.fork()
        if not pid:
            requests.close()
            _become(request)
        _tell(answers, {"pid": pid})
        _, status, usage = os.wait4(pid, 0)
        end = {"code": os.waitstatus_to_exitcode(status), "peak": usage.ru_maxrss * 1024}
        _tell(answers, {**end, "seconds": time.monotonic() - began})
        _learn(Path(request["modules"]))


def _learn(names: Path) -> None:
    """Import what the last command has imported, so that the next one need not."""
    import importlib

    with contextlib.suppress(OSError):
        for name in names.read_text().split():
            if name not in sys.modules:
                with contextlib.suppress(BaseException):
                    importlib.import_module(name)
    assert threading.active_count() == 1, threading.enumerate()


def _tell(answers: IO[str], what: dict[str, Any]) -> None:
    answers.write(json.dumps(what) + "\n")
    answers.flush()


def _become(request: dict[str, Any]) -> None:
    """Run the command in this process, and end it as the interpreter would."""
    import tempfile
    import traceback

    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    for number, name in ((1, "out"), (2, "err")):
        file = os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(file, number)
    os.environ.update(request["env"])
    tempfile.tempdir = None
    os.chdir(request["cwd"])
    _limit(request["limits"])
    sys.argv = [
        "rankfold",
        *(os.fsdecode(word.encode("utf-8", "surrogateescape")) for word in request["words"]),
    ]
    code = 1
    try:
        end = request["ending"]
        if end is not None:
            end_at(Ending(**end), Path(request["operations"]))
        from rankfold.__main__ import main

        main()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
    except BaseException as error:  # noqa: BLE001  as the interpreter does
        traceback.print_exc()
        if isinstance(error, KeyboardInterrupt):
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        with contextlib.suppress(BaseException):
            Path(request["modules"]).write_text("\n".join(name for name in sys.modules if "__" not in name))
            _run_exit_functions()
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _run_exit_functions() -> None:
    """What the interpreter does at its end: threads are waited for, then exit functions run."""
    import atexit

    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()


def _limit(limits: Mapping[str, Any]) -> None:
    import resource

    if "file_bytes" in limits:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limits["file_bytes"],) * 2)
    if "user" in limits:
        os.setgroups([])
        os.setgid(limits["user"])
        os.setuid(limits["user"])


def end_at(ending: Ending, count: Path) -> None:
    """Count operations on files below a folder from now on, and end with the one that was drawn."""
    import fcntl
    import struct

    below, seen, lock = ending.folder.rstrip("/"), 0, threading.RLock()
    report = os.open(count, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    mount = os.open(_mount_of(below), os.O_RDONLY) if ending.how == "power" else -1

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if event not in EVENTS or not arguments:
            return
        path = arguments[0]
        if not isinstance(path, str | bytes | os.PathLike) or not os.fsdecode(path).startswith(below):
            return
        with lock:
            seen += 1
            now = seen
        if ending.how == "count":
            os.pwrite(report, str(now).encode(), 0)
        elif now == ending.at:
            if ending.how == "fill":
                _fill(os.path.join(_mount_of(below), FILLER))
                return
            if ending.how == "power":
                fcntl.ioctl(mount, EXT4_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
                os._exit(137)
            os.kill(os.getpid(), getattr(signal, ending.how))

    sys.addaudithook(hook)


def _fill(path: str) -> None:
    """Write into a file until there is no room left."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    with contextlib.suppress(OSError):
        for size in (1 << 20, 4096):
            with contextlib.suppress(OSError):
                while os.write(file, bytes(size)) == size:
                    pass
    os.close(file)


def _mount_of(path: str) -> str:
    while not os.path.ismount(path):
        path = os.path.dirname(path)
    return path


# The other side ------------------------------------------------------------------------------------


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
                [sys.executable, "-W", "ignore::DeprecationWarning", __file__],
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


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout)
