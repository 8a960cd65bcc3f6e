"""A SLURM job of half a minute that checks a node as a worker would see it.

It has the directives and the prologue of a profile, one core, and a folder that is removed afterwards.
The job is canceled whatever happens to this process; see ``leftovers``.
"""

from __future__ import annotations

import contextlib
import math
import shlex
import socket
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rankfold.cluster.doctor import local as doctor
from rankfold.cluster.doctor.local import Finding
from rankfold.cluster.doctor.node import ANSWER, CALL_SECONDS, CONNECT_SECONDS, NODE, REQUEST
from rankfold.cluster.queues.system import JobScript
from rankfold.cluster.slurm.jobs import address_of, job_bytes
from rankfold.cluster.slurm.leftovers import cancel_jobs, no_job_left
from rankfold.cluster.slurm.profile import Profile, walltime_seconds
from rankfold.cluster.slurm.queue import ask
from rankfold.cluster.slurm.shell_lines import exports, in_directive, log_pattern
from rankfold.cluster.slurm.submission import submit, whole_job
from rankfold.pipeline.errors import ClusterError, RankfoldError, in_command
from rankfold.pipeline.regular import read_last_lines, read_text
from rankfold.pipeline.removal import remove
from rankfold.pipeline.storage.checkpoint import load_json, save_json

PROLOGUE_FAILURES = "prologue.failed"
"""File that lists the lines of the prologue that failed."""

JOB_OUTPUT = "said.log"
"""File of the job's standard output."""

NAME, FOLDER = "rankfold-doctor-", ".rankfold-doctor-"
"""Prefixes of the names of the job and of its folder."""

POLL_SECONDS = 0.3
ASK_SECONDS = 2.0
MINUTES = 2
"""Longest walltime of the job, in minutes."""

SEEN_SECONDS = 30.0
"""Seconds after the end of a job within which its files must become visible on this machine."""


def probe_findings(profile: Profile, folder: Path, wait_seconds: float | None = None) -> Iterator[Finding]:
    """Submit the job that checks a node, wait until it starts, and yield the findings.

    ``folder`` is one that the node sees too. ``wait_seconds`` is the longest wait for the start; by default
    that of the profile.
    """
    try:
        answer = _answer(profile, folder, profile.wait_seconds if wait_seconds is None else wait_seconds)
    except RankfoldError as error:
        yield Finding("node", "failed", in_command(error.message))
        return
    except TimeoutError as error:
        advice = "The queue is slow, or nodes are full: a longer --wait, or look again later"
        yield Finding("node", "not checked", str(error), advice)
        return
    yield from compare_node(answer)
    if answer["prologue"]:
        failures = f"{'; '.join(answer['prologue'].splitlines())} ({answer['said']})"
        yield Finding("node: prologue", "failed", failures, "Mend prologue: in the profile, or leave it out")
    elif profile.prologue:
        yield Finding("node: prologue", "ok", "every line of it")
    for finding in answer["findings"]:
        yield Finding(**{**finding, "check": f"node: {finding['check']}"})


def compare_node(answer: dict[str, Any]) -> Iterator[Finding]:
    """Compare a node with this machine: versions of packages, and the family of the processor.

    ``answer`` is what the node has written: see ``node.main``.
    """
    yield Finding("node", "ok", f"{answer['host']}, which sees the working folder")
    here, there = doctor.versions(), answer["versions"]
    other = [
        f"{name} {there.get(name)} for {here.get(name)}" for name in here if here[name] != there.get(name)
    ]
    if other:
        advice = "Use one environment: set python: or prologue:"
        yield Finding("node: python", "failed", f"{answer['python']}: {', '.join(other)}", advice)
    else:
        yield Finding("node: python", "ok", f"{answer['python']}, versions as here")
    if answer["core_type"] != doctor.core_type():
        advice = "Results of other kernels differ in the last bits: keep to nodes of one kind in a run"
        core_types = f"{answer['core_type']} there, {doctor.core_type()} here"
        yield Finding("node: processor family", "warning", core_types, advice)


def probe_job(profile: Profile, where: Path) -> JobScript:
    """The job that would check a node, whose folder is made in ``where``.

    ``RUN`` stands for the random number in the names of the job and the folder.
    """
    script = probe_script(profile, f"{NAME}RUN", where.absolute() / f"{FOLDER}RUN")
    return whole_job("the doctor's look at a node", script)


def probe_script(profile: Profile, name: str, folder: Path) -> str:
    """Script of the job ``name``, which runs the module ``node`` on the files in ``folder``.

    It requests one core, and sets up the environment of a worker.
    """
    minutes = max(1, min(MINUTES, walltime_seconds(profile.walltime) // 60))
    options = [
        f"--job-name={name}",
        f"--output={in_directive(log_pattern(folder, JOB_OUTPUT))}",
        *([f"--partition={profile.partition}"] if profile.partition else []),
        *([f"--account={profile.account}"] if profile.account else []),
        *("--nodes=1", "--ntasks=1", "--cpus-per-task=1"),
        *([f"--gpus-per-task={profile.gpus}"] if profile.gpus else []),
        f"--mem={math.ceil(job_bytes(2**30) / 2**20)}M",
        f"--time={minutes}",
        "--no-requeue",
        *profile.directives,
    ]
    command = [profile.python or sys.executable, "-m", "rankfold.cluster.doctor.node", str(folder)]
    lines = [f"#SBATCH {option}" for option in options] + exports()
    if profile.prologue:
        lines += [
            f"said={shlex.quote(str(folder / PROLOGUE_FAILURES))}",
            'trap \'echo "$BASH_COMMAND ended with $?" >> "$said"\' ERR',
            *profile.prologue,
            "trap - ERR",
        ]
    return "\n".join(["#!/usr/bin/env bash", *lines, f"exec {shlex.join(command)}", ""])


def _answer(profile: Profile, where: Path, wait_seconds: float) -> dict[str, Any]:
    """Submit the job and return what its node reports, with failures of the prologue and its last output.

    The job works in a new folder in ``where``; both are removed before this returns.
    """
    name, token = f"{NAME}{uuid.uuid4().hex[:8]}", uuid.uuid4().hex
    address = address_of(profile.scheduler_interface or profile.interface)
    with _folder_for_a_while(where) as folder, socket.create_server((address, 0)) as listening:
        request = {
            "token": token,
            "address": listening.getsockname(),
            "interface": profile.interface,
            "scratch": profile.scratch,
            "gpus": profile.gpus,
        }
        save_json(folder / REQUEST, request)
        try:
            with no_job_left(name, folder):
                job = submit(probe_script(profile, name, folder), profile, name)
                _await_node(folder, job, wait_seconds)
                answer = _talk(folder, listening, token)
                return {**answer, "prologue": _read(folder / PROLOGUE_FAILURES), "said": _last_words(folder)}
        finally:
            with contextlib.suppress(ClusterError):
                cancel_jobs([name])


@contextlib.contextmanager
def _folder_for_a_while(where: Path) -> Iterator[Path]:
    try:
        folder = Path(tempfile.mkdtemp(prefix=FOLDER, dir=where.absolute()))
    except OSError as error:
        raise ClusterError(f"no probe without a folder that nodes see: {error}") from None
    try:
        yield folder
    finally:
        remove(folder)


def _await_node(folder: Path, job: str, wait_seconds: float) -> None:
    """Wait until the node has written its address into the folder; ``job`` is the number of its job.

    Raises ``TimeoutError`` if the job does not start within ``wait_seconds``, ``ClusterError`` if it ends.
    """
    until, last_poll, over_since = time.monotonic() + wait_seconds, 0.0, 0.0
    while load_json(folder / NODE) is None:
        now = time.monotonic()
        if now - last_poll > ASK_SECONDS:
            last_poll, state = now, ask("squeue", "-h", "-j", job, "-t", "all", "-o", "%T").stdout.strip()
            over = state not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING")
            over_since = (over_since or now) if over else 0.0
            if over and (now - over_since > SEEN_SECONDS or (folder / JOB_OUTPUT).exists()):
                raise ClusterError(f"the probe job {job} ended ({state.lower()}): {_last_words(folder)}")
            if state in ("PENDING", "CONFIGURING") and now > until:
                raise TimeoutError(f"the probe job waits since {wait_seconds:.0f} s: {describe_job(job)}")
            if now > until + 60 * MINUTES + SEEN_SECONDS:
                raise TimeoutError(f"the probe job {job} runs, and its files are not seen in {folder.parent}")
        time.sleep(POLL_SECONDS)


def describe_job(job: str) -> str:
    """State of the job with number ``job``, and the reason why it waits, in the words of SLURM."""
    return ask("squeue", "-h", "-j", job, "-o", "%T (%r)").stdout.strip().lower() or "no longer in the queue"


def _read(path: Path) -> str:
    with contextlib.suppress(OSError):
        return read_text(path, errors="replace")
    return ""


def _last_words(folder: Path) -> str:
    with contextlib.suppress(OSError):
        lines = [line for line in read_last_lines(folder / JOB_OUTPUT) if line.strip()]
        if lines:
            return lines[-1]
    return "it left no file that is seen here: is the working folder shared?"


def _talk(folder: Path, listening: socket.socket, token: str) -> dict[str, Any]:
    """Connect to the node and send it the token, then wait for its answer, and return that.

    Meanwhile the node connects to the socket ``listening``.
    """
    with (
        contextlib.suppress(OSError),
        socket.create_connection(tuple(load_json(folder / NODE)["address"]), CONNECT_SECONDS) as call,
    ):
        call.sendall(token.encode())
    until = time.monotonic() + CALL_SECONDS + 60 * MINUTES
    while (answer := load_json(folder / ANSWER)) is None:
        if time.monotonic() > until:
            raise ClusterError(f"the probe job did not finish: {_last_words(folder)}")
        time.sleep(POLL_SECONDS)
    return dict(answer)
