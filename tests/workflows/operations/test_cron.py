"""A workflow that cron runs every night: what is printed is what a crontab takes, and what it does."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest
from flow_commands import begun, changed, rankfold


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    """A workflow beside its data, in a folder with a name that cron must not take apart."""
    folder = tmp_path / "100 % mine"
    folder.mkdir()
    return begun(folder)


def test_lines_for_the_crontab_of_this_machine(flow: Path) -> None:
    shown = rankfold("schedule", flow, "--cluster", "local", "--cron", "0 3 * * *")
    assert shown.exit_code == 0, shown.output
    *comments, line = shown.stdout.splitlines()
    assert all(comment.startswith("# ") for comment in comments) and "crontab -e" in comments[0]
    path = str(flow).replace("%", r"\%")
    command = f"{sys.executable} -m rankfold run '{path}' --quiet --unless-running"
    assert line == f"0 3 * * * {command}"
    assert not (flow.parent / "results").exists()
    changed(flow, ("stages:\n", 'schedule: {cron: "30 2 * * 1"}\nstages:\n'))
    assert rankfold("schedule", flow, "--cluster", "local").stdout.splitlines()[-1].startswith("30 2 * * 1 ")


def test_what_a_night_would_refuse_is_refused_now(flow: Path) -> None:
    run = rankfold("schedule", flow, "--cluster", "local", "--every", "1d")
    assert run.exit_code == 2 and "cron knows no every 1d: give the times" in run.stderr
    assert "has no schedule" in rankfold("schedule", flow, "--cluster", "local").stderr
    changed(flow, ("memory: 1GiB", "memory: 1MiB"))
    assert rankfold("schedule", flow, "--cluster", "local", "--cron", "0 3 * * *").exit_code == 3


@pytest.mark.process
def test_a_night_without_news_is_one_line_and_below_five_seconds(flow: Path) -> None:
    """Seconds of the processor: by the clock it takes no longer, unless others have that."""
    flow.write_text(
        flow.read_text()
        + "  low: {method: svd, input: counts, rank: 2}\n"
        + "  groups: {method: kmeans, input: components.scores, k: 2}\n"
        + "  edges: {method: fuzzy_graph, neighbors: near, k: 3}\n"
    )
    assert rankfold("run", flow).exit_code == 0
    line = rankfold("schedule", flow, "--cluster", "local", "--cron", "0 3 * * *").stdout.splitlines()[-1]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    # As cron hands a command to a shell, from another folder and without an environment of its own.
    done = subprocess.run(
        ["sh", "-c", line.removeprefix("0 3 * * * ").replace(r"\%", "%")],
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert len(done.stdout.splitlines()) == 1
    assert "5 stages: 5 finished before, nothing new; " in done.stdout
    assert (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime) < 5.0
