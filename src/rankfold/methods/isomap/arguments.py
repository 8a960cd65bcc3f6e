"""Arguments of isomap: types, defaults and limits.

Parameters of an embedding by paths, checked before anything is read.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any

from rankfold.methods.argument import Argument
from rankfold.methods.embedding.arguments import Quality
from rankfold.methods.fuzzy_graph.arguments import Metric, Recall
from rankfold.methods.headline import Facts, dimensions, neighborhoods, unexplained
from rankfold.methods.registry import LAYOUT, Input, Method, Transformation
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.presentation import CellElements, Presentation

LANDMARKS = ("farthest", "random")
"""Ways of choosing the landmarks, rows that paths begin at."""

DEFAULT_K = 5
"""Default number of neighbors of each row of a matrix, itself not counted, as in scikit-learn."""

DISCONNECTED = ("refuse", "join")
"""Ways of treating a graph of several components: raise an error, or join them by edges."""


@dataclass(frozen=True, slots=True)
class IsomapArguments:
    """Arguments of ``rankfold.isomap``, which describes them."""

    n_components: Annotated[int, Argument("dimensions of the embedding", least=1)] = 2
    n_landmarks: Annotated[
        int | None,
        Argument("rows that paths begin at; all of up to 1000 rows by default, else 500", least=1),
    ] = None
    landmarks: Annotated[
        str, Argument("each the farthest from those before, or any rows", choices=LANDMARKS)
    ] = LANDMARKS[0]
    seed: Annotated[int, Argument("key of the random numbers", least=0, below=2**64)] = 0
    disconnected: Annotated[
        str,
        Argument(
            "refuse a graph of several components, or join all by their nearest rows", choices=DISCONNECTED
        ),
    ] = DISCONNECTED[0]
    matrix: Annotated[
        str | None, Argument("that neighbors are of, to join components by", holds="matrix")
    ] = None
    n_neighbors: Annotated[
        int | None, Argument("of each row of a matrix, itself not counted; 5 by default", least=1)
    ] = None
    metric: Metric = None
    min_recall: Recall = None
    quality: Quality = None


def headline(facts: Facts, attempt: Facts) -> str:
    """Line of text on an embedding by shortest paths, from facts of the result; ``attempt`` is not used."""
    line = f"{dimensions(facts)} by {facts['request']['n_landmarks']} landmarks"
    return f"{line}; {unexplained(facts)}{neighborhoods(facts)}"


ISOMAP = Method(
    "isomap",
    "Rows in few dimensions, as far apart as along the graph of their neighbors.",
    IsomapArguments,
    "rankfold.methods.isomap.isomap:isomap_task",
    topic=LAYOUT,
    inputs=(Input("neighbors", ("knn", "radius_neighbors"), matrix_key="input"),),
    matrices=("embedding", "geodesics"),
    arrays=("embedding", "geodesics", "landmarks", "landmark_eigenvalues", "projection", "mean_squares"),
    in_process=True,
    loops="rankfold.methods.isomap.isomap:warm_paths",
    headline=headline,
    transformation=Transformation(
        "rankfold.methods.isomap.transform:place_task",
        "rankfold.methods.fuzzy_graph.fuzzy_graph:warm_weights",
        by_neighbors=True,
    ),
    presentation=Presentation(cells=CellElements("isomap", "X_isomap")),
)


FEW_ROWS = 1000
"""Number of rows up to which all rows are landmarks by default."""

MANY = 500
"""Default number of landmarks for more rows than that."""


@dataclass(frozen=True, slots=True)
class IsomapRequest:
    """Parameters of ``isomap`` that a result depends on."""

    n_components: int
    n_landmarks: int
    landmarks: str
    seed: int
    disconnected: str

    @classmethod
    def of(cls, rows: int, arguments: IsomapArguments) -> IsomapRequest:
        """Make a request for ``rows`` rows from a caller's arguments; ``InputError`` for invalid ones."""
        components, given = arguments.n_components, arguments.n_landmarks
        landmarks = (rows if rows <= FEW_ROWS else MANY) if given is None else given
        if not 1 <= landmarks <= rows:
            raise InputError(f"n_landmarks must lie in 1 .. {rows}, as many as there are rows, not {given}")
        if not 1 <= components <= landmarks:
            raise InputError(
                f"n_components must lie in 1 .. {landmarks}, as many as there are landmarks, not {components}"
            )
        return cls(components, landmarks, arguments.landmarks, arguments.seed, arguments.disconnected)

    def as_dict(self) -> dict[str, Any]:
        """Parameters by name, as JSON types: part of the facts of a result."""
        return {"kind": "isomap", **dataclasses.asdict(self)}
