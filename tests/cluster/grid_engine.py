"""A real Grid Engine with one node on one machine: daemons of root, a folder of their own, no database.

Debian's packages are enough: ``apt-get install --no-install-recommends gridengine-master gridengine-exec``,
as root. 8.1.9 was tested. Nothing of the installation's own cluster, in ``/var/lib/gridengine``, is touched.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from slurm_cluster import free_port

SLOTS = 8
SHARE = Path("/usr/share/gridengine")
TOOLS = Path("/usr/lib/gridengine")
SETTINGS = ("SGE_ROOT", "SGE_CELL", "SGE_QMASTER_PORT", "SGE_EXECD_PORT")

BOOTSTRAP = """\
admin_user none
default_domain none
ignore_fqdn false
spooling_method classic
spooling_lib libspoolc
spooling_params {cell}/common;{folder}/qmaster
binary_path /usr/sbin
qmaster_spool_dir {folder}/qmaster
security_mode none
listener_threads 2
worker_threads 2
scheduler_threads 1
"""

CHANGES = {
    "execd_spool_dir": "{folder}/execd",
    "min_uid": "0",  # jobs of root
    "min_gid": "0",
    "load_report_time": "00:00:02",
    "mailer": "/bin/true",
    "shell_start_mode": "posix_compliant",
}
"""Of Debian's configuration."""

PARALLEL = "pe_name smp\nslots 999\nuser_lists NONE\nxuser_lists NONE\nstart_proc_args /bin/true\n" \
    "stop_proc_args /bin/true\nallocation_rule $pe_slots\ncontrol_slaves FALSE\njob_is_first_task TRUE\n" \
    "urgency_slots min\naccounting_summary FALSE\nqsort_args NONE\n"  # fmt: skip


def missing_grid_engine() -> str | None:
    """Why no Grid Engine can be started here, in words a user would understand."""
    for daemon in ("sge_qmaster", "sge_execd"):
        if shutil.which(daemon) is None:
            return f"there is no {daemon}; on Debian: apt-get install gridengine-master gridengine-exec"
    return None if os.geteuid() == 0 else "a Grid Engine of one's own needs root"


class GridEngine:
    """Starts the daemons, puts ``SGE_ROOT`` and the ports into the environment, stops them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._host = socket.gethostname()

    def __enter__(self) -> Self:
        folder, cell = self.folder, self.folder / "default"
        for name in ("default/common", "qmaster/job_scripts", "execd"):
            (folder / name).mkdir(parents=True)
        (folder / "util").symlink_to(SHARE / "util")
        os.environ |= {
            "SGE_ROOT": str(folder),
            "SGE_CELL": "default",
            "SGE_QMASTER_PORT": str(free_port()),
            "SGE_EXECD_PORT": str(free_port()),
        }
        (cell / "common" / "bootstrap").write_text(BOOTSTRAP.format(cell=cell, folder=folder))
        (cell / "common" / "act_qmaster").write_text(self._host + "\n")
        # A name that stands for 127.0.0.1 is turned into localhost, and then refused.
        (cell / "common" / "host_aliases").write_text(f"{self._host} localhost\n")
        settings = (SHARE / "default-configuration").read_text()
        for key, value in CHANGES.items():
            settings = re.sub(rf"(?m)^{key}\s.*$", f"{key} {value.format(folder=folder)}", settings)
        (folder / "configuration").write_text(settings)
        self._call(TOOLS / "spoolinit", "classic", "libspoolc", f"{cell}/common;{folder}/qmaster", "init")
        self._call(TOOLS / "spooldefaults", "configuration", folder / "configuration")
        self._call(TOOLS / "spooldefaults", "complexes", SHARE / "util" / "resources" / "centry")
        self._call(TOOLS / "spooldefaults", "usersets", SHARE / "util" / "resources" / "usersets")
        self._call(TOOLS / "spooldefaults", "managers", "root")
        self._call("sge_qmaster")
        self._await(lambda: self._ask("qconf", "-sh").returncode == 0, "the master does not answer")
        for option in ("-ah", "-as"):
            self._ask("qconf", option, self._host)
        self._call("sge_execd")
        self._make_queue()
        self._await(self._node_is_up, "the node does not come up")
        return self

    def _make_queue(self) -> None:
        (self.folder / "pe").write_text(PARALLEL)
        self._call("qconf", "-Ap", self.folder / "pe")
        queue = self._ask("qconf", "-sq").stdout  # the template
        for key, value in {
            "qname": "main.q",
            "hostlist": self._host,
            "slots": str(SLOTS),
            "pe_list": "smp",
            "load_thresholds": "NONE",
            "notify": "00:00:05",
            "shell": "/bin/csh",  # as sites have it
        }.items():
            queue = re.sub(rf"(?m)^{key}\s.*$", f"{key} {value}", queue)
        (self.folder / "queue").write_text(queue)
        self._call("qconf", "-Aq", self.folder / "queue")
        scheduler = re.sub(
            r"(?m)^schedule_interval\s.*$", "schedule_interval 0:0:1", self._ask("qconf", "-ssconf").stdout
        )
        (self.folder / "scheduler").write_text(re.sub(r"(?m)^flush_(\w+)\s.*$", r"flush_\1 1", scheduler))
        self._call("qconf", "-Msconf", self.folder / "scheduler")

    def _node_is_up(self) -> bool:
        line = next((x for x in self._ask("qstat", "-f").stdout.splitlines() if x.startswith("main.q@")), "")
        return len(line.split()) == 5  # no letters of a state

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ask("qdel", "-f", "-u", "*")
        self._ask("qconf", "-ke", "all")
        self._ask("qconf", "-km")
        for pid in self.folder.rglob("*.pid"):
            with suppress(OSError, ValueError):
                os.kill(int(pid.read_text()), signal.SIGTERM)
        for name in SETTINGS:
            os.environ.pop(name, None)

    def _call(self, *command: object) -> None:
        ran = self._ask(*command)
        if ran.returncode:
            raise RuntimeError(f"{command} ended with {ran.returncode}: {ran.stdout}{ran.stderr}")

    @staticmethod
    def _ask(*command: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, timeout=60)

    def _await(self, what: object, otherwise: str) -> None:
        until = time.monotonic() + 60
        while not what():  # type: ignore[operator]
            if time.monotonic() > until:
                told = [path.read_text()[-2000:] for path in self.folder.rglob("messages")]
                raise RuntimeError(f"{otherwise}; see {self.folder}: {told}")
            time.sleep(0.2)

    def jobs(self, state: str = "") -> list[str]:
        """Numbers of jobs in the queue, all or of one state: ``r``, ``p``."""
        chosen = ["-s", state] if state else []
        lines = self._ask("qstat", "-u", "*", *chosen).stdout.splitlines()[2:]
        return [line.split()[0] for line in lines if line.strip()]

    def cancel(self, job: str) -> None:
        """Cancel a job."""
        self._call("qdel", job)
