"""Clusters of rows: see ``docs/clustering.md``."""

from __future__ import annotations

from typing import Any

from rankfold.api.method_function import method_function, run_method
from rankfold.methods.kmeans.arguments import KMEANS
from rankfold.pipeline.storage.result import Result


@method_function(KMEANS)
def kmeans(x: object, **arguments: Any) -> Result:
    """Clusters of the rows of a matrix that may be larger than memory, around their means.

    Parameters
    ----------
    x : path, array or Source, (m, n)
        Anything ``svd`` takes.
    k : int, optional
        Clusters; by default as many as there are centers in ``init``.
    init : {"k-means||", "sample"}, or (k, n) array, or a result of kmeans
        First centers. "k-means||": centers of a few rows are found; one read of the matrix then samples rows,
        with probabilities that grow with the distance from these centers, and starts are refined on that
        sample. "sample": starts are refined on the few rows, without that read. Given centers are used as
        they are; with ``passes=1`` rows are only labeled by them.
    n_init : int
        Number of starts that are refined on the sample; the best one is used.
    tol : float
        Passes end when the squared movement of all centers in a pass, divided by the mean variance of
        columns, falls to this value; with batches also when the relative decrease of the inertia from one
        pass to the next does.
    passes : int
        Most reads of the matrix.
    seed : int
        Key of random numbers.
    batch_rows : int, optional
        Mini-batches: centers move after each batch of this many rows, so many times in a read. Rows are taken
        in their order, so that workers read one after the other. One more pass labels rows by the centers.
    weights : (m,) numbers, or anything ``svd`` takes, (m, 1), optional
        Weight of each row, at least 0, as if it occurred so many times: centers are weighted means. A row of
        weight 0 is labeled, and moves no center.
    others
        As for ``svd``.

    Returns
    -------
    Result
        ``labels`` (m,) int32, the nearest of ``centers`` (k, n) float64, the first of equal ones; ``counts``
        (k,) of rows; ``inertia``, the sum of squared distances from the nearest centers, by weight, at each
        pass; with ``weights`` also ``cluster_weights`` (k,), their sums over the rows of each cluster.
        ``attrs`` has the last of these as ``final_inertia``, ``change``, which is compared with ``tol``, why
        passes ``stopped``, and how many ``empty_clusters`` there are.

    Raises
    ------
    InputError, OutputError, PlanError, DataError
        As for ``svd``; ``DataError`` for weights that are negative or no numbers, or all zero.

    Notes
    -----
    A pass reads the matrix once and takes ``2 m n k`` flops, less those that bounds of the passes before rule
    out, typically nine in ten. Labels are exact: near ties are measured in float64. ``centers`` are those
    that rows were labeled by in the last pass; the next would be means of these clusters. A cluster without
    rows takes, one pass later, the row that is farthest from its center; by batches it stays where it is. The
    minimum is local: ``seed`` decides.

    References
    ----------
    Lloyd, Least squares quantization in PCM, IEEE Trans. Information Theory 28(2), 1982. Ding et al.,
    Yinyang k-means, ICML 2015 (bounds). Bahmani, Moseley, Vattani, Kumar, Vassilvitskii, Scalable k-means++,
    PVLDB 5(7), 2012 (start): here one round draws all rows, without replacement, and weighs each by how
    likely it was, where they draw some in each of several rounds and count the rows nearest to them in one
    more read.

    Examples
    --------
    >>> import numpy as np
    >>> import rankfold as rf
    >>> x = np.repeat([[0.0, 0.0], [9.0, 9.0]], 30, axis=0)
    >>> result = rf.kmeans(x, 2)
    >>> result.labels.shape, result.centers.shape
    ((60,), (2, 2))
    """
    return run_method(KMEANS, (x,), arguments)
