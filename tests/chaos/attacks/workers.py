"""Worker processes that are killed, stopped or cut off; drivers that are killed with their scheduler.

The scheduler lives in the driver, and workers on one machine have no nanny: who is killed is one of two. A
worker that is stopped for some seconds stands for a network that is cut for so long; one that stays stopped
until the scheduler has lost patience, for one that does not come back. Connections that break are those of a
worker: all its sends and receives fail for some seconds, and its sockets are shut. Or they are those between
workers, which all reach the driver, for some seconds or until the end.

Whatever it was, the command ends with the same bytes, or, where the driver was killed, the same command does.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time

import psutil
from attacks.clock import faults_of
from attacks.kills import leftovers_of, lingering_of, workers_of
from cases import CASES, Case
from command_client import Command, Outcome
from shim.faults import Faults
from trials import FAULT, SAME, Bench, Trial, chance, judge, turn

WITH_PROCESSES = tuple(one.name for one in CASES if one.processes)
WAYS = (
    "kill a worker",
    "kill all workers",
    "kill the driver",
    "stop a worker",
    "lose a worker",
    "cut a worker off",
    "cut workers from each other",
)
PATIENCE_SECONDS = 3
"""Of the scheduler with a worker that is lost."""

HUB_SECONDS = 30
"""Until a worker has connected itself to the driver, at most."""


def workers(bench: Bench, seed: int, number: int) -> Trial:
    """One trial: something happens to a process at a moment that is drawn."""
    draw, began = chance("workers", seed, number), time.monotonic()
    case = turn(WITH_PROCESSES, number, seed)
    whole = bench.answer(case)
    bench.clear()
    faults, way = faults_of(bench), draw.choice(WAYS)
    faults.set()
    for name in ("cwd", "tmp"):
        (bench.trial / "place" / name).mkdir(parents=True)
    command = _start(bench, case, faults, way)
    share = draw.random()
    victims = _await(command, share, whole.outcome)
    attack = f"{_attack(command, victims, faults, way, draw)} after {share:.2f} of its time"
    outcome = command.outcome()
    faults.set()
    attack += ", with detours" * _took_detours(bench)
    verdict, said = SAME, ""
    if way != "kill the driver" or outcome.code == 0:
        verdict, said = judge(outcome, bench.difference(case, outcome), must_finish=True)
    if count := lingering_of(command):
        verdict, said = FAULT, f"leaves {count} processes"
    if verdict != FAULT and outcome.code:
        again = bench.command(case)
        verdict, said = judge(again, bench.difference(case, again), must_finish=True)
    if verdict != FAULT and (stray := leftovers_of(bench, case, bench.trial / "place")):
        verdict, said = FAULT, f"leaves {stray}"
    seconds = time.monotonic() - began
    return Trial("workers", seed, number, case.name, attack, "", verdict, outcome.code, said, seconds)


def _start(bench: Bench, case: Case, faults: Faults, way: str) -> Command:
    place = bench.trial / "place"
    env = {"TMPDIR": str(place / "tmp"), **faults.env}
    if way == "lose a worker":
        env["DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL"] = f"{PATIENCE_SECONDS}s"
    words = case.command(bench.inputs, bench.trial)
    return bench.line.start(words, place / "cwd", env=env, own_interpreter=True)


def _await(command: Command, share: float, whole: Outcome) -> list[int]:
    """Its workers, once that share of its time has passed and there are some; none if it has ended."""
    moment = time.monotonic() + share * whole.seconds
    while time.monotonic() < moment + whole.seconds:
        found = workers_of(command)
        if found and time.monotonic() >= moment:
            return found
        if command.pid not in command.members():
            break
        time.sleep(0.05)
    return []


def _attack(command: Command, victims: list[int], faults: Faults, way: str, draw: random.Random) -> str:
    """Do it; what was done, in words."""
    if way == "kill the driver":
        _signal(command.pid, signal.SIGKILL)
        return way
    if not victims:
        return "no worker was there"
    victim, pause = draw.choice(victims), draw.choice((1.0, 5.0, 15.0))
    if way == "cut workers from each other":
        hub = _await_hub(command, victim)
        if hub is None:
            return "no worker was there"
        return _cut(faults, way, draw.choice((1.0, 15.0, None)), hub_pid=command.pid, hub_port=hub)
    if way == "kill a worker":
        _signal(victim, signal.SIGKILL)
    elif way == "kill all workers":
        for each in victims:
            _signal(each, signal.SIGKILL)
    elif way == "cut a worker off":
        return _cut(faults, way, pause, cut_pid=victim)
    else:
        _signal(victim, signal.SIGSTOP)
        time.sleep(3 * PATIENCE_SECONDS if way == "lose a worker" else pause)
        if way == "stop a worker":
            _signal(victim, signal.SIGCONT)
            return f"{way} for {pause:.0f} s"
    return way


def _cut(faults: Faults, way: str, pause: float | None, **cut: int) -> str:
    """Let connections break for so long, or until the end; what was done, in words."""
    faults.set(**cut)
    if pause is None:
        return f"{way} until the end"
    time.sleep(pause)
    faults.set()
    return f"{way} for {pause:.0f} s"


def _took_detours(bench: Bench) -> bool:
    """Whether something came to a worker by way of the driver."""
    journals = bench.trial.glob("*.run/journal.jsonl")
    return any('"unreachable"' in path.read_text() for path in journals)


def _hub(command: Command, worker: int) -> int | None:
    """The driver's port that a worker is connected to, once it is."""
    try:
        offers = {one.laddr.port for one in psutil.Process(command.pid).net_connections() if not one.raddr}
        made = [one.raddr.port for one in psutil.Process(worker).net_connections() if one.raddr]
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return None
    return next((port for port in made if port in offers), None)


def _await_hub(command: Command, worker: int) -> int | None:
    """The same, waited for while the command runs."""
    last = time.monotonic() + HUB_SECONDS
    while (hub := _hub(command, worker)) is None:
        if time.monotonic() > last or command.pid not in command.members():
            return None
        time.sleep(0.05)
    return hub


def _signal(pid: int, name: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, name)
