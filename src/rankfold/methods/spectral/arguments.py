"""Arguments of spectral and diffusion_map: types, defaults and limits.

Parameters of a spectral embedding, checked before anything is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from rankfold.methods.argument import Argument
from rankfold.methods.embedding.arguments import Quality
from rankfold.methods.fuzzy_graph.arguments import GRAPHS, Metric, Neighbors, Recall
from rankfold.methods.headline import Facts, dimensions, neighborhoods, passes
from rankfold.methods.registry import LAYOUT, Input, Method, Transformation
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.law import REAL, Law
from rankfold.pipeline.presentation import CellElements, Presentation

TOL = 1e-6
MOST_PASSES = 10_000

Components = Annotated[int, Argument("dimensions of the embedding", least=1, positional=True)]
Tol = Annotated[
    float, Argument("relative error of an eigenvalue's distance from that of no embedding", least=0, below=1)
]
Passes = Annotated[int, Argument("reads of the graph at most, or products with it in memory", least=1)]
Seed = Annotated[int, Argument("key of the random numbers", least=0, below=2**64)]


@dataclass(frozen=True, slots=True)
class SpectralArguments:
    """Arguments of ``rankfold.spectral``, which describes them."""

    n_components: Components = 2
    tol: Tol = TOL
    passes: Passes = MOST_PASSES
    n_neighbors: Neighbors = None
    metric: Metric = None
    min_recall: Recall = None
    seed: Seed = 0
    quality: Quality = None


@dataclass(frozen=True, slots=True)
class DiffusionArguments:
    """Arguments of ``rankfold.diffusion_map``, which describes them."""

    n_components: Components = 2
    alpha: Annotated[
        float, Argument("how far the density of rows is taken out: 0 not at all, 1 wholly", least=0, most=1)
    ] = 1.0
    t: Annotated[int, Argument("steps of the walk that distances are of", least=0)] = 1
    tol: Tol = TOL
    passes: Passes = MOST_PASSES
    n_neighbors: Neighbors = None
    metric: Metric = None
    min_recall: Recall = None
    seed: Seed = 0
    quality: Quality = None


GRAPH = (Input("neighbors", (*GRAPHS, "knn"), matrix_key="input"),)

ERRORS = {name: Law(("component",), REAL, 0, 10.0) for name in ("residuals", "error_estimates")}
"""Limits of stored errors. Eigenvalues of the Laplacian are between 0 and 2, those of the walk between -1 and
1, and errors of both no larger; rounding may lead a little beyond."""


def headline(facts: Facts, attempt: Facts) -> str:
    """Line of text on eigenvectors of a graph, from facts of the result; ``attempt`` is not used."""
    parts, error = facts["connected_components"], facts["largest_error_estimate"]
    graph = f"the graph of {parts} component{'s' * (parts != 1)}"
    line = f"{dimensions(facts)}, {passes(facts)} over {graph}"
    return f"{line}; largest estimated error of an eigenvalue {error:.1e}{neighborhoods(facts)}"


SPECTRAL = Method(
    "spectral",
    "Rows in few dimensions by the smallest eigenvectors of the Laplacian of their graph.",
    SpectralArguments,
    "rankfold.methods.spectral.spectral:spectral_task",
    topic=LAYOUT,
    inputs=GRAPH,
    matrices=("embedding",),
    arrays=("embedding", "eigenvalues", "labels", "residuals", "error_estimates"),
    laws={"eigenvalues": Law(("component",), REAL, -0.01, 2.01), **ERRORS},
    in_process=True,
    loops="rankfold.methods.spectral.walk.filter:warm_walk",
    edition=3,  # errors are relative, as tol is
    headline=headline,
    transformation=Transformation(
        "rankfold.methods.spectral.transform:extension_task",
        "rankfold.methods.fuzzy_graph.fuzzy_graph:warm_weights",
        by_neighbors=True,
    ),
    presentation=Presentation(cells=CellElements("spectral", "X_spectral")),
)

# Not X_diffmap: there scanpy takes the first column for the steady state, and looks for eigenvalues in uns.
DIFFUSION_MAP = Method(
    "diffusion_map",
    "Rows in few dimensions by how a random walk on their graph spreads from each.",
    DiffusionArguments,
    "rankfold.methods.spectral.spectral:diffusion_task",
    topic=LAYOUT,
    inputs=GRAPH,
    matrices=("embedding",),
    arrays=("embedding", "eigenvalues", "labels", "residuals", "error_estimates", "density if alpha"),
    laws={"eigenvalues": Law(("component",), REAL, -1.01, 1.01), **ERRORS},
    in_process=True,
    loops="rankfold.methods.spectral.walk.filter:warm_walk",
    edition=3,  # errors are relative, as tol is
    headline=headline,
    transformation=Transformation(
        "rankfold.methods.spectral.transform:extension_task",
        "rankfold.methods.fuzzy_graph.fuzzy_graph:warm_weights",
        by_neighbors=True,
    ),
    presentation=Presentation(cells=CellElements("diffusion_map", "X_diffusion_map")),
)


@dataclass(frozen=True, slots=True)
class SpectralRequest:
    """Parameters that a result depends on; ``kind`` is ``"spectral"`` or ``"diffusion_map"``."""

    kind: str
    n_components: int
    tol: float
    passes: int
    seed: int
    alpha: float = 0.0
    """Power of the sums of weights of rows by which weights are divided at both ends; 0 not to."""

    t: int = 0
    """Power of each eigenvalue that the coordinate of its eigenvector is multiplied by."""

    apart: bool = False
    """True if each component of the graph gets eigenvectors of its own, for the start of a layout."""

    def check_rows(self, rows: int) -> None:
        """Raise ``InputError`` if a graph of ``rows`` rows has fewer dimensions than are asked for."""
        if self.n_components > rows - 1:
            raise InputError(
                f"n_components {self.n_components} was asked for, but {rows} rows have at most {rows - 1} "
                f"dimensions beside the constant one: ask for 1 to {rows - 1}"
                if rows > 1
                else "one row alone has no place among others: give neighbors of two rows or more"
            )

    def as_dict(self) -> dict[str, Any]:
        """Parameters by name, as JSON types: part of the facts of a result."""
        facts = {"kind": self.kind, "n_components": self.n_components}
        if self.kind == "diffusion_map":
            facts |= {"alpha": self.alpha, "t": self.t}
        return facts | {"tol": self.tol, "passes": self.passes, "seed": self.seed, "apart": self.apart}
