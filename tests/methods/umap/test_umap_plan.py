"""Plans of graphs and layouts: of results, and of rows that are only counted."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import rankfold as rf
from rankfold.workflows.cli import app


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory) -> rf.Result:
    x = np.random.default_rng(0).random((4000, 3))
    return rf.knn(x, 9, out=tmp_path_factory.mktemp("plan") / "knn.zarr", threads=1)


@pytest.mark.parametrize("kind", ["fuzzy_graph", "umap"])
def test_rows_that_are_counted_are_planned_like_their_lists(kind: str, lists: rf.Result) -> None:
    where = {"memory": "1GiB", "threads": 2}
    of_lists, of_path = rf.plan(kind, lists, **where), rf.plan(kind, lists.path, **where)
    of_rows = rf.plan(kind, rows=4000, k=9, **where)
    assert of_lists == of_path == of_rows


def test_a_graph_is_planned_as_it_is(lists: rf.Result, tmp_path: Path) -> None:
    graph = rf.fuzzy_graph(lists, out=tmp_path / "graph.zarr")
    plan, of_lists = rf.plan("umap", graph, n_epochs=30), rf.plan("umap", lists, n_epochs=30)
    assert plan.passes[-1].numbers == graph.attrs["weights"] < of_lists.passes[-1].numbers
    made = rf.umap(graph, n_epochs=30, out=tmp_path / "umap.zarr", threads=1)
    assert made.run["attempts"][-1]["measured_bytes"] <= plan.peak_bytes


def test_workers_share_edges_and_exchange_positions() -> None:
    how: dict[str, Any] = {"rows": 10_000_000, "k": 14, "memory": "16GiB", "threads": 4, "init": "random"}
    one, four = rf.plan("umap", **how), rf.plan("umap", **how, workers=4)
    assert (one.useful_workers, four.useful_workers) == (1, 4)
    # Eight bytes for each of 280 million edges; a share of them, and those of one row at most.
    assert one.peak_bytes - four.peak_bytes == 8 * (280_000_000 * 3 // 4 - 10_000_000)
    # Positions of 4 and 4 bytes: those of three quarters of the rows come from elsewhere, in 200 epochs.
    assert four.passes[-1].exchange_bytes == 200 * 8 * 7_500_000
    assert re.search(r"exchange +57\.2 MiB to each process in each of 200 epochs", str(four))
    assert "exchange" not in str(one)
    assert rf.plan("umap", rows=500, k=5, workers=8).useful_workers == 1


@pytest.mark.parametrize(
    ("init", "memory", "said"),
    [
        ("random", "1GiB", r"^umap of 10000000 rows and 280000000 edges needs .* Give memory='3775MiB'\.$"),
        ("spectral", "1GiB", r"^a start at eigenvectors of 10000000 rows and .* Give memory='\d+MiB'\.$"),
        ("spectral", "4GiB", r"^a start at eigenvectors .* Give memory='\d+MiB', or init='random'"),
    ],
)
def test_a_layout_that_does_not_fit_is_refused_before_there_are_lists(
    init: str, memory: str, said: str
) -> None:
    with pytest.raises(rf.RankfoldError, match=said):
        rf.plan("umap", rows=10_000_000, k=14, init=init, memory=memory)


def test_eigenvectors_to_begin_at_are_planned() -> None:
    how: dict[str, Any] = {"rows": 10_000_000, "k": 14, "memory": "16GiB", "threads": 4}
    plan, at_random = rf.plan("umap", **how), rf.plan("umap", **how, init="random")
    names = [sweep.name for sweep in plan.passes]
    assert names == ["distances", "weights", "degrees", "filters", "layout"]
    assert plan.peak_bytes > at_random.peak_bytes and plan.likely_passes > at_random.likely_passes


@pytest.mark.parametrize(
    ("kind", "asked", "said"),
    [
        ("umap", {}, "say of which result to plan umap, or of how many rows= with k="),
        ("umap", {"rows": 100}, "say how many neighbors each of these rows has, k="),
        ("umap", {"rows": 5, "k": 5}, "5 rows have no 5 neighbors each"),
        ("umap", {"rows": 100, "k": 5, "rank": 3}, "a plan of umap takes no rank"),
        ("pca", {"rows": 100}, "say which matrix to plan pca of"),
    ],
)
def test_what_cannot_be_planned_is_told(kind: str, asked: dict[str, int], said: str) -> None:
    with pytest.raises(rf.RankfoldError, match=said):
        rf.plan(kind, **asked)


def test_the_command_plans_what_the_function_does(lists: rf.Result) -> None:
    run = CliRunner().invoke(app, ["plan", "fuzzy-graph", str(lists.path), "--memory", "1GiB", "--json"])
    assert run.exit_code == 0, run.output
    plan = dataclasses.replace(rf.plan("fuzzy_graph", lists, memory="1GiB"), seconds=None, shares=None)
    ours = {**json.loads(run.stdout), "seconds": None, "shares": None}
    assert ours == json.loads(json.dumps(plan.as_dict()))
    counted = CliRunner().invoke(app, ["plan", "umap", "--rows", "4000", "--k", "9"])
    assert counted.exit_code == 0 and "edges" in counted.stdout
    refused = CliRunner().invoke(app, ["plan", "umap", str(lists.path), "--select-rows", "0:9"])
    assert refused.exit_code == 2
