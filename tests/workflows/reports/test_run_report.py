"""The page of what has run says what the records say, opens offline, and repeats nothing."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference import to_zarr

import rankfold as rf
from rankfold.pipeline.errors import DataError, InputError, SourceNotFoundError
from rankfold.pipeline.storage.journal import FOLDER, Journal, lines_of
from rankfold.workflows.reports.history import History, Segment, periods
from rankfold.workflows.reports.measures import (
    at_once,
    busy_seconds,
    group_sweeps,
    report_facts,
    segment_counts,
)
from rankfold.workflows.reports.page import page_output, write_page
from rankfold.workflows.reports.run_page import TEMPLATE, _roof, run_page, subject
from rankfold.workflows.reports.tables import request_table

FLOW = """\
workflow: parts
inputs:
  table: x.npy
outputs: results
resources: {memory: 1GiB, threads: 2}
stages:
  x: {method: import, input: table}
  components: {method: pca, input: x, rank: 5, solver: krylov, passes: 3, tol: 1.0e-9}
  factors: {method: nmf, input: x, rank: 4, passes: 4}
  near: {method: knn, input: components.scores, k: 4}
  audit: {method: check, result: components, input: x}
  trust: {method: trustworthiness, input: x, embedding: components.scores, k: 4}
"""


def rankfold(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rankfold", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where a workflow of three stages has run."""
    folder = tmp_path_factory.mktemp("flow")
    x = np.random.default_rng(0).random((6000, 40)).astype(np.float32)
    np.save(folder / "x.npy", x)
    (folder / "flow.yaml").write_text(FLOW)
    done = rankfold("run", "flow.yaml", folder=folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def page(ran: Path) -> str:
    done = rankfold("report", "flow.yaml", folder=ran)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(ran / "results" / "report.html")
    return (ran / "results" / "report.html").read_text()


def facts_in(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="facts">(.*?)</script>', page, re.S)
    assert found
    return json.loads(found[1])


def test_nothing_on_the_page_is_fetched(page: str) -> None:
    assert not re.findall(r'(?:src|href|srcset)="(?!data:image/png;base64,)', page)
    assert "url(" not in page and "@import" not in page
    assert page.count("<figure>") >= 6


def test_every_picture_says_what_it_shows(page: str) -> None:
    texts = re.findall(r'<img [^>]*alt="([^"]*)"', page)
    assert len(texts) == page.count("<img ") and all(len(text) > 10 for text in texts)


def test_numbers_on_the_page_are_those_of_the_records(ran: Path, page: str) -> None:
    facts = facts_in(page)
    assert facts == json.loads(rankfold("report", "results", "--json", folder=ran).stdout)
    assert [stage["name"] for stage in facts["stages"]] == [
        "x",
        "components",
        "factors",
        "near",
        "audit",
        "trust",
    ]
    for stage in facts["stages"][1:]:
        noted = json.loads((ran / f"results/{stage['name']}.zarr.run/run.json").read_text())
        record, steps = (
            noted["attempts"][-1],
            [one for each in noted.get("steps", {}).values() for one in each],
        )
        every, plan = [record, *steps], noted.get("plan", record["plan"])
        assert stage["measured"]["passes"] == sum(one["passes"] for one in every)
        assert stage["measured"]["peak_bytes"] == max(one["measured_bytes"] for one in every)
        assert stage["measured"]["all_attempts_seconds"] == pytest.approx(
            sum(one["seconds"] + one["compile_seconds"] + one["load_seconds"] for one in every)
        )
        for name in ("peak_bytes", "likely_passes", "reads_bytes"):
            assert stage["planned"][name] == plan[name]
        assert {sweep["name"] for sweep in stage["sweeps"]} == set(record["sweep_seconds"])
        assert not any(stage["segments"][how] for how in ("running", "stopped", "failed", "lost"))


@pytest.mark.parametrize("stage", ["components", "factors"])
def test_bytes_that_were_read_are_passes_over_the_matrix(page: str, stage: str) -> None:
    measured = next(one["measured"] for one in facts_in(page)["stages"] if one["name"] == stage)
    assert measured["reads_bytes"] == measured["passes"] * 6000 * 40 * 4


def test_the_page_says_how_to_repeat_it(ran: Path, page: str) -> None:
    assert f"cd {ran}\nrankfold run flow.yaml" in page
    assert "method: knn, input: components.scores" in page


def test_the_page_says_how_good_each_result_is(ran: Path, page: str) -> None:
    trust = rf.open_result(ran / "results" / "trust.zarr").attrs["value"]
    assert re.search(rf"<td[^>]*>{trust:.3g}</td>", page)
    assert "largest residual of a singular triplet" in page
    assert "above tol = 1.0e-09" in page  # a warning
    assert not re.search(r"<td[^>]*>[^<]*\b[0-9a-f]{32}\b", page)  # fingerprints are for machines
    assert facts_in(page)["stages"][-1]["segments"]["begun"] > 2  # the search is among them


def test_a_request_that_has_changed_begins_its_history_anew(tmp_path: Path) -> None:
    x = to_zarr(tmp_path / "x.zarr", np.random.default_rng(0).random((500, 12)), (100, 12))
    for rank in (3, 2):
        rf.pca(x, rank=rank, out=tmp_path / "r.zarr", overwrite=True)
    (stage,) = run_page(subject(tmp_path / "r.zarr")).facts["stages"]
    assert len(stage["attempts"]) == 1
    assert stage["measured"]["reads_bytes"] == stage["planned"]["reads_bytes"]
    assert len(json.loads((tmp_path / "r.zarr.run" / "run.json").read_text())["attempts"]) == 1
    assert {line["run"] for line in lines_of(tmp_path / "r.zarr.run")} == {stage["attempts"][0]["run"]}


def test_bad_data_leave_what_is_known_of_the_result_that_stays(tmp_path: Path) -> None:
    good = np.random.default_rng(0).random((500, 12))
    rf.pca(to_zarr(tmp_path / "x.zarr", good, (100, 12)), rank=3, out=tmp_path / "r.zarr")
    before = rf.open_result(tmp_path / "r.zarr").singular_values
    good[77, 5] = np.nan
    with pytest.raises(DataError):
        rf.pca(to_zarr(tmp_path / "y.zarr", good, (100, 12)), rank=3, out=tmp_path / "r.zarr", overwrite=True)
    np.testing.assert_array_equal(rf.open_result(tmp_path / "r.zarr").singular_values, before)
    attempts = json.loads((tmp_path / "r.zarr.run" / "run.json").read_text())["attempts"]
    assert [attempt.get("finished", False) for attempt in attempts] == [True, False]
    with pytest.raises(DataError):
        rf.pca(tmp_path / "y.zarr", rank=3, out=tmp_path / "new.zarr")
    assert not (tmp_path / "new.zarr.run").exists()


def test_one_result_has_a_page_too(ran: Path) -> None:
    found = subject(ran / "results" / "components.zarr")
    assert found.title == "components" and len(found.stages) == 1
    assert run_page(found).facts["stages"][0]["kind"] == "pca"


def test_runs_on_other_numbers_of_threads_tell_how_it_scales(tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((1000, 40)).astype(np.float32)
    rf.pca(to_zarr(tmp_path / "x.zarr", x, (100, 40)), rank=4, out=tmp_path / "1.zarr")
    for name in ("1.zarr", "1.zarr.run"):  # the same on three workers, in half the time
        shutil.copytree(tmp_path / name, tmp_path / name.replace("1", "3"))
    record = tmp_path / "3.zarr.run" / "run.json"
    facts = json.loads(record.read_text())
    attempt = facts["attempts"][0]
    attempt |= {"seconds": attempt["seconds"] / 2, "place": {"kind": "slurm", "workers": 3, "threads": 1}}
    record.write_text(json.dumps(facts))
    first, second = (subject(tmp_path / f"{workers}.zarr") for workers in (1, 3))
    page = run_page(first, second.stages)
    (found,) = page.facts["scaling"]
    assert found["law"] == "amdahl" and found["serial"] == pytest.approx(0.25)  # 1 / 2 = s + (1 - s) / 3
    assert {point["lanes"] for point in found["measured"]} == {1, 3}
    assert any(section.title == "Parallel efficiency" for section in page.sections)


def interrupted(folder: Path) -> History:
    """A run that was killed in its second segment, lost a worker, and did not go on."""
    out = folder / "r.zarr"
    state = folder / "r.zarr.run" / "state-1" / FOLDER
    state.mkdir(parents=True)
    plan = {"passes": [], "shape": [10, 2], "orientation": "rows", "concurrency": 1}
    attempt = {"started": "2026-01-02T03:04:05.5Z", "plan": plan, "place": {"kind": "threads"}, "host": "n1"}
    (folder / "r.zarr.run" / "run.json").write_text(json.dumps({"attempts": [attempt]}))
    noted = Journal(state, "pass-01")
    noted.note("came", worker="0")
    with noted.segment(0) as done:
        done["rows"] = 4
    noted.note("segment", sweep="pass-01", part="0", id=99)
    Journal(state).note("gone", worker="0", why="killed <b>here</b>")
    return History.of(out)


def test_what_was_lost_is_on_the_page_of_a_run_that_did_not_finish(tmp_path: Path) -> None:
    history = interrupted(tmp_path)
    assert history.attempts[0].began == 1767323045.5 and history.attempts[0].seconds is None
    page = run_page(subject(tmp_path / "r.zarr"))
    assert page.facts["stages"][0]["segments"] == {
        "begun": 2,
        "running": 0,
        "stopped": 0,
        "failed": 0,
        "lost": 1,
    }
    write_page(page, page_output(tmp_path / "page.html", "r", overwrite=False), "r", TEMPLATE)
    text = (tmp_path / "page.html").read_text()
    assert "killed &lt;b&gt;here&lt;/b&gt;" in text and "<b>here" not in text
    assert "Not finished" in text and "interrupted" in text


def test_a_killed_segment_ends_where_nothing_more_was_noted(tmp_path: Path) -> None:
    history = interrupted(tmp_path)
    (killed,) = (one for one in history.segments if one.ended is None)
    assert history.seen_until(killed) == history.events[-1].at  # its worker was missed
    later = replace(history.attempts[0], began=killed.began + 36_000)
    unseen = replace(history, attempts=(*history.attempts, later), events=history.events[:-1])
    assert unseen.seen_until(killed) == killed.began
    after = Segment("n1-9", "pass-01", killed.began + 36_001, killed.began + 36_005)
    resumed = replace(unseen, segments=(*unseen.segments, after))
    assert resumed.seen_until(killed) == killed.began


def test_what_still_runs_is_not_lost(tmp_path: Path) -> None:
    history = replace(interrupted(tmp_path), running=True)
    assert segment_counts(history)["running"] == 1 and segment_counts(history)["lost"] == 0
    assert history.state == "running"


def test_where_nothing_has_run_the_error_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(SourceNotFoundError, match="does not exist: give a workflow"):
        subject(tmp_path / "nowhere")
    with pytest.raises(InputError, match="no workflow has run here"):
        subject(tmp_path)


def test_pauses_are_left_out_of_the_axis() -> None:
    found = periods([(0, 10), (12, 20), (1000, 1005)], gap_seconds=5)
    assert [(one.began, one.ended) for one in found] == [(0, 20), (1000, 1005)]
    assert found[0].offset == 0 and 20 < found[1].offset < 21


def test_segments_side_by_side_are_counted() -> None:
    segments = [
        Segment("a", "s", 0, 2),
        Segment("b", "s", 1, 3),
        Segment("a", "s", 2, 4),
        Segment("a", "s", 9, 10),
    ]
    assert at_once(segments) == 2
    assert busy_seconds(segments) == 5


def test_the_page_says_how_the_matrix_was_opened() -> None:
    data = {"layout": {"row_axes": ["time", "member"]}, "prepare": "coslat"}
    stage = {"name": "a", "kind": "pca", "method": "gram", "why": [], "state": "done", "measured": {}}
    (row,) = request_table([{**stage, "input": data, "request": {"kind": "pca", "rank": 2}}]).rows
    assert row[3] == "row_axes time member, prepare coslat, rank 2"


def test_sweeps_of_a_kind_are_one_line() -> None:
    sweep = {
        "over": "matrix",
        "flops": 1.0,
        "bytes": 2,
        "lanes": 1,
        "least_seconds": 0.5,
        "long_enough": True,
    }
    sweeps = [
        {**sweep, "name": f"pass-{i:02d}", "seconds": float(i), "share_of_limit": 0.5} for i in (1, 2, 3)
    ]
    (found,) = group_sweeps(sweeps)
    assert (found["name"], found["seconds"], found["share_of_limit"]) == ("pass-01 to 03", 2.0, 0.25)


def test_a_sweep_that_is_long_enough_only_before_it_is_grouped_has_no_roof() -> None:
    """The first pass of a small run takes a tenth of a second, since it loads and compiles; others do not."""
    common = {"over": "matrix", "flops": 1e6, "bytes": 1e6, "lanes": 1, "least_seconds": 1e-3}
    sweeps = [
        {"name": f"pass-0{i}", "seconds": seconds, "long_enough": seconds >= 0.1, **common}
        for i, seconds in ((1, 0.11), (2, 0.01), (3, 0.01))
    ]
    assert _roof({"stages": [{"name": "svd", "sweeps": sweeps}], "limits": {}}) == []


def test_a_stage_that_never_began_is_said_so(tmp_path: Path) -> None:
    facts = report_facts("flow", [History.of(tmp_path / "later.zarr")])
    assert facts["stages"][0]["state"] == "not begun" and facts["stages"][0]["measured"] == {}


@pytest.mark.skipif(shutil.which("chromium") is None, reason="Chromium is not installed")
def test_the_page_opens_in_a_browser_without_a_network(ran: Path, page: str, tmp_path: Path) -> None:
    image = tmp_path / "page.png"
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
    command += ["--disable-background-networking", "--host-resolver-rules=MAP * ~NOTFOUND"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1280,2400", "--hide-scrollbars"]
    command += [f"--screenshot={image}", (ran / "results" / "report.html").as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    import matplotlib.image

    pixels = matplotlib.image.imread(image)[..., :3]
    assert pixels.shape[:2] == (2400, 1280)
    # Pictures are there: the accents of the timeline and of the bars are on the screen.
    for accent in ("#0072b2", "#e69f00"):
        wanted = np.array([int(accent[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        assert (np.abs(pixels - wanted).max(axis=2) < 0.02).sum() > 200


def test_no_table_makes_the_page_wider_than_the_window(page: str) -> None:
    """Each lies in a box that scrolls by itself, and its words break where they must."""
    tables = re.findall(r"(<[^>]+>)\s*<table\b", page)
    assert tables and all(re.fullmatch(r'<div class="table"[^>]*>', before) for before in tables), set(tables)
    style = page.partition("</style>")[0]
    assert re.search(r"\.table \{[^}]*overflow-x: auto", style)
    assert re.search(r"td \{[^}]*overflow-wrap: anywhere", style)


@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("share", [1, 2])
def test_labels_under_the_roof_do_not_overlap(share: int, stages: int) -> None:
    from rankfold.pipeline.exporting.plots.canvas import WIDTH
    from rankfold.workflows.reports.charts import roofline
    from rankfold.workflows.reports.page import LIGHT

    sweep = {"flops": 4e9, "bytes": 1e9, "lanes": 1, "share_of_limit": 0.5, "long_enough": True}
    sweeps = [
        {**sweep, "name": f"{word}-01", "seconds": seconds, "least_seconds": 0.5, "over": "matrix"}
        for word, seconds in (("pass", 1.0), ("gram", 1.001), ("project", 1.002), ("rows", 1.003))
    ]
    limits = {"flops_float32": 8e10, "flops_float64": 4e10, "read_bytes": 1e10}
    long = {"name": "components-of-all-columns", "sweeps": sweeps}
    facts = {"limits": limits, "stages": [long, {"name": "other", "sweeps": []}][:stages]}
    figure = roofline(facts, "Speed", LIGHT, WIDTH // share)
    figure.canvas.draw()
    (axes,) = figure.axes
    boxes = [text.get_window_extent() for text in axes.texts if "%" in text.get_text()]
    assert all(box.x0 >= 0 and box.x1 <= WIDTH // share for box in boxes)
    assert len(boxes) == 4 and axes.get_xlabel() and axes.get_ylabel()
    assert not [(a, b) for a, b in itertools.combinations(boxes, 2) if a.overlaps(b)]
