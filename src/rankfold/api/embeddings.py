"""Embeddings of rows in few dimensions, and the graphs that they are made from."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from rankfold.api.arguments import public
from rankfold.api.execute import run
from rankfold.api.where import Where
from rankfold.methods.fuzzy_graph.arguments import COMBINE_GRAPHS, FUZZY_GRAPH
from rankfold.methods.isomap.arguments import ISOMAP
from rankfold.methods.umap.arguments import UMAP
from rankfold.pipeline.storage.result import Result


@public
def fuzzy_graph(
    neighbors: Result | str | Path,
    k: int | None = None,
    *,
    set_op_mix_ratio: float = 1.0,
    local_connectivity: float = 1.0,
    targets: object = None,
    target_metric: str = "categorical",
    target_weight: float = 0.5,
    **where: Unpack[Where],
) -> Result:
    """Neighbors as a graph of weights between 0 and 1, as UMAP makes it, of lists larger than memory.

    Parameters
    ----------
    neighbors : Result or path
        Of ``knn`` of a matrix with itself, by a metric whose values are not negative.
    k : int
        Nearest neighbors of each row that count; all by default. A row is none of its own neighbors here: k
        is one less than ``n_neighbors`` of umap-learn.
    set_op_mix_ratio : float, in [0, 1]
        Of two rows either may be among the neighbors of the other: 1 takes the union of what both say, 0 the
        intersection, and what lies between a mean of the two.
    local_connectivity : float, in [0, k]
        Neighbors of each row that are sure to be joined to it: these weigh 1.
    targets : (m,) labels or numbers, path of them, or (m, d) matrix, optional
        What is known of rows besides: edges between rows of different labels, or of numbers far apart, then
        weigh less. -1, None and NaN are labels that are not known.
    target_metric : {"categorical", "euclidean"}
        Whether targets are labels, the same or not, or numbers, whose k nearest neighbors make a graph of
        their own: the result is then the intersection of both.
    target_weight : float, in [0, 1]
        0 for the matrix alone, 1 for the targets alone.
    others
        As for ``svd``.

    Returns
    -------
    Result
        ``graph``, symmetric, as CSR: float32 weights in order of columns, no row joined to itself.
        ``attrs["weights"]`` says how many there are.

    Raises
    ------
    InputError, OutputError, PlanError, DataError
        As for ``svd``; ``DataError`` for distances that are negative, or beyond the range of float32.

    Notes
    -----
    Two reads of the lists, and a sort of 2 m k edges of 16 bytes on scratch; memory does not grow with the
    rows. One process does it. The same bytes for any memory.

    References
    ----------
    McInnes, Healy, Melville, UMAP, arXiv:1802.03426, section 4.1. Weights are those of
    ``fuzzy_simplicial_set`` of umap-learn, to rounding in float32; with targets those of its ``fit(X, y)``.
    """
    more = {"set_op_mix_ratio": set_op_mix_ratio, "local_connectivity": local_connectivity}
    beside = {"targets": targets, "target_metric": target_metric, "target_weight": target_weight}
    return run(FUZZY_GRAPH.task(neighbors, k=k, **more, **beside), where)


@public
def combine_graphs(
    first: Result | str | Path,
    second: Result | str | Path,
    *,
    rule: str = "intersection",
    weight: float = 0.5,
    **where: Unpack[Where],
) -> Result:
    """Two graphs of the same rows as one: what both agree on, or what either has.

    Parameters
    ----------
    first, second : Result or path
        Of ``fuzzy_graph`` or ``combine_graphs``; of the same rows, seen in different ways.
    rule : {"intersection", "union"}
        Whether an edge weighs ``a b``, with ``weight`` deciding which of the two counts more, or
        ``a + b - a b``. Edges that one of the graphs does not have weigh half as much as its weakest there.
    weight : float, in [0, 1]
        Of the second graph in an intersection.
    others
        As for ``svd``.

    Returns
    -------
    Result
        ``graph``, as that of ``fuzzy_graph``: each row has a sure neighbor, and weights whose sum is near
        ``log2(15)``, whatever they were before.

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
    """
    return run(COMBINE_GRAPHS.task(first, second, rule=rule, weight=weight), where)


@public
def umap(
    neighbors: Result | str | Path,
    *,
    n_components: int = 2,
    n_epochs: int | None = None,
    min_dist: float = 0.1,
    spread: float = 1.0,
    a: float | None = None,
    b: float | None = None,
    negative_sample_rate: int = 5,
    repulsion_strength: float = 1.0,
    learning_rate: float = 1.0,
    init: object = "random",
    seed: int = 0,
    quality: object = None,
    **where: Unpack[Where],
) -> Result:
    """Rows laid out in few dimensions by the graph of their neighbors: the same bytes for any threads.

    Parameters
    ----------
    neighbors : Result or path
        Of ``fuzzy_graph`` or ``combine_graphs``; or of ``knn``, whose graph is made first, as ``fuzzy_graph``
        makes it by default.
    n_components : int
        Dimensions d of the embedding.
    n_epochs : int
        Times that the edges of the largest weight pull, and others in proportion: 500 for up to 10 000 rows
        by default, else 200.
    min_dist, spread : float, 0 <= min_dist <= spread
        Rows may lie together up to the one distance, and part over the other: what ``a`` and ``b`` of the
        curve ``1 / (1 + a d^(2 b))`` are fitted to, unless both are given.
    negative_sample_rate : int
        Random rows that a row is pushed from whenever an edge pulls.
    repulsion_strength, learning_rate : float
        What these pushes are multiplied with; and all forces, in the first epoch, from which it falls to 0.
    init : "random", (m, d) array, Result or path
        Where rows begin. Coordinates of a ``pca`` with d components or more, or of an earlier ``umap``, keep
        what is far apart in the data apart in the picture.
    seed : int
        Key of the random numbers.
    quality : path, array or Source, (m, n)
        The matrix of the rows, if it is to be measured how well the layout keeps their neighborhoods; or
        another one that it should keep.
    others
        As for ``svd``.

    Returns
    -------
    Result
        ``embedding`` (m, d) float32. ``attrs`` has ``edge_loss``, the mean of ``-log(phi)`` over edges by
        their weight, with ``phi`` the curve at the distance of their ends, and ``pair_loss``, that of
        ``-log(1 - phi)`` over random pairs: what the layout has lowered. With ``quality`` it has
        ``trustworthiness``, ``continuity`` and ``preservation``, the share of neighbors in the matrix that
        are neighbors in the layout, each with its ``_error``: of ``quality_k`` neighbors, 15 where there are
        enough, by the metric of the search, and of ``quality_rows`` rows, all of at most 5000.

    Raises
    ------
    InputError, OutputError, PlanError, DataError
        As for ``svd``; ``PlanError`` where edges (8 bytes each) and positions do not fit into the memory.

    Notes
    -----
    Forces are ``n_epochs (2 + negative_sample_rate)`` times the sum of weights over the largest of them.
    One process does it, with all its threads, and leaves a checkpoint every 20 seconds.

    References
    ----------
    McInnes, Healy, Melville, UMAP, arXiv:1802.03426. Unlike umap-learn a vertex moves by its own edges alone,
    an eighth of all vertices at a time, and random numbers are a function of seed, epoch, vertex, edge and
    sample: see design note 29.
    """
    numbers: dict[str, object] = {"n_components": n_components, "n_epochs": n_epochs, "seed": seed}
    curve = {"min_dist": min_dist, "spread": spread, "a": a, "b": b}
    forces = {"negative_sample_rate": negative_sample_rate, "repulsion_strength": repulsion_strength}
    forces |= {"learning_rate": learning_rate}
    return run(UMAP.task(neighbors, init=init, quality=quality, **numbers, **curve, **forces), where)


@public
def isomap(
    neighbors: Result | str | Path,
    *,
    n_components: int = 2,
    n_landmarks: int | None = None,
    landmarks: str = "farthest",
    seed: int = 0,
    disconnected: str = "refuse",
    matrix: object = None,
    **where: Unpack[Where],
) -> Result:
    """Rows in few dimensions, as far apart as the shortest paths along the graph of their neighbors are long.

    Parameters
    ----------
    neighbors : Result or path
        Of ``knn`` of a matrix with itself, or of ``radius_neighbors``, by any metric but inner products. Two
        rows have an edge, as long as their distance, where either has the other among its neighbors. A row
        is none of its own neighbors: k is ``n_neighbors`` of scikit-learn.
    n_components : int
        Dimensions d of the embedding.
    n_landmarks : int
        Rows l that paths begin at: all of up to 1000 rows by default, which is Isomap itself, else 500.
    landmarks : {"farthest", "random"}
        Each the row farthest from those before, the first of them any; or any rows.
    seed : int
        Key of the random numbers.
    disconnected : {"refuse", "join"}
        What becomes of a graph of several components, between which there are no paths: an error; or edges
        between the nearest rows of any two, as scikit-learn has it.
    matrix : path, array or Source
        The one that neighbors are of, to join components by.
    others
        As for ``svd``.

    Returns
    -------
    Result
        ``embedding`` (m, d); ``geodesics`` (m, l), lengths of the shortest paths from landmarks;
        ``landmarks`` (l,), their rows; ``eigenvalues`` (l,) of centered squared distances among them. All
        float64; ``embedding`` and ``geodesics`` float32 where rows are. ``attrs`` has
        ``residual_variance``, one less the squared correlation of paths with distances in the embedding over
        pairs of a landmark and a sampled row, and its ``standard_error``; ``reconstruction_error``, that of
        scikit-learn over landmarks; ``covering_radius``, the longest path from a row to its nearest
        landmark; ``negative_eigenvalues``, which no distances in a plane space have, and their share,
        ``negative_share``; and the ``components`` that the graph had.

    Raises
    ------
    InputError, OutputError, PlanError, DataError
        As for ``svd``; ``PlanError`` where the graph (8 or 12 bytes for each of up to 2 m k edges) and paths
        of a group of landmarks do not fit into the memory; ``DataError`` for a graph of several components.

    Notes
    -----
    Paths take ``l m (k + log m)`` steps; one process follows them, a landmark in a thread, and leaves a
    checkpoint after each group of landmarks. New rows: ``rf.transform(result, rf.knn(x, k, queries=new))``.

    References
    ----------
    Tenenbaum, de Silva, Langford, Science 290, 2000; de Silva, Tenenbaum, Sparse multidimensional scaling
    using landmark points, Stanford, 2004. Unlike these, coordinates are not turned to principal axes of all
    rows; distances among landmarks are the mean of both directions, which differ by rounding.
    """
    numbers: dict[str, object] = {"n_components": n_components, "n_landmarks": n_landmarks, "seed": seed}
    more = {"landmarks": landmarks, "disconnected": disconnected, "matrix": matrix}
    return run(ISOMAP.task(neighbors, **numbers, **more), where)
