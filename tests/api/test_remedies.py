"""What a message advises is tried: each argument or command that a refusal names gets further.

An argument that helps is named both ways, ``name=value (--name value)``, and a command in backticks, see
``rankfold.pipeline.errors``. The tests take them from the message, whatever it says, and do nothing else.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import zarr

import rankfold as rf
from rankfold.methods.registry import methods
from rankfold.pipeline.errors import ArgumentError, MemoryBudgetError, RankfoldError

NAMED = re.compile(r"(leave out )?(?<!\w)(\w+)=('[^']*'|\[[^\]]*\]|[\w.]+) \(--")
IMPORT = "`rankfold import STORE NEW.zarr`"


def remedies(message: str) -> list[tuple[str, Any]]:
    """Arguments that a message names with a value, or to be left out (None)."""
    found = NAMED.findall(message)
    return [(name, None if out else ast.literal_eval(value)) for out, name, value in found]


# Memory -------------------------------------------------------------------------------------------

GIVEN: dict[str, dict[str, Any]] = {
    "svd": {"rank": 40},
    "pca": {"rank": 40},
    "nmf": {"rank": 40},
    "kernel_pca": {"rank": 4},
    "radius_neighbors": {"radius": 0.5},
    "kmeans": {"k": 80},
    "knn": {"k": 80},
}
"""What a method is asked; the others go by their defaults."""

OTHERS: list[tuple[str, dict[str, Any]]] = [
    *(("svd", {"rank": 40, "solver": name}) for name in ("gram", "tsqr", "krylov", "subspace", "sketch")),
    ("pca", {"tol": 0.1}),
    ("nmf", {"rank": 40, "missing": "ignore"}),
    ("nmf", {"rank": 40, "loss": "kullback-leibler"}),
    ("knn", {"k": 80, "solver": "approximate"}),
    ("umap", {"init": "random"}),
]


@pytest.fixture(scope="module")
def matrices(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Kinds of matrices that memory is short for in different ways."""
    x = np.abs(np.random.default_rng(3).standard_normal((4000, 200))).astype("f4")
    path = tmp_path_factory.mktemp("remedies") / "tall.zarr"
    zarr.create_array(path, data=x, chunks=(4000, 50))
    return {
        "wide": x[:150],
        "long": x,
        "tall chunks": str(path),
        "sparse": sp.random(2000, 1000, 0.05, format="csr", random_state=0),
        "points": x[:2000, :3].copy(),
    }


def _plannable() -> Iterator[tuple[str, dict[str, Any]]]:
    for method in methods():
        name = method.name
        if method.of_matrix or (method.of_neighbors and name != "fuzzy_graph"):
            yield name, GIVEN.get(name, {})
    yield from OTHERS


@pytest.mark.parametrize(("method", "asked"), [*_plannable()], ids=str)
def test_what_a_refusal_for_memory_names_fits(
    method: str, asked: dict[str, Any], matrices: dict[str, Any], tmp_path: Path
) -> None:
    asked = {"k": 10, **asked} if method == "kmeans" else asked
    refusals = 0
    for kind, x in matrices.items():
        if method == "radius_neighbors" and kind != "points":
            continue  # edges are counted in some rows, which takes time
        memory = "1MiB"
        for share in (0.6, 0.95, 1):
            try:
                rf.plan(method, x, **{**asked, "memory": memory})
                break
            except MemoryBudgetError as error:
                refusals += 1
                message = error.message
                names = remedies(message)
                assert names[0][0] == "memory", message
                for name, value in names:
                    rf.plan(method, x, **{**asked, "memory": memory, name: value})
                if IMPORT in message:
                    new = tmp_path / f"{memory}.zarr"
                    rf.import_array(x, new)
                    rf.plan(method, str(new), **{**asked, "memory": memory})
                memory = f"{int(share * error.need_bytes) >> 20}MiB"
            except RankfoldError:
                break  # of another kind: this matrix is not for this method
    assert refusals


# Other refusals -----------------------------------------------------------------------------------


def _numbers(rows: int = 40, columns: int = 6) -> Any:
    return np.random.default_rng(5).standard_normal((rows, columns))


def _with_gaps() -> Any:
    x = np.abs(_numbers())
    x[:, 2] = np.nan
    x[7] = np.nan
    x[9, 4] = np.nan
    return x


def _table(folder: Path, text: str) -> str:
    path = folder / "t.csv"
    path.write_text(text)
    return str(path)


def _store(folder: Path, **options: Any) -> str:
    path = folder / "s.zarr"
    array = zarr.create_array(path, shape=(40, 6), chunks=(10, 6), dtype="f8", **options)
    array[:20] = 1 + np.abs(_numbers(20))
    return str(path)


def _finished(folder: Path) -> str:
    out = folder / "r.zarr"
    rf.pca(_numbers(), 1, out=out)
    return str(out)


def _index(folder: Path) -> str:
    rf.index(_numbers(900, 20), metric="euclidean", out=folder / "i.zarr")
    return str(folder / "i.zarr")


Call = Callable[..., Any]


@dataclass(frozen=True)
class Situation:
    """A call that is refused, given the folder of the test; remedies are arguments that are added to it."""

    call: Call
    apart: tuple[str, ...] = ()
    """Arguments that a message names for other functions than the one that was called."""

    names: tuple[str, ...] = ()
    """Arguments that the message has to name, so that a test of no remedy does not pass."""


SITUATIONS = {
    "rank": Situation(lambda d, **a: rf.pca(_numbers(), **{"rank": 9, **a}), names=("rank",)),
    "rank of a model": Situation(
        lambda d, **a: rf.svd(_numbers(), **{"rank": 3, "solver": "sketch", "passes": 1, "tol": 2.0, **a})
    ),
    "tol alone": Situation(lambda d, **a: rf.svd(_numbers(), **{"tol": 0.1, "solver": "sketch", **a})),
    "passes": Situation(
        lambda d, **a: rf.svd(_numbers(), **{"rank": 2, "solver": "gram", "passes": 1, **a}),
        names=("passes",),
    ),
    "passes of qr": Situation(lambda d, **a: rf.qr(_numbers(), **{"passes": 1, **a}), names=("passes",)),
    "precision": Situation(
        lambda d, **a: rf.svd(_numbers(), **{"rank": 2, "precision": "tf32", **a}), names=("solver",)
    ),
    "gaps, pca": Situation(
        lambda d, **a: rf.pca(_with_gaps(), 2, **a),
        names=("missing", "drop_missing_columns", "drop_missing_rows"),
        apart=("ignore",),
    ),
    "gaps, nmf": Situation(lambda d, **a: rf.nmf(_with_gaps(), 2, **a), names=("missing",), apart=("em",)),
    "gaps, knn": Situation(
        lambda d, **a: rf.knn(_with_gaps(), 3, **a), names=("drop_missing_rows",), apart=("em", "ignore")
    ),
    "three axes": Situation(
        lambda d, **a: rf.pca(np.ones((9, 3, 4)) + _numbers(9, 12).reshape(9, 3, 4), 2, **a),
        names=("row_axes",),
    ),
    "chunks": Situation(lambda d, **a: rf.pca(_store(d), **{"rank": 2, "missing_chunks": "error", **a})),
    "a result is there": Situation(
        lambda d, **a: rf.pca(_numbers(), 2, out=_finished(d), **a), names=("overwrite",)
    ),
    "a store is there": Situation(
        lambda d, **a: [
            rf.import_array(_table(d, text), d / "z.zarr", **b)
            for text, b in (("1,2\n3,4\n", {}), ("1,2\n3,5\n", a))
        ],
        names=("overwrite",),
    ),
    "metric of an index": Situation(
        lambda d, **a: rf.knn(_numbers(30, 20), 3, index=_index(d), **{"metric": "cosine", **a}),
        names=("metric",),
    ),
    "a column of text": Situation(
        lambda d, **a: rf.pca(_table(d, "a,b,c\n1,2,oak\n3,5,elm\n4,4,ash\n"), 1, **a),
        names=("numeric",),
        apart=("without",),
    ),
    "a column of names": Situation(
        lambda d, **a: rf.pca(_table(d, "id,a,b\noak,1,2\nelm,3,5\nash,4,4\n"), 1, **a),
        names=("numeric", "index_col"),
        apart=("without",),
    ),
    "a column of text, imported": Situation(
        lambda d, **a: rf.import_array(_table(d, "a,b,c\n1,2,oak\n3,5,elm\n4,4,ash\n"), d / "z.zarr", **a),
        names=("numeric", "without"),
    ),
    "thousands": Situation(
        lambda d, **a: rf.import_array(_table(d, 'a,b\n"1,234",5\n'), d / "z.zarr", **a), names=("thousands",)
    ),
    "a title above a table": Situation(
        lambda d, **a: rf.import_array(_table(d, "Station 5\na,b,c\n1,2,3\n"), d / "z.zarr", **a),
        names=("skip_lines",),
    ),
    "a padded title above a table": Situation(
        lambda d, **a: rf.import_array(_table(d, "Station,,\na,b,c\n1,2,3\n"), d / "z.zarr", **a),
        names=("skip_lines",),
        apart=("numeric", "without"),
    ),
    "a comma": Situation(
        lambda d, **a: rf.import_array(_table(d, "a;b\n1,234;5\n"), d / "z.zarr", **a),
        names=("decimal", "thousands"),
    ),
    "memory of an import": Situation(
        lambda d, **a: rf.import_array(_store(d), d / "z.zarr", **{"memory_bytes": 1000, **a}),
        names=("memory_bytes",),
    ),
    "memory of an import of text": Situation(
        lambda d, **a: rf.import_array(
            _table(d, ",".join(["1"] * 9000) + "\n"), d / "z.zarr", **{"memory_bytes": 2**20, **a}
        ),
        names=("memory_bytes",),
    ),
    "equal rows": Situation(lambda d, **a: rf.tsne(np.ones((60, 3)), **{"init": "pca", **a})),
}


def _refused(situation: Situation, folder: Path, given: dict[str, Any]) -> RankfoldError | None:
    folder.mkdir()
    try:
        situation.call(folder, **given)
    except RankfoldError as error:
        return error
    return None


@pytest.mark.parametrize("name", SITUATIONS)
def test_what_a_refusal_names_gets_further(name: str, tmp_path: Path) -> None:
    situation = SITUATIONS[name]
    error = _refused(situation, tmp_path / "refused", {})
    assert error is not None
    assert "--" not in re.sub("`[^`]*`", "", str(error)), error
    found = [one for one in remedies(error.message) if not {*situation.apart} & {one[0], str(one[1])}]
    assert {*situation.names} <= {argument for argument, _ in found}, error.message
    for number, (argument, value) in enumerate(found):
        later = _refused(situation, tmp_path / f"{number}", {argument: value})
        assert not isinstance(later, ArgumentError), (argument, value, later)
        assert later is None or _reason(later) != _reason(error), (argument, value, later)


def _reason(error: RankfoldError) -> str:
    """A message without numbers and places."""
    return re.sub(r"[\d.]+|\S*/\S*", "", error.message)
