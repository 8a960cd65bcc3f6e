"""Embeddings of rows in few dimensions, and the graphs that they are made from."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from rankfold.api.arguments import public
from rankfold.api.execute import run
from rankfold.api.where import Where
from rankfold.methods.fuzzy_graph.arguments import FUZZY_GRAPH
from rankfold.methods.umap.arguments import UMAP
from rankfold.pipeline.storage.result import Result


@public
def fuzzy_graph(
    neighbors: Result | str | Path,
    k: int | None = None,
    *,
    set_op_mix_ratio: float = 1.0,
    local_connectivity: float = 1.0,
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
    ``fuzzy_simplicial_set`` of umap-learn, to rounding in float32.
    """
    more = {"set_op_mix_ratio": set_op_mix_ratio, "local_connectivity": local_connectivity}
    return run(FUZZY_GRAPH.task(neighbors, k=k, **more), where)


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
    **where: Unpack[Where],
) -> Result:
    """Rows laid out in few dimensions by the graph of their neighbors: the same bytes for any workers.

    Parameters
    ----------
    neighbors : Result or path
        Of ``fuzzy_graph``; or of ``knn``, whose graph is made first, as ``fuzzy_graph`` makes it by default.
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
    others
        As for ``svd``.

    Returns
    -------
    Result
        ``embedding`` (m, d) float32. ``attrs`` has ``edge_loss``, the mean of ``-log(phi)`` over edges by
        their weight, with ``phi`` the curve at the distance of their ends, and ``pair_loss``, that of
        ``-log(1 - phi)`` over random pairs: what the layout has lowered.

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
    sample: see design note 29.
    """
    numbers: dict[str, object] = {"n_components": n_components, "n_epochs": n_epochs, "seed": seed}
    curve = {"min_dist": min_dist, "spread": spread, "a": a, "b": b}
    forces = {"negative_sample_rate": negative_sample_rate, "repulsion_strength": repulsion_strength}
    forces |= {"learning_rate": learning_rate}
    return run(UMAP.task(neighbors, init=init, **numbers, **curve, **forces), where)
