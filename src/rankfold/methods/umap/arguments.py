"""Arguments of umap: types, defaults and limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rankfold.methods.argument import Argument
from rankfold.methods.embedding.arguments import INITS, StartMatrix
from rankfold.methods.fuzzy_graph.arguments import GRAPHS, Metric, Neighbors, Recall
from rankfold.methods.registry import LAYOUT, Input, Method

STRONGEST = 1e6
"""Largest factor of forces, since positions are float32."""

STEEPEST = {"a": 1e12, "b": 16.0}
"""Largest parameters of curves whose forces are finite at all squared distances from 2^-32 to 2^32."""


@dataclass(frozen=True, slots=True)
class UmapArguments:
    """Arguments of ``rankfold.umap``, which describes them."""

    n_components: Annotated[int, Argument("dimensions of the embedding", least=1, below=1024)] = 2
    n_epochs: Annotated[
        int | None,
        Argument(
            "times that edges pull; 500 for up to 10000 rows by default, else 200", least=1, below=2**31
        ),
    ] = None
    min_dist: Annotated[float, Argument("distance up to which rows may lie together", least=0)] = 0.1
    spread: Annotated[float, Argument("distance over which they part", above=0)] = 1.0
    a: Annotated[
        float | None,
        Argument("of the curve 1 / (1 + a d^(2 b)), in place of min_dist", above=0, most=STEEPEST["a"]),
    ] = None
    b: Annotated[float | None, Argument("of the same curve", above=0, most=STEEPEST["b"])] = None
    negative_sample_rate: Annotated[
        int, Argument("random rows that a row is pushed from whenever an edge pulls", least=0, below=1024)
    ] = 5
    repulsion_strength: Annotated[float, Argument("of these pushes", least=0, most=STRONGEST)] = 1.0
    learning_rate: Annotated[
        float, Argument("of the first epoch; it falls to 0", least=0, most=STRONGEST)
    ] = 1.0
    density: Annotated[
        float | None,
        Argument(
            "how strongly rows that are far apart in the data are kept so; 2 as in densMAP",
            least=0,
            most=STRONGEST,
        ),
    ] = None
    density_share: Annotated[
        float, Argument("of the epochs, the last ones, in which density counts", least=0, most=1)
    ] = 0.3
    density_shift: Annotated[
        float, Argument("that is added to the variance of local radii in the layout", least=0, most=STRONGEST)
    ] = 0.1
    init: Annotated[
        str,
        Argument(
            "spectral, random, pca of --matrix, or a result of pca, umap, spectral or diffusion_map "
            "to begin at",
            holds=("pca", "umap", "spectral", "diffusion_map"),
            choices=INITS[:-1],
        ),
    ] = INITS[0]
    matrix: StartMatrix = None
    n_neighbors: Neighbors = None
    metric: Metric = None
    min_recall: Recall = None
    seed: Annotated[int, Argument("key of the random numbers", least=0, below=2**64)] = 0
    quality: Annotated[
        str | None,
        Argument("matrix of the rows, by which the embedding is measured", holds="matrix", metavar="STORE"),
    ] = None


UMAP = Method(
    "umap",
    "Rows laid out in few dimensions by the graph of their neighbors.",
    UmapArguments,
    "rankfold.methods.umap.umap:umap_task",
    topic=LAYOUT,
    inputs=(Input("neighbors", (*GRAPHS, "knn"), matrix_key="input"),),
    matrices=("embedding",),
    arrays=("embedding", "radius_data if density", "radius_embedding if density"),
    loops="rankfold.methods.umap.warm:warm_layout",
    edition=2,  # each vertex takes its edges from another one on in every epoch
)
