"""Arguments of radius_neighbors: types, defaults and limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rankfold.methods.argument import Argument
from rankfold.methods.headline import Facts
from rankfold.methods.knn.arguments import ALIASES, CORRELATION, HAVERSINE
from rankfold.methods.registry import SEARCH, Method
from rankfold.pipeline.presentation import Presentation

NAMES = ("euclidean", "sqeuclidean", "cosine", CORRELATION, "manhattan", "chebyshev", HAVERSINE)

MOST_EDGES = 10**10
"""Default of the largest number of edges of a graph, which take 160 GB."""


@dataclass(frozen=True, slots=True)
class RadiusArguments:
    """Arguments of ``rankfold.radius_neighbors``."""

    radius: Annotated[
        float, Argument("largest distance of neighbors, itself included", least=0, positional=True)
    ]
    queries: Annotated[
        str | None, Argument("rows whose neighbors are wanted instead", holds="matrix", metavar="STORE")
    ] = None
    metric: Annotated[
        str,
        Argument(
            "euclidean, sqeuclidean, cosine, correlation, manhattan, chebyshev or haversine",
            choices=(*NAMES, *ALIASES),
        ),
    ] = "euclidean"
    box: Annotated[
        str | None,
        Argument(
            "lengths after which columns repeat themselves, such as 10,10,0; 0 for never",
            python_type="str | float | Sequence[float]",
        ),
    ] = None
    max_edges: Annotated[int, Argument("edges of a graph at most", least=1)] = MOST_EDGES


def headline(facts: Facts, attempt: Facts) -> str:
    """One line of text on the edges of a graph, from the ``facts`` of a result; ``attempt`` is not used."""
    asked = facts["request"]
    line = f"neighbors within {asked['radius']:g}, {asked['metric']}: {facts['edges']} edges"
    return f"{line}, at most {facts['most_neighbors']} of a row"


RADIUS = Method(
    "radius_neighbors",
    "All neighbors of every row within a radius, exactly: a graph, and how many each row has.",
    RadiusArguments,
    "rankfold.methods.radius.radius:radius_task",
    topic=SEARCH,
    matrices=("graph",),
    arrays=("degrees", "graph"),
    loops="rankfold.methods.radius.radius:warm_radius",
    headline=headline,
    presentation=Presentation(quick_plot="degrees"),
)
