"""PBS, LSF and Grid Engine: job scripts as stored, what their answers mean, and what only SLURM has."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference import to_zarr
from site_scripts import QUEUES, documented_profiles, queue_scripts
from typer.testing import CliRunner

import rankfold as rf
from rankfold.cluster.queues import lsf, pbs, sge
from rankfold.cluster.queues.registry import ONLY_SLURM, new_name, queue_system, scheduler_of
from rankfold.cluster.queues.system import ListedStates, QueueSystem
from rankfold.cluster.slurm import leftovers
from rankfold.cluster.slurm.jobs import WorkerJobs
from rankfold.cluster.slurm.profile import Profile, read_profile
from rankfold.cluster.slurm.queue import QueuedJob
from rankfold.cluster.slurm.submission import directives
from rankfold.workflows.cli import app

SCHEDULERS = ("pbs", "lsf", "sge")
NOW = time.mktime(time.strptime("Thu Nov 26 04:00:00 2026"))

QSTAT = """\
Job Id: 1234.server
    Job_Name = rf-pbs-0a1b2c3d
    Job_Owner = anna@login1
    resources_used.walltime = 00:20:00
    job_state = R
    exec_host = n017/0*8
    Resource_List.walltime = 01:00:00
    stime = Thu Nov 26 03:35:00 2026
    Variable_List = PBS_O_HOME=/home/anna,PBS_O_WORKDIR=/scratch/
\tanna

Job Id: 1235.server
    Job_Name = rf-pbs-0a1b2c3d
    job_state = Q
    Resource_List.walltime = 01:00:00
    comment = Not Running: Insufficient amount of resource: ncpus

Job Id: 1236.server
    Job_Name = other
    job_state = F
"""

BJOBS = """\
1234|RUN|0:25 L|n017|rf-lsf-0a1b2c3d
1235|PEND|-|-|rf-lsf-0a1b2c3d
1236|EXIT|-|n018|rf-lsf-0a1b2c3d
"""

QSTAT_XML = """\
<?xml version='1.0'?>
<job_info>
  <queue_info>
    <job_list state="running">
      <JB_job_number>1234</JB_job_number><JB_name>rf-sge-0a1b</JB_name><state>r</state>
      <JAT_start_time>2026-11-26T03:35:00</JAT_start_time><queue_name>main.q@n017</queue_name>
      <full_job_name>rf-sge-0a1b2c3d</full_job_name>
      <hard_request name="h_rt" resource_contribution="0.0">3600</hard_request>
    </job_list>
  </queue_info>
  <job_info>
    <job_list state="pending">
      <JB_job_number>1235</JB_job_number><JB_name>rf-sge-0a1b2c3d</JB_name><state>qw</state>
      <queue_name></queue_name>
    </job_list>
    <job_list state="pending">
      <JB_job_number>1236</JB_job_number><JB_name>rf-sge-0a1b2c3d</JB_name><state>Eqw</state>
      <queue_name></queue_name>
    </job_list>
  </job_info>
</job_info>
"""


def test_job_scripts_are_as_stored() -> None:
    made = dict(queue_scripts())
    assert sorted(made) == sorted(QUEUES.glob("*.sh"))
    assert sorted(path.stem for path in made) == sorted(SCHEDULERS)
    for path, text in made.items():
        assert text.splitlines() == path.read_text().splitlines(), path.name
        subprocess.run(["bash", "-n"], input=text, text=True, check=True)


@pytest.mark.parametrize("scheduler", ["slurm", *SCHEDULERS])
def test_a_system_has_all_that_is_asked_of_it(scheduler: str) -> None:
    system = queue_system(scheduler)
    wanted = [name for name in vars(QueueSystem) if not name.startswith("_")] + ["TITLE", "COMMANDS"]
    assert all(hasattr(system, name) for name in wanted)
    name = new_name(scheduler)
    assert scheduler_of(name) == scheduler
    assert len(name) <= 15 or scheduler == "slurm"  # what the batch system of POSIX takes
    line = system.cancel_line(name)
    subprocess.run(["sh", "-n"], input=line, text=True, check=True)
    assert name in line and system.COMMANDS[-1] in line


def parsed(scheduler: str) -> list[QueuedJob]:
    answers: dict[str, Any] = {
        "pbs": lambda: pbs.parse_jobs(QSTAT, NOW),
        "lsf": lambda: lsf.parse_jobs(BJOBS),
        "sge": lambda: sge.parse_jobs(QSTAT_XML, NOW),
    }
    return list(answers[scheduler]())


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_answers_are_understood(scheduler: str) -> None:
    runs, waits, *others = parsed(scheduler)
    server = ".server" if scheduler == "pbs" else ""
    assert (runs.number, runs.state, waits.number, waits.state) == (
        f"1234{server}",
        "running",
        f"1235{server}",
        "pending",
    )
    # It began 25 minutes ago, for an hour; what PBS says it has used is older. LSF says itself what is left.
    assert runs.left == ("0:25:00" if scheduler == "lsf" else "0:35:00") and not waits.left
    assert "n017" in runs.nodes and runs.name == waits.name == f"rf-{scheduler}-0a1b2c3d"
    assert [job.state for job in others] == (["failed"] if scheduler == "sge" else [])


def test_a_job_that_is_listed_no_more_has_ended() -> None:
    class Played:
        answers = iter(([QueuedJob("1", "running", "", "0:10:00", "N/A", "", "a")], None, []))

        def list_jobs(self) -> list[QueuedJob] | None:
            return next(self.answers)

    states = ListedStates(Played())  # type: ignore[arg-type]
    assert states() == {"1": ("RUNNING", 600)}
    assert states() is None
    assert states() == {"1": ("ENDED", None)}


def played(folder: Path, monkeypatch: pytest.MonkeyPatch, **scripts: str) -> Path:
    """Commands of a system that write down how they are called, and nothing else on the path but ``sh``."""
    commands = folder / "bin"
    commands.mkdir()
    for name, script in scripts.items():
        path = commands / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >>{folder}/calls\n{script}\n')
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}:/usr/bin:/bin")
    return folder / "calls"


@pytest.mark.parametrize(
    ("name", "commands", "expected"),
    [
        (
            "rf-pbs-0a1b2c3d",
            {"qselect": "[ -e gone ] || echo 1234.server; touch gone", "qdel": ""},
            "qdel 1234.server",
        ),
        ("rf-lsf-0a1b2c3d", {"bkill": "", "bjobs": "exit 1"}, "bkill -u {user} -J rf-lsf-0a1b2c3d 0"),
        (
            "rf-sge-0a1b2c3d",
            {"qstat": "echo '<full_job_name>rf-sge-0a1b2c3d</full_job_name>'", "qdel": ""},
            "qdel rf-sge-0a1b2c3d",
        ),
    ],
)
def test_no_job_is_left(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    commands: dict[str, str],
    expected: str,
) -> None:
    from rankfold.cluster.slurm.queue import user

    monkeypatch.chdir(tmp_path)
    calls = played(tmp_path, monkeypatch, **commands)
    with leftovers.no_job_left(name, tmp_path):
        assert leftovers.read_note(tmp_path) == [name]
    assert expected.format(user=user()) in calls.read_text().splitlines()
    assert leftovers.read_note(tmp_path) == []


def test_a_queue_that_does_not_answer_keeps_the_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played(tmp_path, monkeypatch, qstat="exit 1", qdel="")
    with leftovers.no_job_left("rf-sge-0a1b2c3d", tmp_path):
        pass
    assert leftovers.read_note(tmp_path) == ["rf-sge-0a1b2c3d"]
    with pytest.raises(rf.RankfoldError, match=r"known to Grid Engine alone.*qdel rf-sge-0a1b2c3d"):
        leftovers.cancel_jobs(["rf-sge-0a1b2c3d"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("scheduler: pbs\nnodes: 2\n", r"site.yaml:2: nodes: .*only SLURM has: leave it out.* pbs"),
        ("scheduler: torque\n", r"site.yaml:1: scheduler: .*torque"),
    ],
)
def test_a_mistake_in_a_profile_is_told_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "site.yaml").write_text(text)
    with pytest.raises(rf.RankfoldError, match=message):
        read_profile(tmp_path / "site.yaml")


@pytest.mark.parametrize(
    ("profile", "message"),
    [
        (Profile(scheduler="sge", cores=4), r"cores: 4.*'-pe NAME 4' to directives:"),
        (Profile(scheduler="sge", gpus=1), r"gpus: 1.*'-l gpu=1'"),
    ],
)
def test_what_a_system_has_no_words_for_is_refused(profile: Profile, message: str) -> None:
    with pytest.raises(rf.RankfoldError, match=message) as error:
        WorkerJobs.of(profile, None, None, "1GiB")
    assert error.value.exit_code == 2


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_what_only_slurm_has_is_one_message(tmp_path: Path, scheduler: str) -> None:
    (tmp_path / "site.yaml").write_text(f"scheduler: {scheduler}\nmemory: 4GiB\n")
    store = to_zarr(tmp_path / "store.zarr", np.ones((200, 60)), (100, 60))
    command = ["pca", str(store), "--rank", "5", "--out", str(tmp_path / "r.zarr")]
    ran = CliRunner().invoke(
        app, ["submit", "--cluster", str(tmp_path / "site.yaml"), "--print", "--", *command]
    )
    assert ran.exit_code == 2 and ONLY_SLURM in " ".join(ran.stderr.split())
    assert "Traceback" not in ran.output
    with pytest.raises(rf.RankfoldError, match="a job that holds a whole command takes a profile of SLURM"):
        directives(read_profile(tmp_path / "site.yaml"), name="x", log="x.log")  # of a crontab too


@pytest.mark.parametrize("profile", list(documented_profiles()), ids=lambda profile: profile.scheduler)
def test_doctor_says_what_it_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profile: Profile
) -> None:
    (tmp_path / "site.yaml").write_text(
        f"scheduler: {profile.scheduler}\nmemory: 4GiB\ncores: {profile.cores}\n"
        f"directives: {json.dumps(profile.directives)}\n"
    )
    doctor = ["doctor", "--cluster", str(tmp_path / "site.yaml"), "--folder", str(tmp_path), "--json"]
    monkeypatch.setenv("PATH", str(tmp_path))
    title = queue_system(profile.scheduler).TITLE
    findings = json.loads(CliRunner().invoke(app, doctor).stdout)
    found = {finding["check"]: finding for finding in findings}
    assert found[title]["verdict"] == "failed" and found["node"]["found"] == ONLY_SLURM
    empty = {
        "qselect": "",
        "qdel": "",
        "bsub": "",
        "bkill": "",
        "bjobs": "echo No unfinished job found >&2; exit 1",
    }
    empty |= {"qsub": "", "qstat": "echo '<job_info/>'"}
    played(tmp_path, monkeypatch, **empty)
    ran = CliRunner().invoke(app, doctor)
    assert ran.exit_code == 0, ran.output
    found = {finding["check"]: finding for finding in json.loads(ran.stdout)}
    assert found[title]["verdict"] == "ok" and found["queue"]["found"].endswith("knows 0 of your jobs")
    assert found["worker job"]["verdict"] == ("ok" if profile.scheduler == "sge" else "not checked")
