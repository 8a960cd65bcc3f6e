"""rankfold: low-rank structure of matrices larger than memory, one fold over the data.

    svd, pca          reductions in planned memory and few reads
    nmf               nonnegative factors
    qr                an orthonormal basis of the columns, and R
    knn               nearest neighbors of every row, exactly
    index             rows sorted by partition, in which knn finds neighbors of new rows
    radius_neighbors  all neighbors within a radius
    kernel_sum        sums of a kernel, and forces, between all rows
    density           the density that rows are drawn from
    kmeans            clusters of rows around their means
    fuzzy_graph       neighbors as a graph of weights
    combine_graphs    two such graphs of the same rows as one
    umap              rows laid out by that graph, in few dimensions
    tsne              rows each with its neighbors in the neighborhood
    isomap            rows as far apart as along the graph of their neighbors
    spectral, diffusion_map
                      rows in few dimensions by eigenvectors of that graph
    kernel_pca        components in the space of a kernel function, of all pairs of rows
    nystroem          features of rows whose products approximate a kernel function
    trustworthiness, continuity, neighborhood_preservation
                      how well an embedding keeps neighborhoods
    update            components of more samples, from those of some
    transform         coordinates of new samples in a result
    reconstruct       the matrix as its leading components have it
    check             residuals of a result against its matrix
    plan              their numbers, before anything runs
    open              a matrix on disk or in memory
    import_array      any source into a well-chunked Zarr store
    open_result       a result that an earlier call wrote
    verify            what is damaged of a result

Names are loaded when first used: importing the package costs nothing.
"""

from __future__ import annotations

from typing import Any

from rankfold._version import __version__ as __version__

_HOMES = {
    "RankfoldError": "rankfold.pipeline.errors",
    "RankfoldWarning": "rankfold.api.execute",
    "Result": "rankfold.pipeline.storage.result",
    "check": "rankfold.api.functions.models",
    "combine_graphs": "rankfold.api.functions.neighbors",
    "continuity": "rankfold.api.functions.embedding_quality",
    "density": "rankfold.api.functions.sums",
    "diffusion_map": "rankfold.api.functions.eigenmaps",
    "fuzzy_graph": "rankfold.api.functions.neighbors",
    "import_array": "rankfold.api.matrices",
    "index": "rankfold.api.functions.neighbors",
    "isomap": "rankfold.api.functions.embeddings",
    "kernel_pca": "rankfold.api.functions.kernels",
    "kernel_sum": "rankfold.api.functions.sums",
    "kmeans": "rankfold.api.functions.clusters",
    "knn": "rankfold.api.functions.neighbors",
    "neighborhood_preservation": "rankfold.api.functions.embedding_quality",
    "nmf": "rankfold.api.functions.reductions",
    "nystroem": "rankfold.api.functions.kernels",
    "open": "rankfold.api.matrices:open_matrix",
    "open_result": "rankfold.pipeline.storage.result",
    "pca": "rankfold.api.functions.reductions",
    "plan": "rankfold.api.call",
    "qr": "rankfold.api.functions.reductions",
    "radius_neighbors": "rankfold.api.functions.neighbors",
    "reconstruct": "rankfold.api.functions.models",
    "spectral": "rankfold.api.functions.eigenmaps",
    "svd": "rankfold.api.functions.reductions",
    "transform": "rankfold.api.functions.models",
    "trustworthiness": "rankfold.api.functions.embedding_quality",
    "tsne": "rankfold.api.functions.embeddings",
    "umap": "rankfold.api.functions.embeddings",
    "update": "rankfold.api.functions.models",
    "verify": "rankfold.api.finished",
}

__all__ = sorted(["__version__", *_HOMES])


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        return _plugin_function(name)
    import importlib

    importlib.import_module("rankfold.methods")  # which say what results are
    module, _, attribute = _HOMES[name].partition(":")
    value = getattr(importlib.import_module(module), attribute or name)
    globals()[name] = value
    return value


def _plugin_function(name: str) -> Any:
    """The function of a method that another package adds."""
    if not name.startswith("_"):
        from rankfold.methods.registry import METHODS

        if name in METHODS:
            from rankfold.api.method_function import function_of

            globals()[name] = function_of(METHODS[name])
            return globals()[name]
    raise AttributeError(f"module 'rankfold' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
