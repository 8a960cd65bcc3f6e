"""``rankfold plot``: a picture, its name, and what is told of mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import rankfold

import rankfold as rf


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rf.pca(np.random.default_rng(0).standard_normal((60, 9)), rank=4, out="pca.zarr")
    np.save("labels.npy", np.arange(60) % 3)
    return tmp_path


def test_a_picture_lies_beside_its_result(folder: Path) -> None:
    run = rankfold("plot", "pca.zarr")
    assert (run.exit_code, run.stdout) == (0, "pca-scatter.png\n"), run.output
    assert (folder / "pca-scatter.png").read_bytes().startswith(b"\x89PNG")
    run = rankfold("plot", folder / "pca.zarr", "--kind", "scree", "--json")
    assert json.loads(run.stdout)["out"] == str(folder / "pca-scree.png")
    run = rankfold("plot", "pca.zarr")
    assert (run.exit_code, run.stdout) == (0, "pca-scatter.png\n"), run.output  # the same picture
    assert rankfold("plot", "pca.zarr", "--overwrite").exit_code == 0


def test_options_are_those_of_the_method(folder: Path) -> None:
    options = ["--components", "1,3,2", "--view", "30,-40", "--color", "labels.npy"]
    assert rankfold("plot", "pca.zarr", "-o", "a.svg", *options).exit_code == 0
    result = rf.open_result("pca.zarr")
    result.plot(components=(1, 3, 2), view=(30, -40), color="labels.npy", out="b.svg")
    assert (folder / "a.svg").read_bytes() == (folder / "b.svg").read_bytes()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--components", "1;2"], "--components '1;2' are no numbers with commas between, such as 1,2"),
        (["--components", "0,1"], "scores has components 1 to 4, and 0 is none of them"),
        (["--kind", "sizes"], "this result of pca has plots of kind scatter, scree, loadings, not sizes"),
        (["--color", "nowhere.csv"], "nowhere.csv does not exist"),
        (["--out", "x.gif"], "x.gif is no picture that can be written"),
    ],
)
def test_mistakes_are_one_line(folder: Path, options: list[str], message: str) -> None:
    run = rankfold("plot", "pca.zarr", "-o", "x.png", *options)
    assert run.exit_code == 2 and run.stderr.startswith("rankfold: ") and message in run.stderr
    assert run.stderr.count("\n") == 1
    assert not list(folder.glob("*.png"))
