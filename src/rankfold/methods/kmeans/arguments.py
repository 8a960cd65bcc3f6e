"""Arguments of kmeans: types, defaults and limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rankfold.methods.argument import Argument
from rankfold.methods.headline import Facts, passes
from rankfold.methods.registry import SEARCH, Method
from rankfold.pipeline.law import WHOLE, Law
from rankfold.pipeline.presentation import CellElements, Presentation

INITS = ("k-means||", "sample", "custom")
"""Ways to choose starting centers; callers do not name the last one, but pass centers."""

DEFAULT_TOL = 1e-4
"""Squared movement of all centers in a pass, over the mean variance of columns, to stop at."""

DEFAULT_PASSES = 100

DEFAULT_STARTS = 10


@dataclass(frozen=True, slots=True)
class KMeansArguments:
    """Arguments of ``rankfold.kmeans``."""

    k: Annotated[
        int | None,
        Argument("number of clusters; that of the centers given as init", least=1, positional=True),
    ] = None
    init: Annotated[
        str,
        Argument(
            "k-means||, sample, or an earlier result whose centers are the first",
            holds=("kmeans",),
            choices=INITS[:-1],
        ),
    ] = "k-means||"
    n_init: Annotated[int, Argument("starts, of which the best goes on", least=1)] = DEFAULT_STARTS
    tol: Annotated[
        float, Argument("squared movement of centers over the variance of columns to stop at", least=0)
    ] = DEFAULT_TOL
    passes: Annotated[int, Argument("most passes over the matrix", least=1)] = DEFAULT_PASSES
    seed: Annotated[int, Argument("key of the random start", least=0, below=2**64)] = 0
    batch_rows: Annotated[
        int | None, Argument("rows after which centers move, in mini-batches; by default all", least=1)
    ] = None
    weights: Annotated[
        str | None, Argument("what each row counts: a matrix of one column", holds="matrix", metavar="STORE")
    ] = None


def headline(facts: Facts, attempt: Facts) -> str:
    """One line of text on clusters, and on how far rows are from their centers.

    ``facts`` are those of a result; ``attempt`` is not used.
    """
    empty = facts["empty_clusters"]
    line = f"kmeans by {facts['method']}, k {facts['request']['k']}, {passes(facts)}"
    line += f"; inertia {facts['final_inertia']:.6g}"
    return f"{line}, {empty} clusters without rows" if empty else line


KMEANS = Method(
    "kmeans",
    "Clusters of rows around their means: labels, centers, counts, inertia.",
    KMeansArguments,
    "rankfold.methods.kmeans.kmeans:kmeans_task",
    topic=SEARCH,
    matrices=("centers",),
    laws={"labels": Law(("row",), WHOLE, 0, below=("cluster",))},
    arrays=("labels", "centers", "counts", "inertia", "cluster_weights?", "means?"),
    growth="rankfold.methods.growth.clusters:grow_clusters",
    edition=2,  # centers are exchanged on the sample
    loops="rankfold.methods.kmeans.passes:warm_clusters",
    headline=headline,
    presentation=Presentation(quick_plot="sizes", cells=CellElements("kmeans", labels="kmeans")),
    pending="rankfold.methods.kmeans.kmeans:pending_task",
)
