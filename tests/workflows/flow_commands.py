"""A workflow to test with, and what is asked of the command line about it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from command_line import rankfold
from reference import to_zarr

FLOW = """\
# Components, then the neighbors of samples in them.
workflow: cells
inputs:
  counts: x.zarr
outputs: results
resources: {memory: 1GiB, threads: 2}
stages:
  components:
    method: pca
    input: counts
    rank: 5
  near:
    method: knn
    input: components.scores
    k: 3
    symmetric: union
"""
ROWS, COLUMNS = 1500, 30


def begun(folder: Path) -> Path:
    """The workflow above beside its data."""
    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)) * np.linspace(3, 1, COLUMNS)
    to_zarr(folder / "x.zarr", x.astype(np.float32), (500, COLUMNS))
    path = folder / "flow.yaml"
    path.write_text(FLOW)
    return path


def changed(flow: Path, *pairs: tuple[str, str]) -> Path:
    """The same file with other words in it."""
    text = flow.read_text()
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    flow.write_text(text)
    return flow


def actions(flow: Path) -> dict[str, tuple[str, str]]:
    """What the plan says of each stage."""
    run = rankfold("plan", flow, "--json")
    assert run.exit_code == 0, run.output
    stages = json.loads(run.stdout)["stages"]
    return {stage["stage"]: (stage["action"], "; ".join(stage["reasons"])) for stage in stages}


def refused(flow: Path, code: int, message: str, command: str = "plan") -> str:
    """The command ends with one message that begins with file and line."""
    before = sorted(flow.parent.rglob("*"))
    run = rankfold(command, flow)
    assert run.exit_code == code, run.output
    said = run.stderr.splitlines()
    assert len(said) == 1 and said[0].startswith(f"rankfold: {flow}:"), run.stderr
    assert message in said[0], said[0]
    assert sorted(flow.parent.rglob("*")) == before
    return str(said[0])
