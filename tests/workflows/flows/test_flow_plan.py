"""The plan of a workflow in numbers: files, time, room on the disk, and a table that fits a terminal."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flow_commands import FLOW, begun, changed, rankfold, refused
from reference import to_zarr

import rankfold as rf
from rankfold.cluster.local.calibration import cached_rates
from rankfold.pipeline.storage.run_directory import RunDirectory
from rankfold.workflows.flows import plan

MIB = 2**20


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    """A workflow beside its data."""
    return begun(tmp_path)


def planned(flow: Path) -> dict[str, Any]:
    run = rankfold("plan", flow, "--json")
    assert run.exit_code == 0, run.output
    return dict(json.loads(run.stdout))


def with_free(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    """A disk with so many bytes free."""
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=free))


# Numbers -------------------------------------------------------------------------------------------


def test_the_table_says_why_and_what_it_takes_within_a_terminal(flow: Path) -> None:
    flow.write_text(
        FLOW
        + "  near-raw: {method: knn, input: counts}\n"
        + "  kept: {method: neighborhood_preservation, first: near-raw, second: near, needs: components}\n"
    )
    text = rankfold("plan", flow).stdout
    why, numbers, total = (part.splitlines() for part in text.strip().split("\n\n"))
    assert [line.split() for line in why[:3]] == [
        ["stage", "method", "why"],
        ["components", "pca", "run", "missing"],
        ["near", "knn", "run", "missing;", "needs", "components,", "which", "runs"],
    ]
    assert numbers[0].split() == [
        "stage", "passes", "reads", "memory", "scratch", "result", "files", "tasks", "time"
    ]  # fmt: skip
    assert [line.split()[0] for line in numbers[1:]] == ["components", "near", "near-raw", "kept", "all"]
    assert " ".join(total).startswith("4 to run: reads ") and total[-1].endswith("free")
    assert all(len(line) <= 120 for line in text.splitlines())
    rankfold("run", flow)
    assert [line.split()[2] for line in rankfold("plan", flow).stdout.splitlines()[1:5]] == ["skip"] * 4


def test_time_is_that_of_the_plan_of_the_method_and_sums_up(flow: Path) -> None:
    found = planned(flow)
    alone = rf.plan("pca", flow.parent / "x.zarr", 5, memory="1GiB", threads=2, rates=cached_rates())
    assert found["stages"][0]["seconds"] == pytest.approx(alone.seconds, rel=1e-12)
    total, stages = found["total"], found["stages"]
    assert total["seconds"] == pytest.approx(sum(stage["seconds"] for stage in stages))
    for name in ("reads_bytes", "result_bytes", "files", "tasks"):
        assert total[name] == sum(stage["numbers"][name] for stage in stages)
    for name in ("peak_bytes", "scratch_bytes"):
        assert total[name] == max(stage["numbers"][name] for stage in stages)
    assert total["free_bytes"] > 0


def test_files_are_counted_as_they_will_be(tmp_path: Path) -> None:
    """Of results with several chunks, along either side; the graph made symmetric may have fewer."""
    rng = np.random.default_rng(0)
    to_zarr(tmp_path / "tall.zarr", rng.random((150_000, 6)), (10_000, 6))
    to_zarr(tmp_path / "wide.zarr", rng.random((6, 150_000)), (6, 10_000))
    (tmp_path / "flow.yaml").write_text("""\
workflow: files
inputs: {tall: tall.zarr, wide: wide.zarr, few: {store: tall.zarr, select_rows: 0:20000}}
outputs: results
resources: {memory: 1GiB}
stages:
  tall-svd: {method: svd, input: tall, rank: 4}
  wide-pca: {method: pca, input: wide, rank: 4, scale: true, with_rows: false}
  tall-qr: {method: qr, input: tall}
  wide-qr: {method: qr, input: wide, with_rows: false}
  parts: {method: nmf, input: tall, rank: 3}
  seen: {method: transform, result: tall-svd, input: tall}
  again: {method: reconstruct, result: tall-svd}
  near: {method: knn, input: few, k: 15}
  both: {method: knn, input: few, k: 8, symmetric: union}
  copy: {method: import, input: tall, dtype: float32}
""")
    stages = planned(tmp_path / "flow.yaml")["stages"]
    run = rankfold("run", tmp_path / "flow.yaml")
    assert run.exit_code == 0, run.output
    found = {one["stage"]: sum(p.is_file() for p in Path(one["out"]).rglob("*")) for one in stages}
    told = {one["stage"]: one["numbers"]["files"] for one in stages}
    assert found.pop("both") <= told.pop("both")  # by as many edges as two rows have in common
    assert found == told
    assert found["tall-svd"] > 1 + 2 * 5  # one array has several chunks


def test_what_is_not_known_is_said_to_be_left_out(flow: Path) -> None:
    (flow.parent / "y.csv").write_text("a,b\n" + "\n".join(f"{i},{i * i % 7}" for i in range(300)))
    changed(flow, ("  counts: x.zarr", "  counts: x.zarr\n  table: y.csv"))
    more = "  made: {method: import, input: table}\n  of-made: {method: pca, input: made, rank: 1}\n"
    flow.write_text(flow.read_text() + more)
    text = rankfold("plan", flow).stdout
    assert "not counted, since not known yet: of-made" in " ".join(text.splitlines()[-2:])
    assert ["of-made", *"--------"] in [line.split() for line in text.splitlines()]
    stages = {one["stage"]: one for one in planned(flow)["stages"]}
    assert stages["made"]["seconds"] is None and stages["made"]["numbers"]["files"] is None
    assert stages["of-made"]["numbers"] is None


# BufferPool ----------------------------------------------------------------------------------------------


def test_all_results_and_the_most_of_scratch_must_fit(flow: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    total, stages = planned(flow)["total"], planned(flow)["stages"]
    need = max(
        stages[0]["numbers"]["result_bytes"] + stages[0]["numbers"]["scratch_bytes"],
        total["result_bytes"] + stages[1]["numbers"]["scratch_bytes"],
    )
    with_free(monkeypatch, need)
    assert rankfold("plan", flow).exit_code == 0
    with_free(monkeypatch, need - 1)
    for command in ("plan", "run"):
        said = refused(flow, 3, ":5: outputs: results of 2 stages take ", command)
        assert "so that " in said and " must be free, but " in said and "near takes most, " in said
        assert "name outputs on another file system, or move scratch with scratch: DIR" in said


def test_the_message_works_out_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_free(monkeypatch, 10 * MIB)
    document = SimpleNamespace(message_at=lambda keys, message: f"{'.'.join(keys)}: {message}")
    made = [plan.Demand("a", tmp_path / "a", tmp_path, 6 * MIB, 0, 2 * MIB)]
    made.append(plan.Demand("b", tmp_path / "b", tmp_path, MIB, MIB, 8 * MIB))
    with pytest.raises(rf.RankfoldError) as raised:
        plan.require_room(made, tmp_path, document)  # type: ignore[arg-type]
    assert str(raised.value) == (
        "outputs: results of 2 stages take 10 MiB, scratch at most 6 MiB at a time, so that 12 MiB must be "
        f"free, but {tmp_path} has 10 MiB. Free 2 MiB, name outputs on another file system, or move scratch "
        "with scratch: DIR under resources. b takes most, 10 MiB"
    )


def test_what_is_there_already_counts(flow: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that goes on needs no room for what it has written, and one that replaces has that of the old."""
    demand = plan.Demand("a", flow.parent / "a", flow.parent, 0, 0, 8 * MIB)
    with_free(monkeypatch, 5 * MIB)
    with pytest.raises(rf.RankfoldError):
        plan.require_room([demand], flow.parent, document(flow))
    (flow.parent / "a.run").mkdir()
    (flow.parent / "a.run" / "part").write_bytes(bytes(3 * MIB))
    plan.require_room([demand], flow.parent, document(flow))
    other = plan.Demand("b", flow.parent / "b", flow.parent, 0, 0, 4 * MIB)
    with pytest.raises(rf.RankfoldError):
        plan.require_room([demand, other], flow.parent, document(flow))
    (flow.parent / "a").mkdir()
    (flow.parent / "a" / "c").write_bytes(bytes(5 * MIB))
    plan.require_room([demand, other], flow.parent, document(flow))


def document(flow: Path) -> Any:
    from rankfold.workflows.flows.flow_file import read_flow

    return read_flow(flow)[1]


def test_scratch_elsewhere_is_looked_at_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fast").mkdir()
    flow = begun(tmp_path)
    monkeypatch.setattr(plan, "device_of", lambda folder: folder.name)
    monkeypatch.setattr(
        shutil, "disk_usage", lambda folder: SimpleNamespace(free=0 if folder.name == "fast" else 9 * MIB)
    )
    demand = plan.Demand("a", tmp_path / "a", tmp_path / "fast", 8 * MIB, 0, 8 * MIB)
    with pytest.raises(
        rf.RankfoldError, match=rf":6: resources.scratch: scratch of a takes 8 MiB, but {tmp_path}/fast"
    ):
        plan.require_room([demand], tmp_path, document(flow))
    for left in (tmp_path / "a.run" / "state-0", tmp_path / "fast" / "rankfold-0"):
        left.mkdir(parents=True)
    (tmp_path / "fast" / "rankfold-0" / "part").write_bytes(bytes(8 * MIB))  # of an attempt that goes on
    plan.require_room([demand], tmp_path, document(flow))
    demand = plan.Demand("a", tmp_path / "a", tmp_path, 8 * MIB, 0, 8 * MIB)
    with pytest.raises(rf.RankfoldError, match="results of 1 stage take 8 MiB"):
        plan.require_room([demand], tmp_path, document(flow))


def test_an_interrupted_run_is_not_refused_for_what_it_has_written(
    flow: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(self: RunDirectory) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(RunDirectory, "publish", killed)
        assert rankfold("run", flow, "--only", "components").exit_code == 130
    one, other = (stage["numbers"] for stage in planned(flow)["stages"])
    both = one["result_bytes"] + other["result_bytes"] + other["scratch_bytes"]
    with_free(monkeypatch, both - one["result_bytes"])
    assert rankfold("plan", flow).exit_code == 0


def test_memory_is_said_once_for_all_stages(flow: Path) -> None:
    """Of the stage that takes most, in keys of the file; who gives as much is refused no more."""
    text = FLOW.replace("memory: 1GiB", "memory: 1MiB") + "  sorted: {method: kmeans, input: counts, k: 3}\n"
    assert "1MiB" in text
    flow.write_text(text)
    run = rankfold("plan", flow)
    assert run.exit_code == 3 and "--" not in run.stderr and "memory=" not in run.stderr
    least = re.search(r"Give memory: (\d+)MiB\.\n", run.stderr)
    assert least is not None, run.stderr
    flow.write_text(text.replace("memory: 1MiB", f"memory: {least[1]}MiB"))
    assert {stage["action"] for stage in planned(flow)["stages"]} == {"run"}
    flow.write_text(text.replace("memory: 1MiB", f"memory: {int(least[1]) - 1}MiB"))
    assert rankfold("plan", flow).exit_code == 3
