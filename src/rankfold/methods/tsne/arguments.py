"""Arguments of tsne: types, defaults and limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rankfold.methods.argument import Argument
from rankfold.methods.embedding.arguments import INITS, StartMatrix
from rankfold.methods.fuzzy_graph.arguments import Metric, Recall
from rankfold.methods.registry import LAYOUT, Input, Method

STARTS = ("pca", "umap", "tsne", "spectral", "diffusion_map", "isomap")
"""Methods whose results may be the initial positions."""


STRONGEST = 1e6
"""Largest factor of forces, since positions are float32."""


@dataclass(frozen=True, slots=True)
class TsneArguments:
    """Arguments of ``rankfold.tsne``, which describes them."""

    n_components: Annotated[int, Argument("dimensions of the embedding", least=1, below=1024)] = 2
    perplexity: Annotated[
        float | str,
        Argument("neighbors that count, three times as many are needed; several with commas between"),
    ] = 30.0
    n_iter: Annotated[int, Argument("steps after the early ones", least=0, below=2**31)] = 500
    early_exaggeration: Annotated[
        float, Argument("of attraction in early steps", least=0, most=STRONGEST)
    ] = 12.0
    early_exaggeration_iter: Annotated[int, Argument("early steps", least=0, below=2**31)] = 250
    exaggeration: Annotated[float, Argument("of attraction after that", least=0, most=STRONGEST)] = 1.0
    learning_rate: Annotated[
        float | None, Argument("of steps; rows over exaggeration by default", least=0, most=1e12)
    ] = None
    initial_momentum: Annotated[float, Argument("of early steps", least=0, below=1)] = 0.8
    final_momentum: Annotated[float, Argument("of steps after that", least=0, below=1)] = 0.8
    min_grad_norm: Annotated[
        float, Argument("length of the gradient at which to stop", least=0, most=STRONGEST)
    ] = 1e-7
    init: Annotated[
        str,
        Argument(
            "spectral, random, pca of --matrix, or a result to begin at", holds=STARTS, choices=INITS[:-1]
        ),
    ] = INITS[0]
    matrix: StartMatrix = None
    metric: Metric = None
    min_recall: Recall = None
    seed: Annotated[int, Argument("key of the random numbers", least=0, below=2**64)] = 0
    quality: Annotated[
        str | None,
        Argument("matrix of the rows, by which the embedding is measured", holds="matrix", metavar="STORE"),
    ] = None


TSNE = Method(
    "tsne",
    "Rows in few dimensions, each with its neighbors in the neighborhood.",
    TsneArguments,
    "rankfold.methods.tsne.tasks:tsne_task",
    topic=LAYOUT,
    inputs=(Input("neighbors", ("knn",), matrix_key="input"),),
    matrices=("embedding",),
    arrays=("embedding", "history"),
    edition=3,  # with few rows, velocities and gains are reset after early steps
    loops="rankfold.methods.tsne.warm:warm_descent",
)
