"""Signals at any moment, to the command or to one of its workers.

Killed, stopped or interrupted, the same command goes on and ends with the same bytes; a worker that is killed
is replaced, and the command does not even end. Afterwards no process is there any more, and no file but the
output and its record.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from pathlib import Path

from cases import Case
from command_client import Command, Outcome
from command_server import Ending
from inputs import FLOWS
from trials import FAULT, SAME, Bench, Trial, chance, judge, moment, turn

KEPT = ("run.json", "journal.jsonl", "lock", "logs")
"""What remains of a run that has ended."""

LINGER = 20.0
"""Seconds after which workers have noticed that their command is gone."""

ENDS = {"SIGKILL": (-9,), "SIGTERM": (75, -15), "SIGINT": (130, -2)}
"""Exit codes of a command that gets a signal; negative before it has begun."""


def kills(bench: Bench, seed: int, number: int) -> Trial:
    """One trial: a signal, the same command again, and what stays behind."""
    draw, began = chance("kills", seed, number), time.monotonic()
    case = turn(None, number, seed)
    whole = bench.answer(case)
    place = bench.trial / "place"
    bench.clear()
    for name in ("cwd", "tmp"):
        (place / name).mkdir(parents=True)
    name = draw.choice(("SIGKILL", "SIGKILL", "SIGTERM", "SIGINT"))
    worker = case.processes and draw.random() < 0.4
    if worker:
        attack, outcome, words = _kill_a_worker(bench, case, place, draw, whole.outcome)
    else:
        attack, outcome, words = _signal(bench, case, place, name, draw, whole.outcome)
    verdict = FAULT if words else SAME
    if verdict == SAME and not (worker or outcome.code == 0):
        outcome = _start(bench, case, place).outcome()
        verdict, words = judge(outcome, bench.difference(case, outcome), must_finish=True)
    elif verdict == SAME:
        verdict, words = judge(outcome, bench.difference(case, outcome), must_finish=True)
    if verdict == SAME and (stray := leftovers_of(bench, case, place)):
        verdict, words = FAULT, f"leaves {stray}"
    seconds = time.monotonic() - began
    return Trial("kills", seed, number, case.name, attack, "", verdict, outcome.code, words, seconds)


def _start(bench: Bench, case: Case, place: Path, ending: Ending | None = None) -> Command:
    words = case.command(bench.inputs, bench.trial)
    env = {"TMPDIR": str(place / "tmp")}
    return bench.line.start(words, place / "cwd", env=env, ending=ending, own_interpreter=case.processes)


def _signal(
    bench: Bench, case: Case, place: Path, name: str, draw: random.Random, whole: Outcome
) -> tuple[str, Outcome, str]:
    """A signal to the command: at an operation on files, or after a share of its time."""
    if whole.operations and draw.random() < 0.7:
        at = moment(draw, whole.operations)
        command = _start(bench, case, place, Ending(str(bench.trial / "r.zarr"), at, name))
        attack = f"{name} at operation {at} of {whole.operations}"
    else:
        command, share = _start(bench, case, place), draw.random()
        time.sleep(share * whole.seconds)
        with contextlib.suppress(ProcessLookupError):
            os.kill(command.pid, getattr(signal, name))
        attack = f"{name} after {share:.2f} of its time"
    outcome = command.outcome()
    words = ""
    if outcome.expired:
        words = "does not end"
    elif outcome.code not in (*ENDS[name], 0):
        words = f"ends with {outcome.code}: {outcome.last_words}"
    elif "Traceback" in outcome.err and name != "SIGKILL" and outcome.code > 0:
        words = f"traceback: {outcome.last_words}"
    elif outcome.code < 0 and name != "SIGKILL" and _begun(bench, case):
        words = f"ends as killed, though it had begun: {outcome.last_words}"
    if not words and (lingering := lingering_of(command)):
        words = f"leaves {lingering} processes after {LINGER:.0f} s"
    return attack, outcome, words


def _kill_a_worker(
    bench: Bench, case: Case, place: Path, draw: random.Random, whole: Outcome
) -> tuple[str, Outcome, str]:
    """SIGKILL to one process that the command has started, as soon as there is one, or later."""
    command, share = _start(bench, case, place), draw.random()
    moment = time.monotonic() + share * whole.seconds
    victim = 0
    while not victim and time.monotonic() < moment + whole.seconds:
        workers = workers_of(command)
        if workers and time.monotonic() >= moment:
            victim = draw.choice(workers)
        elif command.pid not in command.members():
            break
        time.sleep(0.02)
    if victim:
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
    attack = f"SIGKILL to a worker after {share:.2f} of its time" if victim else "no worker was there"
    outcome = command.outcome()
    lingering = lingering_of(command)
    return attack, outcome, f"leaves {lingering} processes" if lingering else ""


def workers_of(command: Command, *, nannies: bool = False) -> list[int]:
    """Processes of a command that compute for it; those that watch over one each, if that is asked."""
    found = []
    for pid in command.members():
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
            watched = b"spawn_main" in words or b"forkserver" in words
            starts = b"dask_worker" in words or b"node_worker" in words
            alone = starts and b"--no-nanny" in words
            if (starts and not alone) if nannies else (watched or alone):
                found.append(pid)
    return found


def _begun(bench: Bench, case: Case) -> bool:
    """Whether a command has come so far that it answers for signals: there is a folder of its run."""
    return any(bench.trial.glob("*.run")) or any(bench.trial.glob("results/*.run"))


def lingering_of(command: Command) -> int:
    """Processes of a command that are still there after a while; they are killed."""
    until = time.monotonic() + LINGER
    while (count := len(command.members())) and time.monotonic() < until:
        time.sleep(0.1)
    command.kill()
    return count


def leftovers_of(bench: Bench, case: Case, place: Path) -> str:
    """The first thing that is there and should not be."""
    for name in ("cwd", "tmp"):
        for path in sorted((place / name).iterdir()):
            return f"{path.name} in {'the working folder' if name == 'cwd' else 'the temporary folder'}"
    for run in (*bench.trial.glob("*.run"), *bench.trial.glob("results/*.run")):
        for path in sorted(run.iterdir()):
            if path.name not in KEPT:
                return f"{path.name} in {run.name}"
    known = {*case.outputs, *(f"{name}.run" for name in case.outputs), "place", "results", *FLOWS}
    for path in sorted(bench.trial.iterdir()):
        if path.name not in known and not (path.name == "elsewhere" and not any(path.iterdir())):
            return path.name
    return ""
