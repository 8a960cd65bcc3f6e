"""What a change of the code should not change, to be compared before and after it.

- bytes: results of some fifty requests on dense, sparse, tall, wide and single-precision matrices, on threads
  and on two processes, on jobs too with ``--cluster PROFILE``; and of every line of the table of laws
  (``tests/methods/laws.py``), which has all methods
- facts: what the results of that table say of themselves: request, warnings, estimates
- plans: of each of them, as ``run.json`` keeps it
- words: the help of every command, the schema of workflows, signatures and docstrings of public functions and
  estimators
- refusals: what every method answers to bad values of each of its arguments

Bytes depend on the versions of libraries and on the kernels that BLAS takes for this processor, so both runs
must be made on one machine.

python benchmarks/same_bytes.py --out before.json
python benchmarks/same_bytes.py --against before.json
python benchmarks/same_bytes.py --against before.json --only words refusals
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import inspect
import io
import json
import math
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "methods")]

import numpy as np
import scipy.sparse as sp
import zarr
from laws import LAWS
from typer.main import get_command

import rankfold as rf
import rankfold.estimators
from rankfold.methods.registry import Method, methods
from rankfold.workflows.cli import app
from rankfold.workflows.flows.flow_file import schema
from rankfold.workflows.results import headline

SEED = 20260101
Request = Callable[[dict[str, Any], dict[str, Any]], Any]
"""From the matrices and from where to run, to a result, a matrix or a measure."""


def matrices(folder: Path) -> dict[str, Any]:
    """Matrices of all kinds that methods take, in stores of small chunks; one has several streams."""
    rng = np.random.default_rng(SEED)
    spectrum = 0.8 ** np.arange(40)
    tall = rng.standard_normal((4000, 40)) * spectrum @ rng.standard_normal((40, 150))
    tall += 0.01 * rng.standard_normal(tall.shape) + rng.standard_normal(150)
    counts = rng.random((3000, 6)) @ rng.random((6, 90)) + 0.05 * rng.random((3000, 90))
    dense: dict[str, Any] = {
        "tall": tall,
        "single": tall.astype(np.float32),
        "wide": np.ascontiguousarray(tall.T),
        "counts": counts,
        "long": rng.random((600_000, 12), np.float32) @ rng.random((12, 80), np.float32),
        "points": rng.standard_normal((6000, 24)).astype(np.float32),
        "queries": rng.standard_normal((300, 24)).astype(np.float32),
        "later": tall[:500] + 0.1 * rng.standard_normal((500, 150)),
    }
    stores: dict[str, Any] = {}
    for name, values in dense.items():
        path = folder / f"{name}.zarr"
        chunks = (min(20_000 if name == "long" else 300, values.shape[0]), min(100, values.shape[1]))
        zarr.create_array(path, data=values, chunks=chunks)
        stores[name] = path
    stores["first points"] = folder / "first.zarr"
    zarr.create_array(stores["first points"], data=dense["points"][:4500], chunks=(2000, 24))
    stores["sparse"] = sp.random(3000, 400, density=0.02, format="csr", random_state=SEED)
    return stores


def requests() -> dict[str, Request]:
    """Requests by name: the name says what is computed, and is never used for another computation."""
    made: dict[str, Request] = {}
    for method in ("krylov", "gram", "subspace", "sketch", "tsqr"):
        for name in ("tall", "wide"):
            made[f"svd {method} {name}"] = _svd(name, rank=8, solver=method)
    made["svd to a tolerance"] = _svd("tall", tol=0.05)
    made["svd without rows"] = _svd("tall", rank=5, with_rows=False)
    for method in ("krylov", "gram", "sketch"):
        made[f"svd {method} single"] = _svd("single", rank=8, solver=method)
        made[f"svd {method} sparse"] = _svd("sparse", rank=8, solver=method)
    made["pca gram"] = _pca("tall", solver="gram")
    made["pca krylov scaled"] = _pca("tall", solver="krylov", scale=True)
    made["pca whitened"] = _pca("tall", whiten=True)
    made["pca sketch"] = _pca("tall", solver="sketch")
    made["pca sparse"] = _pca("sparse")
    made["pca wide"] = _pca("wide")
    made["qr tall"] = lambda m, w: rf.qr(m["tall"], **w)
    made["qr wide"] = lambda m, w: rf.qr(m["wide"], **w)
    made["qr without Q"] = lambda m, w: rf.qr(m["single"], with_rows=False, **w)
    made["svd krylov long"] = _svd("long", rank=8, solver="krylov")
    made["pca gram long"] = _pca("long", solver="gram")
    made["svd sketch long"] = _svd("long", rank=8, solver="sketch")
    made["qr long"] = lambda m, w: rf.qr(m["long"], **w)
    made["nmf long"] = lambda m, w: rf.nmf(m["long"], 6, passes=4, **w)
    made["transform long"] = lambda m, w: rf.transform(rf.pca(m["long"], 5, with_rows=False), m["long"], **w)
    made["nmf hals"] = _nmf()
    made["nmf bpp"] = _nmf(solver="bpp")
    made["nmf kullback-leibler"] = _nmf(loss="kullback-leibler", passes=6)
    made["nmf admm"] = _nmf(constraint_W="simplex")
    made["nmf nndsvd"] = _nmf(init="nndsvd")
    made["nmf random"] = _nmf(init="random", alpha_W=0.01)
    made["nmf sparse"] = lambda m, w: rf.nmf(m["sparse"], 4, **w)
    for metric in ("euclidean", "cosine", "manhattan"):
        made[f"knn {metric}"] = _knn(metric=metric)
    made["knn symmetric"] = _knn(symmetric="union")
    made["knn of queries"] = lambda m, w: rf.knn(m["points"], 10, queries=m["queries"], **w)
    made["knn extended"] = _extended
    made["transform pca"] = lambda m, w: rf.transform(rf.pca(m["tall"], 5), m["later"], **w)
    made["transform nmf"] = lambda m, w: rf.transform(rf.nmf(m["counts"], 4), m["counts"], **w)
    made["update"] = lambda m, w: rf.update(rf.pca(m["tall"], 8), m["later"], **w)
    made["check"] = lambda m, w: rf.check(rf.svd(m["tall"], 5), m["tall"], **w)
    made["reconstruct"] = lambda m, w: rf.reconstruct(rf.pca(m["tall"], 5), **w)
    made["trustworthiness"] = lambda m, w: rf.trustworthiness(m["points"], _embedding(m), 7)
    made["continuity"] = lambda m, w: rf.continuity(m["points"], _embedding(m), 7)
    return made


def _svd(name: str, rank: int | None = None, **options: Any) -> Request:
    return lambda m, where: rf.svd(m[name], rank, **options, **where)


def _pca(name: str, **options: Any) -> Request:
    return lambda m, where: rf.pca(m[name], 6, **options, **where)


def _nmf(**options: Any) -> Request:
    return lambda m, where: rf.nmf(m["counts"], 6, **options, **where)


def _knn(**options: Any) -> Request:
    return lambda m, where: rf.knn(m["points"], 10, **options, **where)


def _extended(m: dict[str, Any], where: dict[str, Any]) -> Any:
    return rf.knn(m["points"], 10, base=rf.knn(m["first points"], 10), **where)


def _embedding(m: dict[str, Any]) -> Any:
    return zarr.open_array(m["points"], mode="r")[:, :2]


ELSEWHERE = ("svd krylov long", "pca gram long", "qr long", "nmf long", "knn euclidean", "transform long")
"""What is computed on processes and on jobs too."""


def digests(folder: Path, profile: str | None) -> Iterator[tuple[str, str]]:
    """Name and digest of every request."""
    m = matrices(folder)
    places: dict[str, dict[str, Any]] = {"threads": {"threads": 2}, "processes": {"workers": 2}}
    if profile is not None:
        places["jobs"] = {"cluster": profile, "workers": 2}
    for name, request in requests().items():
        for place, where in places.items():
            if place == "threads" or name in ELSEWHERE:
                out = folder / f"{len(name)}-{place}-{name.replace(' ', '-')}.zarr"
                yield f"{name} on {place}", digest(request(m, {"out": out, "memory": "256MiB", **where}))


def digest(result: Any) -> str:
    """Of all arrays of a result, or of a matrix, or of a measure."""
    if isinstance(result, rf.Result):
        node = zarr.open(result.path, mode="r")
        members = node.members(max_depth=None) if isinstance(node, zarr.Group) else [("X", node)]
        arrays = {name: each for name, each in members if isinstance(each, zarr.Array)}
    else:
        arrays = {"X": result if hasattr(result, "dtype") else np.float64(result)}
    value = blake2b(digest_size=8)
    for name in sorted(arrays):
        values = np.ascontiguousarray(arrays[name][...])
        value.update(f"{name} {values.dtype.str} {values.shape}".encode())
        value.update(values.tobytes())
    return value.hexdigest()


# Every method ---------------------------------------------------------------------------------------


def of_laws(folder: Path) -> Iterator[tuple[str, str]]:
    """Bytes, facts and plan of every line of the table of laws."""
    for name, law in LAWS.items():
        home = folder / name.replace(" ", "-")
        home.mkdir()
        made = law(law.store(home), home, threads=1, memory="600MiB")
        yield f"bytes: {name}", digest(made)
        yield f"facts: {name}", steady(dict(made.attrs), home)
        yield f"words: headline of {name}", headline(made)
        noted = json.loads((home / "r.zarr.run" / "run.json").read_text())
        plans = [noted.get("plan"), *(each.get("plan") for each in noted["attempts"])]
        yield f"plans: {name}", steady(plans, home)


def steady(value: Any, folder: Path) -> str:
    """As JSON, what is the same in two runs of the same code: no folder, and digests by their order alone,
    for they go by times of files.
    """
    text = json.dumps(value, indent=1, sort_keys=True, default=str).replace(str(folder), "")
    order: dict[str, int] = {}
    return re.sub(r"\b[0-9a-f]{32}\b", lambda found: f"digest {order.setdefault(found[0], len(order))}", text)


# Words ----------------------------------------------------------------------------------------------


def words(_: Path) -> Iterator[tuple[str, str]]:
    """Help of every command, the schema, and what ``help`` shows of public names."""
    for path in commands(get_command(app)):
        yield f"words: rankfold {' '.join(path)} --help", output_of([*path, "--help"])
    yield "words: schema", json.dumps(schema(), indent=1, sort_keys=True)
    for module in (rf, rankfold.estimators):
        for name in sorted(module.__all__):
            value = getattr(module, name)
            if callable(value):
                with contextlib.suppress(ValueError):
                    said = f"{inspect.signature(value)}\n{inspect.getdoc(value)}"
                    yield f"words: {module.__name__}.{name}", said


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Words of each command after ``rankfold``."""
    yield path
    for name, command in sorted(getattr(group, "commands", {}).items()):
        yield from commands(command, (*path, name))


def output_of(said: list[str]) -> str:
    from typer.testing import CliRunner

    return CliRunner().invoke(app, said, env={"COLUMNS": "100", "TERM": "dumb"}).output


# Refusals -------------------------------------------------------------------------------------------

BAD: tuple[object, ...] = ("no such", "", -1, 0, 0.5, math.nan, math.inf, True, [], {}, b"x", -(2**70))


def refusals(folder: Path) -> Iterator[tuple[str, str]]:
    """What every method says to each bad value of each argument, where it does not take it."""
    rng = np.random.default_rng(SEED)
    x = rng.random((60, 5))
    for method in methods():
        given: list[Any] = [x if each.holds == "matrix" else result_for(method, x) for each in method.inputs]
        required = {each.name: needed(each.types) for each in method.parameters() if each.is_required}
        for parameter in method.parameters():
            for value in BAD:
                asked = {**required, parameter.name: value}
                said = answer(method, given, asked)
                yield f"refusals: {method.name} {parameter.name}={value!r}", said.replace(str(folder), "")


def result_for(method: Method, x: Any) -> Any:
    """A small result of a kind that the method is of."""
    holds = next(each.holds for each in method.inputs if each.holds != "matrix")
    if "knn" in holds:
        return rf.knn(x, 6)
    return rf.fuzzy_graph(rf.knn(x, 6)) if "fuzzy_graph" in holds else rf.pca(x, 2)


def needed(types: tuple[type, ...]) -> Any:
    return 2 if int in types else 0.5


def answer(method: Method, given: list[Any], asked: dict[str, Any]) -> str:
    """The error and its words; ``taken`` where there is none."""
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            getattr(rf, method.name)(*given, **asked, threads=1)
    except Exception as error:  # noqa: BLE001 - whatever there is, to be compared
        # Without addresses of objects, and names of temporary folders.
        return re.sub(r"0x[0-9a-f]+|rankfold-[0-9a-f]{24}", "", f"{type(error).__name__}: {error}")
    return "taken"


# Comparing ------------------------------------------------------------------------------------------

KINDS: dict[str, Callable[[Path], Iterator[tuple[str, str]]]] = {
    "laws": of_laws,
    "words": words,
    "refusals": refusals,
}


def found_of(folder: Path, only: list[str], profile: str | None) -> Iterator[tuple[str, str]]:
    if "requests" in only:
        yield from ((f"bytes: {name}", value) for name, value in digests(folder, profile))
    for name, kind in KINDS.items():
        if name in only:
            (folder / name).mkdir()
            yield from kind(folder / name)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--out", type=Path, help="file for what is found")
    arguments.add_argument("--against", type=Path, help="that of an earlier run")
    arguments.add_argument("--cluster", help="profile of a cluster, for jobs")
    arguments.add_argument("--only", nargs="+", choices=["requests", *KINDS], default=["requests", *KINDS])
    given = arguments.parse_args()
    warnings.simplefilter("ignore")
    before = {} if given.against is None else json.loads(given.against.read_text())
    found: dict[str, str] = {}
    differ = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, value in found_of(Path(folder), given.only, given.cluster):
            found[name] = value
            if name in before and before[name] != value:
                differ += 1
                lines = difflib.unified_diff(before[name].splitlines(), value.splitlines(), lineterm="", n=0)
                print(f"DIFFERS: {name}", *list(lines)[2:22], sep="\n    ", flush=True)
            elif name.startswith("bytes"):
                print(f"{name:60s} {value}", flush=True)
    missing = before.keys() - found.keys() if set(given.only) == {"requests", *KINDS} else set()
    if before:
        print(*(f"MISSING: {name}" for name in sorted(missing)), sep="\n")
        print(f"{len(before.keys() & found.keys()) - differ} same, {differ} differ, {len(missing)} missing")
    if given.out is not None:
        given.out.write_text(json.dumps(found, indent=1) + "\n")
    return 1 if differ or missing else 0


if __name__ == "__main__":
    sys.exit(main())
