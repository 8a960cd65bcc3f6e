"""One stage over a list of values: a step for each, and for all that is made from it."""

from __future__ import annotations

from pathlib import Path

import pytest
from flow_commands import FLOW, ROWS, actions, begun, changed, rankfold, refused

import rankfold as rf


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    """A workflow beside its data."""
    return begun(tmp_path)


def test_a_sweep_makes_a_stage_for_each_value_and_what_follows(flow: Path) -> None:
    flow.write_text(FLOW + "  low: {method: svd, input: counts, rank: 2, needs: [components]}\n")
    flow.write_text(flow.read_text() + "sweep: {stage: components, rank: [3, 5]}\n")
    assert list(actions(flow)) == ["components-3", "components-5", "near-3", "near-5", "low"]
    run = rankfold("run", flow)
    assert run.exit_code == 0, run.output
    for rank in (3, 5):
        near = rf.open_result(flow.parent / "results" / f"near-{rank}.zarr")
        assert near.attrs["input"]["shape"] == [ROWS, rank]
    changed(flow, ("[3, 5]", "[3, 5, 7]"))
    assert [action for action, _ in actions(flow).values()] == [
        "skip",
        "skip",
        "run",
        "skip",
        "skip",
        "run",
        "skip",
    ]
    assert "1 run, 6 left out" in rankfold("run", flow, "--only", "components-7").stdout
    assert "1 run, 6 finished before" in rankfold("run", flow).stdout


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        ("{stage: component, rank: [3, 5]}", ":17: sweep.stage: no such stage 'component'"),
        (
            "{stage: components, rnk: [3, 5]}",
            ":17: sweep.rnk: no such key of components 'rnk' (did you mean 'rank'",
        ),
        ("{stage: components}", ":17: sweep: there is no key to go over"),
        ("{stage: components, rank: 3}", ":17: sweep.rank: write a list of values"),
        ("{stage: components, rank: [3, 3]}", "'3' stands there twice"),
        (
            "\n  stage: components\n  rank:\n  - 3\n  - three\n",
            ":21: sweep.rank.1: takes a whole number, not 'three'",
        ),
        ("{stage: components, input: [counts, cuonts]}", "there is no input or array 'cuonts'"),
        ("\n  stage: components\n  rank: [3, 31]\n", ":19: stages.components-31.rank: rank 31 was asked for"),
    ],
)
def test_mistakes_in_a_sweep(flow: Path, sweep: str, message: str) -> None:
    flow.write_text(FLOW + f"sweep: {sweep}\n")
    refused(flow, 2, message)


def test_a_step_of_a_sweep_has_no_name_of_anything_else(flow: Path) -> None:
    flow.write_text(FLOW + "  components-3: {method: svd, input: counts, rank: 2}\n")
    flow.write_text(flow.read_text() + "sweep: {stage: components, rank: [2, 3]}\n")
    for command in ("plan", "run"):
        message = (
            "stages.components-3: the sweep in line 18 makes a step 'components-3' of 'components' too. "
        )
        assert ":17: " in refused(flow, 2, f"{message}Rename 'components-3' or 'components'", command)
    changed(flow, ("components-3:", "components-4:"))
    assert "components-4" in actions(flow)
    changed(flow, ("counts: x.zarr", "counts: x.zarr\n  near-2: x.zarr"))
    refused(flow, 2, ":5: inputs.near-2: the sweep in line 19 makes a step 'near-2' of 'near' too. Rename ")
    changed(flow, ("  near-2:", "  a-counts:"), ("rank: [2, 3]", "input: [counts, a-counts]"))
    changed(flow, ("  components-4:", "  near-a:"), ("input: counts, rank: 2", "input: near.graph, rank: 2"))
    refused(flow, 2, ":13: stages.near: the sweep in line 19 makes a step 'near-a-counts' of 'near-a' too. ")


def test_a_sweep_over_inputs(flow: Path, tmp_path: Path) -> None:
    changed(flow, ("  counts: x.zarr", "  counts: x.zarr\n  half: {store: x.zarr, select_rows: 0:700}"))
    flow.write_text(flow.read_text() + "sweep: {stage: components, input: [counts, half]}\n")
    assert rankfold("run", flow).exit_code == 0
    assert rf.open_result(tmp_path / "results" / "near-half.zarr").indices.shape == (700, 3)
