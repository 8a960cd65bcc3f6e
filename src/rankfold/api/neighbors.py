"""Nearest neighbours of rows: see ``docs/neighbours.md``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rankfold.api.arguments import public
from rankfold.api.execute import execute
from rankfold.cluster.place import choose_place
from rankfold.methods.knn.knn import Neighbours
from rankfold.methods.knn.request import NeighbourRequest
from rankfold.pipeline.engine.run import Progress
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.storage.result import Result

DEFAULT_K = 15


@public
def knn(
    x: object,
    k: int = DEFAULT_K,
    *,
    queries: object = None,
    base: Result | str | Path | None = None,
    metric: str | Callable[..., float] = "euclidean",
    symmetric: str | None = None,
    memory: str | int | None = None,
    out: str | Path | None = None,
    scratch: str | Path | None = None,
    overwrite: bool = False,
    on: str | Path | None = None,
    workers: int | None = None,
    threads: int | None = None,
    client: Any = None,
    progress: Progress | bool | None = None,
) -> Result:
    """The k nearest neighbours of every row, exactly, of a matrix that may be larger than memory.

    Parameters
    ----------
    x : path, array or Source, (m, n)
        Anything ``svd`` takes.
    k : int
        Neighbours of each row, which is not its own.
    queries : like ``x``, (q, n)
        Rows whose neighbours among those of ``x`` are wanted instead.
    base : Result or path, of the first rows of ``x``: pairs of these are not compared again
    metric : str or function
        "euclidean", "sqeuclidean", "cosine", "inner_product" (largest first, as negative distances),
        "manhattan", "chebyshev"; or a symmetric function of two float64 rows that numba compiles.
    symmetric : {None, "union", "mutual"}
        Edges of the graph: as they are, those that either of two rows has, or both.
    others
        As for ``svd``.

    Returns
    -------
    Result
        ``indices`` (m, k), ``distances`` (m, k) float64, nearest first, then by index; ``graph``, as CSR.

    Notes
    -----
    About ``m^2 n`` flops in float32; distances in float64, by a fixed sum. See ``docs/neighbours.md``.
    """
    task = search_of(x, k, queries, base, metric, symmetric)
    place = choose_place(on=on, workers=workers, threads=threads, memory=memory, client=client)
    return execute(task, place, out=out, scratch=scratch, overwrite=overwrite, progress=progress)


def search_of(
    x: object,
    k: object = DEFAULT_K,
    queries: object = None,
    base: Result | str | Path | None = None,
    metric: object = "euclidean",
    symmetric: object = None,
) -> Neighbours:
    """What is to be searched, checked; arguments of ``knn``."""
    others = None if queries is None else open_source(queries)
    earlier = base if base is None or isinstance(base, Result) else Result(base)
    if earlier is not None:
        earlier.require_whole()
    return Neighbours.of(open_source(x), others, NeighbourRequest.of(k, metric, symmetric), earlier)
