"""Embeddings of rows in few dimensions, by the graphs of their neighbors."""

from __future__ import annotations

from typing import Any

from rankfold.api.method_function import method_function, run_method
from rankfold.methods.isomap.arguments import ISOMAP
from rankfold.methods.tsne.arguments import TSNE
from rankfold.methods.umap.arguments import UMAP
from rankfold.pipeline.storage.result import Result


@method_function(UMAP)
def umap(neighbors: object, **arguments: Any) -> Result:
    """UMAP: rows in few dimensions by the graph of their neighbors; the same bytes for any number of workers.

    Parameters
    ----------
    neighbors : (m, n) array, path, Source or Result
        A matrix, whose rows' neighbors are found first; or a result of ``knn``. Their graph is made as
        ``fuzzy_graph`` makes it by default. Or a graph: a result of ``fuzzy_graph`` or ``combine_graphs``.
    n_components : int
        Dimensions d of the embedding.
    n_epochs : int
        Number of times that edges of the largest weight attract, others in proportion: 500 for up to 10 000
        rows by default, else 200.
    min_dist, spread : float, 0 <= min_dist <= spread
        Distance up to which rows may lie together, and scale over which they part: ``a`` and ``b`` of the
        curve ``1 / (1 + a d^(2 b))`` are fitted to these, unless both are given.
    negative_sample_rate : int
        Number of random rows that repel a row whenever an edge attracts it.
    repulsion_strength, learning_rate : float
        Factor of this repulsion; and of all forces in the first epoch, from which it falls to 0.
    density : float, >= 0
        Strength of preserving local density, so that rows far from their neighbors in the data stay far: 2 in
        densMAP. With 0 densities are only measured. A graph must have been made with ``radii=True``. Epochs
        are 200 more by default.
    density_share, density_shift : float
        Share of epochs, the last ones, in which densities count; number added to the variance of local radii
        in the layout.
    init : "spectral", "random", "pca", (m, d) array, Result or path
        First positions of rows: eigenvectors of their graph, as ``spectral`` makes them with tol=0.01, but of
        each component of the graph by itself; components lie side by side. Rows of components that have no d
        eigenvectors begin at random, and ``attrs["rows_at_random"]`` counts them. "pca": at the first
        principal components of ``matrix``, with tol=0.01. Or at coordinates of a
        ``pca`` with d components or more, of an earlier ``umap``, or of ``spectral``. They may be of the
        first rows alone: those after them begin among their neighbors. "random" starts cost nothing, but
        distances in the picture say less of those in the data.
    matrix : path, array or Source, (m, n)
        Matrix for the components of ``init="pca"``: the one that neighbors belong to, if these or their graph
        are a result.
    n_neighbors : int
        Neighbors of each row of a matrix, including the row itself as in umap-learn: 15 by default.
    metric, min_recall : str, float
        Metric of the search, as for ``knn``, euclidean by default; and the share of true neighbors that is
        enough. By default they are exact up to 20 000 rows or 15 columns, and 0.95 are true above.
    seed : int
        Key of the random numbers.
    quality : path, array or Source, (m, n)
        Matrix of the rows, to measure how well the layout preserves their neighborhoods; or
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
        enough, by the metric of the search, and of ``quality_rows`` rows, all of at most 5000. With
        ``density`` there are ``radius_data`` and ``radius_embedding``, both (m,) float32: logarithms of the
        mean squared distance of each row to its neighbors, by weights in the data and by ``phi`` in the
        layout; NaN of rows without edges. ``attrs`` then has ``density_correlation`` of both, and its
        ``density_correlation_error`` as of rows drawn one by one; None where all radii are the same.

    Raises
    ------
    InputError, OutputError, PlanError, DataError
        As for ``svd``; ``PlanError`` where edges (8 bytes each) and positions do not fit into the memory.

    Notes
    -----
    Forces are ``n_epochs (2 + negative_sample_rate)`` times the sum of weights over the largest of them.
    Workers, if there are any, share the edges, hold the positions of all rows, and send each other those
    that have moved, ``4 m d`` bytes an epoch. A checkpoint is left every 20 seconds.

    References
    ----------
    McInnes, Healy, Melville, UMAP, arXiv:1802.03426. Unlike umap-learn a vertex moves by its own edges alone,
    an eighth of all vertices at a time, and random numbers are a function of seed, epoch, vertex, edge and
    sample: see design note 29. Densities: Narayan, Berger, Cho, Nature Biotechnology 39, 2021, and note 37.

    Examples
    --------
    >>> import numpy as np
    >>> import rankfold as rf
    >>> result = rf.umap(np.random.default_rng(0).normal(size=(60, 8)), n_neighbors=5, n_epochs=20)
    >>> result.embedding.shape
    (60, 2)
    """
    return run_method(UMAP, (neighbors,), arguments)


@method_function(TSNE)
def tsne(neighbors: object, **arguments: Any) -> Result:
    """t-SNE: rows in few dimensions, each with its neighbors around it; the same bytes for any workers.

    Parameters
    ----------
    neighbors : (m, n) array, path, Source or Result
        A matrix, of whose rows three times as many neighbors as the perplexity, or all, are found first; or a
        result of ``knn`` of a matrix with itself, with as many.
    n_components : int
        Dimensions d of the embedding.
    perplexity : float or several
        Effective number of neighbors of a row. For several values, affinities are averaged: a small one keeps
        what is near together, a large one the outline of the whole.
    n_iter, early_exaggeration_iter : int
        Number of steps; and of steps before them, in which attraction is multiplied by
        ``early_exaggeration``.
    exaggeration : float
        Factor of attraction in later steps; 4 separates clusters of millions of rows.
    learning_rate : float
        Learning rate; by default m over the exaggeration, and at least 200. The gradient is that of openTSNE,
        a quarter of scikit-learn's.
    initial_momentum, final_momentum : float, in [0, 1)
        Share of a step that is kept in the next, in early steps and after these.
    min_grad_norm : float
        Norm of the gradient below which steps end; it is checked every 50 steps.
    init : "spectral", "random", "pca", (m, d) array, Result or path
        First positions of rows: eigenvectors of their graph; random; the first principal components of
        ``matrix``; or coordinates of a ``pca``, ``spectral``, ``umap`` or ``tsne``, which may be of the
        first rows alone: those after them begin among their neighbors. All are scaled to a standard
        deviation of 1e-4.
    matrix : path, array or Source, (m, n)
        Matrix for the components of ``init="pca"``: the one that neighbors belong to, if these are a result.
    metric, min_recall
        For the search in a matrix, as for ``umap``.
    seed : int
        Key of the random numbers.
    quality
        As for ``umap``.
    others
        As for ``svd``.

    Returns
    -------
    Result
        ``embedding`` (m, d) float32; ``history`` (h, 3), the steps done, the divergence of Kullback and
        Leibler, without exaggeration, and the length of the gradient, every 50 steps and at the end.
        ``attrs`` has the last of these as ``steps``, ``kl_divergence`` and ``gradient_norm``;
        ``repulsion_error``, error of the repulsion at the final positions, relative to sums over all
        pairs, by 200 rows; and ``grid_spacing``.

    Raises
    ------
    InputError, OutputError, PlanError, DataError
        As for ``svd``; ``InputError`` for a perplexity that takes more neighbors than there are;
        ``PlanError`` where edges (8 bytes each), positions and a grid do not fit into the memory.

    Notes
    -----
    A step takes some 12 operations an edge, of which there are up to ``6 m perplexity``. In one or two
    dimensions repulsion is computed on a grid of nodes, whose number grows with the area of the embedding
    alone; up to 3000 rows, and in more dimensions, pair by pair: ``m^2`` in each step. Workers, if there are
    any, share the edges, hold the positions of all rows, and send each other those that have moved,
    ``4 m d`` bytes a step. A checkpoint is left every 20 seconds.

    References
    ----------
    van der Maaten, Hinton, Journal of Machine Learning Research 9, 2008; Linderman et al., Nature Methods 16,
    2019, for the grid, from whose interpolation ours differs as design note 36 says; steps are those of
    openTSNE. Kobak, Berens, Nature Communications 10, 2019, for starts, rates and several perplexities.

    Examples
    --------
    >>> import numpy as np
    >>> import rankfold as rf
    >>> result = rf.tsne(np.random.default_rng(0).normal(size=(60, 8)), perplexity=5)
    >>> result.embedding.shape
    (60, 2)
    """
    return run_method(TSNE, (neighbors,), arguments)


@method_function(ISOMAP)
def isomap(neighbors: object, **arguments: Any) -> Result:
    """Isomap: rows in few dimensions, whose distances approximate shortest paths in their neighbor graph.

    Parameters
    ----------
    neighbors : (m, n) array, path, Source or Result
        A matrix, whose rows' neighbors are found first; or a result of ``knn`` of a matrix with itself, or of
        ``radius_neighbors``, by any metric but inner products. Two
        rows have an edge, as long as their distance, if either has the other among its neighbors. A row
        is not its own neighbor: k is ``n_neighbors`` of scikit-learn.
    n_components : int
        Dimensions d of the embedding.
    n_landmarks : int
        Number l of rows at which paths begin: by default all of up to 1000 rows, which is Isomap itself, else
        500.
    landmarks : {"farthest", "random"}
        Choice of these rows: each the farthest from those before, the first at random; or all at random.
    seed : int
        Key of the random numbers.
    disconnected : {"refuse", "join"}
        Treatment of a graph of several components, between which there are no paths: an error; or edges
        between the nearest rows of any two, as scikit-learn has it.
    matrix : path, array or Source
        Matrix that neighbors belong to, if these are a result, for joining components.
    n_neighbors : int
        Neighbors of each row of a matrix, without itself as in scikit-learn: 5 by default.
    metric, min_recall
        For the search in a matrix, as for ``umap``.
    quality
        As for ``umap``.
    others
        As for ``svd``.

    Returns
    -------
    Result
        ``embedding`` (m, d); ``geodesics`` (m, l), lengths of the shortest paths from landmarks;
        ``landmarks`` (l,), their rows; ``landmark_eigenvalues`` (l,), of centered squared distances among
        them. All float64; ``embedding`` and ``geodesics`` float32 where rows are. ``attrs`` has
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

    Examples
    --------
    >>> import numpy as np
    >>> import rankfold as rf
    >>> result = rf.isomap(np.random.default_rng(0).normal(size=(60, 3)), n_neighbors=10)
    >>> result.embedding.shape
    (60, 2)
    """
    return run_method(ISOMAP, (neighbors,), arguments)
