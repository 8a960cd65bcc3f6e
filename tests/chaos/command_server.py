"""Commands in processes of their own, without the seconds that imports take.

A server imports rankfold once and forks for every command: what runs is the entry point of the command line
in a fresh process, which can be killed, starved, or made to end itself at the n-th operation on files.

    python tests/chaos/command_server.py      reads requests from stdin, a line of JSON each

``command_client.py`` is the other side. The trap: a server must not have threads, which no fork carries over.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

EVENTS = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.truncate", "shutil.rmtree")
"""Operations on files that are counted, as Python's audit hooks name them."""

EXT4_SHUTDOWN, NO_LOG_FLUSH = 0x8004587D, 2

FILLER = "filler"
"""The file that takes all the room that is left."""


@dataclass(frozen=True, slots=True)
class Ending:
    """At which operation below a folder a process ends itself, and how."""

    folder: str
    at: int
    how: str
    """``count`` (goes on, and counts), ``power`` (with the file system), ``fill`` (goes on, and there is no
    room left), or the name of a signal."""


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


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout)
