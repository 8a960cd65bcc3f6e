"""Worker jobs on a real Grid Engine: the same bytes, whatever is cancelled or killed, and no job left."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from drivers import GONE_SECONDS, HERE, Driver, wait_for
from grid_engine import GridEngine, missing_grid_engine
from reference import same_bytes
from typer.testing import CliRunner

import rankfold as rf
from rankfold.cluster.slurm.leftovers import read_note
from rankfold.cluster.slurm.profile import read_profile
from rankfold.workflows.cli import app

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GridEngine]:
    """A real Grid Engine; tests that want it are skipped where none can be started."""
    if reason := missing_grid_engine():
        pytest.skip(reason)
    with GridEngine(tmp_path_factory.mktemp("sge")) as engine:
        yield engine


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    # Jobs do not inherit the environment of the tests.
    path = f"export PYTHONPATH={shlex.quote(os.pathsep.join([str(HERE), *sys.path[1:]]))}"
    site = tmp_path / "site.yaml"
    site.write_text(
        'scheduler: sge\npartition: main.q\ninterface: lo\nwalltime: "0:10:00"\nmemory: 1GiB\n'
        f"prologue: [{json.dumps(path)}]\n"
    )
    return site


def test_jobs_give_the_same_bytes_as_threads(
    tmp_path: Path, demo_store: Path, demo_bytes: str, engine: GridEngine, profile: Path
) -> None:
    out = tmp_path / "my runs" / "r.zarr"
    out.parent.mkdir()
    profile.write_text(profile.read_text() + "cores: 2\ndirectives: [-pe smp 2]\n")
    result = rf.pca(demo_store, rank=8, memory="256MiB", cluster=profile, workers=2, out=out)
    assert same_bytes(result) == demo_bytes
    place = result.run["attempts"][-1]["place"]
    assert (place["kind"], place["workers"], place["threads"]) == ("sge", 2, 2)
    logs = sorted(out.with_name("r.zarr.run").glob("logs/rf-sge-*.err"))
    assert len(logs) == 2 and all("Start worker at" in log.read_text() for log in logs)
    wait_for(lambda: not engine.jobs(), GONE_SECONDS)


def test_a_cancelled_job_is_replaced(
    tmp_path: Path, demo_store: Path, demo_bytes: str, engine: GridEngine, profile: Path
) -> None:
    driver = Driver(demo_store, tmp_path / "r.zarr", 0.15, cluster=str(profile), workers=2)
    driver.until_within("gram", 0, 400_000)
    first = engine.jobs("r")
    engine.cancel(first[0])
    wait_for(lambda: len(set(engine.jobs("r")) - set(first)) == 1, otherwise=lambda: driver.said)
    assert driver.end() == 0, driver.said
    assert f"is gone (job {first[0]} " in driver.said
    assert same_bytes(rf.open_result(tmp_path / "r.zarr")) == demo_bytes
    wait_for(lambda: not engine.jobs(), GONE_SECONDS)


def test_workers_hand_over_before_the_end_of_their_jobs(
    tmp_path: Path, demo_store: Path, demo_bytes: str, engine: GridEngine, profile: Path
) -> None:
    profile.write_text(profile.read_text().replace("0:10:00", "0:01:00") + 'drain: "0:40"\n')
    driver = Driver(demo_store, tmp_path / "r.zarr", 1.0, cluster=str(profile), workers=2)
    assert driver.end() == 0, driver.said
    assert "has handed over and is closed" in driver.said and "is gone" not in driver.said
    assert same_bytes(rf.open_result(tmp_path / "r.zarr")) == demo_bytes
    wait_for(lambda: not engine.jobs(), GONE_SECONDS)


def test_a_killed_driver_leaves_no_job_and_the_next_goes_on(
    tmp_path: Path, demo_store: Path, demo_bytes: str, engine: GridEngine, profile: Path
) -> None:
    waiting = profile.read_text() + "cores: 4\ndirectives: [-pe smp 4]\n"  # two jobs fill the node
    profile.write_text(waiting)
    driver = Driver(demo_store, tmp_path / "r.zarr", 0.15, cluster=str(profile), workers=4, threads=1)
    driver.until_within("gram", 0, 400_000)
    assert engine.jobs("p")
    driver.process.kill()
    driver.process.wait()
    wait_for(lambda: not engine.jobs(), GONE_SECONDS)
    assert read_note(tmp_path / "r.zarr.run") != []  # who was killed has not taken it back
    ended = CliRunner().invoke(app, ["cancel", str(tmp_path / "r.zarr")])
    assert ended.exit_code == 0 and read_note(tmp_path / "r.zarr.run") == [], ended.output
    again = Driver(demo_store, tmp_path / "r.zarr", 0.0, cluster=str(profile), workers=2)
    assert again.end() == 0, again.said
    assert same_bytes(rf.open_result(tmp_path / "r.zarr")) == demo_bytes
    wait_for(lambda: not engine.jobs(), GONE_SECONDS)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("partition: mian.q", "Grid Engine refuses the worker job: .*unknown queue"),
        ("directives: [-l nonsense=7]", "Grid Engine refuses the worker job: .*nonsense"),
        ("python: /no/such/python", "workers ended before they could begin; .*No such file"),
    ],
)
def test_what_cannot_start_says_why(
    tmp_path: Path, demo_store: Path, engine: GridEngine, profile: Path, line: str, message: str
) -> None:
    key = line.partition(":")[0]
    kept = [old for old in profile.read_text().splitlines() if not old.startswith(key)]
    profile.write_text("\n".join([*kept, line]) + "\n")
    with pytest.raises(rf.RankfoldError, match=message):
        rf.pca(demo_store, rank=8, memory="256MiB", cluster=profile, workers=1, out=tmp_path / "r.zarr")
    wait_for(lambda: not engine.jobs(), GONE_SECONDS)


def test_doctor_asks_it(tmp_path: Path, engine: GridEngine, profile: Path) -> None:
    assert read_profile(profile).scheduler == "sge"
    ran = CliRunner().invoke(app, ["doctor", "--cluster", str(profile), "--folder", str(tmp_path), "--json"])
    assert ran.exit_code == 0, ran.output
    verdicts = {finding["check"]: finding["verdict"] for finding in json.loads(ran.stdout)}
    assert verdicts["Grid Engine"] == verdicts["queue"] == verdicts["worker job"] == "ok"
    assert verdicts["node"] == "not checked"
