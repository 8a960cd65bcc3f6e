"""Stages of a workflow that go on with rows that have come since."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import zarr
from command_line import rankfold
from flow_commands import actions

import rankfold as rf

FLOW = """\
workflow: nightly
inputs: {days: days.zarr}
outputs: results
resources: {memory: 1GiB, threads: 1}
stages:
  components: {method: pca, input: days, rank: 12, with_rows: false, grows: rows}
  near: {method: knn, input: days, k: 4, grows: rows, changed: redo}
  groups: {method: kmeans, input: days, k: 3, grows: rows}
"""

X = np.random.default_rng(4).standard_normal((300, 12))


def begin(folder: Path) -> Path:
    array = zarr.create_array(folder / "days.zarr", shape=(120, 12), chunks=(50, 12), dtype=X.dtype)
    array[...] = X[:120]
    flow = folder / "flow.yaml"
    flow.write_text(FLOW)
    return flow


def append(folder: Path, rows: int) -> None:
    array = zarr.open_array(folder / "days.zarr", mode="r+")
    array.append(X[array.shape[0] : rows])


def test_stages_go_on_night_after_night(tmp_path: Path) -> None:
    flow = begin(tmp_path)
    assert rankfold("run", flow).exit_code == 0
    assert actions(flow) == dict.fromkeys(("components", "near", "groups"), ("skip", "no new rows"))
    for rows, news in ((170, "50 new rows"), (300, "130 new rows")):
        append(tmp_path, rows)
        assert actions(flow) == dict.fromkeys(("components", "near", "groups"), ("run", news))
        run = rankfold("run", flow)
        assert run.exit_code == 0, run.output
    began = time.perf_counter()
    assert rankfold("run", flow).exit_code == 0
    assert time.perf_counter() - began < 5
    near = rf.open_result(tmp_path / "results" / "near.zarr")
    assert near.attrs["rows"] == [[0, 120], [120, 170], [170, 300]]
    assert near.indices[...].tobytes() == np.asarray(rf.knn(X, 4, threads=1).indices).tobytes()
    components = rf.open_result(tmp_path / "results" / "components.zarr")
    expected = np.linalg.svd(X - X.mean(axis=0), compute_uv=False)
    np.testing.assert_allclose(components.singular_values, expected, rtol=1e-10)


def test_a_changed_past_is_refused_or_redone_as_the_stage_says(tmp_path: Path) -> None:
    flow = begin(tmp_path)
    assert rankfold("run", flow).exit_code == 0
    append(tmp_path, 170)
    zarr.open_array(tmp_path / "days.zarr", mode="r+")[0, 0] = 9.0
    run = rankfold("run", flow)
    assert run.exit_code == 2
    (line,) = run.stderr.splitlines()
    assert "stages.components" in line and "stands on 120 rows" in line and "changed: redo" in line
    run = rankfold("run", flow, "--only", "near")
    assert run.exit_code == 0, run.output
    assert rf.open_result(tmp_path / "results" / "near.zarr").attrs["rows"] == [[0, 170]]


def test_a_stage_that_cannot_grow_is_refused_with_its_line(tmp_path: Path) -> None:
    flow = begin(tmp_path)
    flow.write_text(FLOW + "  basis: {method: qr, input: days, grows: rows}\n")
    run = rankfold("plan", flow)
    assert run.exit_code == 2
    assert f"{flow}:9: stages.basis" in run.stderr
    assert "svd, pca, nmf, knn, kmeans" in run.stderr


def test_commands_take_the_same_word(tmp_path: Path) -> None:
    begin(tmp_path)
    command = ("knn", tmp_path / "days.zarr", "--k", "4", "--grows", "rows", "--out", tmp_path / "n.zarr")
    assert rankfold(*command).exit_code == 0
    append(tmp_path, 300)
    run = rankfold(*command, "--json")
    assert run.exit_code == 0, run.output
    facts = json.loads(run.stdout)
    assert facts["rows"] == [[0, 120], [120, 300]]
    assert not facts["already_done"]
    assert json.loads(rankfold(*command, "--json").stdout)["already_done"]
