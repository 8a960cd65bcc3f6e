"""Stages: their keys are the arguments of Python, and each kind is planned, run and skipped."""

from __future__ import annotations

import inspect
import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from flow_commands import FLOW, actions, begun, changed, rankfold, refused

import rankfold as rf
from rankfold.api.where import VIEW
from rankfold.methods.knn.arguments import ALIASES, NAMES, SET_NAMES
from rankfold.methods.knn.request import METRICS, SET_METRICS
from rankfold.methods.nmf.arguments import INITS
from rankfold.workflows.flows import stage_models as models
from rankfold.workflows.flows.plan import Workflow


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    """A workflow beside its data."""
    return begun(tmp_path)


# Models --------------------------------------------------------------------------------------------

FUNCTIONS: dict[type[models.BaseStage], Callable[..., Any]] = {
    model: getattr(rf, {"import": "import_array"}.get(name, name)) for name, model in models.STAGES.items()
}
ELSEWHERE = {
    "x",
    "matrix",  # of an import
    "destination",
    "memory",
    "memory_bytes",
    "chunk_bytes",
    "out",
    "scratch",
    "overwrite",
}
ELSEWHERE |= {"cluster", "workers", "threads", "device", "client", "progress", "view"}
ELSEWHERE |= set(VIEW)  # of an input
"""Arguments that are no keys of a stage."""

SHARED = {"method", "input", "needs", "resources", "keep", "into", "picture", "grows", "changed"}
"""Keys of every stage, or of what it is of."""

INPUTS = {"transform": {"neighbors"}}
"""Keys of a stage for what is a matrix or something else in Python."""


@pytest.mark.parametrize("model", FUNCTIONS, ids=lambda model: model.__name__)
def test_keys_are_the_arguments_of_the_function(model: type[models.BaseStage]) -> None:
    parameters = inspect.signature(FUNCTIONS[model]).parameters
    own = {name for name in parameters if name not in ELSEWHERE or name in model.model_fields} - SHARED
    wanted = {name: parameters[name].default for name in own}
    found = {
        name: field
        for name, field in model.model_fields.items()
        if name not in SHARED and name not in INPUTS.get(FUNCTIONS[model].__name__, ())
    }
    assert set(found) == set(wanted)
    for name, field in found.items():
        if name == "neighbors" and "input" in model.model_fields:  # either of them
            assert field.default is None and model.model_fields["input"].default is None
        elif wanted[name] is inspect.Parameter.empty:
            assert field.is_required()
        else:
            assert field.default == wanted[name], name


def test_choices_are_those_of_the_library() -> None:
    assert set(NAMES) == set(METRICS) and set(SET_NAMES) == set(SET_METRICS)
    for name in ("knn", "trustworthiness", "continuity"):
        metric = models.STAGES[name].model_fields["metric"]
        of_neighbors = set() if name == "trustworthiness" else {"haversine", "precomputed", *SET_METRICS}
        assert set(get_args(metric.annotation)) == {*METRICS, *ALIASES, *of_neighbors}
    assert models.STAGES["nmf"].model_fields["init"].default in INITS


def test_paths_are_relative_to_the_file_and_variables_are_expanded(
    tmp_path: Path, flow: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOMEWHERE", str(tmp_path / "far"))
    monkeypatch.chdir("/")
    changed(flow, ("outputs: results", "outputs: $SOMEWHERE/results"), ("memory: 1GiB", "scratch: tmp"))
    workflow = Workflow.read(flow)
    assert workflow.outputs == tmp_path / "far" / "results"
    assert workflow.flow.inputs["counts"].store == str(tmp_path / "x.zarr")
    assert workflow.resources(workflow.steps[0]).scratch == str(tmp_path / "tmp")
    changed(flow, ("x.zarr", "s3://bucket/x.zarr::X"))
    assert Workflow.read(flow).flow.inputs["counts"].store == "s3://bucket/x.zarr::X"


def test_a_profile_lies_beside_the_file(flow: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    (flow.parent / "site.yaml").write_text("memory: 2GiB\n")
    for name in ("site", "site.yaml", "./site.yaml"):
        flow.write_text(FLOW.replace("outputs", f"profile: {name}\noutputs"))
        assert Workflow.read(flow).flow.profile == str(flow.parent / "site.yaml")


STAGES = {
    "factors": """\
  low: {method: svd, input: counts, rank: 4}
  square: {method: qr, input: low.U}
  table-store: {method: import, input: table}
  of-table: {method: pca, input: table-store, rank: 1}
  copy: {method: import, input: low.Vt, dtype: float32}
  of-copy: {method: svd, input: copy, rank: 2}
  positive: {method: nmf, input: near.distances, rank: 2}
  warm: {method: nmf, input: near.distances, rank: 2, init: positive}
  new: {method: transform, result: components, input: more}
  new-parts: {method: transform, result: positive, input: near.distances}
  updated: {method: update, result: components, input: more}
  audit: {method: check, result: low, input: counts}
  again: {method: reconstruct, result: low, rank: 3, row_range: "10:900"}
  of-again: {method: pca, input: again, rank: 2}
  parts: {method: reconstruct, result: positive}
""",
    "kernels and neighbors": """\
  near-all: {method: knn, input: counts, k: 4}
  kept: {method: neighborhood_preservation, first: near-all, second: near}
  new: {method: transform, result: components, input: more}
  spectrum: {method: svd, input: near.graph, rank: 3}
  grown: {method: knn, input: components.scores, base: near, k: 2}
  beside: {method: knn, input: components.scores, queries: new.scores, k: 2}
  start: {method: pca, input: counts, rank: 2}
  pull: {method: kernel_sum, input: start.scores, kernel: gaussian, bandwidth: 0.5}
  bent: {method: kernel_pca, input: counts, rank: 2}
  bent-new: {method: transform, result: bent, input: more}
  bent-rows: {method: svd, input: bent-new.scores, rank: 1}
  marks: {method: nystroem, input: counts, rank: 9, landmarks: rpcholesky}
  marks-new: {method: transform, result: marks, input: more}
  means: {method: nystroem, input: counts, rank: 9}
  of-marks: {method: pca, input: means.features, rank: 2}
  stored: {method: index, input: counts, partition_rows: 100}
  looked-up: {method: knn, input: more, index: stored, k: 3}
  most: {method: knn, input: counts, index: stored, k: 3, min_recall: 0.8}
  of-rows: {method: pca, input: stored.rows, rank: 2}
""",
    "maps": """\
  groups: {method: kmeans, input: components.scores, k: 3}
  trust: {method: trustworthiness, input: counts, embedding: components.scores, k: 4}
  some: {method: continuity, input: counts, embedding: components.scores, sample_rows: 400, metric: cosine}
  near-all: {method: knn, input: counts, k: 4}
  weights: {method: fuzzy_graph, neighbors: near-all}
  as-numbers: {method: fuzzy_graph, neighbors: near-all, targets: components.scores, target_metric: euclidean}
  both: {method: combine_graphs, first: weights, second: as-numbers}
  of-both: {method: umap, neighbors: both, n_epochs: 5}
  picture: {method: umap, neighbors: weights, init: components, n_epochs: 5}
  another: {method: umap, neighbors: near-all, n_epochs: 5, n_components: 1, quality: counts}
  finer: {method: umap, neighbors: near-all, init: picture, n_epochs: 5}
  paths: {method: isomap, neighbors: near-all, n_landmarks: 50, disconnected: join, matrix: counts}
  of-paths: {method: svd, input: paths.geodesics, rank: 2}
  modes: {method: spectral, neighbors: weights}
  modes-at-once: {method: spectral, neighbors: near-all, n_components: 3}
  spread: {method: diffusion_map, neighbors: weights, alpha: 0.5, t: 2}
  by-modes: {method: umap, neighbors: near-all, init: spectral, n_epochs: 5}
  of-modes: {method: umap, neighbors: weights, init: modes, n_epochs: 5}
  of-weights: {method: svd, input: weights.graph, rank: 2}
""",
    "new places": """\
  near-all: {method: knn, input: counts, k: 4}
  weights: {method: fuzzy_graph, neighbors: near-all}
  picture: {method: umap, neighbors: weights, init: components, n_epochs: 5}
  paths: {method: isomap, neighbors: near-all, n_landmarks: 50, disconnected: join, matrix: counts}
  spread: {method: diffusion_map, neighbors: weights, alpha: 0.5, t: 2}
  near-new: {method: knn, input: counts, queries: more, k: 5}
  placed: {method: transform, result: picture, neighbors: near-new}
  extended: {method: transform, result: spread, neighbors: near-new}
  led: {method: transform, result: paths, neighbors: near-new}
  down: {method: tsne, neighbors: near-all, perplexity: 1, n_iter: 5, early_exaggeration_iter: 5}
  down-from: {method: tsne, neighbors: near-all, perplexity: "1,1.2", n_iter: 5, init: start}
  settled: {method: transform, result: down, neighbors: near-new}
  start: {method: pca, input: counts, rank: 2}
  dense: {method: density, input: start.scores, bandwidth: 0.5, targets: placed.embedding}
  of-placed: {method: svd, input: placed.embedding, rank: 1}
  trusted: {method: trustworthiness, input: counts, embedding: picture.embedding, k: 4}
""",
}
"""Stages after those of ``FLOW``, of every kind."""

KINDS = set(re.findall(r"method: (\w+)", FLOW + "".join(STAGES.values())))


def leaves_what_was_planned(flow: Path) -> list[str]:
    """Run a workflow and compare what it leaves with its plan; stages that had none before."""
    before = json.loads(rankfold("plan", flow, "--json").stdout)["stages"]
    run = rankfold("run", flow)
    assert run.exit_code == 0, run.output
    assert set(actions(flow).values()) == {("skip", "finished")}
    for stage in before:
        if stage["plan"] is not None:
            kept = json.loads((Path(stage["out"] + ".run") / "run.json").read_text())
            attempts = [*kept.get("steps", {}).values(), kept["attempts"]]
            made = [each[-1]["plan"] for each in attempts]
            peak = max(each["peak_bytes"] for each in made)
            assert peak == pytest.approx(stage["plan"]["peak_bytes"], rel=0.1), stage["stage"]
            assert made[-1]["shape"] == stage["plan"]["shape"]
            files = sum(path.is_file() for path in Path(stage["out"]).rglob("*"))
            assert files == stage["numbers"]["files"], stage["stage"]
    return [stage["stage"] for stage in before if stage["plan"] is None]


def with_more_inputs(flow: Path, stages: str) -> Path:
    """A workflow of more stages, of a table and of some rows besides."""
    (flow.parent / "y.csv").write_text("a,b\n" + "\n".join(f"{i},{i * i % 7}" for i in range(300)))
    inputs = "  counts: x.zarr\n  table: y.csv\n  more: {store: x.zarr, select_rows: 0:40}"
    flow.write_text(FLOW.replace("  counts: x.zarr", inputs) + stages)
    return flow


@pytest.mark.parametrize("of", STAGES)
def test_stages_are_planned_before_and_after_what_they_need(flow: Path, of: str) -> None:
    """Whether its inputs are there or imagined, the plan of a stage says much the same."""
    with_more_inputs(flow, STAGES[of])
    unknown = ["table-store", "of-table", "copy"] if of == "factors" else []
    assert leaves_what_was_planned(flow) == unknown


def test_every_kind_of_stage_is_planned() -> None:
    of_unknown_size = {"radius_neighbors"}  # its files are known once neighbors are counted
    assert set(models.STAGES) == KINDS | of_unknown_size


@pytest.mark.parametrize("steps", ["", "scale", "log1p, highly_variable(3)"])
def test_new_rows_are_matched_by_name_before_the_result_is_there(tmp_path: Path, steps: str) -> None:
    """As they are afterwards: columns in another order, and more of them, are planned and run."""
    x = np.random.default_rng(0).poisson(3, (30, 5)) + np.arange(30)[:, None] % 7
    for name, order in (("old", "abcde"), ("new", "edcbaz")):
        columns = [x[:, "abcde".index(each)] if each != "z" else x[:, 0] for each in order]
        np.savetxt(
            tmp_path / f"{name}.csv", np.transpose(columns), "%d", ",", header=",".join(order), comments=""
        )
    old = f"{{store: old.csv, prepare: '{steps}'}}" if steps else "old.csv"
    (tmp_path / "flow.yaml").write_text(
        f"workflow: w\ninputs: {{old: {old}, new: new.csv}}\noutputs: out\nstages:\n"
        "  fit: {method: pca, input: old, rank: 1}\n"
        "  more: {method: transform, result: fit, input: new}\n"
    )
    rankfold("run", tmp_path / "flow.yaml")
    np.testing.assert_allclose(
        rf.open_result(tmp_path / "out/more.zarr").scores[...],
        rf.open_result(tmp_path / "out/fit.zarr").scores[...],
        rtol=1e-10,
    )


def test_imports_are_made_anew_where_what_they_are_of_has_changed(flow: Path) -> None:
    with_more_inputs(
        flow,
        """\
  low: {method: svd, input: counts, rank: 4}
  table-store: {method: import, input: table}
  of-table: {method: pca, input: table-store, rank: 1}
  copy: {method: import, input: low.Vt, dtype: float32}
""",
    )
    assert rankfold("run", flow).exit_code == 0
    changed(flow, ("dtype: float32", "dtype: float64"))
    assert actions(flow)["copy"] == ("run", "parameter dtype: float32 -> float64")
    os.utime(flow.parent / "y.csv", (time.time(), 0))
    assert actions(flow)["table-store"] == ("run", "input table changed")
    assert actions(flow)["of-table"] == ("run", "known when table-store has run")
    assert rankfold("run", flow).exit_code == 0


# Reconstructions and measures of an embedding ------------------------------------------------------

MEASURES = """\
  near-all: {method: knn, input: counts, k: 4}
  again: {method: reconstruct, result: components, rank: 3, row_range: 10:900}
  trust: {method: trustworthiness, input: counts, embedding: components.scores, k: 4, metric: cosine}
  cont: {method: continuity, input: counts, embedding: components.scores, sample_rows: 400, seed: 3}
  kept: {method: neighborhood_preservation, first: near-all, second: near, k: 3}
"""


def test_what_they_leave_is_what_python_gives(flow: Path) -> None:
    flow.write_text(FLOW + MEASURES)
    run = rankfold("run", flow)
    assert run.exit_code == 0, run.output
    results, x = flow.parent / "results", flow.parent / "x.zarr"
    components, scores = results / "components.zarr", f"{results / 'components.zarr'}::scores"
    again = rf.reconstruct(components, rank=3, row_range=slice(10, 900))
    source = rf.open(results / "again.zarr")
    found = np.empty(source.shape, source.dtype)
    source.read_into(found, (0, source.shape[0]), (0, source.shape[1]))
    np.testing.assert_array_equal(found, again[...])
    wanted = {
        "trust": rf.trustworthiness(x, scores, 4, metric="cosine"),
        "cont": rf.continuity(x, scores, sample_rows=400, seed=3),
        "kept": rf.neighborhood_preservation(results / "near-all.zarr", results / "near.zarr", 3),
    }
    for name, quality in wanted.items():
        facts = rf.open_result(results / f"{name}.zarr").attrs
        assert facts["value"] == float(quality) and facts["standard_error"] == quality.standard_error


def test_they_follow_what_they_are_made_from(flow: Path) -> None:
    flow.write_text(FLOW + MEASURES)
    assert rankfold("run", flow).exit_code == 0
    assert set(actions(flow).values()) == {("skip", "finished")}
    changed(flow, ("row_range: 10:900", "row_range: 10:90"), ("seed: 3", "seed: 4"))
    found = {name: said for name, said in actions(flow).items() if said[0] == "run"}
    assert found == {
        "again": ("run", "parameter row_range: [10, 900] -> [10, 90]"),
        "cont": ("run", "parameter seed: 3 -> 4"),
    }
    changed(flow, ("rank: 5", "rank: 6"))
    run = rankfold("run", flow)
    assert run.exit_code == 0, run.output
    assert "near-all, knn: skip (finished)" in run.stderr
    assert (
        "again, reconstruct: run (parameter row_range: [10, 900] -> [10, 90]; result components changed)"
        in (run.stderr)
    )
    assert "trust, trustworthiness: run (embedding components.scores changed)" in run.stderr
    assert "kept, neighborhood_preservation: run (second near changed)" in run.stderr


@pytest.mark.parametrize(
    ("stage", "keys"),
    [
        ({"method": "umap", "neighbors": "near"}, ("neighbors",)),
        ({"method": "umap", "input": "x"}, ("input",)),
        ({"method": "trustworthiness", "input": "x", "embedding": "e", "k": 5}, ("input", "embedding")),
        ({"method": "continuity", "input": "x", "embedding": "e", "k": 5}, ("embedding", "input")),
        ({"method": "check", "result": "r", "input": "x"}, ("input", "result")),
        ({"method": "transform", "result": "r", "neighbors": "near"}, ("neighbors", "result")),
        ({"method": "reconstruct", "result": "r"}, ("result",)),
        ({"method": "import", "input": "x"}, ("input",)),
    ],
)
def test_what_a_stage_reads_first_is_what_its_result_is_told_by(
    stage: dict[str, Any], keys: tuple[str, ...]
) -> None:
    assert models.STAGES[stage["method"]](**stage).keys_from_source() == keys


def test_an_embedding_follows_the_lists_it_is_made_from(flow: Path) -> None:
    stages = """  lists: {method: knn, input: counts, k: 5}
  map: {method: umap, neighbors: lists, n_epochs: 2}
"""
    flow.write_text(FLOW + stages)
    run = rankfold("run", flow)
    assert run.exit_code == 0, run.output
    changed(flow, ("k: 5", "k: 6"))
    run = rankfold("run", flow)
    assert run.exit_code == 0, run.output
    assert "map, umap: run (neighbors lists changed)" in run.stderr


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        ("{method: trustworthiness, input: counts, embedding: near.indices, k: 800}", ".k: k 800 was asked"),
        ("{method: trustworthiness, input: counts, embedding: components.components}", "has 1500 rows and"),
        (
            "{method: continuity, input: counts, embedding: near.indices, sample_rows: some}",
            "sample_rows: 'some' is neither",
        ),
        ("{method: continuity, input: counts}", ": the key 'embedding' is missing"),
        ("{method: reconstruct, result: components, rank: 9}", ".rank: rank 9 was asked for, but"),
        (
            "{method: reconstruct, result: components, row_range: '5000:'}",
            "row_range 5000:None holds none of the 1500",
        ),
        (
            "{method: reconstruct, result: components, row_range: '5000'}",
            ".row_range: '5000' is no range: write START",
        ),
        (
            "{method: reconstruct, result: components, input: counts}",
            ".input: no such key (did you mean 'into'?). Keys are method",
        ),
        ("{method: reconstruct, result: near}", "'near' is neither a stage of svd or pca or nmf"),
        ("{method: reconstruct, result: thin}", "thin has with_rows: false, and reconstruct needs its rows"),
        (
            "{method: check, result: thin, input: counts}",
            "thin has with_rows: false, and check needs its rows",
        ),
        ("{method: neighborhood_preservation, first: near, second: near, k: 4}", ".k: k 4 was asked for"),
        ("{method: transform, result: thin}", "one of the two, and neither is there"),
        (
            "{method: transform, result: thin, input: counts, neighbors: near}",
            "one of the two, and both are there",
        ),
        (
            "{method: transform, result: thin, neighbors: near}",
            "thin is of svd, into which rows of input are brought",
        ),
        (
            "{method: neighborhood_preservation, first: near, second: thin}",
            "'thin' is neither a stage of knn",
        ),
    ],
)
def test_mistakes_in_them_are_told_before_anything_runs(flow: Path, stage: str, message: str) -> None:
    thin = "  thin: {method: svd, input: counts, rank: 2, with_rows: false}\n"
    flow.write_text(FLOW + thin + f"  last: {stage}\n")
    assert ":18: stages.last" in refused(flow, 2, message)


def test_a_sweep_takes_them_along(flow: Path) -> None:
    flow.write_text(FLOW + MEASURES + "sweep: {stage: components, rank: [3, 5]}\n")
    names = list(actions(flow))
    assert [name for name in names if name.startswith(("again", "kept"))] == [
        "again-3", "again-5", "kept-3", "kept-5"
    ]  # fmt: skip
    assert "near-all" in names


def test_a_measure_that_does_not_fit_is_refused(flow: Path) -> None:
    flow.write_text(FLOW + MEASURES.replace("k: 3}", "k: 3, resources: {memory: 40MiB}}"))
    said = refused(flow, 3, "neighborhood_preservation needs ")
    assert "but memory gives 40 MiB. Give memory: " in said
