"""What is done about a workflow that runs elsewhere: submit, status, logs, cancel, schedule."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from command_line import rankfold
from drivers import wait_for
from hypothesis import given
from hypothesis import strategies as st
from reference import to_zarr

from rankfold.cluster.slurm import leftovers
from rankfold.cluster.slurm.leftovers import read_note
from rankfold.pipeline.storage.lock import hold_lock
from rankfold.workflows.flows.record import LOCK
from rankfold.workflows.operations import cancel, logs
from rankfold.workflows.operations.submitted import job_name
from rankfold.workflows.operations.timetable import Cron, Schedule, format_time, read_every

FLOW = """\
workflow: cells
inputs: {counts: x.zarr}
outputs: results
resources: {memory: 1GiB, threads: 1}
stages:
  components: {method: pca, input: counts, rank: 5}
  near: {method: knn, input: components.scores, k: 3}
"""

SITE = 'partition: main\naccount: physics\nwalltime: "2:00:00"\nnodes: 2\nmemory: 4GiB\n'

SLURM = """\
#!{python}
# What is in the queue stands in a file; every call is written down.
import os, pathlib, sys
folder = pathlib.Path(__file__).parent
name, words = os.path.basename(sys.argv[0]), sys.argv[1:]
with open(folder / "calls", "a") as calls:
    print(name, *words, file=calls)
queue = folder / "queue"
busy, turn = folder / "busy", folder / f"turn-{{name}}"
if busy.exists() and not turn.exists():
    turn.touch()  # every other call of a command fails
    print(f"{{name}}: error: {{busy.read_text()}}", file=sys.stderr)
    if name != "sbatch" or "taken" not in busy.read_text():
        sys.exit(1)
elif turn.exists():
    turn.unlink()
failed = turn.exists()
jobs = queue.read_text().splitlines() if queue.exists() else []
if name == "squeue":
    print("\\n".join(jobs))
elif name == "sbatch":
    script = sys.stdin.read()
    called = script.partition("--job-name=")[2].split()[0]
    queue.write_text(f"4711|PENDING|Resources|2:00:00|N/A||{{called}}\\n")
    if failed:
        sys.exit(1)  # the job is in the queue, and nobody was told
    print("Submitted batch job 4711")
elif name == "scancel" and not (folder / "stubborn").exists():
    named = [word.partition("=")[2] for word in words if word.startswith("--name=")]
    left = [job for job in jobs if job.split("|")[-1] not in named and job.split("|")[0] not in words]
    queue.write_text("".join(f"{{job}}\\n" for job in left))
"""


@pytest.fixture
def flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The workflow above beside its data and a profile."""
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).standard_normal((300, 30)).astype(np.float32)
    to_zarr(tmp_path / "x.zarr", x, (100, 30))
    (tmp_path / "site.yaml").write_text(SITE)
    path = tmp_path / "flow.yaml"
    path.write_text(FLOW)
    return path


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a SLURM that is none."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("squeue", "sbatch", "scancel"):
        (folder / name).write_text(SLURM.format(python=sys.executable))
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(leftovers, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(leftovers, "POLL_SECONDS", 0.01)
    return folder / "queue"


def busy(queue: Path, monkeypatch: pytest.MonkeyPatch, message: str) -> None:
    """Let every other call of each command fail."""
    (queue.parent / "busy").write_text(message)
    monkeypatch.setattr("rankfold.cluster.slurm.queue.FIRST_PAUSE", 0.01)


@pytest.fixture
def no_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))


def own_name(flow: Path, kind: str = "") -> str:
    return "rankfold-" + job_name("cells", flow.parent / "results", kind)


# Submit --------------------------------------------------------------------------------------------


def test_the_job_of_a_workflow_runs_it_on_its_profile(flow: Path) -> None:
    flow.write_text(FLOW.replace("stages:", "profile: site\nstages:"))
    shown = rankfold("submit", flow, "--print")
    assert shown.exit_code == 0, shown.output
    script = shown.stdout.splitlines()
    folder = flow.parent
    assert f"#SBATCH --output={folder}/results/rankfold-cells-%j.log" in script
    assert f"#SBATCH --job-name={own_name(flow)}" in script
    assert {"#SBATCH --account=physics", "#SBATCH --nodes=2", "#SBATCH --requeue"} < {*script}
    assert f"export RANKFOLD_PROFILE={folder}/site.yaml" in script
    assert f"{sys.executable} -m rankfold run {folder}/flow.yaml --cluster allocation &" in script
    subprocess.run(["bash", "-n"], input=shown.stdout, text=True, check=True)
    assert not (folder / "results").exists()
    assert rankfold("submit", "--print", "--", "run", "flow.yaml").stdout == shown.stdout
    part = rankfold("submit", "--print", "--", "flow.yaml", "--from", "near")
    assert f"run {folder}/flow.yaml --from near --cluster allocation &" in part.stdout


@pytest.mark.parametrize(
    "message",
    [
        "Socket timed out on send/recv operation",
        "Unable to contact slurm controller (connect failure)",
        "Resource temporarily unavailable",
        "QOSMaxSubmitJobPerUserLimit",
        "Socket timed out on send/recv operation, but the job was taken",
    ],
)
def test_what_passes_of_slurm_is_asked_again(
    message: str, flow: Path, queue: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy(queue, monkeypatch, message)
    flow.write_text(FLOW.replace("stages:", "profile: site\nstages:"))
    sent = rankfold("submit", flow)
    assert sent.exit_code == 0, sent.output
    assert "4711" in sent.output
    calls = (queue.parent / "calls").read_text().splitlines()
    assert sum(call.startswith("sbatch") for call in calls) == (1 if "taken" in message else 2)
    assert "is submitted already" in rankfold("submit", flow).output
    ended = rankfold("cancel", flow)
    assert ended.exit_code == 0, ended.output
    assert not queue.read_text()


def test_what_does_not_pass_is_said_as_that(flow: Path, queue: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankfold.cluster.slurm.queue.PATIENCE_SECONDS", 0.0)
    flow.write_text(FLOW.replace("stages:", "profile: site\nstages:"))
    busy(queue, monkeypatch, "Unable to contact slurm controller")
    unknown = rankfold("submit", flow)
    assert unknown.exit_code != 0
    assert "squeue does not answer. Give the command again later" in unknown.output
    (queue.parent / "busy").unlink()
    (queue.parent / "turn-squeue").unlink(missing_ok=True)
    (queue.parent / "sbatch").write_text("#!/bin/sh\necho 'error: Socket timed out' >&2; exit 1\n")
    refused = rankfold("submit", flow)
    assert "does not take the job at the moment" in refused.output
    assert "Change the profile" not in refused.output


def test_without_a_profile_of_its_own_a_workflow_takes_that_of_the_command(flow: Path) -> None:
    assert "RANKFOLD_PROFILE=slurm" in rankfold("submit", flow, "--print").stdout
    site = rankfold("submit", flow, "--cluster", "site.yaml", "--print").stdout
    assert f"RANKFOLD_PROFILE={flow.parent}/site.yaml" in site and "--account=physics" in site


@pytest.mark.parametrize(
    ("old", "new", "code", "message"),
    [
        ("rank: 5", "rnak: 5", 2, "flow.yaml:6: stages.components.rnak: no such key (did you mean 'rank'?)"),
        ("rank: 5", "rank: 31", 2, "flow.yaml:6: stages.components.rank: rank 31 was asked for"),
        ("1GiB", "9GiB", 2, "which leaves 3.32 GiB to work with, not 9 GiB"),
        ("k: 3", "k: 3, resources: {memory: 1MiB}", 3, "flow.yaml:7: stages.near: knn of this 300 x 5"),
        ("results", "my\\results", 2, "SLURM writes no logs into"),
    ],
)
def test_mistakes_are_told_before_a_workflow_is_submitted(
    flow: Path, queue: Path, old: str, new: str, code: int, message: str
) -> None:
    flow.write_text(FLOW.replace(old, new))
    sent = rankfold("submit", flow, "--cluster", "site")
    assert sent.exit_code == code, sent.output
    assert message in sent.stderr, sent.stderr
    assert not queue.exists() and not (flow.parent / "results").exists()


@pytest.mark.usefixtures("no_slurm")
def test_where_there_is_no_slurm_nothing_is_submitted(flow: Path) -> None:
    sent = rankfold("submit", flow)
    assert sent.exit_code == 2 and "there is no sbatch here: --cluster slurm needs" in sent.stderr
    assert not (flow.parent / "results").exists()


def test_a_workflow_is_submitted_once(flow: Path, queue: Path) -> None:
    sent = rankfold("submit", flow, "--cluster", "site")
    assert sent.exit_code == 0, sent.output
    assert sent.stdout.splitlines() == [
        "job 4711: 2 nodes for 2:00:00, begun again up to 20 times",
        f"follow it:  rankfold logs {flow} --follow   or   rankfold status {flow}",
        f"cancel it:  rankfold cancel {flow}   (the same command goes on from what it leaves)",
    ]
    noted_down = json.loads((flow.parent / "results" / "submitted.json").read_text())
    assert noted_down["job"] == "4711" and noted_down["log"].endswith("results/rankfold-cells-4711.log")
    again = rankfold("submit", flow, "--cluster", "site")
    assert again.exit_code == 2
    assert f"{flow} is submitted already: job 4711 pending (Resources)" in again.stderr
    queue.write_text("")
    assert rankfold("submit", flow, "--cluster", "site").exit_code == 0


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["pca", "nothere.zarr", "--rank", "5"], 2, "nothere.zarr"),
        (["pca", "x.zarr", "--rank", "500"], 2, "rank"),
        (["knn", "x.zarr", "--k", "3", "--metric", "far"], 2, "metric"),
        (["nmf", "x.zarr", "--rank", "3", "--solver", "magic"], 2, "solver"),
        (["transform", "x.zarr", "x.zarr"], 2, "not a result"),
        (["reconstruct", "nothere.zarr"], 2, "there is no result at"),
        (["pca", "x.zarr", "--rank", "5", "--memory", "100GiB"], 2, "Lower --memory"),
        (["pca", "x.zarr", "--rank", "5", "--threads", "0"], 2, "threads"),
        (["pca", "x.zarr", "--rank", "5", "--memory", "1MiB"], 3, "--memory"),
    ],
)
def test_what_a_job_would_refuse_is_not_submitted(
    flow: Path, queue: Path, words: list[str], code: int, message: str
) -> None:
    sent = rankfold("submit", "--cluster", "site", "--", *words, "--out", "r.zarr")
    assert sent.exit_code == code and message in sent.stderr, sent.output
    assert not queue.exists() and not [*flow.parent.glob("r.zarr*")]


def test_a_check_is_submitted_as_a_stage(flow: Path, queue: Path) -> None:
    sent = rankfold("submit", "--cluster", "site", "--", "check", "r.zarr", "x.zarr")
    assert sent.exit_code == 2 and "submit a workflow with a stage of method: check" in sent.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["svd", "x.zarr", "--rank", "3"],
        ["pca", "x.zarr", "--rank", "3"],
        ["pca", "x.zarr", "--update", "fit.zarr"],
        ["qr", "x.zarr"],
        ["nmf", "x.zarr", "--rank", "2", "--init", "random"],
        ["knn", "x.zarr", "--k", "2", "--queries", "x.zarr"],
        ["transform", "fit.zarr", "x.zarr"],
        ["reconstruct", "fit.zarr", "--select-rows", "0:10"],
    ],
    ids=lambda words: " ".join([words[0], *words[3:4]]),
)
def test_every_command_with_an_output_is_planned_and_submitted(
    flow: Path, queue: Path, words: list[str]
) -> None:
    import rankfold as rf

    rf.pca("x.zarr", 3, memory="256MiB", out="fit.zarr")
    sent = rankfold("submit", "--cluster", "site", "--", *words, "--out", "r.zarr")
    assert sent.exit_code == 0, sent.output


def test_a_command_is_submitted_once_and_cancelled_by_its_output(flow: Path, queue: Path) -> None:
    command = ("submit", "--cluster", "site", "--", "pca", "x.zarr", "--rank", "3", "--out", "r.zarr")
    sent = rankfold(*command)
    assert sent.exit_code == 0, sent.output
    assert sent.stdout.splitlines()[1:] == [
        "follow it:  rankfold logs r.zarr --follow   or   rankfold status r.zarr",
        "cancel it:  rankfold cancel r.zarr   (the same command goes on from what it leaves)",
    ]
    told = rankfold("status", "r.zarr")
    assert "nothing was computed yet" in told.stdout and "job 4711 pending (Resources)" in told.stdout
    again = rankfold(*command)
    assert again.exit_code == 2
    assert "r.zarr is submitted already: job 4711 pending (Resources)" in again.stderr
    assert "rankfold cancel r.zarr" in again.stderr
    (flow.parent / "rankfold-pca-4711.log").write_text("pca begins\n")
    assert "pca begins" in rankfold("logs", "r.zarr").stdout

    queue.write_text(queue.read_text() + "12|RUNNING|None|1:00|N/A|n1|rankfold-pca\n")
    ended = rankfold("cancel", "r.zarr")
    assert ended.exit_code == 0 and "job 4711 pending (Resources): cancelled" in ended.stdout, ended.output
    assert queue.read_text() == "12|RUNNING|None|1:00|N/A|n1|rankfold-pca\n"
    assert not [*flow.parent.glob("r.zarr*")]


def test_a_workflow_that_runs_in_a_job_is_submitted_already(flow: Path, queue: Path) -> None:
    """Its process is on another machine, and means nothing here."""
    results = flow.parent / "results"
    results.mkdir()
    queue.write_text(f"4711|RUNNING|None|1:23:45|N/A|n1|{own_name(flow)}\n")
    with hold_lock(results / LOCK, results):
        again = rankfold("submit", flow, "--cluster", "site")
    assert again.exit_code == 2 and "is submitted already: job 4711 running on n1" in again.stderr


# Status --------------------------------------------------------------------------------------------


def test_status_tells_of_the_job(flow: Path, queue: Path) -> None:
    assert rankfold("submit", flow).exit_code == 0
    assert rankfold("status", flow).stdout.splitlines()[-1] == "job 4711 pending (Resources)"
    told = json.loads(rankfold("status", flow, "--json").stdout)
    assert told["submitted"]["ended"] is False and told["jobs"][0]["reason"] == "Resources"
    queue.write_text(f"4711|RUNNING|None|1:23:45|2026-11-22T08:00:00|n[1-2]|{own_name(flow)}\n")
    assert "\njob 4711 running on n[1-2], 1:23:45 left\n" in rankfold("status", flow).stdout
    queue.write_text("12|RUNNING|None|1:23:45|N/A|n1|somebody\n13|PENDING|Priority|1:00|N/A||rankfold-pca\n")
    assert "job 4711 has ended; its log is " in rankfold("status", flow).stdout
    assert json.loads(rankfold("status", flow, "--json").stdout)["submitted"]["ended"] is True
    run = flow.parent / "results" / "near.zarr.run"
    run.mkdir()
    (run / "jobs.json").write_text('{"names": ["rankfold-0a1b2c3d"]}')
    queue.write_text(
        "5|RUNNING|None|1:00|N/A|n1|rankfold-0a1b2c3d\n6|PENDING|Priority|1:00|N/A||rankfold-0a1b2c3d\n"
    )
    assert "jobs of workers: 1 running, 1 pending (Priority)" in rankfold("status", flow).stdout


@pytest.mark.usefixtures("no_slurm")
def test_status_without_slurm_leaves_jobs_out(flow: Path) -> None:
    assert "job" not in rankfold("status", flow).stdout
    assert json.loads(rankfold("status", flow, "--json").stdout)["submitted"] is None


# Logs ----------------------------------------------------------------------------------------------


@pytest.fixture
def written_logs(flow: Path) -> Path:
    """Logs of two jobs, and of workers of a stage."""
    results = flow.parent / "results"
    (results / "near.zarr.run" / "logs").mkdir(parents=True)
    (results / "flow.json").write_text(json.dumps({"workflow": "cells", "stages": {}, "steps": []}))
    files = {"rankfold-cells-1.log": "old\n", "rankfold-cells-2.log": "".join(f"{i}\n" for i in range(50))}
    files |= {f"near.zarr.run/logs/rankfold-0a-{i:02}.err": f"worker {i}\nends\n" for i in range(9)}
    files |= {"near.zarr.run/logs/rankfold-0a-1.out": ""}
    for age, (name, text) in enumerate(files.items()):
        (results / name).write_text(text)
        os.utime(results / name, (age, age))
    return results


def test_logs_are_headed_by_where_they_lie(flow: Path, written_logs: Path) -> None:
    shown = rankfold("logs", flow, "--lines", 2)
    assert shown.exit_code == 0, shown.output
    lines = shown.stdout.splitlines()
    near = written_logs / "near.zarr.run"
    assert lines[:2] == [f"(1 older in {written_logs})", f"(1 older in {near}/logs)"]
    assert lines[2:5] == [f"==> {written_logs}/rankfold-cells-2.log <==", "48", "49"]
    assert lines[5:8] == [f"==> {near}/logs/rankfold-0a-01.err <==", "worker 1", "ends"]
    assert len(lines) == 5 + 8 * 3
    stage = rankfold("logs", written_logs, "--stage", "near").stdout
    assert stage == rankfold("logs", written_logs / "near.zarr").stdout
    assert "rankfold-cells" not in stage and stage.count("==>") == 8
    wrong = rankfold("logs", flow, "--stage", "nera")
    assert wrong.exit_code == 2 and "no such stage that has run 'nera' (did you mean 'near'?)" in wrong.stderr
    assert rankfold("logs", written_logs / "near.zarr", "--stage", "near").exit_code == 2


def test_there_may_be_no_logs(flow: Path) -> None:
    assert "no logs" in rankfold("logs", flow).stdout
    assert rankfold("logs", flow.parent / "nowhere").exit_code == 2
    assert "Give the .yaml file of a workflow" in rankfold("logs", flow.parent / "x.zarr").stderr


def test_logs_are_followed_until_nothing_runs(
    flow: Path, written_logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "ASK_SECONDS", 0.0)
    monkeypatch.setattr(logs, "POLL_SECONDS", 0.01)
    log, new = written_logs / "rankfold-cells-2.log", written_logs / "near.zarr.run" / "logs" / "new.err"

    def wrote(path: Path, text: str) -> Callable[[], bool]:
        def write() -> bool:
            with open(path, "a") as file:
                file.write(text)
            return True

        return write

    steps = iter([wrote(log, "50\n5"), wrote(new, "begins\n"), wrote(log, "1\n"), lambda: False])
    monkeypatch.setattr(logs.Follower, "_working", lambda self: next(steps)())
    shown = rankfold("logs", flow, "--lines", 1, "--follow").stdout
    assert shown.endswith(f"==> {log} <==\n50\n==> {new} <==\nbegins\n==> {log} <==\n51\n"), shown


def test_whoever_follows_may_stop(flow: Path, written_logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: logs.Follower) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(logs.Follower, "follow", interrupted)
    shown = rankfold("logs", flow, "--follow")
    assert shown.exit_code == 130 and not shown.stderr


def test_a_command_that_only_looks_has_nothing_to_go_on_from(
    flow: Path, written_logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs.Follower, "follow", lambda self: signal.raise_signal(signal.SIGTERM))
    shown = rankfold("logs", flow, "--follow")
    assert shown.exit_code == 75 and shown.stderr == "rankfold: stopped by SIGTERM\n"


# Cancel --------------------------------------------------------------------------------------------


def test_a_submitted_workflow_is_cancelled(flow: Path, queue: Path) -> None:
    assert rankfold("cancel", flow).stdout == f"{flow}: nothing runs, nothing to cancel\n"
    assert rankfold("submit", flow).exit_code == 0
    others = (
        f"12|RUNNING|None|1:00|N/A|n1|somebody\n14|PENDING|BeginTime|1:00|N/A||{own_name(flow, '-cron')}\n"
    )
    queue.write_text(
        queue.read_text()
        + f"13|PENDING|BeginTime|1:00|2026-12-01T03:00:00||{own_name(flow, '-again')}\n"
        + others
    )
    ended = rankfold("cancel", flow)
    assert ended.exit_code == 0, ended.output
    assert ended.stdout.splitlines() == [
        "job 4711 pending (Resources): cancelled",
        "job 13 pending (BeginTime, to begin 2026-12-01T03:00:00): cancelled",
        "what was finished is kept, and the same command goes on from there",
        "job 14 pending (BeginTime): begins again and again until its lines are taken out of scrontab -e",
    ]
    assert queue.read_text() == others
    assert "nothing to cancel" in rankfold("cancel", flow.parent / "results").stdout


def test_jobs_that_do_not_end_are_named(flow: Path, queue: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "CANCEL_SECONDS", 0.3)
    assert rankfold("submit", flow).exit_code == 0
    (queue.parent / "stubborn").touch()
    ended = rankfold("cancel", flow)
    assert ended.exit_code == 2
    assert "still there: job 4711 pending (Resources)" in ended.stderr and "scancel 4711" in ended.stderr


def test_jobs_that_a_killed_driver_has_left_are_cancelled(flow: Path, queue: Path) -> None:
    run = flow.parent / "results" / "near.zarr.run"
    run.mkdir(parents=True)
    (run / "jobs.json").write_text('{"names": ["rankfold-0a1b2c3d"]}')
    (run.parent / "flow.json").write_text(json.dumps({"workflow": "cells", "stages": {}, "steps": []}))
    for where in (flow, run.parent, run.with_suffix(""), run):
        (run / "jobs.json").write_text('{"names": ["rankfold-0a1b2c3d"]}')
        queue.write_text("12|PENDING|Priority|1:00|N/A||rankfold-0a1b2c3d\n")
        ended = rankfold("cancel", where)
        assert "job 12 pending (Priority): cancelled, of a command that is gone" in ended.stdout, ended.output
        assert not queue.read_text() and not read_note(run)


def test_the_next_driver_cancels_what_an_earlier_one_has_left(tmp_path: Path, queue: Path) -> None:
    (tmp_path / "jobs.json").write_text('{"names": ["rankfold-0a1b2c3d"]}')
    queue.write_text("12|PENDING|Priority|1:00|N/A||rankfold-0a1b2c3d\n")
    with leftovers.no_job_left("rankfold-4e5f6a7b", tmp_path):
        assert not queue.read_text() and read_note(tmp_path) == ["rankfold-4e5f6a7b"]
        queue.write_text("13|PENDING|Priority|1:00|N/A||rankfold-4e5f6a7b\n")
    assert not queue.read_text() and read_note(tmp_path) == []


@pytest.mark.usefixtures("no_slurm")
def test_without_slurm_it_says_where_to_look(flow: Path) -> None:
    results = flow.parent / "results"
    (results / "near.zarr.run").mkdir(parents=True)
    (results / "near.zarr.run" / "jobs.json").write_text('{"names": ["rankfold-0a1b2c3d"]}')
    ended = rankfold("cancel", flow)
    assert ended.exit_code == 2 and "scancel --name=rankfold-0a1b2c3d" in ended.stderr
    keys = ("workflow", "job", "log", "profile", "host", "submitted")
    (results / "submitted.json").write_text(json.dumps(dict.fromkeys(keys, "4711") | {"host": "login7"}))
    ended = rankfold("cancel", flow)
    assert ended.exit_code == 2 and "Give the command on login7, where it was submitted" in ended.stderr


LONG = """\
workflow: long
inputs: {x: x.zarr}
outputs: results
resources: {memory: 1GiB, threads: 1}
stages:
  first: {method: knn, input: x, k: 10}
"""


@pytest.mark.process
def test_a_command_on_this_machine_is_asked_to_stop(flow: Path) -> None:
    x = np.random.default_rng(0).standard_normal((300_000, 100), dtype=np.float32)
    to_zarr(flow.parent / "x.zarr", x, (10_000, 100))
    flow.write_text(LONG)
    command = [sys.executable, "-m", "rankfold", "run", str(flow)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        wait_for(lambda: (flow.parent / "results" / "flow.json").exists(), 60)
        wait_for(lambda: "running" in rankfold("status", flow).stdout, 60)
        quiet = rankfold("run", flow, "--unless-running")
        assert quiet.exit_code == 0
        assert f"process {child.pid} on {socket.gethostname()} runs this workflow already" in quiet.stdout
        assert rankfold("submit", flow).exit_code == 2
        ended = rankfold("cancel", flow)
        assert ended.exit_code == 0, ended.output
        assert ended.stdout.startswith(f"process {child.pid} on {socket.gethostname()} has stopped\n")
        child.communicate()
    assert child.returncode == 75
    assert "partial" in rankfold("status", flow).stdout
    assert "nothing to cancel" in rankfold("cancel", flow).stdout


HOLDS = """
import fcntl, sys, time
with open(sys.argv[1], "w") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    file.write(sys.argv[2])
    file.flush()
    print("holds", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize(
    ("says", "message"),
    [
        ("process {pid} on {host}", "is no command of rankfold ({python} -c"),
        ("process 7 on elsewhere", "Give the command there, or: ssh elsewhere kill 7"),
        ("", "nothing is known of it, so nothing was ended"),
    ],
    ids=["no-rankfold", "elsewhere", "unknown"],
)
def test_processes_that_are_not_ours_to_end_are_named(flow: Path, says: str, message: str) -> None:
    results = flow.parent / "results"
    results.mkdir()
    lock = str(results / "flow.lock")
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, lock, ""], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None and child.stdout.readline() == "holds\n"
        about = {"pid": child.pid, "host": socket.gethostname(), "python": sys.executable}
        Path(lock).write_text(says.format(**about))
        ended = rankfold("cancel", flow)
        assert ended.exit_code == 2 and message.format(**about) in ended.stderr, ended.output
        assert child.poll() is None
        child.kill()


def test_a_command_that_does_not_stop_is_named(flow: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancel, "STOP_SECONDS", 0.3)
    results = flow.parent / "results"
    results.mkdir()
    lock = str(results / "flow.lock")
    deaf = HOLDS.replace("import fcntl", "import signal, fcntl").replace(
        "with open", "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwith open"
    )
    with subprocess.Popen(
        [sys.executable, "-c", deaf, lock, "", "rankfold"], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None and child.stdout.readline() == "holds\n"
        Path(lock).write_text(f"process {child.pid} on {socket.gethostname()}")
        ended = rankfold("cancel", flow)
        assert ended.exit_code == 2 and f"kill -9 {child.pid}" in ended.stderr
        child.send_signal(signal.SIGKILL)


# Schedule ------------------------------------------------------------------------------------------


@pytest.fixture
def scrontab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "scrontab").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "scrontab").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.usefixtures("scrontab")
def test_a_cron_is_a_block_of_scrontab(flow: Path) -> None:
    shown = rankfold("schedule", flow, "--cron", "0 3 * * 1", "--cluster", "site")
    assert shown.exit_code == 0, shown.output
    lines = shown.stdout.splitlines()
    folder = flow.parent
    assert "UTC" in shown.stdout and "scrontab -e" in lines[0]
    options = {line.removeprefix("#SCRON ") for line in lines if line.startswith("#SCRON ")}
    assert {"--open-mode=append", "--partition=main", "--account=physics", "--time=2:00:00"} < options
    assert f"--output={folder}/results/rankfold-cells-%j.log" in options
    assert lines[-1] == (
        f"0 3 * * 1 exec env RANKFOLD_PROFILE={folder}/site.yaml {sys.executable} -m rankfold run "
        f"{folder}/flow.yaml --unless-running --cluster allocation"
    )
    assert all(line.startswith("#") for line in lines[:-1])
    (folder / "site.yaml").write_text(SITE + "prologue: [module load python]\n")
    last = rankfold("schedule", flow, "--cron", "0 3 * * 1", "--cluster", "site").stdout.splitlines()[-1]
    assert last.startswith("0 3 * * 1 exec bash -lc 'module load python; exec env ")


def test_elsewhere_a_job_submits_the_next(flow: Path) -> None:
    flow.write_text(FLOW.replace("stages:", 'schedule: {cron: "0 3 * * 1"}\nstages:'))
    if shutil.which("scrontab"):
        pytest.skip("there is a scrontab here")
    shown = rankfold("schedule", flow)
    assert shown.exit_code == 0, shown.output
    subprocess.run(["bash", "-n"], input=shown.stdout, text=True, check=True)
    monday = next(line for line in shown.stdout.splitlines() if "#SBATCH --begin=" in line).partition("=")[2]
    first = datetime.fromisoformat(monday).astimezone(UTC)
    assert (first.isoweekday(), first.hour, first.minute) == (1, 3, 0)
    assert "#SBATCH --dependency=singleton" in shown.stdout
    assert "schedule " + str(flow) + " --next --cron '0 3 * * 1')" in shown.stdout
    assert "--unless-running --cluster allocation &" in shown.stdout
    assert rankfold("schedule", flow, "--next").stdout == format_time(first) + "\n"


def test_a_script_of_a_schedule_submits_itself_once(flow: Path, queue: Path) -> None:
    """Up to its driver, that is; by a Python that only the prologue brings along."""
    bringing = f"prologue: ['the_python() {{ {sys.executable} \"$@\"; }}']\n"
    (flow.parent / "site.yaml").write_text(SITE + "python: the_python\n" + bringing)
    every = ("--every", "6h", "--begin", "2026-11-01T03:00", "--cluster", "site")
    shown = rankfold("schedule", flow, *every).stdout
    script = flow.parent / "again.sh"
    script.write_text(shown[: shown.index("the_python -m rankfold run")])
    for calls in (1, 1):
        subprocess.run(["bash", str(script)], check=True, stdin=subprocess.DEVNULL)
        said = (queue.parent / "calls").read_text().splitlines()
        sent = [line for line in said if line.startswith("sbatch")]
        assert len(sent) == calls
        queue.write_text(f"5|PENDING|BeginTime|1:00|N/A||{own_name(flow, '-again')}\n")
    begins = datetime.fromisoformat(sent[0].partition("--begin=")[2].split()[0]).astimezone(UTC)
    assert begins.hour % 6 == 3 and 0 < (begins - datetime.now(UTC)).total_seconds() <= 6 * 3600
    assert sent[0].endswith(str(script))


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ('cron: "0 25 * * 1"', "flow.yaml:5: schedule.cron: '25' is no hour: those are 0 to 23"),
        ('cron: "0 3 * *"', 'has 4 fields: write five fields, minute hour day month weekday, such as "0 3'),
        ('cron: "0 3 31 2 *"', "never comes: no such month has day 31"),
        ("every: 1y", "schedule.every: '1y' is no time between two runs: write a number and m, h, d or w"),
        ("every: 1d, begin: noon", "schedule.begin: 'noon' is no time: write it as 2026-12-01T03:00, in UTC"),
        ("every: 1d, cron: 0 3 * * 1", 'schedule: say when it runs: cron: "0 3 * * 1", or every: 1d, one'),
        ("evry: 1d", "schedule.evry: no such key (did you mean 'every'?)"),
    ],
)
def test_mistakes_in_a_schedule(flow: Path, said: str, message: str) -> None:
    flow.write_text(FLOW.replace("stages:", f"schedule: {{{said}}}\nstages:"))
    told = rankfold("plan", flow)
    assert told.exit_code == 2 and message in told.stderr, told.stderr


def test_a_schedule_must_be_given(flow: Path) -> None:
    assert "has no schedule: give --cron '0 3 * * 1' or --every 1d" in rankfold("schedule", flow).stderr
    wrong = rankfold("schedule", flow, "--cron", "0 3 * *")
    assert wrong.exit_code == 2 and "--cron: '0 3 * *' has 4 fields" in wrong.stderr


def test_crons_come_when_they_should() -> None:
    now = datetime(2026, 11, 22, 8, 30, tzinfo=UTC)  # a Sunday
    for cron, wanted in {
        "*/5 * * * *": "2026-11-22T08:35:00Z",
        "30 8 * * *": "2026-11-23T08:30:00Z",
        "0 3 * * 1-5": "2026-11-23T03:00:00Z",
        "0 0 * * 7": "2026-11-29T00:00:00Z",
        "0 0 13 * 5": "2026-11-27T00:00:00Z",
        "0 0 29 2 *": "2028-02-29T00:00:00Z",
        "59 23 31 12 *": "2026-12-31T23:59:00Z",
        "0 8-20/4,23 * * *": "2026-11-22T12:00:00Z",
        "0 0 22 11 */7": "2037-11-22T00:00:00Z",  # a Sunday
    }.items():
        assert format_time(Cron.read(cron).after(now)) == wanted, cron


@given(
    minutes=st.integers(0, 10**6),
    count=st.integers(1, 500),
    unit=st.sampled_from("mhdw"),
    begin=st.integers(0, 10**6),
)
def test_every_so_often_keeps_its_hour(minutes: int, count: int, unit: str, begin: int) -> None:
    zero = datetime(2026, 1, 1, tzinfo=UTC)
    now, start = zero + timedelta(minutes=minutes), zero + timedelta(minutes=begin)
    step = read_every(f"{count}{unit}")
    found = Schedule(every=f"{count}{unit}", begin=format_time(start)).after(now)
    assert found == start > now or now < found <= now + step
    assert (found - start) % step == timedelta(0)


def test_the_time_of_the_next_run_is_utc_wherever_one_is(flow: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        shown = rankfold("schedule", flow, "--every", "1d", "--begin", "2126-12-01T03:00").stdout
    finally:
        monkeypatch.undo()
        time.tzset()
    assert "#SBATCH --begin=2126-12-01T12:00:00" in shown
