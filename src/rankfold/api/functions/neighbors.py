"""Nearest neighbors of rows, and their graphs: see ``docs/neighbors.md`` and ``docs/embeddings.md``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rankfold.api.method_function import method_function, run_method
from rankfold.methods.fuzzy_graph.arguments import COMBINE_GRAPHS, FUZZY_GRAPH
from rankfold.methods.index.arguments import INDEX
from rankfold.methods.knn.arguments import KNN
from rankfold.methods.radius.arguments import RADIUS
from rankfold.pipeline.storage.result import Result


@method_function(KNN)
def knn(x: object, **arguments: Any) -> Result:
    """The k nearest neighbors of every row of a matrix that may be larger than memory; exactly, unless a
    recall is enough.

    Parameters
    ----------
    x : path, array or Source, (m, n)
        Anything ``svd`` takes.
    k : int
        Number of neighbors of each row, without itself.
    queries : like ``x``, (q, n)
        Rows whose neighbors among the rows of ``x`` are found instead. They go through the preparation steps
        of ``x``, as measured on ``x``, unless they already did.
    base : Result or path, for the first rows of ``x``: pairs of these are not compared again
    index : Result of ``index`` or path
        Indexed rows, among which the neighbors of the rows of ``x`` are searched. Rows of ``x`` go through
        the preparation steps of the indexed matrix.
    metric : str or function
        "euclidean", "sqeuclidean", "cosine", "correlation" (cosine of rows less their mean), "inner_product"
        (largest first, as negative distances), "manhattan", "chebyshev"; or a symmetric function of two
        float64 rows that numba compiles. "hamming" is the share of columns that differ, "jaccard" that of the
        members of either row that one has, where members are what is not zero; "bit_hamming" and
        "bit_jaccard" are the same of packed bits, as ``numpy.packbits(x, axis=1)`` gives them. "haversine" is
        the angle between points given by latitude and longitude, all in radians: times the radius of a sphere
        it is the distance along the sphere. With "precomputed" ``x`` has the distances of all rows from each
        other, (m, m), or is a sparse matrix (CSR) of those that are known.
    symmetric : {None, "union", "mutual"}
        Edges of the graph: None, from each row to its neighbors; "union", between two rows if either is a
        neighbor of the other; "mutual", only if both are.
    box : number or numbers, (n,)
        Periods of the columns, 0 for those that are not periodic: distances are those to the nearest periodic
        image of a point.
    solver : {"auto", "pairs", "tree", "approximate"}
        Compare all pairs of rows, or hold points of few columns in a tree, in memory. The neighbors are the
        same to the last bit; by default the tree is taken if it is fast and fits. "approximate": compare the
        rows of each partition, in rounds, until the recall is reached; by "euclidean", "sqeuclidean",
        "cosine" and "correlation", for 16 columns or more.
    min_recall : float, in [0, 1)
        Share of the true neighbors to reach: it is measured on 400 rows or more, and the lower end
        of its 95 % interval must reach it. By default neighbors are exact, except with solver="approximate",
        for which it is 0.95. With solver="auto" partitions are taken where they cost less than all pairs.
    partition_rows : int
        Rows of each partition, for approximate neighbors: more find more of them, and cost more.
    seed : int
        Key of the random numbers for partitions, and for the rows on which the recall is measured.
    others
        As for ``svd``.

    Returns
    -------
    Result
        ``indices`` (m, k) int64, ``distances`` (m, k) float64, nearest first, then by index; ``graph``, as
        CSR. Distances are in the units of the data; squared, or one less the cosine, under those metrics.
        ``attrs`` has ``recall``, 1 where neighbors are exact, and ``recall_interval`` where they are not.

    Raises
    ------
    InputError, OutputError, PlanError, DataError
        As for ``svd``.

    Notes
    -----
    All pairs take about ``m^2 n`` flops in float32, or twice as many for queries; every pair that
    these products cannot decide is measured in float64, by a sum in fixed order. For packed bits it is ``m^2
    n / 128`` counts of the bits of a word. A tree takes ``m log m`` steps for points of few columns,
    partitions about ``m^1.5 n`` flops a round. See ``docs/neighbors.md``. The result has the same bytes for
    any chunks, memory and workers; distances are exact in any case.

    References
    ----------
    Products as bounds of distances are folklore; ours come with a bound of their rounding error, which is
    derived in ``rankfold.kernels.neighbors.lists``, so that no neighbor is lost to float32.

    Examples
    --------
    >>> import numpy as np
    >>> import rankfold as rf
    >>> result = rf.knn(np.arange(5.0)[:, None] ** 2, 1)  # of points 0, 1, 4, 9 and 16
    >>> result.indices[:, 0].tolist(), result.distances[:, 0].tolist()
    ([1, 0, 1, 2, 3], [1.0, 1.0, 3.0, 5.0, 7.0])
    """
    return run_method(KNN, (x,), arguments)


@method_function(INDEX)
def index(x: object, **arguments: Any) -> Result:
    """Rows of a matrix that may be larger than memory, sorted by partition, for ``knn(new, index=...)``.

    Parameters
    ----------
    x : path, array or Source, (m, n)
        Anything ``svd`` takes, of 16 columns or more.
    metric : {"euclidean", "sqeuclidean", "cosine", "correlation"}
        Metric of later searches; the first two share an index.
    partition_rows : int
        Rows of a partition on average, by default the larger of 256 and half the root of m.
    seed : int
        Key of the random numbers for partitions.
    others
        As for ``svd``.

    Returns
    -------
    Result
        ``rows`` (m, n), ordered by partition and then by index, in the type that is compared; ``ids`` (m, 1),
        their row indices in ``x``; ``centers`` (c, n) of the partitions, ``edges`` (c + 1,), where each
        begins in ``rows``, and ``radii`` (c,), the largest distance of its rows from its center. ``attrs``
        has how many ``partitions`` there are, and the rows of the ``largest_partition``.

    Raises
    ------
    InputError, OutputError, PlanError, DataError
        As for ``svd``.

    Notes
    -----
    Two reads of the matrix, and its rows once to scratch and once into the result, which is as large as the
    matrix. About ``2 m c n`` flops. The same bytes for any chunks, memory and workers.

    References
    ----------
    Jegou, Douze, Schmid, Product quantization for nearest neighbor search, IEEE Trans. PAMI 33(1), 2011:
    inverted lists around centers; ours hold rows as they are, on disk, with a ball around each.

    Examples
    --------
    >>> import numpy as np
    >>> import rankfold as rf
    >>> x = np.random.default_rng(0).normal(size=(300, 20))
    >>> result = rf.knn(x[:5], 3, index=rf.index(x))
    >>> result.indices.shape
    (5, 3)
    """
    return run_method(INDEX, (x,), arguments)


@method_function(RADIUS)
def radius_neighbors(x: object, **arguments: Any) -> Result:
    """All neighbors of every row within a radius, exactly, as a graph that may be larger than memory.

    Parameters
    ----------
    x : path, array or Source, (m, n)
        Anything ``svd`` takes. All rows are held in memory, 8 bytes a value, so it is meant for few columns.
    radius : float, >= 0
        Largest distance of neighbors; those at this distance are among them.
    queries : like ``x``, (q, n)
        Rows whose neighbors among the rows of ``x`` are found instead, as for ``knn``. They are held in
        memory as well.
    metric : str
        "euclidean", "sqeuclidean", "cosine", "correlation", "manhattan", "chebyshev" or "haversine", as for
        ``knn``.
    box : number or numbers, (n,)
        Periods of the columns, as for ``knn``. Two rows are joined once, by their nearest images.
    max_edges : int
        A larger graph is refused: by an estimate from a sample of rows before the search, and by the count
        before edges are listed.
    others
        As for ``svd``.

    Returns
    -------
    Result
        ``degrees`` (m,) int64, the number of neighbors of each row, without itself; ``graph``, as CSR:
        float64 distances and int64 indices, nearest first in each row, then by index. ``result.graph`` loads
        all of it into memory.

    Raises
    ------
    InputError, OutputError, PlanError, DataError
        As for ``svd``; ``PlanError`` also where there are more than ``max_edges``.

    Notes
    -----
    ``m log m`` for points of few columns, and for each edge, twice; in many columns as for all pairs. See
    ``docs/neighbors.md``. The same bytes for any chunks, memory and workers.

    References
    ----------
    A k-d tree with boxes of points: see ``rankfold.kernels.neighbors.tree``.

    Examples
    --------
    >>> import numpy as np
    >>> import rankfold as rf
    >>> result = rf.radius_neighbors(np.arange(5.0)[:, None], 1.0)
    >>> result.degrees[:].tolist()
    [1, 2, 2, 2, 1]
    """
    return run_method(RADIUS, (x,), arguments)


@method_function(FUZZY_GRAPH)
def fuzzy_graph(neighbors: Result | str | Path, **arguments: Any) -> Result:
    """UMAP's graph of neighbors with weights between 0 and 1, from lists that may be larger than memory.

    Parameters
    ----------
    neighbors : Result or path
        Of ``knn`` of a matrix with itself, by a metric whose values are not negative.
    k : int
        Number of nearest neighbors of each row to use; all by default. A row is not its own neighbor here: k
        is one less than ``n_neighbors`` of umap-learn.
    set_op_mix_ratio : float, in [0, 1]
        Combination of the two directed weights of an edge: 1 takes their union, 0 the
        intersection, and values between them a mean of the two.
    local_connectivity : float, in [0, k]
        Number of neighbors of each row that are certainly connected to it: their weight is 1.
    targets : (m,) labels or numbers, path of them, or (m, d) matrix, optional
        Additional knowledge of rows: edges between rows of different labels, or of numbers far apart, then
        weigh less. -1, None and NaN are labels that are not known.
    target_metric : {"categorical", "euclidean"}
        "categorical" for labels, which are equal or not; "euclidean" for numbers, whose k nearest neighbors
        make a graph of their own: the result is then the intersection of both graphs.
    target_weight : float, in [0, 1]
        0 for the matrix alone, 1 for the targets alone.
    radii : bool
        True to store the mean distances of neighbors that ``umap(density=)`` needs.
    others
        As for ``svd``.

    Returns
    -------
    Result
        ``graph``, symmetric, as CSR: float32 weights in order of columns, no row joined to itself.
        ``attrs["weights"]`` says how many there are. With ``radii`` also ``radius_data`` (m,) float32: the
        logarithm of the mean squared distance of each row to its neighbors, by their weights before
        ``targets``; NaN of rows without.

    Raises
    ------
    InputError, OutputError, PlanError, DataError
        As for ``svd``; ``DataError`` for distances that are negative, or beyond the range of float32.

    Notes
    -----
    Two reads of the lists, and a sort of 2 m k edges of 16 bytes on scratch; memory does not grow
    with the rows. With ``radii`` there are twice as many reads and sorts. One process computes it; the result
    has the same bytes for any memory.

    References
    ----------
    McInnes, Healy, Melville, UMAP, arXiv:1802.03426, section 4.1. Weights are those of
    ``fuzzy_simplicial_set`` of umap-learn, to rounding in float32; with targets those of its ``fit(X, y)``.

    Examples
    --------
    >>> import numpy as np
    >>> import rankfold as rf
    >>> neighbors = rf.knn(np.random.default_rng(0).normal(size=(60, 8)), 5)
    >>> graph = rf.fuzzy_graph(neighbors)
    """
    return run_method(FUZZY_GRAPH, (neighbors,), arguments)


@method_function(COMBINE_GRAPHS)
def combine_graphs(first: Result | str | Path, second: Result | str | Path, **arguments: Any) -> Result:
    """Combine two graphs of the same rows into one: their intersection or union.

    Parameters
    ----------
    first, second : Result or path
        Of ``fuzzy_graph`` or ``combine_graphs``; of the same rows, seen in different ways.
    rule : {"intersection", "union"}
        Weight of an edge: ``a b`` for an intersection, where ``weight`` decides which of the two counts more;
        ``a + b - a b`` for a union. In a graph that lacks an edge, it counts with half the weight of the
        weakest edge there.
    weight : float, in [0, 1]
        Weight of the second graph in an intersection.
    others
        As for ``svd``.

    Returns
    -------
    Result
        ``graph``, as that of ``fuzzy_graph``: each row has a neighbor of weight 1, and weights whose sum is
        near ``log2(15)``, whatever they were before.

    Raises
    ------
    InputError, OutputError, PlanError, DataError
        As for ``svd``; ``InputError`` for graphs of different rows.

    Notes
    -----
    Two reads of both graphs, in one process; memory is some 40 bytes for each row, and a few thousand rows of
    edges.

    References
    ----------
    McInnes, Healy, Melville, UMAP, arXiv:1802.03426, section 3.1. Weights are those of umap-learn's products
    and sums of models.

    Examples
    --------
    >>> import numpy as np
    >>> import rankfold as rf
    >>> x = np.random.default_rng(0).normal(size=(60, 8))
    >>> first, second = (rf.fuzzy_graph(rf.knn(part, 5)) for part in (x[:, :4], x[:, 4:]))
    >>> both = rf.combine_graphs(first, second, rule="union")
    """
    return run_method(COMBINE_GRAPHS, (first, second), arguments)
