"""Many runs of one command, each in a process of its own, with its imports made once.

    python forked_commands.py MODULES < REQUESTS > ANSWERS

``MODULES`` is a file of names. A request is a line of JSON: the words of a command, and after how many
seconds it is killed. So is its answer: exit code, the most memory that its process held in KiB, seconds of
processor time, and what it said. A process begins as a fork of one that has imported and made the commands,
and nothing else, so that it holds what an interpreter with these imports does.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import typer.main

LISTED = """\
import atexit, sys
from rankfold.__main__ import main
out = sys.argv.pop(1)
atexit.register(lambda: open(out, "w").write("\\n".join(sys.modules)))
main()
"""
"""Runs a command, and writes down what it imported."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    code: int
    """Exit code, or minus the signal that ended it."""

    peak: int
    """KiB."""

    seconds: float
    """Of processor time, without imports."""

    err: str


class ForkedCommands:
    """Runs of commands that import what one command does."""

    def __init__(self, words: Sequence[str]) -> None:
        """Give the command once, for its imports."""
        with tempfile.TemporaryDirectory() as folder:
            names = Path(folder, "modules")
            subprocess.run([sys.executable, "-c", LISTED, names, *words], capture_output=True, check=False)
            own = [sys.executable, __file__, names]
            self._server = subprocess.Popen(own, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            assert self._answer() == "ready"

    def run(self, words: Sequence[str], patience: int) -> Ended:
        """Give a command; after ``patience`` seconds it is killed."""
        assert self._server.stdin is not None
        print(json.dumps([list(words), patience]), file=self._server.stdin, flush=True)
        answer = self._answer()
        assert isinstance(answer, list)
        return Ended(*answer)

    def close(self) -> None:
        """End the process that all are forks of."""
        self._server.communicate()

    def _answer(self) -> object:
        assert self._server.stdout is not None
        return json.loads(self._server.stdout.readline())


def serve(requests: IO[str], answers: IO[str]) -> Iterator[list[str]]:
    """Fork for each request, and answer it; yields its words in the fork."""
    print(json.dumps("ready"), file=answers, flush=True)
    for line in requests:
        words, patience = json.loads(line)
        with tempfile.TemporaryFile("w+") as said:
            if not (child := os.fork()):
                _begin(said.fileno(), patience)
                yield words
                return
            _, status, used = os.wait4(child, 0)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            said.seek(0)
            seconds = used.ru_utime + used.ru_stime
            ended = [os.waitstatus_to_exitcode(status), used.ru_maxrss, seconds, said.read()]
        print(json.dumps(ended), file=answers, flush=True)


def _begin(said: int, patience: int) -> None:
    """Make a fork what a new process is."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for number, place in ((nothing, 0), (nothing, 1), (said, 2)):
        os.dup2(number, place)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.alarm(patience)


def main() -> None:
    for name in Path(sys.argv[1]).read_text().split():
        with contextlib.suppress(Exception):  # some are made as they are used, and are no files
            importlib.import_module(name)
    from rankfold.__main__ import main as command
    from rankfold.workflows.cli import app

    typer.main.get_command = functools.cache(typer.main.get_command)
    typer.main.get_command(app)
    gc.freeze()  # what a fork does not touch it shares
    for words in serve(sys.stdin, sys.stdout):
        sys.argv = ["rankfold", *words]
        command()


if __name__ == "__main__":
    main()
