"""Earlier results of a stage stay, at most so many, whatever happens while they are kept or removed."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flow_commands import FLOW, actions, begun, changed, rankfold
from reference import same_bytes

import rankfold as rf
from rankfold.pipeline import outputs
from rankfold.pipeline.machine import bytes_under
from rankfold.workflows.flows import retention
from rankfold.workflows.flows.retention import EarlierResults


class Killed(BaseException):
    """A process that ends at once: nothing is cleaned up after it but what ``finally`` says."""


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    """A workflow that keeps three results, beside its data."""
    flow = begun(tmp_path)
    return changed(flow, ("stages:\n", "keep: 3\nstages:\n"))


def made(flow: Path, rank: int) -> None:
    """The workflow with so many components, run."""
    text = flow.read_text()
    before = text[text.index("rank: ") :].split("\n")[0]
    run = rankfold("run", changed(flow, (before, f"rank: {rank}")))
    assert run.exit_code == 0, run.output


def ranks(flow: Path) -> list[int]:
    """Of the results of components that are there, the oldest first and the newest last."""
    results = EarlierResults(flow.parent / "results" / "components.zarr")
    paths = [*(one.path for one in results.all()), results.result]
    return [rf.open_result(path).components.shape[0] for path in paths]


def folder_of(flow: Path) -> Path:
    return flow.parent / "results" / "components.earlier"


# What stays --------------------------------------------------------------------------------------


def test_the_last_results_stay_and_older_ones_go(flow: Path) -> None:
    for rank in (2, 3, 4, 5):
        made(flow, rank)
    assert ranks(flow) == [3, 4, 5]
    names = sorted(path.name for path in folder_of(flow).iterdir())
    assert [name[:5] for name in names[:2]] == ["0002-", "0003-"] and names[2:] == ["earlier.json"]
    fresh = rf.pca(flow.parent / "x.zarr", 3)
    oldest = EarlierResults(flow.parent / "results" / "components.zarr").all()[0]
    assert same_bytes(rf.open_result(oldest.path)) == same_bytes(fresh)
    assert rf.verify(oldest.path) == [] and oldest.rows == 1500
    assert set(actions(flow).values()) == {("skip", "finished")}
    assert rankfold("run", flow).exit_code == 0 and ranks(flow) == [3, 4, 5]


def test_by_default_nothing_stays(tmp_path: Path) -> None:
    flow = begun(tmp_path)
    for rank in (2, 3):
        made(flow, rank)
    assert not list((tmp_path / "results").glob("*.earlier"))


def test_a_stage_says_for_itself(flow: Path) -> None:
    changed(flow, ("    k: 3\n", "    k: 3\n    keep: 1\n"))
    for rank in (2, 3):
        made(flow, rank)
    assert [path.name for path in (flow.parent / "results").glob("*.earlier")] == ["components.earlier"]


def test_fewer_stay_once_the_next_result_is_there(flow: Path) -> None:
    for rank in (2, 3, 4):
        made(flow, rank)
    changed(flow, ("keep: 3", "keep: 2"))
    assert rankfold("run", flow).exit_code == 0
    assert ranks(flow) == [2, 3, 4]  # a line that was changed by mistake costs nothing yet
    made(flow, 5)
    assert ranks(flow) == [4, 5]
    changed(flow, ("keep: 2", "keep: 1"))
    made(flow, 6)
    assert ranks(flow) == [6] and not folder_of(flow).exists()


def test_a_store_that_was_imported_stays_too(tmp_path: Path) -> None:
    flow = tmp_path / "flow.yaml"
    flow.write_text(
        "workflow: tables\ninputs: {table: x.npy}\noutputs: results\nkeep: 2\n"
        "stages: {samples: {method: import, input: table}}\n"
    )
    for rows in (30, 40, 50):
        np.save(tmp_path / "x.npy", np.random.default_rng(rows).standard_normal((rows, 4)))
        assert rankfold("run", flow).exit_code == 0
    (only,) = EarlierResults(tmp_path / "results" / "samples.zarr").all()
    assert only.rows == 40 and rf.open(only.path).shape == (40, 4)


def test_status_lists_them(flow: Path) -> None:
    for rank in (2, 3, 4):
        made(flow, rank)
    first, second = json.loads(rankfold("status", flow, "--json").stdout)["stages"]
    assert [Path(one["out"]).name[:5] for one in first["earlier"]] == ["0001-", "0002-"]
    assert all(one["rows"] == 1500 and one["bytes"] > 10_000 for one in first["earlier"] + second["earlier"])
    text = rankfold("status", flow.parent / "results").stdout
    assert "components: 2 earlier results, 0001-" in text and f"in {folder_of(flow)}" in text


def test_the_plan_counts_what_stays(flow: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What would be free by replacing a result is not free where that is kept."""
    for rank in (20, 21):
        made(flow, rank)
    changed(flow, ("rank: 21", "rank: 22"))

    def need() -> float:
        """KiB that must be free, as the refusal says."""
        with monkeypatch.context() as patched:
            patched.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=0))
            run = rankfold("plan", flow)
        assert run.exit_code == 3
        number, unit = re.findall(r"([\d.]+) ([KM])iB must be free", run.stderr)[0]
        return float(number) * {"K": 1, "M": 1024}[unit]

    with_kept = need()
    changed(flow, ("keep: 3", "keep: 1"))
    size = bytes_under(flow.parent / "results" / "components.zarr") / 1024
    assert with_kept - need() > 0.9 * size


# Order, clocks, strangers ------------------------------------------------------------------------


def test_a_clock_that_goes_back_mixes_up_nothing(flow: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers give the order; two results of one second have two names."""
    results = flow.parent / "results" / "components.zarr"
    for rank, at in ((2, 2_000_000_000), (3, 1_000_000_000), (4, 1_000_000_000), (5, 1_500_000_000)):
        made(flow, rank)
        os.utime(results / "zarr.json", (at, at))
    assert ranks(flow) == [3, 4, 5]
    names = sorted(path.name for path in folder_of(flow).glob("0*"))
    assert names == ["0002-2001-09-09T014640Z.zarr", "0003-2001-09-09T014640Z.zarr"]
    made(flow, 6)
    assert ranks(flow) == [4, 5, 6]


def test_what_others_put_there_is_never_removed(flow: Path) -> None:
    made(flow, 2)
    made(flow, 3)
    folder = folder_of(flow)
    stranger = folder / "0099-2026-01-01T000000Z.zarr"
    shutil.copytree(next(folder.glob("0001-*")), stranger)
    (folder / "notes.txt").write_text("mine")
    noted = next(folder.glob("0001-*"))
    (noted / "remark.txt").write_text("mine too")
    for rank in (4, 5, 6):
        made(flow, rank)
    assert stranger.is_dir() and (folder / "notes.txt").read_text() == "mine"
    assert (noted / "remark.txt").read_text() == "mine too"
    assert ranks(flow)[-3:] == [4, 5, 6]


def test_one_that_was_exchanged_for_something_else_is_left_alone(flow: Path) -> None:
    made(flow, 2)
    made(flow, 3)
    (first,) = folder_of(flow).glob("0001-*")
    shutil.rmtree(first)
    rf.svd(flow.parent / "x.zarr", 4, out=first)
    for rank in (4, 5, 6):
        made(flow, rank)
    assert rf.open_result(first).s.shape == (4,) and ranks(flow) == [4, 5, 6]


def test_a_lost_list_costs_no_result(flow: Path) -> None:
    for rank in (2, 3):
        made(flow, rank)
    (folder_of(flow) / "earlier.json").write_text("{")
    for rank in (4, 5, 6):
        made(flow, rank)
    assert ranks(flow) == [4, 5, 6] and len(list(folder_of(flow).glob("0*"))) == 3


@pytest.mark.parametrize("text", ["precious", '{"mine": 1}', '{"keep": "x", "results": [1]}'])
@pytest.mark.parametrize("keep", ["3", "1"])
def test_a_list_of_somebody_else_is_never_replaced(flow: Path, text: str, keep: str) -> None:
    changed(flow, ("keep: 3", f"keep: {keep}"))
    made(flow, 2)
    for place in folder_of(flow).glob("*"):
        place.unlink()
    folder_of(flow).mkdir(exist_ok=True)
    theirs = folder_of(flow) / "earlier.json"
    theirs.write_text(text)
    run = rankfold("run", changed(flow, ("rank: 2", "rank: 3")))
    assert theirs.read_text() == text
    if keep == "1":
        assert run.exit_code == 0 and ranks(flow) == [3]
    else:
        assert run.exit_code == 2 and "earlier.json was not made by rankfold" in run.stderr
        assert ranks(flow) == [2]


def test_a_damaged_result_is_not_kept(flow: Path, caplog: pytest.LogCaptureFixture) -> None:
    made(flow, 2)
    chunk = flow.parent / "results" / "components.zarr" / "scores" / "c" / "0" / "0"
    chunk.write_bytes(b"")
    assert actions(flow)["components"][1].startswith("its result is damaged")
    with caplog.at_level("WARNING"):
        assert rankfold("run", flow).exit_code == 0
    assert ranks(flow) == [2] and "so it is not kept" in caplog.text


# What may happen meanwhile -----------------------------------------------------------------------


def counted(monkeypatch: pytest.MonkeyPatch, act: Callable[[int], None]) -> None:
    """Call ``act`` with a running number before each step that changes names on the disk."""
    steps = iter(range(10_000))
    places: list[tuple[Any, str]] = [(os, name) for name in ("rename", "replace", "link", "unlink", "mkdir")]
    places += [(shutil, "rmtree"), (outputs, "exchange"), (outputs, "rename_new")]
    for owner, name in places:
        real = getattr(owner, name)

        def step(*args: Any, _real: Any = real, **more: Any) -> Any:
            act(next(steps))
            return _real(*args, **more)

        monkeypatch.setattr(owner, name, step)


def names_made(monkeypatch: pytest.MonkeyPatch, flow: Path) -> int:
    """How many such steps replacing a result takes."""
    count = 0

    def note(number: int) -> None:
        nonlocal count
        count = number + 1

    with monkeypatch.context() as patched:
        counted(patched, note)
        made(flow, 5)
    return count


def state(flow: Path) -> bytes:
    """The newest result under whatever name: of components, and whole."""
    results = EarlierResults(flow.parent / "results" / "components.zarr")
    there = [results.result, *(one.path for one in reversed(results.all()))]
    there += [path for path in results.folder.glob("0*") if results.folder.exists()]
    newest = next(path for path in there if path.exists())
    assert rf.verify(newest) == []
    return np.asarray(rf.open_result(newest).components).tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [True, False], ids=["names exchanged", "one name after the other"])
def test_killed_before_any_step_the_old_state_or_the_new_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    """Every change of a name on the disk is the last one once; then the same command goes on."""
    if not at_once:
        monkeypatch.setattr(outputs, "exchange", lambda one, other: False)
    base = tmp_path / "base"
    base.mkdir()
    flow = changed(begun(base), ("stages:\n", "keep: 2\nstages:\n"), (FLOW[FLOW.index("  near:") :], ""))
    for rank in (2, 3, 4):
        made(flow, rank)
    old = state(flow)
    shutil.copytree(base, tmp_path / "counts", copy_function=shutil.copy2)
    steps = names_made(monkeypatch, tmp_path / "counts" / "flow.yaml")
    new = state(tmp_path / "counts" / "flow.yaml")
    assert steps > 30 and old != new
    for last in range(steps):
        here = tmp_path / "here"
        shutil.copytree(base, here, copy_function=shutil.copy2)
        broken = changed(here / "flow.yaml", ("rank: 4", "rank: 5"))

        def kill(number: int, last: int = last) -> None:
            if number >= last:  # nothing changes any more, whatever ``finally`` tries
                raise Killed

        with monkeypatch.context() as patched, contextlib.suppress(Killed):
            counted(patched, kill)
            rankfold("run", broken)
        assert not at_once or (here / "results" / "components.zarr").exists(), last
        assert state(broken) in (old, new), last
        assert rankfold("run", broken).exit_code == 0, last
        assert ranks(broken) == [4, 5] and state(broken) == new, last
        left = {path.name for path in folder_of(broken).iterdir() if not path.name.startswith("0")}
        assert left == {"earlier.json"}, last
        shutil.rmtree(here)


def test_without_links_results_are_copied(flow: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    for rank in (2, 3):
        made(flow, rank)
    assert ranks(flow) == [2, 3]
    monkeypatch.setattr(retention, "bytes_under", lambda folder: 10**18)
    run = rankfold("run", changed(flow, ("rank: 3", "rank: 4")))
    assert run.exit_code == 3 and "makes no links, so it is copied" in run.stderr
    assert ranks(flow) == [2, 3] and not list(folder_of(flow).glob(".*"))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS])
def test_what_cannot_be_kept_is_not_replaced(flow: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    for rank in (2, 3):
        made(flow, rank)

    def fail(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    changed(flow, ("rank: 3", "rank: 4"))
    with monkeypatch.context() as patched:
        patched.setattr(os, "link", fail)
        run = rankfold("run", flow)
    assert run.exit_code == (3 if code in (errno.ENOSPC, errno.EDQUOT) else 2)
    assert "cannot be kept" in run.stderr and "set keep: 1" in run.stderr
    assert ranks(flow) == [2, 3] and not list(folder_of(flow).glob(".*"))
    assert rankfold("run", flow).exit_code == 0 and ranks(flow) == [2, 3, 4]


def test_a_file_in_place_of_the_folder_is_told(flow: Path) -> None:
    made(flow, 2)
    folder_of(flow).write_text("mine")
    run = rankfold("run", changed(flow, ("rank: 2", "rank: 3")))
    assert run.exit_code == 2 and "cannot be kept in" in run.stderr
    assert folder_of(flow).read_text() == "mine" and ranks(flow) == [2]


def test_what_cannot_be_removed_does_not_make_a_run_fail(
    flow: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for rank in (2, 3, 4):
        made(flow, rank)

    def refuse(source: Path, target: Path) -> None:
        if target.name.startswith(retention.DOOMED):
            raise OSError(errno.EACCES, "Permission denied")
        os.rename(source, target)

    with monkeypatch.context() as patched, caplog.at_level("WARNING"):
        patched.setattr(retention, "rename_durably", refuse)
        made(flow, 5)
    assert ranks(flow) == [2, 3, 4, 5] and "earlier results that are too many stay" in caplog.text
    assert rankfold("run", flow).exit_code == 0 and ranks(flow) == [3, 4, 5]


def test_a_result_that_is_replaced_meanwhile_is_not_kept_in_parts(tmp_path: Path) -> None:
    """Another command may exchange it while links are made."""
    x = np.random.default_rng(0).standard_normal((300, 20))
    out = tmp_path / "stage.zarr"
    rf.pca(x, 3, out=out)
    rf.pca(x, 4, out=tmp_path / "other.zarr")
    real, count = os.link, 0

    def link(source: Any, target: Any) -> None:
        nonlocal count
        count += 1
        if count == 4:
            shutil.rmtree(out)
            shutil.copytree(tmp_path / "other.zarr", out)
        real(source, target)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "link", link)
        with contextlib.suppress(rf.RankfoldError):
            EarlierResults(out).keep(3)
    assert all(rf.verify(one.path) == [] for one in EarlierResults(out).all())


def test_keeping_costs_names_and_no_bytes(flow: Path) -> None:
    made(flow, 2)
    result = flow.parent / "results" / "components.zarr"
    inode = (result / "zarr.json").stat().st_ino
    made(flow, 3)
    (kept,) = EarlierResults(result).all()
    assert (kept.path / "zarr.json").stat().st_ino == inode
    assert (kept.path / "zarr.json").stat().st_mtime <= time.time()
