"""Whoever reaches a port of a run may run code in it: every one is bound to the address that was chosen."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

import rankfold as rf
from rankfold.cluster.slurm.node_worker import bound_options

HERE = {"127.0.0.1", "::1"}


def listening(process: psutil.Process) -> dict[int, set[str]]:
    """Addresses on which a process and all that it has started listen."""
    addresses: dict[int, set[str]] = {}
    for one in (process, *process.children(recursive=True)):
        try:
            found = {c.laddr.ip for c in one.net_connections("inet") if c.status == psutil.CONN_LISTEN}
        except psutil.Error:
            continue
        if found:
            addresses[one.pid] = found
    return addresses


@pytest.mark.process
@pytest.mark.slow
def test_workers_of_this_machine_listen_to_it_alone(tmp_path: Path) -> None:
    before = listening(psutil.Process())
    seen: list[dict[int, set[str]]] = []

    def look(name: str, units: int, total: int) -> None:
        if not seen:
            seen.append(listening(psutil.Process()))

    x = np.random.default_rng(0).random((4000, 30))
    rf.pca(x, 3, workers=2, threads=1, memory="200MiB", out=tmp_path / "r.zarr", progress=look)
    (addresses,) = seen
    assert len(addresses.keys() - before.keys()) >= 2, "workers have ports"
    own = addresses.pop(os.getpid(), set()) - before.get(os.getpid(), set())
    assert own <= HERE and set().union(*addresses.values()) <= HERE | set().union(*before.values())


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [(), ("--interface", "lo")], ids=["where it reaches the scheduler", "chosen"]
)
def test_a_worker_of_a_job_listens_on_one_address(tmp_path: Path, options: tuple[str, ...]) -> None:
    from distributed import Scheduler, SpecCluster

    scheduler = {
        "cls": Scheduler,
        "options": {"host": "127.0.0.1", "port": 0, "dashboard_address": "127.0.0.1:0"},
    }
    words = [
        "--nanny",
        "--no-dashboard",
        "--local-directory",
        str(tmp_path),
        "--death-timeout",
        "60",
        *options,
    ]
    with SpecCluster(scheduler=scheduler, workers={}) as cluster:
        command = [
            sys.executable,
            "-m",
            "rankfold.cluster.slurm.node_worker",
            cluster.scheduler_address,
            *words,
        ]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as worker:
            try:
                until = time.monotonic() + 120
                while not cluster.scheduler_info["workers"]:
                    assert worker.poll() is None and time.monotonic() < until
                    time.sleep(0.2)
                addresses = listening(psutil.Process(worker.pid))
            finally:
                worker.terminate()
                worker.wait(60)
        assert len(addresses) == 2, "a nanny and its worker"
        assert set().union(*addresses.values()) == {"127.0.0.1"}


def test_options_bind_a_worker_to_the_way_to_its_scheduler_or_to_the_interface() -> None:
    assert bound_options("tcp://127.0.0.1:9", ()) == [
        "--host",
        "127.0.0.1",
        "--dashboard-address",
        "127.0.0.1:0",
    ]
    chosen = bound_options("tls://192.0.2.1:9", ("--x", "--interface", "lo"))
    assert chosen == ["--dashboard-address", "127.0.0.1:0"]
