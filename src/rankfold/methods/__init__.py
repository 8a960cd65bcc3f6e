"""Algorithms: a folder for a method, and what several share.

    svd          singular value decomposition, principal components, QR; one solver, one file
    nmf          nonnegative factors
    knn          nearest neighbors
    radius       neighbors within a radius
    index        rows sorted by partition on disk, and neighbors of queries in them
    bits         rows as sets: packed bits, and sparse rows without their zeros
    partitions   neighbors within partitions of the rows, and their recall
    tree         points of few dimensions in a tree, which both search
    sums         sums of kernels over all pairs of points, and densities
    fuzzy_graph  neighbors as a graph of weights
    umap         layouts of graphs of neighbors
    tsne         neighbor embeddings down a gradient
    isomap       embeddings by shortest paths along such graphs
    spectral     eigenvectors of graphs of neighbors
    kernel_pca   principal components by kernel functions of pairs of rows
    nystroem     features that approximate a kernel function, by landmarks
    similarity   kernel functions of all pairs, and their products
    kmeans       clusters of rows around their means
    embedding    what embeddings share: where rows begin, how well neighborhoods are kept
    growth       results that go on with rows that have come since
    model        what is done with a result: transform, update, check, reconstruct
    growth       results that go on with rows that have come since
    parts        what several methods share

    claims       what a result claims of its error, and when it has converged
    argument     what is known of an argument: type, bounds, choices, help
    registry     every method by its name, those of other packages too
    task         what every method gives: what can be planned and carried out
    chain        a task of tasks
    random_keys  what random numbers are drawn for
    warm         compile before the baseline of memory is taken

Imports ``kernels`` and ``pipeline``; knows no cluster.
"""

from rankfold.pipeline.law import SOURCES, ResultLaw


def _law_of_results(kind: str) -> ResultLaw | None:
    """Look up the law of results of a method, imported only when a result is opened."""
    from rankfold.methods.parts.outputs import law_of_results

    return law_of_results(kind)


SOURCES.append(_law_of_results)
