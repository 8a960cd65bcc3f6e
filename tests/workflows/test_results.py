"""What status and info say of a finished result, and stages when they close."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import rankfold as rf
from rankfold.workflows.cli import app
from rankfold.workflows.results import took

FLOW = """\
workflow: audited
inputs: {x: x.npy}
outputs: results
resources: {memory: 256MiB, threads: 1}
stages:
  components: {method: pca, input: x, rank: 3}
  audit: {method: check, result: components, input: x}
"""


def said(*words: object, code: int = 0) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == code, done.output
    return done.stdout


@pytest.fixture(autouse=True)
def x(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.random.default_rng(0).standard_normal((300, 20)).astype(np.float32))


@pytest.mark.parametrize("command", ["status", "info"])
@pytest.mark.parametrize("record", [True, False], ids=["with its record", "moved"])
def test_a_finished_result_says_what_it_is(command: str, record: bool) -> None:
    rf.pca("x.npy", 3, memory="256MiB", out="r.zarr")
    if not record:
        shutil.rmtree("r.zarr.run")
    lines = said(command, "r.zarr").splitlines()
    assert "r.zarr: finished, pca by gram, rank 3, 2 passes; largest estimated error " in lines[0]
    assert lines[1] == "input     x.npy, 300 x 20 float32"
    assert "components 3 x 20, " in lines[2] and "scores 300 x 3" in lines[2]
    assert lines[3].startswith(f"made      {time.strftime('%Y-%m', time.gmtime())}")
    facts = json.loads(said(command, "r.zarr", "--json"))
    facts = facts.get("result", facts)
    assert facts["kind"] == "pca" and facts["arrays"]["scores"] == [300, 3]
    assert "300 x 3 float32" in said("info", "r.zarr::scores")


def test_lists_of_neighbors_have_a_graph() -> None:
    rf.knn("x.npy", 4, memory="256MiB", out="near.zarr")
    told = said("info", "near.zarr")
    assert "knn by" in told and "indices 300 x 4" in told and "graph 300 x 300" in told


def test_a_store_is_no_result() -> None:
    said("import", "x.npy", "x.zarr")
    assert "chunks " in said("info", "x.zarr")
    Path("x.zarr.run").mkdir()
    assert said("status", "x.zarr") == "x.zarr: finished, a matrix: rankfold info x.zarr tells of it\n"


def test_a_stage_that_checks_says_what_it_found() -> None:
    Path("flow.yaml").write_text(FLOW)
    assert "largest residual " in said("run", "flow.yaml")
    assert "largest residual " in said("status", "results/audit.zarr")


def test_what_it_took_counts_the_steps_before(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((200, 4))
    result = rf.umap(rf.knn(x, 5, out=tmp_path / "knn.zarr"), n_epochs=3, quality=x, out=tmp_path / "r.zarr")
    steps = [*result.run["steps"].values(), result.run["attempts"]]
    assert len(steps) == 8
    parts = ("seconds", "compile_seconds", "load_seconds")
    seconds = sum(one[part] for step in steps for one in step for part in parts)
    (line,) = took(result)
    assert float(line.split()[0]) == pytest.approx(seconds, rel=0.2)
