"""A command that is stopped between two operations on files, so that something happens at that moment."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from cases import CASES, Case
from command_client import PATIENCE, Command, CommandLine, Outcome
from command_server import Ending
from contents import Contents
from inputs import FLOWS, filled, write_trial
from trials import Bench

NAMED = re.compile(r"\{input\}/([\w.-]+)")

FORKED = tuple(one.name for one in CASES if not one.processes)
"""Cases of which a command can be stopped at an operation."""

WRITING = tuple(one.name for one in CASES if not one.processes and one.outputs)
"""Those of them that write something."""


def start_and_stop(
    bench: Bench, words: Sequence[str], folder: Path, at: int, *, line: CommandLine | None = None
) -> Command:
    """Give a command that is stopped at an operation below a folder, and wait until it is, or has ended."""
    command = (line or bench.line).start(words, bench.folder, ending=Ending(str(folder), at, "SIGSTOP"))
    until = time.monotonic() + PATIENCE
    while state_of(command.pid) not in "TZ" and time.monotonic() < until:
        time.sleep(0.005)
    return command


def resume(command: Command) -> None:
    """Let it go on."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(command.pid, signal.SIGCONT)


def outcomes(first: Command, second: Command) -> list[Outcome]:
    """How two commands end, of which the first may be stopped until the second has ended."""
    later = second.outcome()
    resume(first)
    return [first.outcome(), later]


def state_of(pid: int) -> str:
    """What Linux says of a process: R, S, D, T for stopped, Z where it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "Z"


# Inputs of a trial alone ---------------------------------------------------------------------------


class OwnInputs:
    """Inputs of one case within the folder of the trial, where they may be harmed."""

    def __init__(self, bench: Bench, case: Case) -> None:
        self.bench, self.case = bench, case
        self.folder = bench.trial / "data"

    def lay_out(self) -> None:
        """An empty folder of a trial, and fresh copies of the inputs, as old as those they are copies of."""
        self.bench.clear()
        self.folder.mkdir()
        for name in self.names():
            self.restore(name)
        write_trial(self.folder, self.bench.trial)

    def names(self) -> list[str]:
        """What the case reads."""
        flows = [matrix for name, (_, matrix) in FLOWS.items() if f"{{trial}}/{name}" in self.case.arguments]
        return sorted({*NAMED.findall(" ".join(self.case.arguments)), *flows})

    def restore(self, name: str) -> None:
        """Put one input back as it was, its times too."""
        source, target = self.bench.inputs / name, self.folder / name
        if target.is_dir():
            shutil.rmtree(target)
        target.unlink(missing_ok=True)
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copy2(source, target)

    def words(self, *extra: str) -> list[str]:
        """The command of the case, on these inputs."""
        return filled([*self.case.arguments, *extra], self.folder, self.bench.trial)

    def operations(self) -> int:
        """On files of the trial, its inputs among them, that an undisturbed run takes; found out once.

        Raises
        ------
        RuntimeError
            The answer is not that of the inputs that these are copies of.
        """

        def find() -> int:
            self.bench.answer(self.case)
            self.lay_out()
            count = Ending(str(self.bench.trial), 0, "count")
            outcome = self.bench.line.run(self.words(), self.bench.folder, ending=count)
            difference = self.bench.difference(self.case, outcome)
            if outcome.code or difference:
                raise RuntimeError(f"{self.case.name} on copies: {outcome.code} {outcome.err} {difference}")
            return outcome.operations

        self.bench.answer(self.case)
        return self.bench.once(f"operations of {self.case.name}", find)

    def fresh_answer(self) -> tuple[Contents, str] | None:
        """What the command answers on the inputs as they are now, written and printed; None if it refuses.

        What lies where the answer goes is there again afterwards.
        """
        kept = self.bench.folder / "kept"
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir()
        mine = [path for path in self.bench.trial.iterdir() if path != self.folder and path.name not in FLOWS]
        for path in mine:
            path.rename(kept / path.name)
        outcome = self.bench.line.run(self.words(), self.bench.folder)
        answer = None if outcome.code else (self.bench.stores(self.case), outcome.out)
        for path in list(self.bench.trial.iterdir()):
            if path != self.folder and path.name not in FLOWS:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        for path in kept.iterdir():
            path.rename(self.bench.trial / path.name)
        return answer
