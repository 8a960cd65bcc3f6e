"""What is noted of a run outlives kills, says what was lost, and costs nothing that is computed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference import to_zarr

import rankfold as rf
from rankfold.pipeline.storage.journal import FOLDER, JOURNAL, Journal, gather, lines_of


def journal(run: Path, sweep: str = "pass") -> Journal:
    folder = run / "state-1" / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    return Journal(folder, sweep)


def test_every_row_of_every_sweep_is_noted_once(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((4000, 30)).astype(np.float32)
    out = tmp_path / "r.zarr"
    rf.pca(to_zarr(tmp_path / "x.zarr", x, (500, 30)), rank=3, solver="krylov", passes=3, threads=2, out=out)
    lines = lines_of(tmp_path / "r.zarr.run")
    sweep = {line["id"]: line["sweep"] for line in lines if line["what"] == "segment"}
    rows = dict.fromkeys(sweep.values(), 0)
    for line in lines:
        if line["what"] == "end":
            rows[sweep[line["id"]]] += line["rows"]
    assert set(rows.values()) == {4000} and len(rows) >= 3
    assert not list((tmp_path / "r.zarr.run").glob("state-*"))


def test_a_segment_that_raises_says_so_and_one_that_is_killed_has_no_end(tmp_path: Path) -> None:
    noted = journal(tmp_path)
    with pytest.raises(ValueError), noted.segment(3) as done:
        done["rows"] = 5
        raise ValueError
    unfinished = noted.segment(4)
    unfinished.__enter__()
    begun, ended, killed = lines_of(tmp_path)
    assert (begun["what"], begun["sweep"], begun["part"]) == ("segment", "pass", "3")
    assert (ended["what"], ended["id"], ended["rows"], ended["cut"]) == ("end", begun["id"], 5, "ValueError")
    assert (killed["what"], killed["part"]) == ("segment", "4")


def test_lines_are_gathered_once_whenever_the_driver_is_killed(tmp_path: Path) -> None:
    noted = journal(tmp_path)
    noted.note("came", worker="a")
    before = lines_of(tmp_path)
    gather(tmp_path, "1")
    assert lines_of(tmp_path) == before  # both copies are there
    noted.note("gone", worker="a")
    gather(tmp_path, "1")
    assert [line["what"] for line in lines_of(tmp_path)] == ["came", "gone"]
    assert len((tmp_path / JOURNAL).read_text().splitlines()) == 2


def test_a_damaged_line_is_left_out(tmp_path: Path) -> None:
    journal(tmp_path).note("came", worker="a")
    path = next((tmp_path / "state-1" / FOLDER).iterdir())
    path.write_text(path.read_text() + json.dumps({"at": 1.0, "what": "segment"})[:-4])
    assert [line["what"] for line in lines_of(tmp_path)] == ["came"]


@pytest.mark.parametrize(
    "edit",
    [
        {"sweep": None},
        {"sweep": 7},
        {"id": "0"},
        {"at": float("nan")},
        {"at": 1e30},
        {"at": -1},
        {"what": "end", "id": []},
        {"what": "end", "rows": "many"},
        {"what": "end", "rows": float("inf")},
        {"what": "gone", "worker": 1},
        {"what": "gone", "why": {}},
    ],
    ids=str,
)
def test_a_line_that_says_no_such_thing_is_left_out(edit: dict[str, Any], tmp_path: Path) -> None:
    with journal(tmp_path).segment("0") as done:
        done["rows"] = 5
    path = next((tmp_path / "state-1" / FOLDER).iterdir())
    first = json.loads(path.read_text().splitlines()[0])
    path.write_text(path.read_text() + json.dumps({**first, **edit}) + "\n")
    assert [line["what"] for line in lines_of(tmp_path)] == ["segment", "end"]


def test_nothing_is_written_without_a_folder_or_where_it_has_gone(tmp_path: Path) -> None:
    Journal().note("came")
    Journal(tmp_path / "gone").note("came")
    assert list(tmp_path.iterdir()) == []
