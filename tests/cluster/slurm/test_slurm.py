"""Worker jobs on a real SLURM: the same bytes, whatever is cancelled or killed, and no job left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from drivers import GONE_SECONDS, Driver, wait_for
from reference import same_bytes
from slurm_cluster import NODES, SlurmCluster

import rankfold as rf

pytestmark = pytest.mark.slurm

PROFILE = 'partition: main\ninterface: lo\nwalltime: "0:10:00"\nmemory: 1GiB\n'


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    path = tmp_path / "test.yaml"
    path.write_text(PROFILE)
    return path


@pytest.mark.parametrize("workers", [2, 4])
def test_jobs_give_the_same_bytes_as_threads(
    tmp_path: Path, demo_store: Path, demo_bytes: str, slurm: SlurmCluster, profile: Path, workers: int
) -> None:
    result = rf.pca(
        demo_store, rank=8, memory="256MiB", cluster=profile, workers=workers, out=tmp_path / "r.zarr"
    )
    assert same_bytes(result) == demo_bytes
    attempt = result.run["attempts"][-1]
    assert attempt["place"]["kind"] == "slurm" and attempt["place"]["workers"] == workers
    assert 0 < attempt["measured_bytes"] <= attempt["planned_bytes"]
    wait_for(lambda: not slurm.jobs(), GONE_SECONDS)


def test_a_cancelled_job_is_replaced(
    tmp_path: Path, demo_store: Path, demo_bytes: str, slurm: SlurmCluster, profile: Path
) -> None:
    driver = Driver(demo_store, tmp_path / "r.zarr", 0.15, cluster=str(profile), workers=2)
    driver.until_within("gram", 0, 400_000)
    first = slurm.jobs("RUNNING")
    slurm.cancel(first[0])
    wait_for(lambda: len(set(slurm.jobs("RUNNING")) - set(first)) == 1, otherwise=lambda: driver.said)
    assert driver.end() == 0, driver.said
    # SLURM calls it cancelled, or for a moment before completing; then its last words say what ended it.
    assert f"is gone (job {first[0]} c" in driver.said and "cancelled" in driver.said.lower()
    assert same_bytes(rf.open_result(tmp_path / "r.zarr")) == demo_bytes
    wait_for(lambda: not slurm.jobs(), GONE_SECONDS)


@pytest.mark.slow
def test_jobs_that_are_preempted_are_replaced(
    tmp_path: Path, demo_store: Path, demo_bytes: str, slurm: SlurmCluster, profile: Path
) -> None:
    driver = Driver(demo_store, tmp_path / "r.zarr", 0.15, cluster=str(profile), workers=2)
    driver.until_within("gram", 0, 400_000)
    first = slurm.jobs("RUNNING")
    urgent = slurm.preempt(*NODES, seconds=2)
    wait_for(lambda: urgent in slurm.jobs("RUNNING"), otherwise=lambda: driver.said)
    assert not {*first} & {*slurm.jobs("RUNNING")}
    assert driver.end() == 0, driver.said
    assert all(f"is gone (job {job} " in driver.said for job in first), driver.said
    assert same_bytes(rf.open_result(tmp_path / "r.zarr")) == demo_bytes
    wait_for(lambda: not slurm.jobs(), GONE_SECONDS)


def test_a_killed_driver_leaves_no_job_and_the_next_goes_on(
    tmp_path: Path, demo_store: Path, demo_bytes: str, slurm: SlurmCluster, profile: Path
) -> None:
    # Two jobs fill the two nodes: the others wait in the queue when the driver is killed.
    profile.write_text(PROFILE.replace("1GiB", "4GiB"))
    where = {"cluster": str(profile), "workers": 6}
    driver = Driver(demo_store, tmp_path / "r.zarr", 0.15, **where)
    driver.until_within("gram", 0, 400_000)
    assert slurm.jobs("PENDING")
    driver.process.kill()
    driver.process.wait()
    wait_for(lambda: not slurm.jobs(), GONE_SECONDS)
    again = Driver(demo_store, tmp_path / "r.zarr", 0.0, cluster=str(profile), workers=2)
    assert again.end() == 0, again.said
    assert same_bytes(rf.open_result(tmp_path / "r.zarr")) == demo_bytes
    wait_for(lambda: not slurm.jobs(), GONE_SECONDS)


def test_a_driver_that_is_told_to_stop_cancels_its_jobs(
    tmp_path: Path, demo_store: Path, slurm: SlurmCluster, profile: Path
) -> None:
    driver = Driver(demo_store, tmp_path / "r.zarr", 0.15, cluster=str(profile), workers=2)
    driver.until_within("gram", 0, 400_000)
    os.kill(driver.process.pid, signal.SIGINT)
    assert driver.end() != 0
    assert "KeyboardInterrupt" in driver.said  # dask-jobqueue would have made it an exit
    wait_for(lambda: not slurm.jobs(), GONE_SECONDS)
    assert list((tmp_path / "r.zarr.run").glob("state-*/gram/stream-*.part"))


def test_neighbors_are_the_same_bytes_as_of_threads(
    tmp_path: Path, rows_store: Path, neighbor_bytes: str, slurm: SlurmCluster, profile: Path
) -> None:
    where = {"script": "neighbor_driver.py", "cluster": str(profile), "workers": 2}
    driver = Driver(rows_store, tmp_path / "r.zarr", 0.0, **where)
    assert driver.end() == 0, driver.said
    result = rf.open_result(tmp_path / "r.zarr")
    assert same_bytes(result) == neighbor_bytes
    attempt = result.run["attempts"][-1]
    assert attempt["place"]["kind"] == "slurm" and attempt["place"]["workers"] == 2
    assert 0 < attempt["measured_bytes"] <= attempt["planned_bytes"]
    wait_for(lambda: not slurm.jobs(), GONE_SECONDS)


def test_a_job_cancelled_among_neighbors_is_replaced(
    tmp_path: Path, rows_store: Path, neighbor_bytes: str, slurm: SlurmCluster, profile: Path
) -> None:
    where = {"script": "neighbor_driver.py", "cluster": str(profile), "workers": 2}
    driver = Driver(rows_store, tmp_path / "r.zarr", 0.1, **where)
    driver.until_within("pairs", 0, 5000)
    slurm.cancel(slurm.jobs("RUNNING")[0])
    assert driver.end() == 0, driver.said
    assert same_bytes(rf.open_result(tmp_path / "r.zarr")) == neighbor_bytes
    wait_for(lambda: not slurm.jobs(), GONE_SECONDS)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("partition: mian", "SLURM refuses the worker job: .*[Ii]nvalid partition"),
        ("interface: ib9", "no network interface 'ib9' here"),
        ("directives: [--gres=gpu:7]", "SLURM refuses the worker job"),
        ("python: /no/such/python", "workers ended before they could begin; .*No such file"),
    ],
)
def test_what_cannot_start_says_why(
    tmp_path: Path, demo_store: Path, slurm: SlurmCluster, profile: Path, line: str, message: str
) -> None:
    key = line.partition(":")[0]
    kept = [old for old in PROFILE.splitlines() if not old.startswith(key)]
    profile.write_text("\n".join([*kept, line]) + "\n")
    with pytest.raises(rf.RankfoldError, match=message):
        rf.pca(demo_store, rank=8, memory="256MiB", cluster=profile, workers=1, out=tmp_path / "r.zarr")
    wait_for(lambda: not slurm.jobs(), GONE_SECONDS)


def test_no_worker_in_time_is_told_with_the_reason(
    tmp_path: Path, demo_store: Path, slurm: SlurmCluster, profile: Path
) -> None:
    profile.write_text(PROFILE + 'wait: "0:04"\ndirectives: [--hold]\n')
    with pytest.raises(rf.RankfoldError, match=r"no worker came within 0:04 .* pending \(JobHeld") as error:
        rf.pca(demo_store, rank=8, memory="256MiB", cluster=profile, workers=2, out=tmp_path / "r.zarr")
    assert error.value.exit_code == 75
    wait_for(lambda: not slurm.jobs(), GONE_SECONDS)


def test_workers_and_scheduler_may_speak_tls(
    tmp_path: Path, demo_store: Path, demo_bytes: str, slurm: SlurmCluster, profile: Path
) -> None:
    pytest.importorskip("cryptography", reason="TLS needs the package cryptography")
    profile.write_text(PROFILE + "tls: true\n")
    out = tmp_path / "r.zarr"
    result = rf.pca(demo_store, rank=8, memory="256MiB", cluster=profile, workers=2, out=out)
    assert same_bytes(result) == demo_bytes
    logs = "".join(path.read_text() for path in (tmp_path / "r.zarr.run" / "logs").glob("*.err"))
    assert "tls://" in logs and "tcp://" not in logs


def test_ports_are_those_of_the_interface(
    tmp_path: Path, demo_store: Path, slurm: SlurmCluster, profile: Path
) -> None:
    driver = Driver(demo_store, tmp_path / "r.zarr", 0.15, cluster=str(profile), workers=2)
    driver.until_within("gram", 0, 400_000)
    listening = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True).stdout.splitlines()
    ours = [line.split()[3] for line in listening if f"pid={driver.process.pid}," in line or "dask" in line]
    driver.process.terminate()
    driver.end()
    assert ours and all(address.startswith("127.0.0.1:") for address in ours), ours


EVERY_OTHER = """\
#!/bin/sh
if mkdir {turn} 2>/dev/null; then
    echo "{name}: error: Socket timed out on send/recv operation" >&2
    exit 1
fi
rmdir {turn}
exec {real} "$@"
"""


def test_commands_that_fail_every_other_time_change_nothing(
    tmp_path: Path,
    demo_store: Path,
    demo_bytes: str,
    slurm: SlurmCluster,
    profile: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sbatch", "squeue", "scancel"):
        script = EVERY_OTHER.format(turn=tmp_path / f"turn-{name}", name=name, real=shutil.which(name))
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)
    with monkeypatch.context() as here:
        here.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        result = rf.pca(
            demo_store, rank=8, memory="256MiB", cluster=profile, workers=2, out=tmp_path / "r.zarr"
        )
    assert same_bytes(result) == demo_bytes
    wait_for(lambda: not slurm.jobs(), GONE_SECONDS)
