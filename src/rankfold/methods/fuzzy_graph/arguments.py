"""Arguments of fuzzy_graph and combine_graphs: types, defaults and limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rankfold.methods.argument import Argument
from rankfold.methods.headline import Facts
from rankfold.methods.registry import SEARCH, Input, Method
from rankfold.pipeline.presentation import Presentation

ONE_SIDED = 1.0
"""Default ``set_op_mix_ratio``, the share of the union in the mix with the intersection: with 1, an edge has
weight 1 if either of its rows gives it weight 1."""

HALF = 0.5
"""Default weight, between 0 and 1, of targets, or of the second of two graphs."""

CATEGORICAL = "categorical"
TARGET_METRICS = (CATEGORICAL, "euclidean")
RULES = ("intersection", "union")

GRAPHS = ("fuzzy_graph", "combine_graphs")
"""Methods whose results are weighted graphs."""


NEIGHBORS = 15
"""Default number of neighbors of each row if a matrix is given, itself counted, as in umap-learn and
scanpy."""

Neighbors = Annotated[
    int | None,
    Argument("of each row of a matrix, the row itself counted; 15 by default", least=1, identity=False),
]
Metric = Annotated[
    str | None,
    Argument("by which neighbors in a matrix are found: one of knn; euclidean by default", identity=False),
]
Recall = Annotated[
    float | None,
    Argument(
        "share of true neighbors in a matrix that is enough; by default they are exact up to 20000 rows or "
        "15 columns, and 0.95 above",
        least=0,
        below=1,
        identity=False,
    ),
]


@dataclass(frozen=True, slots=True)
class FuzzyArguments:
    """Arguments of ``rankfold.fuzzy_graph``, which describes them."""

    k: Annotated[
        int | None,
        Argument("nearest neighbors of each row that count; all by default", least=1, positional=True),
    ] = None
    set_op_mix_ratio: Annotated[
        float, Argument("1 for the union of what both rows of a pair say, 0 for the intersection", least=0)
    ] = ONE_SIDED
    local_connectivity: Annotated[
        float, Argument("neighbors of each row that are sure to be joined to it", least=0)
    ] = 1.0
    targets: Annotated[
        str | None,
        Argument(
            "labels or numbers of the rows, which bring those that share them together",
            holds="matrix",
            metavar="STORE",
        ),
    ] = None
    target_metric: Annotated[
        str, Argument("of targets: labels that are the same or not, or numbers", choices=TARGET_METRICS)
    ] = CATEGORICAL
    target_weight: Annotated[
        float, Argument("of targets: 0 for the matrix alone, 1 for targets alone", least=0)
    ] = HALF
    radii: Annotated[bool, Argument("also how far the neighbors of each row are, for umap by density")] = (
        False
    )


@dataclass(frozen=True, slots=True)
class CombineArguments:
    """Arguments of ``rankfold.combine_graphs``, which describes them."""

    rule: Annotated[str, Argument("edges that both graphs agree on, or that either has", choices=RULES)] = (
        RULES[0]
    )
    weight: Annotated[float, Argument("of the second graph in an intersection, between 0 and 1", least=0)] = (
        HALF
    )


def _headline_of_graph(facts: Facts, attempt: Facts) -> str:
    """Line of text on a graph made of neighbors, from facts of the result; ``attempt`` is not used."""
    targets = ", with targets" * ("targets" in facts["request"])
    return f"fuzzy graph of {facts['request']['k']} neighbors{targets}: {facts['weights']} weights"


def _headline_of_graphs(facts: Facts, attempt: Facts) -> str:
    """Line of text on a graph made of two, from facts of the result; ``attempt`` is not used."""
    return f"{facts['request']['rule']} of two graphs: {facts['weights']} weights"


FUZZY_GRAPH = Method(
    "fuzzy_graph",
    "Neighbors as a graph of weights between 0 and 1, as UMAP makes it.",
    FuzzyArguments,
    "rankfold.methods.fuzzy_graph.tasks:fuzzy_graph_task",
    topic=SEARCH,
    inputs=(Input("neighbors", ("knn",)),),
    matrices=("graph",),
    arrays=("graph", "radius_data if radii"),
    in_process=True,
    loops="rankfold.methods.fuzzy_graph.fuzzy_graph:warm_weights",
    headline=_headline_of_graph,
    presentation=Presentation(quick_plot="degrees"),
)
COMBINE_GRAPHS = Method(
    "combine_graphs",
    "Two graphs of the same rows as one.",
    CombineArguments,
    "rankfold.methods.fuzzy_graph.tasks:combine_graphs_task",
    topic=SEARCH,
    inputs=(
        Input("first", GRAPHS),
        Input("second", GRAPHS),
    ),
    matrices=("graph",),
    arrays=("graph", "radius_data?"),
    in_process=True,
    headline=_headline_of_graphs,
)
