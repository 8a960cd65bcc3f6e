"""A real SLURM with two nodes on one machine: no systemd, no control groups, no accounting database.

Debian's packages are enough: ``apt-get install slurm-wlm munge``, as root. Several ``slurmd`` live on one
host under names of their own; 22.05 was tested.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import stat
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

NODES = ("n1", "n2")
CPUS, MEMORY_MB = 4, 8000
END_SECONDS = 30
GPUS = 2
"""Of a node: device files that stand for some, so that SLURM tells jobs which are theirs."""

CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
SlurmctldPort={port}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=5
MinJobAge=300
GresTypes=gpu
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0,sched_min_interval=0
{nodes}
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE PriorityTier=1
PartitionName=urgent Nodes=ALL MaxTime=INFINITE PriorityTier=2 PreemptMode=OFF
"""


def missing_slurm() -> str | None:
    """Why no SLURM can be started here, in words a user would understand."""
    for daemon in ("munged", "slurmctld", "slurmd"):
        if shutil.which(daemon) is None:
            return f"there is no {daemon}; on Debian: apt-get install slurm-wlm munge"
    return None if os.geteuid() == 0 else "a SLURM of one's own needs root"


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class SlurmCluster:
    """Starts the daemons, puts ``SLURM_CONF`` into the environment, stops them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[str] = []

    def __enter__(self) -> Self:
        folder, host = self.folder, socket.gethostname().partition(".")[0]
        for parent in (folder, *folder.parents):
            if parent.stat().st_uid == os.geteuid() and parent != Path("/"):
                parent.chmod(parent.stat().st_mode | 0o055)  # munged will not talk through closed folders
        for name in ("state", *(f"spool-{node}" for node in NODES)):
            (folder / name).mkdir(mode=0o700)
        key = folder / "munge.key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)
        nodes = "\n".join(
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} "
            f"CPUs={CPUS} RealMemory={MEMORY_MB} Gres=gpu:{GPUS} State=UNKNOWN"
            for node in NODES
        )
        self._make_gpus()
        conf = folder / "slurm.conf"
        conf.write_text(CONFIGURATION.format(host=host, folder=folder, port=free_port(), nodes=nodes))
        os.environ["SLURM_CONF"] = str(conf)
        self._start("munged", f"--key-file={key}", f"--socket={folder}/munge.socket", "--force",
                    f"--pid-file={folder}/munged.pid", f"--log-file={folder}/munged.log",
                    f"--seed-file={folder}/munge.seed")  # fmt: skip
        self._start("slurmctld", "-f", str(conf))
        for node in NODES:
            self._start("slurmd", "-f", str(conf), "-N", node)
        self._await_nodes()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        subprocess.run(["scancel", "--me"], check=False, capture_output=True)
        for name in (*(f"slurmd-{node}" for node in NODES), "slurmctld", "munged"):
            pid = self.folder / f"{name}.pid"
            with contextlib.suppress(FileNotFoundError, psutil.NoSuchProcess):
                daemon = psutil.Process(int(pid.read_text()))
                daemon.terminate()
                with contextlib.suppress(psutil.TimeoutExpired):
                    daemon.wait(END_SECONDS)  # they write into the folder until they end
        os.environ.pop("SLURM_CONF", None)

    def _make_gpus(self) -> None:
        lines = []
        for number, node in enumerate(NODES):
            first, last = number * GPUS, (number + 1) * GPUS - 1
            lines.append(f"NodeName={node} Name=gpu File={self.folder}/gpu[{first}-{last}]")
            for gpu in range(first, last + 1):
                os.mknod(self.folder / f"gpu{gpu}", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
        (self.folder / "gres.conf").write_text("\n".join(lines) + "\n")

    def _start(self, *command: str) -> None:
        subprocess.run(command, check=True, capture_output=True)

    def _await_nodes(self) -> None:
        until = time.monotonic() + 60
        while True:
            idle = subprocess.run(["sinfo", "-h", "-t", "idle", "-o", "%D"], capture_output=True, text=True)
            if idle.stdout.strip() == str(len(NODES)):
                return
            if time.monotonic() > until:
                raise RuntimeError(f"nodes did not come up; see {self.folder}: {idle.stdout} {idle.stderr}")
            time.sleep(0.1)

    def jobs(self, *states: str) -> list[str]:
        """Ids of jobs in the queue, all or of some states."""
        chosen = ["-t", ",".join(states)] if states else []
        asked = subprocess.run(
            ["squeue", "-h", "-o", "%i", *chosen], check=True, capture_output=True, text=True
        )
        return asked.stdout.split()

    def clear(self) -> None:
        """Cancel all jobs, and wait until those that are completing have left the queue."""
        until = time.monotonic() + 60
        while left := self.jobs():
            if time.monotonic() > until:
                raise RuntimeError(f"jobs {', '.join(left)} did not end; see {self.folder}")
            subprocess.run(["scancel", *left], check=False, capture_output=True)
            time.sleep(0.1)
        self._await_nodes()

    def cancel(self, job: str) -> None:
        """Cancel a job."""
        subprocess.run(["scancel", job], check=True)

    def preempt(self, *nodes: str, seconds: int) -> str:
        """Let a job of higher priority have all of some nodes for a while; its number."""
        options = ["--parsable", "--partition=urgent", "--exclusive", "--output=/dev/null"]
        command = ["sbatch", *options, f"--nodelist={','.join(nodes)}", f"--wrap=sleep {seconds}"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def limit(self, job: str, *, minutes: int) -> None:
        """Let a job end so long after its beginning, and no later."""
        subprocess.run(["scontrol", "update", f"JobId={job}", f"TimeLimit={minutes}"], check=True)
