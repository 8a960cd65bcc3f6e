"""Commands that submit jobs show them with ``--print``: nothing is submitted, and nothing is written."""

from __future__ import annotations

import json
import subprocess
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import rankfold
from typer.main import get_command

import rankfold as rf
from rankfold.cluster.queues.registry import queue_system
from rankfold.methods.argument import Parameter
from rankfold.methods.registry import METHODS, Method
from rankfold.workflows.cli import app

COMMANDS: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
FLOW = """\
workflow: scores
inputs: {matrix: x.npy}
outputs: results
stages:
  scores: {method: pca, input: matrix, rank: 3}
  near: {method: knn, input: scores.scores, k: 5}
  picture: {method: umap, neighbors: near}
"""
OTHERS = {
    "kmeans": ["x.npy", "--k", "3", "--out", "o.zarr"],
    "transform": ["pca.zarr", "x.npy", "--out", "o.zarr"],
    "reconstruct": ["pca.zarr", "--out", "o.zarr"],
    "run": ["flow.yaml"],
    "submit": ["flow.yaml"],
    "schedule": ["flow.yaml", "--every", "1d"],
    "doctor": [],
}
"""What commands are given that inputs and required arguments of a method do not say."""

WITHOUT_JOBS = {"plan": "it runs nothing", "check": "it keeps no result, which its jobs would have to share"}


def with_cluster() -> list[str]:
    """Commands that can be sent to a cluster."""
    takes = {name for name, each in COMMANDS.items() if any("--cluster" in one.opts for one in each.params)}
    return sorted(takes - WITHOUT_JOBS.keys())


def test_commands_that_show_progress_take_quiet() -> None:
    runs = {*with_cluster(), "check", "import", "demo"} - {"submit", "schedule", "doctor"}
    options = {name: {one for each in COMMANDS[name].params for one in each.opts} for name in runs}
    assert [name for name, known in options.items() if "--quiet" not in known] == []
    assert all(each.rich_help_panel for each in COMMANDS.values())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A matrix, results of it, and commands of queues that note every call and fail."""
    folder = tmp_path_factory.mktemp("print")
    x = np.abs(np.random.default_rng(0).standard_normal((300, 20)))
    np.save(folder / "x.npy", x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rf.pca(folder / "x.npy", 3, out=folder / "pca.zarr")
        rf.knn(folder / "x.npy", 90, out=folder / "knn.zarr")
        rf.fuzzy_graph(folder / "knn.zarr", out=folder / "fuzzy_graph.zarr")
    (folder / "flow.yaml").write_text(FLOW)
    bin_ = folder / "bin"
    bin_.mkdir()
    for system in ("slurm", "pbs", "lsf", "sge"):
        (folder / f"{system}.yaml").write_text(f"scheduler: {system}\nmemory: 16GiB\nworkers: 4\n")
        for name in (*queue_system(system).COMMANDS, "scontrol", "sinfo", "srun"):
            (bin_ / name).write_text(f"#!/bin/sh\necho {name} >> {folder}/called\nexit 1\n")
            (bin_ / name).chmod(0o755)
    return folder


def words(name: str) -> list[str]:
    """A call of a command in the folder."""
    if name in OTHERS:
        return OTHERS[name]
    method: Method = METHODS[name.replace("-", "_")]
    inputs = [
        "x.npy"
        if each.holds == "matrix"
        else next(f"{kind}.zarr" for kind in ("fuzzy_graph", "knn", "pca") if kind in each.holds)
        for each in method.inputs
    ]
    required = [each for each in method.parameters() if each.is_required]
    return [*inputs, *(word for each in required for word in option(each)), "--out", "o.zarr"]


def option(parameter: Parameter) -> tuple[str, str]:
    value = parameter.argument.choices[0] if parameter.argument.choices else "3"
    return f"--{parameter.name.replace('_', '-')}", value


def shown(folder: Path, monkeypatch: pytest.MonkeyPatch, *command: str) -> str:
    """What a command prints, which leaves the folder as it was and calls no queue."""
    monkeypatch.setenv("PATH", str(folder / "bin"))
    monkeypatch.chdir(folder)
    before = sorted(folder.rglob("*"))
    run = rankfold(*command, "--print")
    assert run.exit_code == 0, run.output
    assert sorted(folder.rglob("*")) == before
    return str(run.stdout)


@pytest.mark.parametrize("name", with_cluster())
def test_every_command_that_submits_jobs_shows_them(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = shown(folder, monkeypatch, name, *words(name), "--cluster", "slurm.yaml")
    assert text.startswith("#!/usr/bin/env bash\n") and "#SBATCH " in text
    assert "sbatch THIS_FILE" in text if name == "schedule" else text.endswith("  sbatch SCRIPT\n")
    subprocess.run(["/bin/bash", "-n"], input=text, text=True, check=True)


@pytest.mark.parametrize(("system", "submits"), [("pbs", "qsub "), ("lsf", "bsub < "), ("sge", "qsub ")])
def test_jobs_of_other_queues_are_shown(
    system: str, submits: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = shown(folder, monkeypatch, "pca", *words("pca"), "--cluster", f"{system}.yaml")
    assert "tcp://DRIVER:PORT --name WORKER" in text and text.endswith(
        f"one job submitted by  {submits}SCRIPT\n"
    )


def test_stages_and_links_have_jobs_of_their_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(folder, monkeypatch, "run", "flow.yaml", "--cluster", "slurm.yaml")
    about = [line for line in text.splitlines() if line.startswith("# workers of stage")]
    assert [line.partition(":")[0].split()[4] for line in about] == ["scores", "near", *["picture,"] * 3]
    part = shown(folder, monkeypatch, "run", "flow.yaml", "--cluster", "slurm.yaml", "--only", "scores")
    assert part.count("#!/") == 1
    facts = json.loads(shown(folder, monkeypatch, "pca", *words("pca"), "--cluster", "slurm.yaml", "--json"))
    assert facts[0]["command"] == "sbatch SCRIPT" and facts[0]["count"] == 1


def test_where_no_jobs_are_needed_it_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(folder, monkeypatch, "pca", *words("pca")).startswith("no jobs: ")
    done = ("pca", "x.npy", "--rank", "3", "--out", "pca.zarr", "--cluster", "slurm.yaml")
    assert shown(folder, monkeypatch, *done).startswith("no jobs: ")
    before = ("submit", "--cluster", "slurm.yaml", "--", "pca", *words("pca"), "--print")
    assert "give it before the dashes" in rankfold(*before).output
