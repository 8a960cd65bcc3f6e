"""Jobs of a real SLURM of two nodes that are cancelled, preempted, killed, or lose their node.

Preempted are those of a node that a job of higher priority has all of for some seconds. Nannies and workers
are processes on this machine, since both nodes are; the scheduler lives in the driver. Whatever happens, the
command ends with the same bytes as threads of one process leave, or the same command does where the driver
was killed or no worker came in time; and no job stays in the queue.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attacks.kills import lingering_of, workers_of
from cases import Case
from command_client import Command
from moments import WRITING, state_of
from trials import FAULT, SAME, Bench, Trial, chance, judge, turn

sys.path.append(str(Path(__file__).parents[2] / "cluster"))

from slurm_cluster import NODES, SlurmCluster

PROFILE = 'partition: main\ninterface: lo\nwalltime: "0:10:00"\nmemory: 2GiB\n'
IN_DRIVER = ("import", "run", "run measures", "combine-graphs")
"""Cases that start no job."""

TO_PROCESSES = ("kill a nanny", "kill a worker", "stop a worker")
WAYS = ("cancel a job", "cancel all jobs", "preempt jobs", "a node goes down", "kill the driver")
WAYS += TO_PROCESSES
START_SECONDS, GONE_SECONDS = 240.0, 60.0

MOMENT = 20.0
"""Seconds after the first job began, at most, until something happens."""

WORKER_MOMENT = 2.0
"""The same after the first worker began, where it happens to one: inputs are small, and workers soon done."""


class SlurmBench(Bench):
    """A bench with a SLURM of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        place = folder / f"slurm-{os.getpid()}"
        place.mkdir(mode=0o755)
        self.cluster = SlurmCluster(place)
        self.profile = folder / "chaos.yaml"
        self.profile.write_text(PROFILE)

    def __enter__(self) -> SlurmBench:
        self.cluster.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.cluster.__exit__(None, None, None)
        super().__exit__()

    def start(self, case: Case) -> Command:
        """Give the command of a case, on two jobs."""
        words = case.command(self.inputs, self.trial, "--workers", "2", "--cluster", str(self.profile))
        return self.line.start(words, self.folder, own_interpreter=True, patience=600.0)

    def await_running(self, command: Command) -> list[str]:
        """Jobs that run; none if the command ends first."""
        return _await(command, lambda: self.cluster.jobs("RUNNING"))

    def jobs_left(self) -> list[str]:
        """Jobs that are still there after a while; they are cancelled."""
        until = time.monotonic() + GONE_SECONDS
        while (jobs := self.cluster.jobs()) and time.monotonic() < until:
            time.sleep(0.5)
        for job in jobs:
            self.cluster.cancel(job)
        return jobs


def slurm(bench: Bench, seed: int, number: int) -> Trial:
    """One trial: something happens to a job, a node, or a process, after a time that is drawn."""
    assert isinstance(bench, SlurmBench)
    draw, began = chance("slurm", seed, number), time.monotonic()
    case = turn(tuple(name for name in WRITING if name not in IN_DRIVER), number, seed)
    bench.answer(case)
    bench.clear()
    way, share = draw.choice(WAYS), draw.random() ** 2
    command = bench.start(case)
    jobs = bench.await_running(command)
    if way in TO_PROCESSES:
        attack = _attack_process(bench, command, way, share * WORKER_MOMENT, draw)
    else:
        time.sleep(share * MOMENT)
        attack = _attack(bench, command, jobs, way, draw)
        attack += f" {share * MOMENT:.1f} s after the first job began"
    outcome = command.outcome()
    verdict, said = SAME, ""
    if outcome.code not in (-9, 75):
        verdict, said = judge(outcome, bench.difference(case, outcome), must_finish=True)
    if verdict != FAULT and outcome.code:
        again = bench.start(case)
        outcome = again.outcome()
        verdict, said = judge(outcome, bench.difference(case, outcome), must_finish=True)
        again.kill()
    if jobs := bench.jobs_left():
        verdict, said = FAULT, f"leaves jobs {jobs}"
    if count := lingering_of(command):
        verdict, said = FAULT, f"leaves {count} processes"
    seconds = time.monotonic() - began
    return Trial("slurm", seed, number, case.name, attack, "", verdict, outcome.code, said, seconds)


def _await(command: Command, look: Callable[[], list[Any]]) -> list[Any]:
    """What is looked for, once there is any; none if the command ends first."""
    until = time.monotonic() + START_SECONDS
    while state_of(command.pid) != "Z" and time.monotonic() < until:
        if found := look():
            return found
        time.sleep(0.05)
    return []


def _attack(bench: SlurmBench, command: Command, jobs: list[str], way: str, draw: random.Random) -> str:
    """Do it; what was done, in words."""
    running = bench.cluster.jobs("RUNNING") or jobs
    if way == "kill the driver":
        _signal(command.pid, signal.SIGKILL)
    elif not running:
        return "no job was there"
    elif way == "preempt jobs":
        node, seconds = draw.choice(NODES), draw.choice((1, 10))
        bench.cluster.preempt(node, seconds=seconds)
        return f"{way} of {node} for {seconds} s"
    elif "job" in way:
        for job in running if "all" in way else [draw.choice(running)]:
            subprocess.run(["scancel", job], capture_output=True)
    elif "node" in way:
        node, downtime = draw.choice(NODES), draw.choice((1.0, 10.0))
        _set_node(node, "State=DOWN", "Reason=chaos")
        time.sleep(downtime)
        _set_node(node, "State=RESUME")
        return f"{way} for {downtime:.0f} s"
    return way


def _attack_process(bench: SlurmBench, command: Command, way: str, pause: float, draw: random.Random) -> str:
    """Do it to a process within a job, so long after the first of its kind began; what was done, in words."""
    nannies = "nanny" in way
    began = _await(command, lambda: workers_of(command, nannies=nannies))
    time.sleep(pause)
    victims = workers_of(command, nannies=nannies)
    if not victims:
        return f"{way}: {'they had ended' if began else 'none was there'}"
    victim, downtime = draw.choice(victims), draw.choice((1.0, 10.0))
    if "kill" in way:
        _signal(victim, signal.SIGKILL)
        return f"{way} {pause:.1f} s after the first began"
    _signal(victim, signal.SIGSTOP)
    time.sleep(downtime)
    _signal(victim, signal.SIGCONT)
    return f"{way} for {downtime:.0f} s, {pause:.1f} s after the first began"


def _set_node(node: str, *words: str) -> None:
    subprocess.run(["scontrol", "update", f"NodeName={node}", *words], capture_output=True)


def _signal(pid: int, name: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, name)
