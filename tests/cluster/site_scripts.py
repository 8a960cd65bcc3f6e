"""Job scripts of the profiles that come with rankfold, and of those that ``docs/queues.md`` shows, as they
are stored in ``slurm/submissions/`` and ``queues/job_scripts/``.

After a wanted change of a profile or of a script: ``python tests/cluster/site_scripts.py``, and read the
difference.
"""

from __future__ import annotations

import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rankfold.cluster.profiles import shipped_profiles
from rankfold.cluster.slurm.allocation import Allocation
from rankfold.cluster.slurm.jobqueue import worker_script
from rankfold.cluster.slurm.jobs import WorkerJobs
from rankfold.cluster.slurm.profile import Profile, find_profile, read_profile
from rankfold.cluster.slurm.submission import job_script
from rankfold.pipeline.engine.scheduler import Budget

STORED = Path(__file__).parent / "slurm" / "job_scripts"
QUEUES = Path(__file__).parent / "queues" / "job_scripts"
GUIDE = Path(__file__).parents[2] / "docs" / "queues.md"
COMMAND = ["pca", "store.zarr", "--rank", "50", "--out", "pca.zarr", "--cluster", "allocation"]
SCHEDULER = "tcp://driver:8786"


def worker_job(profile: Profile, name: str = "rankfold-0") -> str:
    """Of a worker that has a job of its own."""
    with tempfile.TemporaryDirectory() as folder:
        options = WorkerJobs.of(profile, None, None, None).job_options(name, Path(folder))
        return worker_script(profile.scheduler, SCHEDULER, **options).replace(folder, "/runs/pca.zarr.run")


def allocation(profile: Profile) -> str:
    """Of a command that has one job."""
    driver = [sys.executable, "-m", "rankfold", *COMMAND]
    return job_script(driver, profile, name="pca", known_as=profile.name)


def step(profile: Profile) -> str:
    """By which that command starts its workers."""
    side_by_side, count = profile.threads_for(None, profile.cores), profile.nodes * profile.workers_per_node
    budget = Budget(2**30, side_by_side, count)
    place = Allocation(profile, budget, profile.workers_per_node, "7", 0, profile.cores)
    return shlex.join(place._command(SCHEDULER, "worker-7-0-%t.log", [])) + "\n"


def site_scripts() -> Iterator[tuple[Path, str]]:
    """Where each is stored, and what it should be."""
    for name in shipped_profiles():
        profile = find_profile(name)
        made = {"slurm-jobs": worker_job, "allocation": allocation, "allocation-step": step}
        for kind, of in made.items():
            yield STORED / f"{name}.{kind}.sh", of(profile).replace(sys.executable, "python")


def documented_profiles() -> Iterator[Profile]:
    """Those of other systems that the guide shows."""
    with tempfile.TemporaryDirectory() as folder:
        for text in re.findall(r"```yaml\n(scheduler:.*?)```", GUIDE.read_text(), re.S):
            path = Path(folder) / "site.yaml"
            path.write_text(text)
            yield read_profile(path)


def queue_scripts() -> Iterator[tuple[Path, str]]:
    """Where the script of each is stored, and what it should be."""
    for profile in documented_profiles():
        script = worker_job(profile, f"rf-{profile.scheduler}-0")
        yield QUEUES / f"{profile.scheduler}.sh", script.replace(sys.executable, "python")


if __name__ == "__main__":
    STORED.mkdir(exist_ok=True)
    QUEUES.mkdir(exist_ok=True)
    for path, text in [*site_scripts(), *queue_scripts()]:
        path.write_text(text)
