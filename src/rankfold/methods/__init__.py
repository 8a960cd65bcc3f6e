"""Algorithms: one folder for each method, and the code that several methods share.

    svd          singular value decomposition, principal components, QR; one file for each solver
    nmf          nonnegative factors
    knn          nearest neighbors
    radius       neighbors within a radius
    index        rows sorted by partition on disk, and neighbors of queries in them
    bits         rows as sets: packed bits, and sparse rows without their zeros
    partitions   neighbors within partitions of the rows, and their recall
    tree         space tree of points of few dimensions, searched by knn and radius
    sums         sums of kernels over all pairs of points, and densities
    fuzzy_graph  weighted graphs from lists of neighbors
    umap         layouts of graphs of neighbors
    tsne         neighbor embeddings down a gradient
    isomap       embeddings by shortest paths along graphs of neighbors
    spectral     eigenvectors of graphs of neighbors
    kernel_pca   principal components by kernel functions of pairs of rows
    nystroem     features that approximate a kernel function, by landmarks
    similarity   kernel functions of all pairs, and their products
    kmeans       clusters of rows around their means
    embedding    code that embeddings share: starts, and how well neighborhoods are kept
    model        operations on a result: transform, update, check, reconstruct
    growth       results that are extended by rows added since
    parts        code that several methods share

    claims       the error that a result reports, and when it has converged
    argument     declaration of an argument: type, bounds, choices, help
    headline     one line on a finished result
    registry     every method by its name, including those of other packages
    task         the protocol of a task, which can be planned and run
    chain        a task made of several tasks
    random_keys  purposes for which random numbers are drawn
    warm         compile before the baseline of memory is measured

Imports ``kernels`` and ``pipeline``; independent of any cluster.
"""

from rankfold.pipeline.law import SOURCES, ResultLaw


def _law_of_results(kind: str) -> ResultLaw | None:
    """Rules for the arrays in results of the method ``kind``; None for an unknown method.

    The declarations of methods are imported here, only when a result is opened.
    """
    from rankfold.methods.parts.outputs import law_of_results

    return law_of_results(kind)


SOURCES.append(_law_of_results)
