"""A clock that is set, back or forth, while a command runs or between two of them.

What the command asks for the time gets another answer from an operation on: a second, an hour, or ten years
earlier or later. Then it goes on; or it is killed, its files seem to be from a time that has not come yet, as
they do when a clock was ahead, and the same command goes on from them. Either way it must end with the same
bytes.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from pathlib import Path

from inputs import FLOWS
from moments import WRITING, resume, start_and_stop
from shim.faults import Faults
from trials import FAULT, SAME, Bench, Trial, chance, files_below, judge, moment, turn

SHIFTS = (-1, -5, -3600, -3600, -86_400 * 30, -86_400 * 3650, 3600, 86_400 * 30)
"""Seconds."""


def clock(bench: Bench, seed: int, number: int) -> Trial:
    """One trial: the clock jumps at an operation, the command goes on, or another one from what it left."""
    draw, began = chance("clock", seed, number), time.monotonic()
    case = turn(WRITING, number, seed)
    whole = bench.answer(case)
    bench.clear()
    faults = faults_of(bench)
    faults.set()
    line = bench.second_line("faults", faults.env)
    words = case.command(bench.inputs, bench.trial)
    at, shift, killed = moment(draw, whole.outcome.operations), draw.choice(SHIFTS), draw.random() < 0.5
    command = start_and_stop(bench, words, bench.trial, at, line=line)
    faults.set(clock_shift=shift)
    if killed:
        with contextlib.suppress(ProcessLookupError):
            os.kill(command.pid, signal.SIGKILL)
    resume(command)
    outcome = command.outcome()
    verdict, said = SAME, ""
    if not killed:
        verdict, said = judge(outcome, bench.difference(case, outcome), must_finish=True)
    if verdict != FAULT:
        _age(bench.trial, -shift, draw)
        again = line.run(words, bench.folder)
        verdict, said = judge(again, bench.difference(case, again), must_finish=True)
        said = said and f"the command {'once more' if not killed else 'after the kill'}: {said}"
    faults.set()
    what = f"{shift:+,} s at operation {at} of {whole.outcome.operations}{', then killed' * killed}"
    seconds = time.monotonic() - began
    return Trial("clock", seed, number, case.name, what, "", verdict, outcome.code, said, seconds)


def faults_of(bench: Bench) -> Faults:
    """The library of faults for commands on the folder of the trial; made once."""
    if bench.faults is None:
        bench.faults = Faults(bench.folder / "faults", bench.trial)
    return bench.faults


def _age(folder: Path, seconds: float, draw: random.Random) -> None:
    """Let some, or all, files seem to have been written so much later."""
    share = draw.choice((1.0, 0.5))
    for path in files_below(folder):
        if path.name not in FLOWS and not path.is_symlink() and draw.random() < share:
            state = path.stat()
            later = max(0, state.st_mtime_ns + int(seconds * 1e9))
            os.utime(path, ns=(state.st_atime_ns, later))
