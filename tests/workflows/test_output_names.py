"""Every name that a user gives for what is written, in every guise: nothing that was there has changed.

A door is a command that takes such a name; a guise is what stands under the name. Whatever a command answers,
what it did not make has the same bytes before and after.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from command_line import rankfold
from covers import cover
from typer.main import get_command

import rankfold as rf
from rankfold.methods.registry import METHODS
from rankfold.pipeline import outputs
from rankfold.pipeline.importing import tiles
from rankfold.pipeline.storage import run_directory
from rankfold.workflows import demo
from rankfold.workflows.cli import app
from rankfold.workflows.demo import Photograph

X = np.random.default_rng(0).random((120, 12))

FLOW = """\
workflow: doors
inputs: {{x: x.npy}}
outputs: {outputs}
stages:
  components: {{method: pca, input: x, rank: 2{more}}}
"""


def flow(outputs: str, more: str = "") -> list[str]:
    Path("doors.yaml").write_text(FLOW.format(outputs=outputs, more=more))
    return ["run", "doors.yaml"]


DOORS: dict[str, Callable[[str], list[str]]] = {
    "pca --out": lambda out: ["pca", "x.npy", "--rank", "2", "--out", out],
    "pca --scratch": lambda out: ["pca", "x.npy", "--rank", "2", "--out", "new.zarr", "--scratch", out],
    "knn --out": lambda out: ["knn", "r.zarr::scores", "--k", "3", "--out", out],
    "transform --out": lambda out: ["transform", "r.zarr", "x.npy", "--out", out],
    "reconstruct --out": lambda out: ["reconstruct", "r.zarr", "--out", out],
    "import": lambda out: ["import", "x.npy", out],
    "report --out": lambda out: ["report", "r.zarr", "--out", out],
    "plot --out": lambda out: ["plot", "r.zarr", "--out", out],
    "plot --out .png": lambda out: ["plot", "r.zarr", "--out", f"{out}.png"],
    "export --into": lambda out: ["export", "r.zarr", "--into", out],
    "export --into .nc": lambda out: ["export", "r.zarr", "--into", f"{out}.nc"],
    "export --into .csv": lambda out: ["export", "r.zarr", "--into", f"{out}.csv"],
    "export --into .parquet": lambda out: ["export", "r.zarr", "--into", f"{out}.parquet"],
    "demo --out": lambda out: ["demo", "--out", out],
    "run, outputs:": lambda out: flow(out),
    "run, picture:": lambda out: flow("results", f", picture: {{file: {out}.png}}"),
    "run, into:": lambda out: flow("results", f", into: {{file: {out}.nc}}"),
}
"""The words of a command that writes to ``out``."""


def guise_file(here: Path) -> str:
    for ending in ("", ".png", ".nc", ".html"):
        (here / f"mine{ending}").write_text("precious rankfold notes")
    return "mine"


def guise_folder(here: Path) -> str:
    for ending in ("", ".png", ".nc"):
        (here / f"mine{ending}").mkdir()
        (here / f"mine{ending}" / "mine.txt").write_text("precious")
    return "mine"


def guise_empty_folder(here: Path) -> str:
    for ending in ("", ".png", ".nc"):
        (here / f"mine{ending}").mkdir()
    return "mine"


def guise_link(here: Path) -> str:
    (here / "precious.txt").write_text("precious")
    for ending in ("", ".png", ".nc"):
        (here / f"mine{ending}").symlink_to("precious.txt")
    return "mine"


def guise_link_to_folder(here: Path) -> str:
    guise_folder(here)
    for ending in ("", ".png", ".nc"):
        (here / f"linked{ending}").symlink_to(f"mine{ending}")
    return "linked"


def guise_link_to_result(here: Path) -> str:
    for ending in ("", ".png", ".nc"):
        (here / f"linked{ending}").symlink_to("r.zarr")
    return "linked"


def guise_dangling_link(here: Path) -> str:
    for ending in ("", ".png", ".nc"):
        (here / f"mine{ending}").symlink_to("gone/nowhere")
    return "mine"


def guise_foreign_store(here: Path) -> str:
    for ending in ("", ".png", ".nc"):
        zarr.save_array(here / f"mine{ending}", X[:5])
    return "mine"


def guise_foreign_store_after_a_result(here: Path) -> str:
    """The result has gone, its record is there, and its name is that of a store of somebody else."""
    for ending in ("", ".png", ".nc"):
        shutil.copytree(here / "r.zarr.run", here / f"mine{ending}.run")
        zarr.save_array(here / f"mine{ending}", X[:5])
    return "mine"


def guise_foreign_file_in_result(here: Path) -> str:
    (here / "r.zarr" / "scores" / "notes.txt").write_text("precious")
    return "r.zarr"


def guise_foreign_file_in_store(here: Path) -> str:
    (here / "x.zarr" / "notes").mkdir()
    (here / "x.zarr" / "notes" / "mine.txt").write_text("precious")
    return "x.zarr"


def guise_foreign_run_folder(here: Path) -> str:
    for ending in ("", ".png", ".nc"):
        (here / f"new{ending}.run").mkdir()
        (here / f"new{ending}.run" / "state-of-affairs.txt").write_text("precious")
        (here / f"new{ending}.run" / "result-2024.csv").write_text("precious")
    return "new"


GUISES: dict[str, Callable[[Path], str]] = {
    **{
        name.removeprefix("guise_").replace("_", " "): make
        for name, make in globals().items()
        if name.startswith("guise_")
    },
    "this folder": lambda here: ".",
    "the folder above": lambda here: "..",
    "home": lambda here: str(here.parent / "home"),
    "root": lambda here: "/",
    "the input": lambda here: "x.npy",
    "the result": lambda here: "r.zarr",
    "the run": lambda here: "r.zarr.run",
    "a folder that may not be written": lambda here: "/sys/rankfold",
}
"""What stands under the name: made in the folder, and the name."""

MAKES_ITS_OWN = {"demo --out", "pca --scratch", "run, outputs:"}
"""Doors that take a folder, and make files of their own names in it."""

RUNS = {("run, outputs:", "foreign run folder"), ("pca --scratch", "foreign run folder")}


def photographs() -> list[Photograph]:
    pixels = np.random.default_rng(0).integers(0, 255, (24, 24, 3)).astype(np.uint8)
    return [Photograph("one.jpg", pixels, (0, 0))]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a user has in a folder: a matrix, a store that was imported, and a result."""
    folder = tmp_path_factory.mktemp("doors")
    np.save(folder / "x.npy", X)
    rf.import_array(X, folder / "x.zarr")
    rf.pca(folder / "x.npy", 3, out=folder / "r.zarr")
    return folder


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "work"
    shutil.copytree(made, folder, copy_function=shutil.copy2)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "mine.txt").write_text("precious")
    (tmp_path / "neighbor.txt").write_text("precious")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(demo, "sample_photographs", photographs)
    monkeypatch.chdir(folder)
    yield folder


def contents(folder: Path) -> dict[str, object]:
    """Everything below a folder: bytes of files, targets of links, and folders."""
    found: dict[str, object] = {}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"-> {os.readlink(path)}"
        else:
            found[name] = path.read_bytes() if path.is_file() else "folder"
    return found


def lost(before: dict[str, object], after: dict[str, object]) -> list[str]:
    """What has gone or has changed, but for locks, which say who held them last."""
    own = ("x.zarr.run", "doors.yaml")
    return [
        name
        for name, value in before.items()
        if after.get(name) != value and not name.endswith((".run/lock", *own))
    ]


@pytest.mark.parametrize(("door", "guise", "overwrite"), cover(DOORS, GUISES, [False, True], strength=2))
def test_nothing_that_was_there_has_changed(door: str, guise: str, overwrite: bool, here: Path) -> None:
    if guise in ("root", "a folder that may not be written") and door in MAKES_ITS_OWN:
        pytest.skip("files of its own names may be made in any folder")
    if overwrite and guise == "the result":
        pytest.skip("it is rankfold's own, and asked for")
    out = GUISES[guise](here)
    words = DOORS[door](out)
    if overwrite and "--overwrite" in options_of(words[0]):
        words.append("--overwrite")
    before = contents(here.parent)
    run = rankfold(*words)
    assert lost(before, contents(here.parent)) == [], run.output
    assert run.exit_code in (0, 2, 3), run.output
    assert "Traceback" not in run.output
    if run.exit_code:
        (line,) = [one for one in run.stderr.splitlines() if one.startswith("rankfold: ")]
        assert len(line) > 20


APPEARING = {
    "a file": lambda path: path.write_text("precious"),
    "a folder": lambda path: (path.mkdir(), (path / "mine.txt").write_text("precious")),
    "a store": lambda path: zarr.save_array(path, X[:5]),
    "a link": lambda path: path.symlink_to("x.npy"),
}


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("what", APPEARING)
@pytest.mark.parametrize("exchanges", [True, False])
@pytest.mark.parametrize(
    "door", ["pca --out", "import", "report --out", "plot --out .png", "export --into .nc", "run, picture:"]
)
def test_what_appears_during_the_run_stays(
    door: str, what: str, exchanges: bool, overwrite: bool, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = DOORS[door]("new")
    name = (
        Path(next(word for word in words if word.startswith("new")))
        if "run," not in door
        else Path("new.png")
    )
    if overwrite and "--overwrite" in options_of(words[0]):
        words.append("--overwrite")
    real_flush, real_tree = outputs.flush, run_directory.flush_tree

    def appear() -> None:
        if not os.path.lexists(name):
            APPEARING[what](name)

    def flush(path: Any) -> None:
        appear()
        real_flush(path)

    def flush_tree(path: Any) -> None:
        if Path(path).name.endswith((".zarr", "array")) and "results" not in str(path):
            appear()
        real_tree(path)

    before = contents(here.parent)
    with monkeypatch.context() as patched:
        patched.setattr(outputs, "flush", flush)
        patched.setattr(run_directory, "flush_tree", flush_tree)
        patched.setattr(tiles, "flush_tree", flush_tree)
        if not exchanges:
            patched.setattr(outputs, "exchange", lambda one, other: False)
        run = rankfold(*words)
    after = contents(here.parent)
    assert lost(before, after) == [] and run.exit_code == 2, run.output
    assert os.path.lexists(name) and str(name) in run.stderr
    shown = name / "mine.txt" if what == "a folder" else name
    if what in ("a file", "a folder"):
        assert shown.read_text() == "precious"
    elif what == "a store":
        np.testing.assert_array_equal(zarr.open_array(name, mode="r")[:], X[:5])
    else:
        assert os.readlink(name) == "x.npy"
    if door in ("pca --out", "import"):
        stays_finished(run.stderr, name, words)


def stays_finished(said: str, name: Path, words: list[str]) -> None:
    """What was made is whole where the message says, and the same command takes it once the name is free."""
    place = next(word.rstrip(":.,") for word in said.split() if ".run/result-" in word or f"{name}." in word)
    assert rf.verify(place) == []
    if words[0] == "pca":
        name.rename("aside")
        assert rankfold(*words).exit_code == 0 and rf.open_result(name).attrs["kind"] == "pca"


def test_a_result_that_somebody_adds_to_during_the_run_stays(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = run_directory.flush_tree

    def flush_tree(path: Any) -> None:
        (here / "r.zarr" / "mine.txt").write_text("precious")
        real(path)

    monkeypatch.setattr(run_directory, "flush_tree", flush_tree)
    before = contents(here / "r.zarr")
    run = rankfold("pca", "x.npy", "--rank", "2", "--out", "r.zarr", "--overwrite")
    assert run.exit_code == 2 and "holds mine.txt, which was not made by rankfold" in run.stderr
    assert not lost(before, contents(here / "r.zarr")) and (here / "r.zarr" / "mine.txt").exists()


OF_A_RUN = ("lock", "run.json", "request.json", "submitted.json", "jobs.json", "journal.jsonl", "report.html")
"""Names of files of a run, which files of others may have too."""


@pytest.mark.parametrize("text", ["precious", '{"attempts": [], "mine": "precious"}'])
@pytest.mark.parametrize("name", [*OF_A_RUN, "logs/mine.log"])
def test_a_folder_of_somebody_else_stays_though_its_files_are_called_as_those_of_a_run(
    name: str, text: str, here: Path
) -> None:
    place = here / "new.zarr.run" / name
    place.parent.mkdir(parents=True)
    place.write_text(text)
    spoiled = X.copy()
    spoiled[5, 5] = np.nan
    np.save("spoiled.npy", spoiled)
    before = contents(here)
    for words in (["x.npy"], ["x.npy", "--overwrite"], ["spoiled.npy"]):
        run = rankfold("pca", *words, "--rank", "2", "--out", "new.zarr")
        assert run.exit_code == 2 and "which is of no run" in run.stderr
        assert contents(here) == before


def test_a_run_that_has_failed_leaves_files_of_others_in_its_folder(here: Path) -> None:
    assert rankfold("pca", "x.npy", "--rank", "2", "--out", "new.zarr").exit_code == 0
    shutil.rmtree("new.zarr")
    own, theirs = Path("new.zarr.run/logs/worker-0.log"), [Path("new.zarr.run/logs/mine.log")]
    own.parent.mkdir()
    theirs += [Path("new.zarr.run/report.html"), Path("new.zarr.run/notes.txt")]
    for path in (own, *theirs):
        path.write_text("precious")
    spoiled = X.copy()
    spoiled[5, 5] = np.nan
    np.save("spoiled.npy", spoiled)
    assert rankfold("pca", "spoiled.npy", "--rank", "2", "--out", "new.zarr").exit_code == 4
    left = {path for path in Path("new.zarr.run").rglob("*") if path.is_file()}
    assert left == {*theirs} and all(path.read_text() == "precious" for path in theirs)


def test_a_run_that_was_killed_before_it_wrote_anything_begins_again(here: Path) -> None:
    Path("new.zarr.run").mkdir()
    Path("new.zarr.run/lock").touch()
    assert rankfold("pca", "x.npy", "--rank", "2", "--out", "new.zarr").exit_code == 0


@pytest.mark.parametrize("what", ["text", "facts", "link"])
@pytest.mark.parametrize("name", ["flow.json", "flow.lock"])
def test_files_of_others_among_results_stay_though_they_are_called_as_those_of_a_workflow(
    name: str, what: str, here: Path
) -> None:
    place = here / "results" / name
    place.parent.mkdir()
    if what == "link":
        place.symlink_to("../x.npy")
    else:
        place.write_text("precious" if what == "text" else '{"mine": "precious"}')
    words = flow("results")
    before = contents(here)
    run = rankfold(*words)
    assert run.exit_code == 2 and f"{name} was not made by rankfold" in run.stderr
    assert contents(here) == before
    place.rename("aside")
    assert rankfold(*words).exit_code == 0


@pytest.mark.parametrize("name", ["flow.json", "flow.lock"])
def test_a_damaged_file_of_a_workflow_is_known_by_the_other(name: str, here: Path) -> None:
    words = flow("results")
    assert rankfold(*words).exit_code == 0
    Path("results", name).write_text("damaged")
    assert rankfold(*words).exit_code == 0


def test_links_among_results_of_a_workflow_are_never_replaced(here: Path) -> None:
    words = flow("results")
    assert rankfold(*words).exit_code == 0
    Path("kept").mkdir()
    for name in ("flow.json", "metrics.prom"):
        Path("results", name).rename(Path("kept", name))
        Path("results", name).symlink_to(f"../kept/{name}")
    record, metrics = (Path("kept", name).read_bytes() for name in ("flow.json", "metrics.prom"))
    assert rankfold(*words).exit_code == 0
    (aside,) = Path("results").glob("flow.json.*")
    assert os.readlink(aside) == "../kept/flow.json" and Path("kept/flow.json").read_bytes() == record
    assert os.readlink("results/metrics.prom") == "../kept/metrics.prom"
    assert Path("kept/metrics.prom").read_bytes() != metrics


@pytest.mark.parametrize("letter", ["n", "\u00e9", "\u4e2d"])
@pytest.mark.parametrize(("door", "suffix"), [("report --out", ""), ("plot --out .png", ".png"), *(
    (f"export --into {suffix}", suffix) for suffix in (".nc", ".csv", ".parquet"))])  # fmt: skip
def test_a_file_may_have_the_longest_name(door: str, suffix: str, letter: str, here: Path) -> None:
    name = letter * ((255 - len(suffix)) // len(letter.encode()))
    run = rankfold(*DOORS[door](name))
    assert run.exit_code == 0 and (here / f"{name}{suffix}").is_file(), run.output


@pytest.mark.parametrize("length", [253, 256])
@pytest.mark.parametrize("command", ["pca x.npy --rank 2 --out", "report r.zarr --out", "info", "status"])
def test_a_name_may_be_too_long(command: str, length: int, here: Path) -> None:
    before = contents(here)
    run = rankfold(*command.split(), "n" * length)
    if command.startswith("report") and length <= 255:
        assert run.exit_code == 0, run.output
        return
    assert run.exit_code == 2 and run.stderr.count("\n") == 1, run.output
    assert "OSError" not in run.stderr and contents(here) == before


@pytest.mark.parametrize("door", ["export --into .nc", "export --into .csv", "export --into .parquet"])
def test_a_name_that_is_not_utf_8_is_refused_by_files_that_cannot_have_it(door: str, here: Path) -> None:
    before = contents(here)
    run = rankfold(*DOORS[door](os.fsdecode(b"\xff\xfe")))
    assert run.exit_code == 2 and "cannot be written: 'utf-8' codec can't encode" in run.stderr
    assert contents(here) == before


def test_own_pages_pictures_and_files_are_known_again(here: Path) -> None:
    for words in (
        ["report", "r.zarr"],
        ["report", "r.zarr", "--out", "page.html"],
        ["plot", "r.zarr", "--out", "p.png", "--overwrite"],
        ["plot", "r.zarr", "--out", "p.svg", "--overwrite"],
        ["export", "r.zarr", "--into", "r.nc", "--overwrite"],
        ["import", "x.npy", "copy.zarr", "--overwrite"],
        ["pca", "x.npy", "--rank", "2", "--out", "q.zarr", "--overwrite"],
    ):
        for _ in range(2):
            run = rankfold(*words)
            assert run.exit_code == 0, run.output
    assert rankfold("report", "q.zarr", "--out", "page.html").exit_code == 2
    assert rankfold("report", "q.zarr", "--out", "page.html", "--overwrite").exit_code == 0
    assert rankfold("plot", "r.zarr", "--out", "p.png").exit_code == 0
    assert rankfold("plot", "q.zarr", "--out", "p.png").exit_code == 2


def options_of(command: str) -> set[str]:
    return {option for each in get_command(app).commands[command].params for option in each.opts}  # type: ignore[attr-defined]


def test_every_door_is_here() -> None:
    """Commands that take a name for what they write; those of methods all take it in the same way."""
    commands = get_command(app).commands  # type: ignore[attr-defined]
    taking = {
        name
        for name, command in commands.items()
        if {"--out", "--into", "--scratch"} & options_of(name)
        or any(param.name == "destination" for param in command.params)
    }
    methods = {name.replace("_", "-") for name in METHODS.ours} | {"plan"}
    assert taking - methods - {door.split()[0] for door in DOORS} == set()
