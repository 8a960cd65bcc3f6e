"""Arguments of knn: types, defaults and limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rankfold.methods.argument import Argument
from rankfold.methods.headline import Facts
from rankfold.methods.registry import SEARCH, Method
from rankfold.pipeline.presentation import CellElements, Presentation

CORRELATION = "correlation"
NAMES = ("euclidean", "sqeuclidean", "cosine", CORRELATION, "inner_product", "manhattan", "chebyshev")
SET_NAMES = ("hamming", "jaccard", "bit_hamming", "bit_jaccard")
"""Metrics of sets, or of numbers compared for equality; for searches of nearest neighbors alone."""

PACKED_NAMES = ("bit_hamming", "bit_jaccard")
"""Metrics of packed bits: each byte holds eight columns."""

HAVERSINE = "haversine"
"""Metric of latitude and longitude (great-circle distance), for searches in a tree alone."""

PRECOMPUTED = "precomputed"
"""The matrix holds distances: all of them, or those that a sparse one stores."""

SOLVERS = ("auto", "pairs", "tree", "approximate")
"""Ways to search, of which ``auto`` chooses one. ``pairs`` compares all pairs of rows, ``tree`` looks points
up in a tree: the lists are the same. ``approximate`` compares rows within partitions, and lists are nearly
the same."""

DEFAULT_RECALL = 0.95
"""Least share of true neighbors in approximate lists, where the caller gives none."""

ALIASES = {"l2": "euclidean", "l1": "manhattan", "cityblock": "manhattan", "linf": "chebyshev"}
SYMMETRIC = ("union", "mutual")
"""Edges of a symmetric graph: those in the list of either of their two rows, or in the lists of both."""

DEFAULT_K = 15


SearchMetric = Annotated[
    str,
    Argument(
        "euclidean, sqeuclidean, cosine, correlation, inner_product, manhattan, chebyshev or haversine; "
        "hamming or jaccard, bit_hamming or bit_jaccard of packed bits; precomputed of distances",
        choices=(*NAMES, *SET_NAMES, HAVERSINE, PRECOMPUTED, *ALIASES),
        python_type="str | Callable[..., float]",
    ),
]


@dataclass(frozen=True, slots=True)
class KnnArguments:
    """Arguments of ``rankfold.knn``."""

    k: Annotated[int, Argument("neighbors of each row", least=1, positional=True)] = DEFAULT_K
    queries: Annotated[
        str | None, Argument("rows whose neighbors are wanted instead", holds="matrix", metavar="STORE")
    ] = None
    base: Annotated[
        str | None,
        Argument("lists of the first rows, to be gone on with", holds=("knn",), metavar="RESULT"),
    ] = None
    index: Annotated[
        str | None,
        Argument("of other rows, among which neighbors are looked for", holds=("index",), metavar="RESULT"),
    ] = None
    metric: SearchMetric = "euclidean"
    symmetric: Annotated[
        str | None,
        Argument("edges of the graph that either row has, union, or both, mutual", choices=SYMMETRIC),
    ] = None
    box: Annotated[
        str | None,
        Argument(
            "lengths after which columns repeat themselves, such as 10,10,0; 0 for never",
            python_type="str | float | Sequence[float]",
        ),
    ] = None
    solver: Annotated[
        str,
        Argument(
            "pairs, or a tree of points of few columns, with the same neighbors; approximate, by partitions",
            choices=SOLVERS,
        ),
    ] = "auto"
    min_recall: Annotated[
        float | None,
        Argument("share of true neighbors that is enough; without it neighbors are exact", least=0, below=1),
    ] = None
    partition_rows: Annotated[
        int | None, Argument("rows of a partition on average, where neighbors are approximate", least=2)
    ] = None
    seed: Annotated[int, Argument("key of the partitions", least=0, below=2**64)] = 0


def headline(facts: Facts, attempt: Facts) -> str:
    """One line of text on lists of neighbors: their recall, or the share of shortlists that were long enough.

    ``facts`` are those of a result, ``attempt`` those of its last run.
    """
    line = f"knn by {facts['method']}, k {facts['request']['k']}, {facts['request']['metric']}"
    if "recall_interval" in facts:
        low, high = facts["recall_interval"]
        what = "rounds" if "rounds" in facts else "probes"
        effort = f"{facts[what]} {what if facts[what] != 1 else what[:-1]}"
        recall = f"recall {facts['recall']:.4f}, from {low:.4f} to {high:.4f} by {facts['recall_rows']} rows"
        return f"{line}, {effort}; {recall}"
    if "certain" in attempt:
        return f"{line}; {100 * attempt['certain']:.4g} % of shortlists were certain at once"
    return line


KNN = Method(
    "knn",
    "Nearest neighbors of every row, exactly: indices, distances, graph.",
    KnnArguments,
    "rankfold.methods.knn.knn:knn_task",
    topic=SEARCH,
    matrices=("distances", "indices", "graph"),
    arrays=("distances", "indices", "graph"),
    growth="rankfold.methods.growth.lists:grow_lists",
    loops="rankfold.methods.knn.knn:warm_neighbors",
    headline=headline,
    presentation=Presentation(
        size="k {rank}, {orientation}",
        cells=CellElements("neighbors", graphs=("distances", "connectivities")),
    ),
)
