"""Tables on the command line and in workflows: shown, reduced where they lie, and imported."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import rankfold, refused
from flow_commands import actions

import rankfold as rf

pytest.importorskip("pyarrow", reason="tables are read by pyarrow, which is not installed")

FLOW = """\
workflow: small
inputs: {table: {store: x.csv, numeric: true}}
outputs: made
stages:
  parts: {method: pca, input: table, rank: 1}
  store: {method: import, input: table, thousands: ","}
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "x.csv").write_text('a,city,b\n1,x,"1,000"\n2,y,3\n4,z,5\n')
    return tmp_path / "x.csv"


def test_a_small_table_is_shown_and_reduced(tmp_path: Path, table: Path) -> None:
    shown = rankfold("info", table).stdout
    assert "no numbers: 'x' in line 2" in shown and "'1,000' in line 2, 1 of 3 cells" in shown
    assert json.loads(rankfold("info", table, "--json").stdout)["columns"][1]["name"] == "city"
    refused(tmp_path, 4, "'city' ('x' in line 2)", "pca", table, "--rank", "1", "--out", tmp_path / "r.zarr")
    words = ("pca", table, "--rank", "1", "--numeric", "--out", tmp_path / "r.zarr")
    run = rankfold(*words)
    assert run.exit_code == 0 and "say --thousands" not in run.stdout
    np.testing.assert_allclose(rf.open_result(tmp_path / "r.zarr")["mean"], [7 / 3])
    assert "already done" in rankfold(*words).output
    assert rankfold("check", tmp_path / "r.zarr", table, "--numeric").exit_code == 0
    named = ("--index-col", "city", "--numeric", "--out", tmp_path / "n.zarr")
    assert rankfold("pca", table, "--rank", "1", *named).exit_code == 0
    assert rf.open_result(tmp_path / "n.zarr").to_pandas().index.tolist() == ["x", "y", "z"]
    made = rankfold("import", table, tmp_path / "y.zarr", "--numeric", "--thousands", ",")
    assert made.exit_code == 0 and "note: left out of" in made.stderr and "3 x 2 float64" in made.stdout


def test_lines_above_a_table_are_left_out_by_a_command_and_a_workflow(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("Station 5\na,b,c\n1,2,3\n4,5,6\n")
    refused(tmp_path, 2, "--skip-lines 1", "info", tmp_path / "x.csv")
    assert rankfold("import", tmp_path / "x.csv", tmp_path / "y.zarr", "--skip-lines", "1").exit_code == 0
    (tmp_path / "flow.yaml").write_text(
        FLOW.replace('thousands: ","', "skip_lines: 1").replace("  parts", "# ")
    )
    assert rankfold("run", tmp_path / "flow.yaml").exit_code == 0
    for made in (tmp_path / "y.zarr", tmp_path / "made/store.zarr"):
        np.testing.assert_array_equal(np.asarray(rf.open(made)), [[1, 2, 3], [4, 5, 6]])
    assert {action for action, _ in actions(tmp_path / "flow.yaml").values()} == {"skip"}


def test_a_workflow_reads_tables(tmp_path: Path, table: Path) -> None:
    (tmp_path / "flow.yaml").write_text(FLOW)
    assert rankfold("run", tmp_path / "flow.yaml").exit_code == 0
    made = np.asarray(rf.open(tmp_path / "made/store.zarr"))
    np.testing.assert_array_equal(made, [[1, 1000], [2, 3], [4, 5]])
    assert rf.open_result(tmp_path / "made/parts.zarr")["components"].shape == (1, 1)
    assert {action for action, _ in actions(tmp_path / "flow.yaml").values()} == {"skip"}
