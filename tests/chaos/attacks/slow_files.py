"""A file system that answers late, and forgets files that are open, as those of large machines do.

Operations on names of files (open, stat, rename, mkdir, unlink) take 5 to 50 ms longer, of so many of them
that a trial takes seconds. Then, as drawn, the command is left alone, or killed at an operation; or one of
its opens or reads fails with ``ESTALE``, of an input or of the run, and so do all later reads of that file.
The command must end with the same bytes or refuse in one message, and the same one again, on files that are
no longer stale, must end.
"""

from __future__ import annotations

import random
import time

from attacks.clock import faults_of
from command_client import CommandLine
from command_server import Ending
from moments import FORKED, OwnInputs
from shim.faults import Faults
from trials import FAULT, SAME, Bench, Trial, chance, judge, moment, turn

SLOWEST_SECONDS = 4.0
"""That delays add to a trial, about."""


def slow_files(bench: Bench, seed: int, number: int) -> Trial:
    """One trial: delays, and a kill or a stale file on top."""
    draw, began = chance("slow_files", seed, number), time.monotonic()
    case = turn(FORKED, number, seed)
    own = OwnInputs(bench, case)
    operations, faults = own.operations(), faults_of(bench)
    line = bench.second_line("faults", faults.env)
    calls, reads = _counts(bench, own, faults, line)
    own.lay_out()
    delay, way = _delay(draw, calls), draw.choice(("left alone", "killed", "stale", "stale"))
    ending, stale, attack = None, 0, ""
    if way == "killed":
        at = moment(draw, operations)
        ending = Ending(str(bench.trial), at, "SIGKILL")
        attack = f", killed at operation {at} of {operations}"
    elif way == "stale":
        stale = moment(draw, max(1, reads))
        attack = f", open or read {stale} of {reads} is stale"
    faults.set(**delay, stale_at=stale)
    command = line.start(own.words(), bench.folder, ending=ending)
    outcome = command.outcome()
    verdict, said = SAME, ""
    if way != "killed":
        difference = bench.difference(case, outcome)
        verdict, said = judge(outcome, difference, must_finish=way == "left alone")
    if verdict != FAULT and way != "left alone":
        faults.set(**delay)
        again = line.run(own.words(), bench.folder)
        after, why = judge(again, bench.difference(case, again), must_finish=True)
        verdict, said = (FAULT, f"the command again: {why}") if after == FAULT else (verdict, said)
    faults.set()
    command.kill()
    attack = f"{delay['delay_us'] / 1000:.0f} ms in one of {delay['every']} operations{attack}"
    seconds = time.monotonic() - began
    return Trial("slow_files", seed, number, case.name, attack, "", verdict, outcome.code, said, seconds)


def _counts(bench: Bench, own: OwnInputs, faults: Faults, line: CommandLine) -> tuple[int, int]:
    """Operations on names, and opens and reads, of an undisturbed run; found out once."""

    def find() -> tuple[int, int]:
        own.lay_out()
        faults.set()
        line.run(own.words(), bench.folder)
        return faults.count("calls"), faults.count("reads")

    return bench.once(f"calls and reads of {own.case.name}", find)


def _delay(draw: random.Random, calls: int) -> dict[str, int]:
    """Of 5 to 50 ms, for every so many-th operation."""
    milliseconds = draw.randint(5, 50)
    every = max(1, round(calls * milliseconds / 1000 / SLOWEST_SECONDS))
    return {"delay_us": milliseconds * 1000, "every": every}
