"""The commands that are attacked, on small matrices, and what stays the same of what they answer.

A case is one command line with places for folders: inputs and earlier results lie in a folder that no attack
touches, outputs in one that is made anew for every trial, always at the same path.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import zarr

ROWS, COLUMNS = 20_000, 60
STREAM_ROWS = 300_000
"""Rows of 112 columns that make two streams: eight products of 8 MiB each."""

FLOW = """\
workflow: chaos
inputs: {x: X}
outputs: results
resources: {memory: 1GiB, threads: 2}
stages:
  components: {method: pca, input: x, rank: 6, solver: subspace, tol: 1.0e-9, passes: 3}
  near: {method: knn, input: components.scores, k: 3}
  audit: {method: check, result: components, input: x}
"""
METADATA = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")
FINGERPRINT = re.compile(r'"[0-9a-f]{32}"')
"""Of inputs, in facts about a result."""

RUN = ("--memory", "1GiB", "--threads", "2")


@dataclass(frozen=True, slots=True)
class Case:
    """A command that is given once, attacked, and given again."""

    name: str
    arguments: tuple[str, ...]
    """Of ``rankfold``; ``{input}`` and ``{trial}`` are folders."""

    outputs: tuple[str, ...] = ("r.zarr",)
    """Stores below the folder of the trial; without any, what is printed counts."""

    other_request: tuple[str, str] | None = None
    """A word of the command, and another in its place: a run whose files look alike."""

    other_matrix: tuple[str, str] | None = None
    overwrite: bool = True
    consumers: tuple[str, ...] = ()
    """Names of commands below that read the result."""

    processes: bool = False
    """Whether workers are processes of their own."""

    def command(self, inputs: Path, trial: Path, *extra: str, other: str = "") -> list[str]:
        """The command line; of another request or matrix if ``other`` says so."""
        words = [*self.arguments, *extra]
        change = {"request": self.other_request, "matrix": self.other_matrix}.get(other)
        if change is not None:
            words = [change[1] if word == change[0] else word for word in words]
        return filled(words, inputs, trial)


def filled(words: list[str] | tuple[str, ...], inputs: Path, trial: Path) -> list[str]:
    """Words with the folders in their places."""
    return [word.replace("{input}", str(inputs)).replace("{trial}", str(trial)) for word in words]


def _svd(name: str, *options: str, store: str = "x", **others: Any) -> Case:
    arguments = ("svd", f"{{input}}/{store}.zarr", "--rank", "8", *options, *RUN, "--out", "{trial}/r.zarr")
    return Case(
        name,
        arguments,
        other_request=("8", "7"),
        other_matrix=("{input}/x.zarr", "{input}/y.zarr"),
        consumers=("info", "report", "verify", "transform", "reconstruct", "check"),
        **others,
    )


_ITERATIONS = ("--tol", "1e-9", "--passes", "4")
_OUT = ("--out", "{trial}/r.zarr")

CASES: tuple[Case, ...] = (
    _svd("svd gram", "--solver", "gram"),
    _svd("svd krylov", "--solver", "krylov", *_ITERATIONS),
    _svd("svd subspace", "--solver", "subspace", *_ITERATIONS),
    _svd("svd sketch", "--solver", "sketch"),
    _svd("svd tsqr", "--solver", "tsqr"),
    _svd("svd scratch", "--solver", "subspace", *_ITERATIONS, "--scratch", "{trial}/elsewhere"),
    _svd("svd streams", "--solver", "subspace", *_ITERATIONS, store="long"),
    Case(
        "pca",
        ("pca", "{input}/x.zarr", "--rank", "8", "--solver", "krylov", *_ITERATIONS, *RUN, *_OUT),
        other_request=("8", "7"),
        other_matrix=("{input}/x.zarr", "{input}/y.zarr"),
        consumers=("info", "report", "verify", "transform", "reconstruct", "check", "update"),
    ),
    Case(
        "qr",
        ("qr", "{input}/x.zarr", *RUN, *_OUT),
        other_request=("{input}/x.zarr", "{input}/y.zarr"),
        other_matrix=("{input}/x.zarr", "{input}/y.zarr"),
        consumers=("info", "report", "verify"),
    ),
    Case(
        "nmf",
        ("nmf", "{input}/y.zarr", "--rank", "4", "--passes", "4", *RUN, *_OUT),
        other_request=("4", "3"),
        other_matrix=("{input}/y.zarr", "{input}/z.zarr"),
        consumers=("info", "report", "verify", "transform", "reconstruct"),
    ),
    Case(
        "knn",
        ("knn", "{input}/new.zarr", "--k", "5", *RUN, *_OUT),
        other_request=("5", "4"),
        other_matrix=("{input}/new.zarr", "{input}/newer.zarr"),
        consumers=("info", "report", "verify", "base"),
    ),
    Case(
        "transform",
        ("transform", "{input}/pca.zarr", "{input}/x.zarr", *RUN, *_OUT),
        other_request=("{input}/pca.zarr", "{input}/pca-2.zarr"),
        other_matrix=("{input}/x.zarr", "{input}/y.zarr"),
        consumers=("info", "report", "verify"),
    ),
    Case(
        "reconstruct",
        ("reconstruct", "{input}/pca.zarr", *RUN, *_OUT),
        other_request=("{input}/pca.zarr", "{input}/pca-2.zarr"),
        other_matrix=("{input}/pca.zarr", "{input}/pca-2.zarr"),
        consumers=("info", "verify", "reduce"),
    ),
    Case(
        "update",
        ("pca", "{input}/new.zarr", "--update", "{input}/pca.zarr", *RUN, *_OUT),
        other_request=("{input}/pca.zarr", "{input}/pca-2.zarr"),
        other_matrix=("{input}/new.zarr", "{input}/newer.zarr"),
        consumers=("info", "report", "verify"),
    ),
    Case(
        "import",
        ("import", "{input}/x.npy", "{trial}/r.zarr"),
        other_request=("{input}/x.npy", "{input}/y.zarr"),
        other_matrix=("{input}/x.npy", "{input}/y.zarr"),
        consumers=("info", "reduce"),
    ),
    Case(
        "run",
        ("run", "{trial}/flow.yaml"),
        outputs=("results/components.zarr", "results/near.zarr", "results/audit.zarr"),
        overwrite=False,
        consumers=("status", "report-flow"),
    ),
    Case(
        "check",
        ("check", "{input}/pca.zarr", "{input}/x.zarr", "--json", *RUN),
        outputs=(),
        overwrite=False,
    ),
    _svd(
        "svd with 2 processes",
        "--solver",
        "subspace",
        *_ITERATIONS,
        "--workers",
        "2",
        store="x",
        processes=True,
    ),
    Case(
        "knn with 2 processes",
        ("knn", "{input}/new.zarr", "--k", "5", *RUN, "--workers", "2", *_OUT),
        processes=True,
    ),
    Case(
        "nmf with 2 processes",
        ("nmf", "{input}/y.zarr", "--rank", "4", "--passes", "4", *RUN, "--workers", "2", *_OUT),
        processes=True,
    ),
)

CONSUMERS: Mapping[str, tuple[str, ...]] = {
    "info": ("info", "{trial}/r.zarr", "--json"),
    "report": ("report", "{trial}/r.zarr", "--json"),
    "verify": ("verify", "{trial}/r.zarr"),
    "transform": ("transform", "{trial}/r.zarr", "{input}/new.zarr", *RUN, "--out", "{trial}/t.zarr"),
    "reconstruct": (
        *("reconstruct", "{trial}/r.zarr", "--select-rows", "0:500", *RUN),
        *("--out", "{trial}/t.zarr"),
    ),
    "check": ("check", "{trial}/r.zarr", "{input}/x.zarr", "--json", *RUN),
    "update": ("pca", "{input}/new.zarr", "--update", "{trial}/r.zarr", *RUN, "--out", "{trial}/t.zarr"),
    "base": ("knn", "{input}/longer.zarr", "--k", "5", "--base", "{trial}/r.zarr", "--out", "{trial}/t.zarr"),
    "reduce": ("svd", "{trial}/r.zarr", "--rank", "3", *RUN, "--out", "{trial}/t.zarr"),
    "status": ("status", "{trial}/flow.yaml"),
    "report-flow": ("report", "{trial}/flow.yaml", "--json"),
}
"""What reads the result of a case: damage in it must not go unnoticed there either."""


def case(name: str) -> Case:
    """A case by its name."""
    return next(one for one in CASES if one.name == name)


def write_inputs(folder: Path) -> list[list[str]]:
    """Write the matrices that the cases read; the commands that make the earlier results they need."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, COLUMNS)) * np.linspace(3, 1, COLUMNS)
    new = x[:3000] + 0.1
    stores = {
        "x": (x, 1000),
        "y": (np.abs(x), 1000),
        "z": (np.abs(x) * 0.5, 1000),
        "new": (new, 500),
        "newer": (new * 1.5, 500),
        "longer": (np.concatenate([new, x[3000:4000]]), 500),
    }
    for name, (values, chunk) in stores.items():
        _write(folder / f"{name}.zarr", values.astype(np.float32), chunk)
    _write(
        folder / "long.zarr",
        rng.standard_normal((STREAM_ROWS, 112), dtype=np.float32) * np.linspace(3, 1, 112, dtype=np.float32),
        30_000,
    )
    np.save(folder / "x.npy", x.astype(np.float32))
    pca = ["pca", "{input}/x.zarr", *RUN]
    return [
        filled([*pca, "--rank", rank, "--out", f"{{input}}/{name}"], folder, folder)
        for name, rank in (("pca.zarr", "6"), ("pca-2.zarr", "5"))
    ]


def _write(path: Path, values: np.ndarray, chunk: int) -> None:
    array = zarr.create_array(
        path, shape=values.shape, chunks=(chunk, values.shape[1]), dtype=values.dtype, compressors=None
    )
    array[...] = values


def write_trial(inputs: Path, trial: Path) -> None:
    """Put what a case finds in its folder there."""
    trial.mkdir(parents=True, exist_ok=True)
    (trial / "flow.yaml").write_text(FLOW.replace("{x: X}", f"{{x: {inputs}/x.zarr}}"))


# What is compared ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Contents:
    """What a store holds: metadata and chunks of its arrays, by path."""

    parts: Mapping[str, bytes | str] = field(default_factory=dict)
    strays: tuple[str, ...] = ()
    """Hidden files, and files that belong to no array."""

    def difference(self, other: Contents) -> str:
        """Where two stores differ, in words; nothing if they do not."""
        for name in sorted({*self.parts, *other.parts}):
            if self.parts.get(name) != other.parts.get(name):
                how = (
                    "lacks" if name not in self.parts else "adds" if name not in other.parts else "differs in"
                )
                return f"{how} {name}"
        return ""


def contents(stores: list[Path], *, chained: bool = False) -> Contents:
    """Arrays and attributes of stores, read without the help of Zarr or rankfold.

    ``chained``: each reads what another wrote, so that facts about the input tell when that was written.
    """
    parts: dict[str, bytes | str] = {}
    strays: list[str] = []
    for store in stores:
        if not store.is_dir():
            continue
        for path in sorted(store.rglob("*")):
            name = str(path.relative_to(store.parent))
            if path.is_symlink() or not path.is_file():
                if not path.is_dir():
                    parts[name] = "not a file"
            elif path.name in METADATA:
                parts[name] = _metadata(path.read_bytes(), chained=chained)
            elif _is_chunk(path, store):
                parts[name] = path.read_bytes()
            elif path.name.startswith("."):
                strays.append(name)
    return Contents(parts, tuple(strays))


def _metadata(data: bytes, *, chained: bool) -> str:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return f"no JSON: {data[:200]!r}"
    text = json.dumps(value, sort_keys=True)
    return FINGERPRINT.sub('"*"', text) if chained else text


def _is_chunk(path: Path, store: Path) -> bool:
    """Whether a file is a chunk: below the folder ``c`` of an array."""
    return "c" in path.relative_to(store).parts and not path.name.startswith(".")
