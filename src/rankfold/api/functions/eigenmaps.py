"""Embeddings of rows by eigenvectors of random walks on the graph of their neighbors."""

from __future__ import annotations

from typing import Any

from rankfold.api.method_function import method_function, run_method
from rankfold.methods.spectral.arguments import DIFFUSION_MAP, SPECTRAL
from rankfold.pipeline.storage.result import Result


@method_function(SPECTRAL)
def spectral(neighbors: object, **arguments: Any) -> Result:
    """Laplacian eigenmaps: rows in few dimensions by eigenvectors of the Laplacian of their graph.

    Parameters
    ----------
    neighbors : (m, n) array, path, Source or Result; or symmetric sparse matrix
        A matrix, whose rows' neighbors are found first; or a result of ``knn``. Their graph is made as
        ``fuzzy_graph`` makes it by default. Or a graph: a result of ``fuzzy_graph``, or weights of your own,
        sparse, (m, m), and not negative, in memory or as ``STORE::ARRAY``.
    n_components : int, at most m - 1
        Dimensions d; the constant eigenvector does not count.
    tol : float
        Relative error of an eigenvalue at which it counts as converged. Errors of coordinates are then about
        the square root of it, depending on the gaps between eigenvalues.
    passes : int
        Most products with the graph, each of which reads it if it is not in memory.
    n_neighbors, metric, min_recall
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
        ``embedding`` (m, d) float64: eigenvectors of ``I - D^-1/2 W D^-1/2`` of length 1, divided by the
        square roots of degrees, as scikit-learn has them; the leading number of each is positive.
        ``eigenvalues`` (d,), with ``residuals`` and ``error_estimates`` of them, absolute. ``labels`` (m,),
        the component of the graph that each row is in, the largest first, -1 without edges. ``attrs`` has
        ``connected_components``, ``largest_component``, ``isolated`` and ``converged``.

    Raises
    ------
    InputError, OutputError, PlanError, DataError
        As for ``svd``; ``DataError`` for weights that are negative or no numbers, and for a matrix that is
        not symmetric or has no edges.

    Notes
    -----
    A graph of c components has the eigenvalue 0 c times: the first c - 1 coordinates separate components,
    the second largest from the largest, the next from both, and so on, and a warning says so. A row without
    edges is part of no component, and lies at 0.

    Some hundred products of ``2 b`` flops an edge, with b the power of two from d + 6 on; 8 b bytes a row six
    times in memory, and the graph (8 bytes an edge) where it fits. One process does it, with all its threads,
    to the same bytes for any threads and memory.

    References
    ----------
    Belkin, Niyogi, Laplacian eigenmaps for dimensionality reduction and data representation, Neural
    Computation 15(6), 2003. Zhou, Saad, Tiago, Chelikowsky, Journal of Computational Physics 219, 2006, for
    eigenvectors by filters; ours differ as design note 30 says.

    Examples
    --------
    >>> import numpy as np
    >>> import rankfold as rf
    >>> result = rf.spectral(np.random.default_rng(0).normal(size=(60, 3)), n_neighbors=10)
    >>> result.embedding.shape
    (60, 2)
    """
    return run_method(SPECTRAL, (neighbors,), arguments)


@method_function(DIFFUSION_MAP)
def diffusion_map(neighbors: object, **arguments: Any) -> Result:
    """Diffusion map: rows in few dimensions, whose distances compare how a random walk spreads from them.

    Parameters
    ----------
    neighbors, n_components, tol, passes, n_neighbors, metric, min_recall, seed, quality
        As for ``spectral``; ``tol`` is relative to the distance of an eigenvalue from 1.
    alpha : float, in [0, 1]
        Each weight is divided by the sums of weights of both of its rows, to this power: 1 removes the
        density of the rows and leaves the geometry, 0 is the walk by the weights as they are.
    t : int
        Steps of the walk.
    others
        As for ``svd``.

    Returns
    -------
    Result
        ``embedding`` (m, d) float64: ``lambda^t psi``, with psi the right eigenvectors of the walk, from the
        largest eigenvalue lambda below that of the constant vector on. Each psi has a mean square of 1 in the
        distribution that the walk keeps, in which the constant vector is 1; the leading number of each is
        positive. ``eigenvalues`` (d,) are lambda; other arrays and ``attrs`` as of ``spectral``.

    Raises
    ------
    InputError, OutputError, PlanError, DataError
        As for ``spectral``.

    Notes
    -----
    With all m - 1 dimensions the distance of two rows is the diffusion distance after t steps. A graph of
    neighbors has negative eigenvalues too; those near -1 are never taken. Cost as of ``spectral``, and one
    more read of the graph.

    References
    ----------
    Coifman, Lafon, Diffusion maps, Applied and Computational Harmonic Analysis 21(1), 2006, sections 2 and 3.
    Weights are those of ``fuzzy_graph``, or your own, in place of a Gaussian kernel of all pairs.

    Examples
    --------
    >>> import numpy as np
    >>> import rankfold as rf
    >>> result = rf.diffusion_map(np.random.default_rng(0).normal(size=(60, 3)), n_neighbors=10)
    >>> result.embedding.shape
    (60, 2)
    """
    return run_method(DIFFUSION_MAP, (neighbors,), arguments)
