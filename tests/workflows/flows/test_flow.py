"""Workflows: one file, planned, run, interrupted, resumed; a mistake in it is one line that says where."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from drivers import HERE
from flow_commands import COLUMNS, FLOW, ROWS, actions, begun, changed, rankfold, refused
from reference import same_bytes, to_zarr

import rankfold as rf
from rankfold.cluster.profiles import shipped_profiles
from rankfold.pipeline.errors import in_command
from rankfold.workflows.messages import in_file


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    """A workflow beside its data."""
    return begun(tmp_path)


# Mistakes ------------------------------------------------------------------------------------------

TYPICAL = {
    "a key is misspelt": (
        ("rank: 5", "rnak: 5"),
        "{flow}:11: stages.components.rnak: no such key (did you mean 'rank'?). Keys are method, needs, "
        "grows, changed, resources, keep, into, picture, input, rank, tol, solver, passes, oversampling, "
        "seed, center, scale, whiten, with_rows, precision, missing",
    ),
    "a store is missing": (
        ("x.zarr", "xx.zarr"),
        "{flow}:4: inputs.counts: {folder}/xx.zarr does not exist. Did you mean {folder}/x.zarr?",
    ),
    "a unit is wrong": (
        ("1GiB", "2 gigs"),
        "{flow}:6: resources.memory: '2 gigs' is not a size in bytes: write for instance 256MiB, 2GiB or "
        "1.5GB",
    ),
    "a profile is unknown": (
        ("outputs", "profile: lokal\noutputs"),
        "{flow}:5: profile: there is no profile 'lokal'. Did you mean local? Give a path, or put lokal.yaml "
        "into {folder}/rankfold/profiles. With rankfold come {profiles}: rankfold profile NAME prints one",
    ),
    "a rank is too large": (
        ("rank: 5", "rank: 31"),
        "{flow}:11: stages.components.rank: rank 31 was asked for, but {folder}/x.zarr is 1500 x 30: it has "
        "at most 30 singular values. Ask for rank: 30 or less.",
    ),
}
"""What people get wrong most often, and what they are told."""


@pytest.mark.parametrize("mistake", TYPICAL)
@pytest.mark.parametrize("command", ["plan", "run"])
def test_typical_mistakes_are_told_to_the_letter(
    flow: Path, mistake: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(flow.parent))
    change, message = TYPICAL[mistake]
    said = refused(changed(flow, change), 2, "", command)
    profiles = ", ".join(shipped_profiles())
    assert said == "rankfold: " + message.format(flow=flow, folder=flow.parent, profiles=profiles)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("rank: 5", "rnak: 5", ":11: stages.components.rnak: no such key (did you mean 'rank'?)"),
        ("x.zarr", "y.zarr", ":4: inputs.counts: "),
        ("1GiB", "1gib", ":6: resources.memory: '1gib' is not a size in bytes: write for instance 256MiB"),
        ("1GiB", "1gib", "(did you mean 1GiB?)"),
        ("1GiB", "4", ":6: resources.memory: '4' has no unit: write 4GiB or 4MiB"),
        (
            "outputs",
            "profile: lokal\noutputs",
            ":5: profile: there is no profile 'lokal'. Did you mean local?",
        ),
        ("rank: 5", "rank: 31", ":11: stages.components.rank: rank 31 was asked for, but"),
        ("rank: 5", "rank: 31", "Ask for rank: 30 or less"),
        ("method: knn", "method: kn", ":13: stages.near.method: no such method 'kn' (did you mean 'knn'?)"),
        ("    method: knn\n", "", ":12: stages.near: the key 'method' is missing"),
        ("    rank: 5", "    solver: gran", ":11: stages.components.solver: no such value 'gran' (did"),
        ("    rank: 5\n", "", ":8: stages.components: say how many components, rank"),
        ("k: 3", "k: three", ":15: stages.near.k: takes a whole number, not 'three'"),
        ("k: 3", "k: 1500", ":15: stages.near.k: k 1500 was asked for, but components.scores has 1500 rows"),
        ("k: 3", "k: 3\n    k: 4", ":16: stages.near.k: already in line 15"),
        ("components.scores", "component.scores", ":14: stages.near.input: there is no input or array "),
        ("components.scores", "components.score", "(did you mean 'components.scores'?)"),
        ("components.scores", "components", "say which, components.scores or components.components"),
        (
            "    rank: 5",
            "    rank: 5\n    with_rows: false",
            "components has with_rows: false, so it makes no scores",
        ),
        ("k: 3", "needs: [nar]", ":15: stages.near.needs.0: no such stage 'nar' (did you mean 'near'?)"),
        ("    rank: 5", "    rank: 5\n    needs: [near]", "components needs near, near needs components"),
        ("  near:", "  counts:", ":12: stages.counts: 'counts' is an input already, in line 4"),
        ("  near:", "  2near:", ":12: stages.2near: '2near' is no name"),
        ("x.zarr", "$NOWHERE_AT_ALL/x.zarr", ":4: inputs.counts: there is no variable $NOWHERE_AT_ALL"),
        ("workflow: cells\n", "", ":1: the key 'workflow' is missing"),
        ("{memory: 1GiB, threads: 2}", "1GiB", ":6: resources: takes `key: value` lines, not '1GiB'"),
        ("symmetric: union", "symmetric: *both", ":16: "),
        ("    k: 3", "    base: components", "'components' is neither a stage of knn nor an input"),
    ],
)
def test_a_mistake_is_told_with_its_line(flow: Path, old: str, new: str, message: str) -> None:
    refused(changed(flow, (old, new)), 2, message)


def test_a_missing_store_names_the_one_that_is_there(flow: Path) -> None:
    said = refused(changed(flow, ("x.zarr", "xx.zarr")), 2, "xx.zarr does not exist. Did you mean")
    assert f"{flow.parent}/x.zarr?" in said


def test_a_stage_that_does_not_fit_is_named_with_its_line(flow: Path) -> None:
    changed(flow, ("    k: 3", "    resources: {memory: 20MiB}\n    k: 3"))
    said = refused(flow, 3, ":12: stages.near: knn of this 1500 x 5 matrix needs")
    assert "but memory gives 20 MiB. Give memory: " in said
    refused(flow, 3, "stages.near: knn of this", "run")


def test_messages_name_keys_and_not_options() -> None:
    said = "Give --memory 52MiB, or --solver krylov, which --out needs (--no-rows), or --rank. See --print"
    wanted = "Give memory: 52MiB, or solver: krylov, which outputs needs (with_rows: false), or rank. "
    wanted += "See --print"
    assert in_file(said) == wanted
    said = "say missing_chunks='error' (--missing-chunks error), or partition_rows= (--partition-rows)"
    assert in_file(said) == "say missing_chunks: error, or partition_rows"
    assert in_command(said) == "say --missing-chunks error, or --partition-rows"


def test_there_is_no_such_file(tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text("")
    run = rankfold("plan", tmp_path / "flo.yaml")
    assert run.exit_code == 2 and "Did you mean" in run.stderr
    assert rankfold("status", tmp_path / "nowhere").exit_code == 2
    assert "no workflow has run here" in rankfold("status", tmp_path).stderr


def test_options_of_a_reduction_have_no_place_beside_a_workflow(flow: Path) -> None:
    run = rankfold("plan", flow, "--rank", 3)
    assert run.exit_code == 2 and "leave out --rank" in run.stderr
    assert "say which matrix" in rankfold("plan", "pca").stderr


# Plan, run, skip, run again ------------------------------------------------------------------------


def test_a_workflow_is_planned_before_its_inputs_are_made(flow: Path) -> None:
    planned = json.loads(rankfold("plan", flow, "--json").stdout)["stages"]
    assert [stage["plan"]["shape"] for stage in planned] == [[ROWS, COLUMNS], [ROWS, 5]]
    assert actions(flow)["near"] == ("run", "missing; needs components, which runs")
    assert not (flow.parent / "results").exists()
    assert rankfold("run", flow).exit_code == 0
    (flow.parent / "results" / "near.zarr").rename(flow.parent / "elsewhere.zarr")
    again = json.loads(rankfold("plan", flow, "--json").stdout)["stages"][1]
    peaks = [stage["plan"]["peak_bytes"] for stage in (planned[1], again)]
    assert abs(peaks[0] - peaks[1]) <= 0.02 * peaks[1]


def test_results_are_those_of_python(flow: Path) -> None:
    run = rankfold("run", flow)
    assert run.exit_code == 0, run.output
    results = flow.parent / "results"
    components = rf.pca(flow.parent / "x.zarr", 5)
    assert same_bytes(rf.open_result(results / "components.zarr")) == same_bytes(components)
    near = rf.knn(f"{results / 'components.zarr'}::scores", 3, symmetric="union")
    assert same_bytes(rf.open_result(results / "near.zarr")) == same_bytes(near)
    assert "components: writing the result: 1,500 of 1,500 rows" in run.stderr
    assert "stage 2 of 2: near, knn: run (missing)" in run.stderr


def test_what_is_done_is_skipped_and_what_changed_is_made_anew(flow: Path) -> None:
    assert rankfold("run", flow).exit_code == 0
    assert set(actions(flow).values()) == {("skip", "finished")}
    again = rankfold("run", flow)
    assert again.exit_code == 0 and "2 stages: 2 finished before" in again.stdout
    changed(flow, ("k: 3", "k: 4"))
    assert actions(flow) == {"components": ("skip", "finished"), "near": ("run", "parameter k: 3 -> 4")}
    changed(flow, ("k: 4", "k: 3"), ("rank: 5", "rank: 6"))
    assert actions(flow) == {
        "components": ("run", "parameter rank: 5 -> 6"),
        "near": ("run", "needs components, which runs"),
    }
    run = rankfold("run", flow)
    assert "near, knn: run (input components.scores changed)" in run.stderr
    assert rf.open_result(flow.parent / "results" / "near.zarr").attrs["input"]["shape"] == [ROWS, 6]


def test_changed_data_run_everything_again(flow: Path) -> None:
    import zarr

    assert rankfold("run", flow).exit_code == 0
    zarr.open_array(flow.parent / "x.zarr", mode="r+")[0, 0] = 9.0
    assert actions(flow)["components"] == ("run", "input counts changed")
    assert rankfold("run", flow).exit_code == 0
    assert set(actions(flow).values()) == {("skip", "finished")}


def test_stages_beside_each_other_do_not_mind(flow: Path) -> None:
    """A third stage of the same input stays as it is when another changes."""
    flow.write_text(FLOW + "  low: {method: svd, input: counts, rank: 2, needs: near}\n")
    assert rankfold("run", flow).exit_code == 0
    changed(flow, ("rank: 5", "rank: 7"))
    assert {name: action for name, (action, _) in actions(flow).items()} == {
        "components": "run",
        "near": "run",
        "low": "skip",
    }


def test_part_of_a_workflow(flow: Path) -> None:
    run = rankfold("run", flow, "--only", "near")
    assert run.exit_code == 2 and "components, which it reads, is not finished" in run.stderr
    assert ":12: stages.near: " in run.stderr
    assert "1 run, 1 left out" in rankfold("run", flow, "--only", "components").stdout
    changed(flow, ("rank: 5", "rank: 6"))
    run = rankfold("run", flow, "--from", "near")
    assert run.exit_code == 0 and "1 run, 1 left out" in run.stdout
    assert rf.open_result(flow.parent / "results" / "near.zarr").attrs["input"]["shape"] == [ROWS, 5]
    run = rankfold("run", flow, "--from", "neer")
    assert run.exit_code == 2 and "no such stage 'neer' (did you mean 'near'?)" in run.stderr
    assert rankfold("run", flow, "--from", "near", "--only", "near").exit_code == 2


def test_only_what_a_workflow_made_is_replaced(flow: Path) -> None:
    results = flow.parent / "results"
    results.mkdir()
    rf.pca(flow.parent / "x.zarr", 9, out=results / "components.zarr")
    run = rankfold("run", flow)
    assert run.exit_code == 2 and "is not of this workflow: it is never replaced" in run.stderr
    rf.pca(flow.parent / "x.zarr", 5, out=results / "components.zarr", overwrite=True)
    assert "components, pca: skip (finished)" in rankfold("run", flow).stderr
    changed(flow, ("rank: 5", "rank: 6"))
    for command in ("plan", "run"):  # that it was used does not make it one of this workflow
        run = rankfold(command, flow)
        assert run.exit_code == 2 and "is not of this workflow: it is never replaced" in run.stderr
    assert rf.open_result(results / "components.zarr").components.shape[0] == 5
    shutil.rmtree(results / "components.zarr")
    assert rankfold("run", flow).exit_code == 0
    changed(flow, ("rank: 6", "rank: 7"))
    assert rankfold("run", flow).exit_code == 0
    assert rf.open_result(results / "components.zarr").components.shape[0] == 7
    changed(flow, ("workflow: cells", "workflow: others"))
    run = rankfold("run", flow)
    assert run.exit_code == 2 and "has results of the workflow 'cells', not of 'others'" in run.stderr


def test_bad_data_name_the_stage_and_leave_what_is_done(flow: Path) -> None:
    import zarr

    flow.write_text(FLOW + "  parts: {method: nmf, input: counts, rank: 2}\n")
    run = rankfold("run", flow)
    assert run.exit_code == 4 and f"{flow}:17: stages.parts: " in run.stderr.splitlines()[-1]
    table = rankfold("status", flow).stdout
    assert "failed" in table and "parts: " in table and table.count("done") == 2
    x = zarr.open_array(flow.parent / "x.zarr", mode="r+")
    x[...] = np.abs(x[...])
    assert rankfold("run", flow).exit_code == 0


# Interruption --------------------------------------------------------------------------------------

LONG = """\
workflow: long
inputs: {x: x.zarr}
outputs: results
resources: {memory: 1GiB, threads: 1}
stages:
  first: {method: pca, input: x, rank: 3, solver: gram, with_rows: false}
  second: {method: svd, input: x, rank: 10, solver: krylov, tol: 1.0e-12, passes: 12}
"""


@pytest.fixture(scope="module")
def tall(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tall")
    x = np.random.default_rng(0).standard_normal((200_000, 80), dtype=np.float32)
    to_zarr(folder / "x.zarr", x, (10_000, 80))
    return folder


def started(flow: Path) -> subprocess.Popen[str]:
    """The command, held in the second pass of the second stage until ``communicate`` ends its input."""
    command = [sys.executable, str(HERE / "held_command.py"), "second: pass-02", "run", str(flow)]
    pipe = subprocess.PIPE
    child = subprocess.Popen(command, stdin=pipe, stderr=pipe, stdout=pipe, text=True)
    assert child.stderr is not None
    for line in child.stderr:
        if line == "held\n":
            return child
    raise AssertionError(child.communicate())


@pytest.mark.process
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 75), (signal.SIGINT, 130), (signal.SIGKILL, -9)]
)
def test_an_interrupted_workflow_goes_on(tmp_path: Path, tall: Path, number: int, code: int) -> None:
    (tmp_path / "x.zarr").symlink_to(tall / "x.zarr")
    (tmp_path / "flow.yaml").write_text(LONG)
    with started(tmp_path / "flow.yaml") as child:
        run = rankfold("run", tmp_path / "flow.yaml")
        assert run.exit_code == 2 and f"process {child.pid} on" in run.stderr, run.output
        assert (
            json.loads(rankfold("status", tmp_path / "results", "--json").stdout)["stages"][1]["state"]
            == "running"
        )
        child.send_signal(number)
        child.communicate()
        assert child.returncode == code
    first, second = json.loads(rankfold("status", tmp_path / "flow.yaml", "--json").stdout)["stages"]
    assert first["state"] == "done" and second["state"] == "partial" and second["attempts"] == 1
    assert second["far"].startswith("pass ")
    assert list((tmp_path / "results" / "second.zarr.run").glob("state-*/pass-01/total.part"))
    assert actions(tmp_path / "flow.yaml")["second"] == ("resume", "was interrupted")
    again = rankfold("run", tmp_path / "flow.yaml")
    assert again.exit_code == 0 and "first, pca: skip" in again.stderr
    assert "second, svd: resume (was interrupted)" in again.stderr
    whole = rf.svd(tall / "x.zarr", 10, solver="krylov", tol=1e-12, passes=12)
    assert same_bytes(rf.open_result(tmp_path / "results" / "second.zarr")) == same_bytes(whole)
    standing = json.loads(rankfold("status", tmp_path / "flow.yaml", "--json").stdout)["stages"][1]
    assert standing["state"] == "done" and standing["attempts"] == 2


def test_a_run_that_replaces_is_gone_on_with(flow: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rankfold.pipeline.storage.run_directory import RunDirectory

    assert rankfold("run", flow).exit_code == 0
    changed(flow, ("k: 3", "k: 4"))

    def killed(self: RunDirectory) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(RunDirectory, "publish", killed)
        assert rankfold("run", flow).exit_code == 130
    assert rf.open_result(flow.parent / "results" / "near.zarr").indices.shape[1] == 3
    assert actions(flow)["near"] == ("resume", "was interrupted")
    assert "partial" in rankfold("status", flow).stdout
    assert rankfold("run", flow).exit_code == 0
    assert rf.open_result(flow.parent / "results" / "near.zarr").indices.shape[1] == 4
