"""Results of every method with one thing changed, and all that reads them: see ``test_forged_results.py``.

Who reads a result follows from the methods: those that say of an input or an argument that it holds results
of that kind, those that take a matrix of it, and the commands that take any result.
"""

from __future__ import annotations

import functools
import json
import shutil
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import commands_once  # noqa: F401
import numpy as np
import pandas
from forgeries import Forgery, forgeries

import rankfold as rf
from rankfold.api.method_function import function_of
from rankfold.methods.registry import METHODS, Method, methods
from rankfold.pipeline.errors import DataError
from rankfold.pipeline.exporting.plots.kinds import HAS
from rankfold.pipeline.law import result_law
from rankfold.workflows.cli import app

ROWS, COLUMNS, WIDE, MORE = 60, 5, 16, 12
ONE: dict[str, Any] = {"threads": 1}

Make = Callable[[Path], object]


def matrix(rows: int = ROWS, seed: int = 0, columns: int = COLUMNS) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Rows around three centers, none with a number below zero."""
    rng = np.random.default_rng(seed)
    return np.abs(rng.standard_normal((3, columns))[np.arange(rows) % 3] / 4 + rng.random((rows, columns)))


def frame() -> pandas.DataFrame:
    """The matrix with names of rows and columns."""
    return pandas.DataFrame(matrix(), [f"r{i}" for i in range(ROWS)], list("abcde"))


def lists(folder: Path, k: int = 6) -> Path:
    """Neighbors of the matrix, made once."""
    return once(folder / f"lists{k}.zarr", lambda out: rf.knn(matrix(), k, out=out, **ONE))


def graph(folder: Path) -> Path:
    return once(folder / "graph.zarr", lambda out: rf.fuzzy_graph(lists(folder), out=out, **ONE))


def new_lists(folder: Path) -> Path:
    """Neighbors of other rows among those of the matrix."""
    new = matrix(MORE, 1)
    return once(folder / "new-lists.zarr", lambda out: rf.knn(matrix(), 6, queries=new, out=out, **ONE))


def once(out: Path, make: Make) -> Path:
    if not out.exists():
        make(out)
    return out


def of_matrix(name: str, **asked: Any) -> Make:
    return lambda folder: getattr(rf, name)(matrix(), **asked, out=folder / "r.zarr", **ONE)


def of_lists(name: str, k: int = 6, **asked: Any) -> Make:
    return lambda folder: getattr(rf, name)(
        str(lists(folder.parent, k)), **asked, out=folder / "r.zarr", **ONE
    )


def of_graph(name: str, **asked: Any) -> Make:
    return lambda folder: getattr(rf, name)(str(graph(folder.parent)), **asked, out=folder / "r.zarr", **ONE)


def with_fit(name: str, fit: str, **asked: Any) -> Make:
    """What is made of a fit: of that alone, or of new rows too."""

    def make(folder: Path) -> object:
        first = folder.parent / f"{fit}.zarr"
        fitted = once(first, lambda out: getattr(rf, fit)(matrix(), rank=2, out=out, **ONE))
        new = () if name == "reconstruct" else (matrix() if name == "check" else matrix(MORE, 1),)
        return getattr(rf, name)(str(fitted), *new, **asked, out=folder / "r.zarr", **ONE)

    return make


CASES: dict[str, Make] = {
    "svd": of_matrix("svd", rank=2),
    "pca": of_matrix("pca", rank=2, scale=True),
    "pca of prepared rows": of_matrix("pca", rank=2, prepare="log1p, scale"),
    "pca of chosen columns": of_matrix("pca", rank=2, prepare="log1p, highly_variable(5)"),
    "qr": of_matrix("qr"),
    "nmf": of_matrix("nmf", rank=2),
    "knn": of_matrix("knn", k=6),
    "knn of queries": lambda folder: shutil.copytree(new_lists(folder.parent), folder / "r.zarr"),
    "radius_neighbors": of_matrix("radius_neighbors", radius=4.0),
    "kernel_sum": of_matrix("kernel_sum", tol=0.0, softening=0.5),
    "density": of_matrix("density", bandwidth=1.0),
    "index": lambda folder: rf.index(matrix(columns=WIDE), partition_rows=15, out=folder / "r.zarr", **ONE),
    "kmeans": of_matrix("kmeans", k=3),
    "fuzzy_graph": of_lists("fuzzy_graph", radii=True),
    "combine_graphs": lambda folder: rf.combine_graphs(
        *2 * [str(graph(folder.parent))], out=folder / "r.zarr", **ONE
    ),
    "umap": of_lists("umap", n_epochs=3, density=1.0),
    "tsne": of_lists("tsne", 15, n_iter=2, early_exaggeration_iter=1, perplexity=5, init="random"),
    "isomap": of_lists("isomap", n_landmarks=8),
    "spectral": of_graph("spectral"),
    "diffusion_map": of_graph("diffusion_map"),
    "kernel_pca": of_matrix("kernel_pca", rank=2),
    "nystroem": of_matrix("nystroem", rank=4),
    "transform": with_fit("transform", "pca"),
    "update": with_fit("update", "pca"),
    "check": with_fit("check", "svd"),
    "reconstruct": with_fit("reconstruct", "svd"),
    "reconstruct of a frame": lambda folder: rf.reconstruct(
        rf.svd(frame(), 2, **ONE), out=folder / "r.zarr", **ONE
    ),
}
"""A small result of each method, by its name."""

FACTS_ALONE = ("trustworthiness", "continuity", "neighborhood_preservation")
"""Methods that leave numbers and no arrays."""


# Who reads it --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reader:
    """Something that is handed a result."""

    name: str
    read: Callable[[Path, Path], object]
    """Of the result and of a folder for what comes of it."""


ASKED: dict[str, dict[str, Any]] = {
    "neighborhood_preservation": {"k": 3},
    "nmf": {"rank": 2},
    "umap": {"n_epochs": 2},
    "tsne": {"n_iter": 2, "early_exaggeration_iter": 1, "perplexity": 2.0, "init": "random"},
    "isomap": {"n_landmarks": 6},
    "knn": {"k": 4},
    "kmeans": {"k": 3},
}
"""What a method is asked so that it takes no time."""

COMMANDS: dict[str, tuple[str, ...]] = {
    "info": ("info", "{r}", "--json"),
    "info in words": ("info", "{r}"),
    "report": ("report", "{r}", "--json"),
    "verify": ("verify", "{r}"),
}


def readers(kind: str, folder: Path) -> Iterator[Reader]:
    """All that takes a result of a kind."""
    for name, words in COMMANDS.items():
        yield Reader(name, functools.partial(run_command, words))
    for plot in HAS:
        yield Reader(f"plot {plot}", functools.partial(run_command, ("plot", "{r}", "--kind", plot)))
    yield Reader("arrays", lambda r, out: all_of(rf.open_result(r)))
    yield Reader("words", lambda r, out: (repr(rf.open_result(r)), rf.open_result(r)._repr_html_()))
    yield Reader("graph", lambda r, out: rf.open_result(r).graph)
    for method in methods():
        yield from of_method(method, kind, folder)


def of_method(method: Method, kind: str, folder: Path) -> Iterator[Reader]:
    """A method of results of a kind, by each input and argument that may be one."""
    call, asked = function_of(method), ASKED.get(method.name, {})
    for input_ in method.inputs:
        if (input_.holds != "matrix" and kind in input_.holds) or (
            method.name == "transform" and input_.name == "result"
        ):
            yield Reader(
                f"{method.name} of it", functools.partial(call_with, method, call, input_.name, asked, folder)
            )
    for parameter in method.parameters():
        if kind in parameter.argument.holds and parameter.argument.holds != "matrix":
            more = {name: value for name, value in asked.items() if name != parameter.name}
            yield Reader(
                f"{method.name} with it as {parameter.name}",
                functools.partial(call_argument, call, parameter.name, more),
            )
    for name in METHODS[kind].matrices if method.name in ("svd", "trustworthiness") else ():
        yield Reader(f"{method.name} of {name}", functools.partial(call_matrix, method, call, name))


def call_with(
    method: Method, call: Any, name: str, asked: dict[str, Any], folder: Path, r: Path, out: Path
) -> Any:
    given: list[Any] = []
    for each in method.inputs:
        if each.name == name or each.holds != "matrix":
            given.append(str(r))
        elif method.name == "check":
            given.append(matrix())
        elif json.loads((folder / "kind.json").read_text()) in EMBEDDED:
            given.append(str(new_lists(folder.parent)))
        else:
            given.append(matrix(MORE, 1))
    return all_of(call(*given, **asked, **ONE))


EMBEDDED = ("umap", "tsne", "isomap", "spectral", "diffusion_map")


def call_argument(call: Any, name: str, asked: dict[str, Any], r: Path, out: Path) -> Any:
    x = (
        np.concatenate([matrix(), matrix(MORE, 1)])
        if name == "base"
        else matrix(columns=WIDE if name == "index" else COLUMNS)
    )
    return all_of(call(x, **{name: str(r)}, **asked, **ONE))


def call_matrix(method: Method, call: Any, name: str, r: Path, out: Path) -> Any:
    if method.name == "svd":
        return all_of(call(f"{r}::{name}", rank=1, **ONE))
    return all_of(getattr(rf, method.name)(matrix(), f"{r}::{name}", k=3, **ONE))


def run_command(words: tuple[str, ...], r: Path, out: Path) -> str:
    """Output of a command, in this process."""
    from typer.testing import CliRunner

    said = [word.format(r=r) for word in words]
    if words[0] in ("plot", "report") and "--json" not in words:
        said += ["--out", str(out / "picture.png")]
    ended = CliRunner().invoke(app, said)
    if ended.exception is not None and not isinstance(ended.exception, SystemExit):
        raise ended.exception
    if ended.exit_code == 4:
        raise DataError(ended.output)
    if ended.exit_code:
        raise rf.RankfoldError(f"exit code {ended.exit_code}: {ended.output}")
    if words[0] == "info":
        for word in ("NaN", "nan", "Infinity", " inf"):
            assert word not in ended.output.split("warning")[0], ended.output
    return ended.output


def all_of(result: rf.Result) -> rf.Result:
    """The same, all of whose numbers are finite."""
    for name in result if isinstance(result, rf.Result) else ():
        values = np.asarray(result[name][...])
        if name != "log_density" and not result_law(result.attrs["kind"]).of(name).may_be_nan:
            assert np.isfinite(values).all(), f"{name} is not finite"
    text = json.dumps(result.attrs) if isinstance(result, rf.Result) else repr(result)
    assert "NaN" not in text and "nan" not in text and "Infinity" not in text, text
    return result


def outcome(reader: Reader, result: Path, out: Path) -> str:
    """What comes of a reader: ``fine``; ``refused``, with exit code 4; or a fault in words."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            reader.read(result, out)
        except DataError as error:
            return "refused" if str(error).strip() else "no words"
        except rf.RankfoldError as error:
            return f"asked: {error}"
        except Exception as error:  # noqa: BLE001 - whatever a reader lets through
            lines = traceback.format_exc().splitlines()
            return f"{type(error).__name__}: {error} at {[line for line in lines if 'rankfold' in line][-2:]}"
    return "fine"


# A trial -------------------------------------------------------------------------------------------


def prepare(name: str, root: Path) -> Path:
    """The folder of a case with its result, which has no manifest."""
    folder = root / name.replace(" ", "_")
    if not (folder / "kind.json").exists():
        folder.mkdir(parents=True)
        CASES[name](folder)
        (folder / "r.zarr" / "manifest.json").unlink()
        facts = json.loads((folder / "r.zarr" / "zarr.json").read_text())["attributes"]["rankfold"]
        (folder / "kind.json").write_text(json.dumps(facts["kind"]))
    return folder


def able(folder: Path) -> list[Reader]:
    """Who reads the result of a case as it is; raises where that is no answer and no refusal in words."""
    found = []
    for reader in readers(json.loads((folder / "kind.json").read_text()), folder):
        came = outcome(reader, folder / "r.zarr", fresh(folder / "out"))
        if came == "fine":
            found.append(reader)
        elif not came.startswith("asked: "):
            raise AssertionError(f"{folder.name} as it is, {reader.name}: {came}")
    return found


def try_one(folder: Path, forgery: Forgery, reader: Reader) -> str:
    """What comes of a reader that is given the result with one change; nothing if that is right."""
    forged = folder / "forged.zarr"
    shutil.rmtree(forged, ignore_errors=True)
    shutil.copytree(folder / "r.zarr", forged)
    if (record := folder / "r.zarr.run").exists():
        shutil.copytree(record, folder / "forged.zarr.run", dirs_exist_ok=True)
    forgery.apply(forged)
    came = outcome(reader, forged, fresh(folder / "out"))
    if forgery.way in ("reversed", "largest", "zeros") and came.startswith("asked: "):
        return ""  # the result of another matrix would be the same: who gave it is asked
    return "" if came in ("fine", "refused") else f"{folder.name}: {forgery}; {reader.name}: {came}"


def fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def main(name: str, root: Path) -> None:
    """Try all of a case; each fault is a line, and what is tried is said before."""
    folder = prepare(name, root)
    everyone = able(folder)
    for forgery in forgeries(folder / "r.zarr"):
        for reader in everyone:
            (root / "tried").write_text(f"{name}: {forgery}; {reader.name}")
            if fault := try_one(folder, forgery, reader):
                print(fault, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
