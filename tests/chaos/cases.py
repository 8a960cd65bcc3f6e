"""The commands that are attacked, on small matrices, and what stays the same of what they answer.

A case is one command line with places for folders: inputs and earlier results lie in a folder that no attack
touches, outputs in one that is made anew for every trial, always at the same path.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inputs import RUN, filled


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

    methods: tuple[str, ...] = ()
    """Of the registry that it is a case of, besides that of its command's name."""

    @property
    def chained(self) -> bool:
        """Whether some of its outputs are made of others, and say when those were written."""
        return len(self.outputs) > 1

    def covers(self) -> set[str]:
        """Methods of the registry that it carries out."""
        return {self.arguments[0].replace("-", "_"), *self.methods}

    def command(self, inputs: Path, trial: Path, *extra: str, other: str = "") -> list[str]:
        """The command line; of another request or matrix if ``other`` says so."""
        words = [*self.arguments, *extra]
        change = {"request": self.other_request, "matrix": self.other_matrix}.get(other)
        if change is not None:
            words = [change[1] if word == change[0] else word for word in words]
        return filled(words, inputs, trial)


def _svd(name: str, *options: str, store: str = "x", **others: Any) -> Case:
    arguments = ("svd", f"{{input}}/{store}.zarr", "--rank", "8", *options, *RUN, "--out", "{trial}/r.zarr")
    others.setdefault("other_matrix", ("{input}/x.zarr", "{input}/y.zarr"))
    others.setdefault("consumers", ("info", "report", "verify", "transform", "reconstruct", "check"))
    return Case(name, arguments, other_request=("8", "7"), **others)


def _of(
    name: str,
    words: tuple[str, ...],
    other_request: tuple[str, str],
    other_matrix: tuple[str, str],
    *,
    more: tuple[str, ...] = (),
    consumers: tuple[str, ...] = ("info", "report", "verify"),
    methods: tuple[str, ...] = (),
) -> Case:
    arguments = (*words, *more, *RUN, "--out", "{trial}/r.zarr")
    return Case(
        name,
        arguments,
        other_request=other_request,
        other_matrix=other_matrix,
        consumers=consumers,
        methods=methods,
    )


_ITERATIONS = ("--tol", "1e-9", "--passes", "4")
_OUT = ("--out", "{trial}/r.zarr")
_TWO_PROCESSES = ("--workers", "2", "--threads", "1")
"""Each of which gets one of two streams."""

CASES: tuple[Case, ...] = (
    _svd("svd gram", "--solver", "gram"),
    _svd("svd krylov", "--solver", "krylov", *_ITERATIONS),
    _svd("svd subspace", "--solver", "subspace", *_ITERATIONS),
    _svd("svd sketch", "--solver", "sketch"),
    _svd("svd tsqr", "--solver", "tsqr"),
    _svd("svd scratch", "--solver", "subspace", *_ITERATIONS, "--scratch", "{trial}/elsewhere"),
    _svd(
        "svd streams",
        "--solver",
        "subspace",
        *_ITERATIONS,
        store="long",
        other_matrix=("{input}/long.zarr", "{input}/x.zarr"),
    ),
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
        methods=("update",),
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
    _svd(
        "svd sparse",
        "--solver",
        "krylov",
        *_ITERATIONS,
        store="sparse",
        other_matrix=("{input}/sparse.zarr", "{input}/sparse-2.zarr"),
        consumers=("info", "report", "verify"),
    ),
    _of(
        "knn queries",
        ("knn", "{input}/new.zarr", "--queries", "{input}/newer.zarr", "--k", "5"),
        ("5", "4"),
        ("{input}/newer.zarr", "{input}/longer.zarr"),
    ),
    _of(
        "knn base",
        ("knn", "{input}/longer.zarr", "--base", "{input}/near.zarr", "--k", "5"),
        ("{input}/near.zarr", "{input}/near-2.zarr"),
        ("{input}/longer.zarr", "{input}/long-2.zarr"),
    ),
    _of(
        "knn approximate",
        ("knn", "{input}/new.zarr", "--k", "5", "--min-recall", "0.8", "--partition-rows", "300"),
        ("5", "4"),
        ("{input}/new.zarr", "{input}/newer.zarr"),
    ),
    _of(
        "knn tree",
        ("knn", "{input}/points.zarr", "--k", "5", "--solver", "tree"),
        ("5", "4"),
        ("{input}/points.zarr", "{input}/points-2.zarr"),
    ),
    _of(
        "index",
        ("index", "{input}/new.zarr", "--partition-rows", "300"),
        ("300", "200"),
        ("{input}/new.zarr", "{input}/newer.zarr"),
        consumers=("info", "report", "verify", "queries"),
    ),
    _of(
        "knn index",
        ("knn", "{input}/newer.zarr", "--index", "{input}/index.zarr", "--k", "5", "--min-recall", "0.8"),
        ("5", "4"),
        ("{input}/newer.zarr", "{input}/longer.zarr"),
    ),
    _of(
        "radius-neighbors",
        ("radius-neighbors", "{input}/points.zarr", "--radius", "0.06"),
        ("0.06", "0.05"),
        ("{input}/points.zarr", "{input}/points-2.zarr"),
    ),
    _of(
        "kernel-sum",
        ("kernel-sum", "{input}/points.zarr", "--weights", "{input}/masses.zarr", "--softening", "0.01"),
        ("0.01", "0.02"),
        ("{input}/points.zarr", "{input}/points-2.zarr"),
    ),
    _of(
        "density",
        ("density", "{input}/points.zarr", "--bandwidth", "0.1", "--tol", "0.001"),
        ("0.1", "0.2"),
        ("{input}/points.zarr", "{input}/points-2.zarr"),
    ),
    _of(
        "kmeans",
        ("kmeans", "{input}/x.zarr", "--k", "6", "--n-init", "2", "--passes", "6"),
        ("6", "5"),
        ("{input}/x.zarr", "{input}/y.zarr"),
    ),
    _of(
        "kmeans batch",
        ("kmeans", "{input}/x.zarr", "--k", "6", "--n-init", "2", "--batch-rows", "2000", "--passes", "3"),
        ("2000", "3000"),
        ("{input}/x.zarr", "{input}/y.zarr"),
    ),
    _of(
        "kernel-pca",
        ("kernel-pca", "{input}/cells.zarr", "--rank", "3", "--tol", "1e-4"),
        ("3", "2"),
        ("{input}/cells.zarr", "{input}/cells-2.zarr"),
        consumers=("info", "report", "verify", "features"),
    ),
    _of(
        "nystroem",
        ("nystroem", "{input}/cells.zarr", "--rank", "20"),
        ("20", "19"),
        ("{input}/cells.zarr", "{input}/cells-2.zarr"),
        consumers=("info", "report", "verify", "features"),
    ),
    _of(
        "fuzzy-graph",
        ("fuzzy-graph", "{input}/lists.zarr", "--k", "15"),
        ("15", "14"),
        ("{input}/lists.zarr", "{input}/lists-2.zarr"),
        consumers=("info", "report", "verify", "layout"),
    ),
    _of(
        "combine-graphs",
        ("combine-graphs", "{input}/graph.zarr", "{input}/graph-2.zarr", "--weight", "0.5"),
        ("0.5", "0.4"),
        ("{input}/graph-2.zarr", "{input}/graph.zarr"),
        consumers=("info", "report", "verify", "layout"),
    ),
    _of(
        "umap",
        ("umap", "{input}/lists.zarr", "--n-epochs", "30"),
        ("30", "29"),
        ("{input}/lists.zarr", "{input}/lists-2.zarr"),
        methods=("fuzzy_graph",),
    ),
    _of(
        "umap of a matrix",
        ("umap", "{input}/x.zarr", "--n-neighbors", "10", "--n-epochs", "30"),
        ("30", "29"),
        ("{input}/x.zarr", "{input}/y.zarr"),
        methods=("knn", "fuzzy_graph"),
    ),
    _of(
        "tsne",
        ("tsne", "{input}/lists.zarr", "--perplexity", "10", "--n-iter", "40"),
        ("40", "39"),
        ("{input}/lists.zarr", "{input}/lists-2.zarr"),
        more=("--early-exaggeration-iter", "20"),
    ),
    _of(
        "spectral",
        ("spectral", "{input}/graph.zarr", "--n-components", "2", "--seed", "3"),
        ("3", "4"),
        ("{input}/graph.zarr", "{input}/graph-2.zarr"),
    ),
    _of(
        "diffusion-map",
        ("diffusion-map", "{input}/graph.zarr", "--n-components", "2", "--t", "3"),
        ("3", "4"),
        ("{input}/graph.zarr", "{input}/graph-2.zarr"),
    ),
    _of(
        "isomap",
        ("isomap", "{input}/lists.zarr", "--n-landmarks", "60"),
        ("60", "50"),
        ("{input}/lists.zarr", "{input}/lists-2.zarr"),
    ),
    Case(
        "run",
        ("run", "{trial}/flow.yaml"),
        outputs=("results/components.zarr", "results/near.zarr", "results/audit.zarr"),
        overwrite=False,
        consumers=("status", "report-flow"),
        methods=("pca", "knn", "check"),
    ),
    Case(
        "run measures",
        ("run", "{trial}/measures.yaml"),
        outputs=tuple(
            f"results/{name}.zarr" for name in ("components", "near", "placed", "trust", "whole", "both")
        ),
        overwrite=False,
        consumers=("status-measures",),
        methods=("trustworthiness", "continuity", "neighborhood_preservation"),
    ),
    Case(
        "check",
        ("check", "{input}/pca.zarr", "{input}/x.zarr", "--json", *RUN),
        outputs=(),
        overwrite=False,
    ),
    Case(
        "svd with 2 processes",
        (
            *("svd", "{input}/long.zarr", "--rank", "8", "--solver", "subspace"),
            *(*_ITERATIONS, *RUN, *_TWO_PROCESSES, *_OUT),
        ),
        other_request=("8", "7"),
        other_matrix=("{input}/long.zarr", "{input}/x.zarr"),
        consumers=("info", "report", "verify"),
        processes=True,
    ),
    Case(
        "knn with 2 processes",
        ("knn", "{input}/new.zarr", "--k", "5", *RUN, *_TWO_PROCESSES, *_OUT),
        processes=True,
    ),
    Case(
        "nmf with 2 processes",
        ("nmf", "{input}/long.zarr", "--rank", "4", "--passes", "4", *RUN, *_TWO_PROCESSES, *_OUT),
        processes=True,
    ),
    Case(
        "kmeans with 2 processes",
        (
            *("kmeans", "{input}/long.zarr", "--k", "6", "--n-init", "2", "--passes", "6"),
            *(*RUN, *_TWO_PROCESSES, *_OUT),
        ),
        processes=True,
    ),
    Case(
        "umap with 2 processes",
        ("umap", "{input}/near-graph.zarr", "--n-epochs", "30", *RUN, *_TWO_PROCESSES, *_OUT),
        processes=True,
    ),
    Case(
        "kernel-pca with 2 processes",
        ("kernel-pca", "{input}/points.zarr", "--rank", "3", "--tol", "1e-4", *RUN, *_TWO_PROCESSES, *_OUT),
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
    "queries": ("knn", "{input}/newer.zarr", "--index", "{trial}/r.zarr", *RUN, "--out", "{trial}/t.zarr"),
    "features": ("transform", "{trial}/r.zarr", "{input}/cells-2.zarr", *RUN, "--out", "{trial}/t.zarr"),
    "layout": ("umap", "{trial}/r.zarr", "--n-epochs", "5", *RUN, "--out", "{trial}/t.zarr"),
    "status-measures": ("status", "{trial}/measures.yaml"),
    "status": ("status", "{trial}/flow.yaml"),
    "report-flow": ("report", "{trial}/flow.yaml", "--json"),
}
"""What reads the result of a case: damage in it must not go unnoticed there either."""


def case(name: str) -> Case:
    """A case by its name."""
    return next(one for one in CASES if one.name == name)
