"""What the doctor finds, here and on a node, and that nothing of it stays."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from drivers import wait_for
from slurm_cluster import SlurmCluster
from typer.testing import CliRunner

from rankfold.cluster.doctor import job as doctor_probe
from rankfold.cluster.doctor import local as doctor
from rankfold.cluster.doctor import node as probe
from rankfold.cluster.doctor import slurm as doctor_slurm
from rankfold.cluster.doctor.local import Finding
from rankfold.cluster.slurm.profile import Profile
from rankfold.workflows.cli import app

SITE = 'partition: main\naccount: physics\ninterface: lo\nwalltime: "0:10:00"\nmemory: 1GiB\n'


@pytest.fixture
def without_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))


def verdicts(findings: list[dict[str, str]]) -> dict[str, str]:
    return {finding["check"]: finding["verdict"] for finding in findings}


def test_a_machine_of_ones_own_passes(tmp_path: Path, without_slurm: None) -> None:
    ran = CliRunner().invoke(app, ["doctor", "--folder", str(tmp_path), "--json"])
    assert ran.exit_code == 0, ran.output
    found = verdicts(json.loads(ran.stdout))
    assert found["python"] == found["packages"] == found["writing there"] == "ok"
    assert found["SLURM"] == "not checked" and "failed" not in found.values()
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


def test_every_check_is_one_line(tmp_path: Path, without_slurm: None) -> None:
    ran = CliRunner().invoke(app, ["doctor", "--folder", str(tmp_path)])
    assert ran.exit_code == 0
    for line in ran.stdout.splitlines():
        assert line.startswith(("ok  ", "warning  ", "not checked  ")), line


def test_a_profile_where_there_is_no_slurm_fails(tmp_path: Path, without_slurm: None) -> None:
    for option in ("--cluster", "--profile"):
        ran = CliRunner().invoke(app, ["doctor", option, "cpu", "--folder", str(tmp_path), "--json"])
        assert ran.exit_code == 2
        found = verdicts(json.loads(ran.stdout))
        assert found["SLURM"] == "failed" and found["node"] == "not checked"


@pytest.mark.parametrize(
    ("options", "text"), [(["--wait", "soon"], "not a time"), (["--cluster", "lumi"], "no profile")]
)
def test_a_wrong_option_is_one_message(options: list[str], text: str) -> None:
    ran = CliRunner().invoke(app, ["doctor", *options])
    assert ran.exit_code == 2 and text in ran.output and "Traceback" not in ran.output


def test_a_folder_that_cannot_be_worked_in_fails(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    assert doctor.check_space(missing).verdict == doctor.check_writing(missing).verdict == "failed"
    assert doctor.check_writing(tmp_path).verdict == "ok" and not list(tmp_path.iterdir())


def test_a_folder_without_locks_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", refuse)
    found = doctor.check_writing(tmp_path)
    assert found.verdict == "failed" and found.found.startswith("lock: ") and not list(tmp_path.iterdir())


def test_file_systems_are_known_by_their_longest_mount() -> None:
    assert doctor.file_system(Path("/proc/self")) == "proc"
    assert doctor.file_system(Path("/")) not in (None, "proc")


def test_few_open_files_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    found = doctor.check_open_files()
    assert found.verdict == "warning" and "some 256 workers; for more: ulimit -n 4096" in str(found)


def test_a_package_of_another_version_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = ["numpy>=99", "no-such-package>=1", "bokeh>=99; extra == 'dashboard'", "zarr>=3"]
    monkeypatch.setattr("importlib.metadata.requires", lambda _: wanted)
    found = doctor.check_packages()
    assert found.verdict == "failed" and "numpy>=99 (there is " in found.advice
    assert "no-such-package>=1 (there is none)" in found.advice and "bokeh" not in found.advice


@pytest.mark.parametrize(
    ("settings", "verdict", "text"),
    [
        ({"KillWait": "2 sec"}, "warning", "KillWait 2 sec"),
        ({"KillWait": "30 sec", "JobRequeue": "1"}, "ok", "preempted jobs are not told"),
        ({"SlurmctldParameters": "a,preempt_send_user_signal"}, "ok", "preempted jobs are told"),
    ],
)
def test_settings_of_slurm_are_judged(settings: dict[str, str], verdict: str, text: str) -> None:
    found = doctor_slurm.check_settings(settings)
    assert found.verdict == verdict and text in found.found


@pytest.mark.parametrize(("profile", "verdict"), [(None, "not checked"), (Profile(), "failed")])
def test_slurm_without_a_controller_is_not_said_to_be_fine(
    profile: Profile | None, verdict: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in doctor_slurm.COMMANDS:
        (tmp_path / name).write_text("#!/bin/sh\necho 'error: no such file slurm.conf' >&2; exit 1\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "sbatch").write_text("#!/bin/sh\necho slurm 23.11\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    (found,) = doctor_slurm.slurm_findings(profile)
    assert found.verdict == verdict
    assert (
        found.found == "slurm 23.11 is installed, and no controller answers: error: no such file slurm.conf"
    )


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        (
            "2 4 8000 gpu:2\n2 4 8000 gpu:2\n1 64 256000 (null)\n",
            "2 with 4 cores and 7.81 GiB and gpu:2, 1 with 64",
        ),
        ("", "Change the profile, for rankfold submit"),
    ],
)
def test_a_job_that_no_node_can_hold_is_set_beside_the_nodes(
    nodes: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sbatch").write_text(
        "#!/bin/sh\necho 'Requested node configuration is not available' >&2; exit 1\n"
    )
    (tmp_path / "sinfo").write_text(f"#!/bin/sh\nprintf '{nodes}'\n")
    for name in ("sbatch", "sinfo"):
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    profile = Profile(cores=8, memory="16GiB", workers_per_node=2)
    found = doctor_slurm.check_submission(profile)
    assert found.verdict == "failed" and text in found.advice, found
    assert ("it asks a node for 16 cores and 48 GiB" in found.advice) == bool(nodes)
    own = profile.model_copy(update={"directives": ("--mem=64G",)})
    assert ("16 cores and 64G" in doctor_slurm.check_submission(own).advice) == bool(nodes)


def test_an_account_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SBATCH_ACCOUNT", raising=False)
    assert doctor_slurm.check_account(Profile()).verdict == "warning"
    assert doctor_slurm.check_account(Profile(account="physics")).found == "physics"
    monkeypatch.setenv("SBATCH_ACCOUNT", "mine")
    assert doctor_slurm.check_account(Profile()).verdict == "ok"


def test_other_versions_on_a_node_fail_and_other_processors_warn() -> None:
    same = {"host": "n1", "python": "3.12", "versions": doctor.versions(), "core_type": doctor.core_type()}
    assert {finding.verdict for finding in doctor_probe.compare_node(same)} == {"ok"}
    other = {**same, "versions": {**doctor.versions(), "numpy": "1.0"}, "core_type": "openblas Haswell"}
    found = {finding.check: finding for finding in doctor_probe.compare_node(other)}
    assert found["node: python"].verdict == "failed" and "numpy 1.0 for " in found["node: python"].found
    assert found["node: processor family"].verdict == "warning"


def test_a_driver_that_cannot_be_called_is_told() -> None:
    found = probe.check_call(("127.0.0.1", 1), "token")
    assert found.verdict == "failed" and "scheduler_interface" in found.advice
    assert probe.check_address("ib9").verdict == "failed"
    assert probe.check_scratch("$NO_SUCH_VARIABLE").verdict == "failed"


# A real SLURM -------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path, slurm: SlurmCluster) -> Iterator[tuple[Path, Path]]:
    """A profile and a folder, in which nothing stays; and no job."""
    site, folder = tmp_path / "site.yaml", tmp_path / "work"
    site.write_text(SITE)
    folder.mkdir()
    yield site, folder
    wait_for(lambda: not slurm.jobs())
    assert not list(folder.iterdir())


def found_by(site: Path, folder: Path, *more: str) -> tuple[int, dict[str, Finding]]:
    """Exit code of the command, and what it found."""
    command = ["doctor", "--cluster", str(site), "--folder", str(folder), "--json", *more]
    ran = CliRunner().invoke(app, command)
    findings = [Finding(**finding) for finding in json.loads(ran.stdout)]
    return ran.exit_code, {finding.check: finding for finding in findings}


@pytest.mark.slurm
def test_a_node_is_seen_as_a_worker_would_see_it(place: tuple[Path, Path]) -> None:
    site, folder = place
    site.write_text(SITE + "gpus: 1\nprologue: [export OMP_NUM_THREADS=3, export NUMBA_NUM_THREADS=3]\n")
    began = time.monotonic()
    code, found = found_by(site, folder)
    assert time.monotonic() - began < 240  # the answer ends it, and not a time limit
    wanted = {"node: GPU": "failed", "node: threads below workers": "warning"}
    assert {name: finding.verdict for name, finding in found.items() if name in wanted} == wanted
    assert code == 2
    assert "CUDA_VISIBLE_DEVICES=" in found["node: GPU"].found
    for name in ("node", "node: python", "node: to the driver", "node: from the driver", "node: scratch"):
        assert found[name].verdict == "ok", found[name]
    assert found["node: interface"].found.startswith("127.0.0.1 is used")


@pytest.mark.slurm
@pytest.mark.parametrize(
    ("line", "check", "text"),
    [
        ("partition: mian", "partition", "there is no mian"),
        ("directives: [--gres=gpu:7]", "worker job", "SLURM refuses it: "),
        ("interface: ib9", "node", "no network interface 'ib9' here"),
        ("scheduler_interface: lo\ninterface: ib9", "node: interface", "no ib9; there are "),
        ("python: /no/such/python", "node", "/no/such/python"),
    ],
)
def test_what_is_wrong_with_a_profile_is_found(
    place: tuple[Path, Path], line: str, check: str, text: str
) -> None:
    site, folder = place
    keys = {each.partition(":")[0] for each in line.splitlines()}
    kept = [old for old in SITE.splitlines() if old.partition(":")[0] not in keys]
    site.write_text("\n".join([*kept, line]) + "\n")
    code, found = found_by(site, folder)
    assert code == 2 and found[check].verdict == "failed" and text in found[check].found, found


@pytest.mark.slurm
def test_a_queue_that_is_slow_fails_nothing(place: tuple[Path, Path]) -> None:
    site, folder = place
    site.write_text(SITE + "directives: [--hold]\n")
    code, found = found_by(site, folder, "--wait", "0:01")
    assert code == 0 and found["node"].verdict == "not checked" and "jobheld" in found["node"].found


@pytest.mark.slurm
def test_an_interrupted_doctor_leaves_nothing(place: tuple[Path, Path], slurm: SlurmCluster) -> None:
    site, folder = place
    site.write_text(SITE + "prologue: [sleep 600]\n")
    command = [sys.executable, "-m", "rankfold", "doctor", "--cluster", str(site), "--folder", str(folder)]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: bool(slurm.jobs("RUNNING")))
    os.kill(started.pid, signal.SIGINT)
    assert started.wait(120) == 130


def test_a_line_of_the_prologue_that_fails_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "my folder"
    folder.mkdir()
    profile = Profile(prologue=("module load nope", "export SEEN=1", "false"), python="/bin/true")
    script = doctor_probe.probe_script(profile, "rankfold-doctor-1", folder)
    assert subprocess.run(["bash"], input=script, text=True, capture_output=True).returncode == 0
    failed = (folder / doctor_probe.PROLOGUE_FAILURES).read_text().splitlines()
    assert failed == ["module load nope ended with 127", "false ended with 1"]
