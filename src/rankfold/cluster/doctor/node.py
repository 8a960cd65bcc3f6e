"""Checks on a node, for ``doctor``: run there as ``python -m rankfold.cluster.doctor.node FOLDER``.

The folder holds the request of the driver (``request.json``). The node writes its address into it
(``node.json``) and then the findings (``answer.json``), each by one rename.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import socket
import sys
from pathlib import Path
from typing import Any

from rankfold.cluster.doctor import local as doctor
from rankfold.cluster.doctor.local import Finding
from rankfold.pipeline.errors import RankfoldError
from rankfold.pipeline.storage.checkpoint import load_json, save_json
from rankfold.pipeline.units import format_bytes

CONNECT_SECONDS = 5.0
CALL_SECONDS = 10.0
"""Seconds that the node waits for the driver to connect."""

REQUEST, NODE, ANSWER = "request.json", "node.json", "answer.json"


def main(folder: Path) -> None:
    """Run the checks that the request in a folder asks for, and write the findings into it."""
    request = load_json(folder / REQUEST)
    if not isinstance(request, dict):
        raise SystemExit(f"{folder} does not hold here what the driver has written there")
    findings = [check_address(request["interface"])]
    with socket.socket() as listening:
        listening.settimeout(CALL_SECONDS)
        address = address_here(request["interface"])
        listening.bind((address, 0))
        listening.listen()
        save_json(folder / NODE, {"address": listening.getsockname(), "token": request["token"]})
        findings.append(check_call(tuple(request["address"]), request["token"]))
        findings.append(check_call_back(listening, request["token"]))
    findings += [
        doctor.check_blas(),
        doctor.check_open_files(),
        doctor.check_cores_and_memory(),
        doctor.check_writing(folder),
        doctor.check_compile_cache(),
        check_scratch(request["scratch"]),
        check_threads(),
        check_submission(),
        *([doctor.check_gpu(must_exist=True)] if request["gpus"] else []),
    ]
    answer: dict[str, Any] = {
        "host": socket.gethostname(),
        "python": f"{sys.version.split()[0]} at {sys.executable}",
        "versions": doctor.versions(),
        "core_type": doctor.core_type(),
        "findings": [dataclasses.asdict(finding) for finding in findings],
    }
    save_json(folder / ANSWER, answer)


def interfaces() -> dict[str, str]:
    """Network interfaces of this machine: their names and IPv4 addresses."""
    import psutil  # type: ignore[import-untyped]  # of distributed

    return {
        name: each.address
        for name, addresses in psutil.net_if_addrs().items()
        for each in addresses
        if each.family == socket.AF_INET
    }


def address_here(interface: str | None) -> str:
    """Address on which a worker would listen; any address (0.0.0.0) if it could not use its interface."""
    from rankfold.cluster.slurm.jobs import address_of

    try:
        return address_of(interface)
    except RankfoldError:
        return "0.0.0.0"


def check_address(interface: str | None) -> Finding:
    """Check that the network interface of the profile exists on this node."""
    there = interfaces()
    addresses = ", ".join(f"{name} {address}" for name, address in there.items())
    if interface and interface not in there:
        return Finding("interface", "failed", f"no {interface}; there are {addresses}", "Change interface:")
    return Finding("interface", "ok", f"{address_here(interface)} is used of {addresses}")


def check_call(address: tuple[str, int], token: str) -> Finding:
    """Check that this node can connect to the driver (the process that submitted the job) and send the token.

    ``address`` is the host and port on which the driver listens.
    """
    where = f"{address[0]}:{address[1]}"
    try:
        with socket.create_connection(address, CONNECT_SECONDS) as call:
            call.sendall(token.encode())
    except OSError as error:
        advice = "Change interface: or scheduler_interface:, or use rankfold submit"
        return Finding("to the driver", "failed", f"{where}: {error}", advice)
    return Finding("to the driver", "ok", where)


def check_call_back(listening: socket.socket, token: str) -> Finding:
    """Check that the driver (the process that submitted the job) connects to here, and sends the token."""
    where = ":".join(map(str, listening.getsockname()))
    try:
        call, _ = listening.accept()
        with call:
            call.settimeout(CONNECT_SECONDS)
            greeting = call.recv(len(token)).decode(errors="replace")
    except OSError:
        advice = "Runs need only the other way; but the dashboard cannot ask workers"
        return Finding("from the driver", "warning", f"nothing came to {where}", advice)
    verdict: doctor.Verdict = "ok" if greeting == token else "warning"
    return Finding("from the driver", verdict, where if greeting == token else f"a stranger called {where}")


def check_scratch(scratch: str | None) -> Finding:
    """Check the folder where a worker keeps its own small files: the profile's, or the default for None."""
    folder = Path(os.path.expandvars(scratch or os.environ.get("SLURM_TMPDIR", "/tmp")))
    if "$" in str(folder) or not folder.is_dir():
        return Finding("scratch", "failed", f"there is no folder {folder}", "Change scratch: in the profile")
    free = format_bytes(shutil.disk_usage(folder).free)
    space = f"{folder} on {doctor.file_system(folder) or 'an unknown file system'}, {free} free"
    if not os.access(folder, os.W_OK):
        return Finding("scratch", "failed", f"{space}, cannot be written", "Change scratch: in the profile")
    return Finding("scratch", "ok", space)


def check_threads() -> Finding:
    """Check how many threads numerical libraries use in a worker, by the settings of its job."""
    import numba
    from threadpoolctl import threadpool_info

    pools = {pool["user_api"]: pool["num_threads"] for pool in threadpool_info()}
    pools["numba"] = numba.get_num_threads()
    counts = ", ".join(f"{name} {count}" for name, count in pools.items())
    if max(pools.values()) > 1:
        return Finding("threads below workers", "warning", counts, "Does the prologue set OMP_NUM_THREADS?")
    return Finding("threads below workers", "ok", counts)


def check_submission() -> Finding:
    """Check that a node can requeue and submit jobs; of the two, only the requeue is needed."""
    if shutil.which("scontrol") is None:
        advice = "A job of rankfold submit cannot requeue itself: give the same command again"
        return Finding("SLURM", "warning", "there is no scontrol", advice)
    there = "sbatch and scontrol" if shutil.which("sbatch") else "scontrol, no sbatch"
    return Finding("SLURM", "ok", there)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
