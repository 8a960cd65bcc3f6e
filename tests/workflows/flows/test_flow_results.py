"""Results of a workflow lie where they harm nobody, and what has gone of them is made again."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest
from flow_commands import actions, begun, changed, rankfold, refused

import rankfold as rf
from rankfold.methods.knn.arguments import KNN
from rankfold.methods.registry import METHODS


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    return begun(tmp_path)


def test_a_result_that_lost_chunks_is_made_again(flow: Path) -> None:
    assert rankfold("run", flow).exit_code == 0
    components = flow.parent / "results" / "components.zarr"
    shutil.rmtree(components / "scores" / "c")
    assert actions(flow)["components"] == ("run", "its result is damaged (scores/c/0/0 is missing)")
    assert rankfold("run", flow).exit_code == 0
    assert rf.verify(components) == []
    assert {action for action, _ in actions(flow).values()} == {"skip"}


def test_another_edition_of_a_method_makes_its_results_anew(
    flow: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert rankfold("run", flow).exit_code == 0
    monkeypatch.setitem(METHODS.entries, "knn", dataclasses.replace(KNN, edition=2))
    assert actions(flow)["components"][0] == "skip"
    assert actions(flow)["near"] == ("run", "knn has another edition")
    assert rankfold("run", flow).exit_code == 0
    assert rf.open_result(flow.parent / "results" / "near.zarr").attrs["edition"] == 2


def test_results_are_not_written_into_a_store(flow: Path) -> None:
    for outputs in ("x.zarr", "x.zarr/results"):
        changed(flow, ("outputs: results", f"outputs: {outputs}"))
        for command in ("plan", "run"):
            refused(flow, 2, "x.zarr, which is a Zarr store. Name a folder", command)
        changed(flow, (f"outputs: {outputs}", "outputs: results"))


def test_a_workflow_is_planned_for_another_place(flow: Path) -> None:
    found = rankfold("plan", flow, "--cluster", "nosuch.yaml")
    assert found.exit_code == 2 and "nosuch.yaml" in found.stderr
    assert rankfold("plan", flow, "--cluster", "local").exit_code == 0
