"""No test leaves files behind: not among temporary files, nor where tests were started.

Every process of pytest, with all that it starts, has its own folder for temporary files. What is in it at
the end fails the session, named with the test during which it came. What pytest keeps of tests that failed
lies elsewhere.
"""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import psutil
import pytest

TOLERATED = {"dask-scratch-space", "__pycache__", ".pytest_cache", ".hypothesis", ".coverage"}
"""Folders of tools. Dask keeps the first, with its locks; nothing else may stay there."""

AT_EXIT = "sklearn_testing_"
"""Folders that the checks of scikit-learn delete when the process ends."""


def entries(folder: Path) -> set[str]:
    """What lies in a folder, and what Dask holds there."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    names = {name for name in names if not name.startswith(AT_EXIT)}
    scratch = folder / "dask-scratch-space"
    held = {path.name for path in scratch.iterdir()} if scratch.is_dir() else set()
    return names - TOLERATED | {f"{scratch.name}/{name}" for name in held if not name.endswith(".lock")}


def reclaim(folder: Path) -> None:
    """Remove what sessions that were killed could not: temporary files, and what pytest kept of tests."""
    for path in folder.glob("rf-*-*"):
        if not _alive(path.name.split("-")[1]):
            shutil.rmtree(path, ignore_errors=True)
    for lock in folder.glob("pytest-of-*/pytest-*/.lock"):
        with contextlib.suppress(OSError):
            if not _alive(lock.read_text().strip()):
                shutil.rmtree(lock.parent, ignore_errors=True)


def _alive(pid: str) -> bool:
    return not pid.isdigit() or psutil.pid_exists(int(pid))


class Leftovers:
    """Folders that are watched, and the tests during which things came to be there."""

    def __init__(self) -> None:
        # Short, since the paths of sockets are: 107 bytes at most.
        self.temporary = Path(tempfile.mkdtemp(prefix=f"rf-{os.getpid()}-"))
        self.started = Path.cwd()
        self.before = entries(self.started)
        self.origin: dict[Path, str] = {}

    def note(self, test: str) -> None:
        """Remember which test made what is new."""
        for path in self._new():
            self.origin.setdefault(path, test)

    def lines(self) -> list[str]:
        """What is left, a line each."""
        gc.collect()
        return [f"{path}, since {self.origin.get(path, 'the end')}" for path in sorted(self._new())]

    def _new(self) -> set[Path]:
        here = {self.started / name for name in entries(self.started) - self.before}
        return here | {self.temporary / name for name in entries(self.temporary)}


KEY = pytest.StashKey[Leftovers]()
LINES = pytest.StashKey[list[str]]()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    # pytest keeps its own folders, with what failed, where they are.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    tempfile.tempdir = os.environ["PYTEST_DEBUG_TEMPROOT"]
    reclaim(Path(tempfile.tempdir))
    config.stash[KEY], config.stash[LINES] = Leftovers(), []
    os.environ["TMPDIR"] = tempfile.tempdir = str(config.stash[KEY].temporary)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    result = yield
    item.config.stash[KEY].note(item.nodeid)
    return result


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    lines = session.config.stash[LINES]
    seen = {line.partition(", since")[0] for line in lines}  # by processes of xdist, which tell of tests too
    lines += [line for line in session.config.stash[KEY].lines() if line.partition(", since")[0] not in seen]
    if hasattr(session.config, "workeroutput"):  # a process of xdist tells the one that started it
        session.config.workeroutput["left behind"] = lines
    elif lines and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[LINES].extend(getattr(node, "workeroutput", {}).get("left behind", []))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if lines := config.stash[LINES]:
        terminalreporter.section("files left behind", red=True)
        for line in lines:
            terminalreporter.line(line)


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(config.stash[KEY].temporary, ignore_errors=True)
