"""Stages end in pictures: drawn once, and anew when what they show has changed."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from command_line import rankfold

import rankfold as rf

TEXT = """
workflow: map
inputs: {x: x.npy}
outputs: results
stages:
  components:
    method: pca
    input: x
    rank: 4
    picture:
      - {file: scree.svg, kind: scree}
      - {file: space.png, components: [1, 2, 3], view: [20, -50], color: kinds.csv::kind}
  layout: {method: svd, input: x, rank: 2, picture: {file: map.png, color: groups.labels}}
  groups: {method: kmeans, input: components.scores, k: 3, picture: sizes.png}
"""
PICTURES = ("scree.svg", "space.png", "map.png", "sizes.png")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((90, 9)))
    (tmp_path / "kinds.csv").write_text("kind\n" + "a\nb\n" * 45)
    (tmp_path / "map.yaml").write_text(TEXT)
    return tmp_path


def times(folder: Path) -> dict[str, int]:
    return {name: (folder / name).stat().st_mtime_ns for name in PICTURES}


def change(folder: Path, old: str, new: str) -> None:
    text = (folder / "map.yaml").read_text()
    assert old in text
    (folder / "map.yaml").write_text(text.replace(old, new))


def drawn_anew(folder: Path, before: dict[str, int]) -> set[str]:
    run = rankfold("run", folder / "map.yaml")
    assert run.exit_code == 0, run.output
    return {name for name, time in times(folder).items() if time != before[name]}


def test_pictures_are_drawn_once_and_anew_when_what_they_show_has_changed(folder: Path) -> None:
    assert rankfold("run", folder / "map.yaml").exit_code == 0
    before = times(folder)
    assert drawn_anew(folder, before) == set()
    (folder / "kinds.csv").write_text("kind\n" + "a\nb\nc\n" * 30)
    assert drawn_anew(folder, before) == {"space.png"}
    before = times(folder)
    change(folder, "k: 3", "k: 4")  # of the colors of the map too
    assert drawn_anew(folder, before) == {"map.png", "sizes.png"}
    before = times(folder)
    change(folder, "view: [20, -50]", "view: [20, -40]")
    assert drawn_anew(folder, before) == {"space.png"}
    (folder / "map.png").unlink()
    before["map.png"] = 0
    assert "map.png" in drawn_anew(folder, before)


def test_a_picture_is_that_of_the_result(folder: Path) -> None:
    assert rankfold("run", folder / "map.yaml").exit_code == 0
    made = rf.open_result(folder / "results" / "layout.zarr")
    made.plot(color=folder / "results" / "groups.zarr::labels", out=folder / "same.png")
    ours, theirs = ((folder / name).read_bytes() for name in ("map.png", "same.png"))
    assert ours != theirs  # by what it shows, which is in the file
    mark = re.compile(rb"....tEXt.*?rankfold-picture[: ][0-9a-f]{32}....", flags=re.S)
    assert mark.sub(b"", ours) == mark.sub(b"", theirs)


def test_the_report_shows_them(folder: Path) -> None:
    assert rankfold("run", folder / "map.yaml").exit_code == 0
    assert rankfold("report", folder / "map.yaml").exit_code == 0
    page = (folder / "results" / "report.html").read_text()
    assert "90 rows by SV1 and SV2, colored by groups" in page
    assert "90 rows by PC1" in page and "colored by kind" in page and "4 singular values" in page
    assert not re.search(r'(?:src|href)(?:set)?="(?!data:|#)', page)  # nothing from elsewhere
    (folder / "kinds.csv").unlink()
    assert rankfold("report", folder / "map.yaml").exit_code == 0  # without those colors
    assert "colored by kind" not in (folder / "results" / "report.html").read_text()


def test_steps_of_a_sweep_have_a_picture_each(folder: Path) -> None:
    change(folder, "color: groups.labels", "color: groups-2.labels")
    with open(folder / "map.yaml", "a") as file:
        file.write("sweep: {stage: groups, k: [2, 3]}\n")
    run = rankfold("run", folder / "map.yaml")
    assert run.exit_code == 0, run.output
    assert {path.name for path in folder.glob("sizes*")} == {"sizes-2.png", "sizes-3.png"}
    change(folder, "color: groups-2.labels", "color: groups.labels")
    run = rankfold("run", folder / "map.yaml")
    assert run.exit_code == 2 and "is of a stage that is swept. Say which step: groups-2 or" in run.stderr


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("sizes.png", "sizes.gif", "sizes.gif is no picture that can be written"),
        ("sizes.png", "map.png", "layout and groups both draw"),
        ("groups.labels", "group.labels", "group.labels is neither STAGE.ARRAY nor a file"),
        ("kind: scree", "kind: pie", "'pie'"),
        ("components: [1, 2, 3]", "components: []", "components"),
        ("components: [1, 2, 3]", "components: [0]", "components"),
        ("picture: sizes.png", "picture: {files: sizes.png}", "did you mean 'file'?"),
        ("sizes.png", "none/sizes.png", "there is no folder"),
    ],
)
def test_mistakes_are_told_before_anything_runs(folder: Path, old: str, new: str, message: str) -> None:
    change(folder, old, new)
    run = rankfold("run", folder / "map.yaml")
    assert run.exit_code == 2 and message in run.stderr and "map.yaml:" in run.stderr, run.output
    assert not (folder / "results").exists()


def test_what_others_have_drawn_is_never_replaced(folder: Path) -> None:
    (folder / "sizes.png").write_bytes(b"mine")
    run = rankfold("run", folder / "map.yaml")
    assert run.exit_code == 2 and "sizes.png exists and is not of a workflow" in run.stderr
    assert (folder / "sizes.png").read_bytes() == b"mine" and not (folder / "results").exists()


def test_a_kind_that_the_result_has_not_is_told_with_those_it_has(folder: Path) -> None:
    change(folder, "picture: sizes.png", "picture: {file: sizes.png, kind: scree}")
    run = rankfold("run", folder / "map.yaml")
    assert run.exit_code == 2 and "has plots of kind sizes, inertia, not scree" in run.stderr
