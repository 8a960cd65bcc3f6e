"""Embeddings of rows in few dimensions, and the graphs that they are made from."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from rankfold.api.arguments import public
from rankfold.api.execute import run
from rankfold.api.where import Where
from rankfold.methods.fuzzy_graph.arguments import FUZZY_GRAPH
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
