"""The plan of any method, from its declaration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rankfold.api.arguments import public, refuse_unknown
from rankfold.api.where import VIEW, opened
from rankfold.cluster.executor import choose_executor
from rankfold.methods.fuzzy_graph.lists import imagined_lists
from rankfold.methods.registry import METHODS, methods
from rankfold.methods.task import make_plan
from rankfold.pipeline.errors import ArgumentError, InputError
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.seconds import Rates

WHERE = ("memory", "cluster", "workers", "threads", "client", "device", "rates")
"""Arguments of ``plan`` in addition to those of the method."""


@public
def plan(
    kind: str,
    x: object = None,
    rank: int | None = None,
    *,
    rows: int | None = None,
    memory: str | int | None = None,
    cluster: str | Path | None = None,
    workers: int | None = None,
    threads: int | None = None,
    client: Any = None,
    device: str | None = None,
    rates: Rates | None = None,
    **others: Any,
) -> Plan:
    """Plan of a method before it runs: passes, bytes, memory and time, as ``rankfold plan`` prints them.
    Reads no data.

    Parameters
    ----------
    kind : str
        The name of a method of one matrix: "svd", "pca", "qr", "nmf", "knn", or one of another package; or of
        one result: "fuzzy_graph", "umap", "isomap", "reconstruct".
    x : path, array or Source, (m, n)
        Anything ``svd`` takes, of which shape, type and chunks are read. Or the result, or its path.
    rank : int, optional
        Rank, for methods that have one; other arguments of a method are given by name.
    rows : int, optional
        Instead of ``x``, together with ``k``: plan "fuzzy_graph" or "umap" for this many rows with k
        neighbors each, before their neighbors are found.
    memory, cluster, workers, threads, client, device : optional
        As for ``svd``.
    rates : Rates, optional
        Speed of this machine, as ``rankfold doctor`` measures it: the plan then predicts seconds.
    others
        The arguments of the method's function. Measured steps of ``prepare`` read the
        matrix, and "radius_neighbors" some rows, to count edges; nothing else does.

    Returns
    -------
    Plan
        Passes, bytes read and written, flops, tasks, and the peak memory of a worker, in bytes; its text is
        the table that the command prints.

    Raises
    ------
    InputError, PlanError
        For requests that are not possible, or do not fit, with the change to make.

    Notes
    -----
    Takes milliseconds. For a method that stops on its tolerance, the number of passes is a guess,
    and marked as one.

    Examples
    --------
    >>> import numpy as np
    >>> import rankfold as rf
    >>> plan = rf.plan("knn", np.ones((1000, 20)), k=5, memory="1 GiB")
    >>> plan.likely_passes, plan.peak_bytes < 2**30
    (1, True)
    """
    names = [each.name for each in methods() if len(each.inputs) == 1]
    if not isinstance(kind, str) or (isinstance(x, str) and x in names and kind not in names):
        raise ArgumentError("plan takes what is planned first, then the matrix: rankfold.plan('pca', x, ...)")
    if kind not in names:
        raise InputError(
            f"there is no plan for {kind!r}; plan {', '.join(map(repr, names[:-1]))} or {names[-1]!r}"
        )
    method = METHODS[kind]
    parameters = [parameter.name for parameter in method.parameters()]
    values = others if rank is None else {"rank": rank, **others}
    if "k" in parameters and "rank" in values:
        raise InputError(f"{kind} has no rank: say how many neighbors, k= (--k)")
    if any(values.get(name) for name in ("center", "scale", "whiten") if name not in parameters):
        raise InputError(f"{kind} neither centers nor scales nor whitens: plan 'pca' for that")
    if method.of_neighbors:
        x, values = _neighbors(kind, x, rows, values, parameters)
        parameters = [*parameters, "k"]
    elif x is None or rows is not None:
        raise InputError(f"say which matrix to plan {kind} of: only plans of neighbors take rows and k alone")
    view_names = VIEW if method.of_matrix else ()
    refuse_unknown(f"a plan of {kind}", values, [*parameters, *WHERE, *view_names])
    executor = choose_executor(
        cluster=cluster, workers=workers, threads=threads, memory=memory, client=client, device=device
    )
    view: Any = {name: values[name] for name in view_names if name in values}
    of = opened(x, view) if method.of_matrix else x
    task = method.task(of, **{name: values[name] for name in values if name not in view_names})
    result = make_plan(task, executor.budget)
    return result if rates is None else result.with_seconds(rates, task.source, executor.budget.workers)


def _neighbors(
    kind: str, x: object, rows: int | None, values: dict[str, Any], parameters: list[str]
) -> tuple[object, dict[str, Any]]:
    """Input of the method ``kind`` to plan for, and the other arguments of the method.

    The input is the result ``x``, or if ``rows`` is given, a stand-in for a result with k neighbors of each
    of so many rows. ``values`` are the arguments of the call, ``parameters`` the names of the method's own:
    ``k``, which describes the stand-in, is passed on only if it is among them.
    """
    if (x is None) == (rows is None):
        raise InputError(f"say of which result to plan {kind}, or of how many rows= with k= neighbors each")
    if rows is None:
        return x, values
    if "k" not in values:
        raise InputError("say how many neighbors each of these rows has, k= (--k)")
    return imagined_lists(rows, values["k"]), {
        name: value for name, value in values.items() if name != "k" or name in parameters
    }
