"""A handle belongs to one edition of a result: what reads it after the folder went or changed is refused."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import rankfold
from laws import LAWS, Law, matrix

import rankfold as rf
from rankfold.methods.registry import METHODS, methods
from rankfold.pipeline.errors import DataError

Damage = Callable[[Path, Path], None]


def one_file(folder: Path) -> Path:
    """The last chunk file of a folder."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name[0].isdigit())[-1]


def delete(folder: Path, other: Path) -> None:
    shutil.rmtree(folder)


def move(folder: Path, other: Path) -> None:
    folder.rename(folder.with_name("moved.zarr"))


def replace(folder: Path, other: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(other, folder)


def replace_unlisted(folder: Path, other: Path) -> None:
    replace(folder, other)
    (folder / "manifest.json").unlink()


def lose_metadata(folder: Path, other: Path) -> None:
    (folder / "zarr.json").unlink()


ALL = {"deleted": delete, "moved": move, "replaced": replace, "replaced without manifest": replace_unlisted,
       "without zarr.json": lose_metadata}  # fmt: skip
"""What befalls the whole of a result."""


@pytest.fixture(scope="module")
def fits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Law], tuple[Path, Path]]]:
    """Results that methods are of, each made once, and another of the same kind."""
    folder, made = tmp_path_factory.mktemp("fits"), dict[Any, tuple[Path, Path]]()

    def fit(law: Law) -> tuple[Path, Path]:
        assert law.fit is not None
        key = law.fit, law.is_complex
        if key not in made:
            made[key] = folder / f"{len(made)}.zarr", folder / f"{len(made)}-other.zarr"
            x = law.matrix()
            law.fit(x, 4, out=made[key][0], threads=1)
            law.fit(x[::-1].copy(), 4, out=made[key][1], threads=1)
        return made[key]

    yield fit
    shutil.rmtree(folder)


OF_RESULTS = [name for name, law in LAWS.items() if law.fit is not None]


def test_every_method_of_a_result_has_a_door() -> None:
    of_results = {each.name for each in methods() if METHODS[each.name].results}
    assert of_results - {"neighborhood_preservation"} <= {name.split(" ")[0] for name in OF_RESULTS}


@pytest.mark.parametrize("damage", ALL)
@pytest.mark.parametrize("name", OF_RESULTS)
def test_no_method_takes_another_edition(
    name: str, damage: str, fits: Callable[[Law], tuple[Path, Path]], tmp_path: Path
) -> None:
    law, folder = LAWS[name], tmp_path / "r.zarr"
    fit, other = fits(law)
    shutil.copytree(fit, folder)
    result = rf.open_result(folder)
    ALL[damage](folder, other)
    first = (result, law.matrix()) if law.reads_matrix else (result,)
    with pytest.raises(DataError, match=r"r\.zarr"):
        law.call(*first, **law.asked, out=tmp_path / "out.zarr", threads=1)
    assert not (tmp_path / "out.zarr").exists()


def accessors(result: rf.Result, lazy: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Whatever may be asked of a result, by name; ``lazy`` are arrays that were taken from it before."""
    doors: dict[str, Callable[[], Any]] = {
        "attrs": lambda: result.attrs,
        "path": lambda: result.path,
        "run": lambda: result.run,
        "names": lambda: list(result),
        "whole": result.require_whole,
        "verify": lambda: rf.verify(result),
        "xarray": lambda: result.to_xarray(),
    }
    names = sorted(result._arrays)
    doors |= {f"r.{name}": lambda name=name: getattr(result, name) for name in names}
    doors |= {f"r[{name}]": lambda name=name: result[name] for name in names}
    doors |= {f"matrix {name}": lambda name=name: result.matrix(name) for name in names}
    doors |= {f"axes of {name}": lambda name=name: result.dimensions(name) for name in names}
    for name, array in lazy.items():
        doors |= {
            f"{name}[:5]": lambda array=array: array[:5],
            f"{name}[...]": lambda array=array: np.asarray(array),
            f"{name}.oindex": lambda array=array: array.oindex[[0, 1]],
            f"{name}.vindex": lambda array=array: array.vindex[[0, 1], [0, 1]],
            f"{name}.blocks": lambda array=array: array.blocks[0],
            f"{name} by mask": lambda array=array: array.get_mask_selection(np.ones(array.shape, bool)),
            f"knn of {name}": lambda array=array: rf.knn(array, 2),
        }
    return doors


@pytest.mark.parametrize("damage", ALL)
@pytest.mark.parametrize("method", ["pca", "knn"])
def test_every_accessor_keeps_to_its_edition(method: str, damage: str, tmp_path: Path) -> None:
    x, folder = matrix(), tmp_path / "r.zarr"
    call: Callable[..., rf.Result] = getattr(rf, method)
    call(x[::-1].copy(), 4, out=tmp_path / "other.zarr", threads=1)
    result = call(x, 4, out=folder, threads=1)
    again = rf.open_result(folder)
    doors = {}
    for each in (result, again):
        lazy = {name: each[name] for name in ("scores", "indices", "distances") if name in set(each)}
        doors |= {f"{name} of {each is again}": door for name, door in accessors(each, lazy).items()}
        if method == "knn":
            doors[f"graph of {each is again}"] = lambda each=each: each.graph
            doors[f"preservation of {each is again}"] = lambda each=each: rf.neighborhood_preservation(
                each, each
            )
    ALL[damage](folder, tmp_path / "other.zarr")
    for name, door in doors.items():
        with pytest.raises(DataError, match=r"r\.zarr"):
            print(name, door())
    assert method in repr(result)


def test_a_copy_of_the_same_bytes_is_the_same_edition(tmp_path: Path) -> None:
    folder = tmp_path / "r.zarr"
    result = rf.pca(matrix(), 4, out=folder)
    scores, before = result.scores, np.asarray(result.scores)
    folder.rename(tmp_path / "kept.zarr")
    with pytest.raises(DataError, match="no longer there"):
        scores[:5]
    shutil.copytree(tmp_path / "kept.zarr", folder)
    np.testing.assert_array_equal(scores[:], before)
    assert result.attrs["kind"] == "pca"


@pytest.mark.parametrize("listed", [True, False], ids=["manifest", "no manifest"])
def test_chunks_that_a_result_lacks_are_damage(tmp_path: Path, listed: bool) -> None:
    folder = tmp_path / "r.zarr"
    rf.pca(matrix(), 4, out=folder, threads=1)
    rf.knn(matrix(), 4, out=tmp_path / "k.zarr", threads=1)
    if not listed:
        (folder / "manifest.json").unlink()
        (tmp_path / "k.zarr" / "manifest.json").unlink()
    result, neighbors = rf.open_result(folder), rf.open_result(tmp_path / "k.zarr")
    scores, components = result.scores, result.components
    one_file(folder / "scores").unlink()
    (folder / "components" / "c" / "0" / "0").unlink()
    one_file(tmp_path / "k.zarr" / "graph" / "data").unlink()
    fresh = rf.open_result(folder)
    doors: list[Callable[[], Any]] = [
        lambda: scores[:],
        lambda: rf.knn(scores, 3),
        lambda: rf.knn(f"{folder}::scores", 3),
        lambda: rf.open(f"{folder}::scores", missing_chunks="fill").check(),
        lambda: rf.knn(str(folder / "scores"), 3),
        lambda: fresh.scores[:],
        lambda: fresh.components,
        lambda: result.components,
        lambda: rf.transform(fresh, matrix()),
        lambda: rf.transform(result, matrix()),
        lambda: neighbors.graph,
        lambda: rf.umap(neighbors, n_epochs=5),
        lambda: rf.spectral(neighbors),
        lambda: rf.svd(f"{tmp_path / 'k.zarr'}::graph", 3),
    ]
    for number, door in enumerate(doors):
        with pytest.raises(DataError, match=r"missing|gone"):
            print(number, door())
    assert components.any()  # what was read before is the caller's


@pytest.mark.parametrize("door", ["transform", "knn", "check"])
def test_what_is_replaced_while_it_is_read_makes_no_result(door: str, tmp_path: Path) -> None:
    folder, other, x = tmp_path / "r.zarr", tmp_path / "other.zarr", matrix()
    result = rf.pca(x, 4, out=folder, threads=1)
    rf.pca(x[::-1].copy(), 4, out=other, threads=1)
    doors: dict[str, Callable[..., Any]] = {
        "transform": lambda **how: rf.transform(result, x, **how),
        "check": lambda **how: rf.check(result, x, **how),
        "knn": lambda **how: rf.knn(result.scores, 3, **how),
    }

    def exchange(*_: Any) -> None:
        with contextlib.suppress(FileNotFoundError):
            replace(folder, other)
            other.rename(tmp_path / "done")

    with pytest.raises(DataError):
        doors[door](out=tmp_path / "out.zarr", progress=exchange, threads=1)
    assert not (tmp_path / "out.zarr").exists()


COMMANDS = {
    "transform": ("transform", "R", "X", "--out", "O"),
    "reconstruct": ("reconstruct", "R", "--out", "O"),
    "check": ("check", "R", "X"),
    "plot": ("plot", "R", "--out", "P"),
    "info": ("info", "R"),
    "knn": ("knn", "R::scores", "--k", "3", "--out", "O"),
}


@pytest.mark.parametrize("damage", ["chunk", "array", "zarr.json", "zarr.json of an array"])
@pytest.mark.parametrize("command", COMMANDS)
def test_commands_refuse_half_a_result(command: str, damage: str, tmp_path: Path) -> None:
    folder, store = tmp_path / "r.zarr", tmp_path / "x.npy"
    np.save(store, matrix())
    rf.pca(str(store), 4, out=folder, threads=1)
    arrays = (folder / "scores", folder / "components")
    for array in arrays:
        if damage == "chunk":
            one_file(array).unlink()
        elif damage == "array":
            shutil.rmtree(array)
        elif damage == "zarr.json of an array":
            (array / "zarr.json").unlink()
    if damage == "zarr.json":
        (folder / "zarr.json").unlink()
    words = {"R": str(folder), "X": str(store), "O": str(tmp_path / "o.zarr"), "P": str(tmp_path / "p.png")}
    words["R::scores"] = f"{folder}::scores"
    run = rankfold(*(words.get(word, word) for word in COMMANDS[command]))
    assert run.exit_code == (4 if command != "knn" or damage == "chunk" else run.exit_code), run.output
    assert run.exit_code in (2, 4) and "Traceback" not in run.output
