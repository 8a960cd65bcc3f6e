"""Inputs that are written to while a workflow runs: its results would be of different data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import zarr
from flow_commands import begun, rankfold
from reference import same_bytes

import rankfold as rf
from rankfold.workflows.flows import run as flow_run

TWO_STAGES = """\
workflow: two
inputs: {samples: x.zarr}
outputs: results
stages:
  components: {method: pca, input: samples, rank: 3}
  audit: {method: check, input: samples, result: components}
"""


def test_an_input_that_changes_between_stages_is_told_and_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = begun(tmp_path)
    flow.write_text(TWO_STAGES)
    carry_out = flow_run._carry_out

    def carry_out_and_write(workflow, verdict, *where) -> None:  # type: ignore[no-untyped-def]
        carry_out(workflow, verdict, *where)
        if verdict.step.name == "components":
            store = zarr.open_array(tmp_path / "x.zarr")
            store[:100] = np.float32(1)

    monkeypatch.setattr(flow_run, "_carry_out", carry_out_and_write)
    run = rankfold("run", flow)
    assert run.exit_code == 4, run.output
    assert "inputs have changed while the workflow ran" in run.output and "components: input" in run.output
    monkeypatch.undo()
    assert rankfold("run", flow).exit_code == 0
    fresh = rf.pca(tmp_path / "x.zarr", rank=3, out=tmp_path / "fresh.zarr")
    assert same_bytes(rf.open_result(tmp_path / "results" / "components.zarr")) == same_bytes(fresh)
