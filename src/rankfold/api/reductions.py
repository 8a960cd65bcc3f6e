"""The reductions that people call: arguments in, results out. All work is done by the layers below."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rankfold.api.arguments import public, refuse_unknown
from rankfold.api.execute import execute
from rankfold.api.neighbors import knn, search_of
from rankfold.cluster.place import choose_place
from rankfold.methods.nmf.nmf import Nonnegative
from rankfold.methods.nmf.request import DEFAULT_FALL, INITS, CustomStart, FactorRequest
from rankfold.methods.svd.plan import make_plan
from rankfold.methods.svd.request import (
    DEFAULT_PASSES,
    DEFAULT_TOL,
    Request,
    check_request,
    component_count,
    integer,
    number,
)
from rankfold.methods.svd.strategy import LARGEST_SQUARE, settled
from rankfold.methods.svd.svd import Reduction
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.engine.run import Progress
from rankfold.pipeline.errors import ArgumentError, InputError
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.seconds import Rates
from rankfold.pipeline.storage.result import Result


@public
def svd(
    x: object,
    rank: int | None = None,
    *,
    tol: float | None = None,
    method: str = "auto",
    passes: int | None = None,
    oversampling: int | None = None,
    seed: int = 0,
    memory: str | int | None = None,
    out: str | Path | None = None,
    scratch: str | Path | None = None,
    rows: bool = True,
    overwrite: bool = False,
    on: str | Path | None = None,
    workers: int | None = None,
    threads: int | None = None,
    client: Any = None,
    progress: Progress | bool | None = None,
) -> Result:
    """Leading singular triplets of a matrix that may be larger than memory.

    Parameters
    ----------
    x : path, array or Source, (m, n)
        ``"STORE.zarr::array"``, a ``.npy`` file, a NumPy, Zarr or Dask array, or what ``rf.open`` gave.
    rank, tol : int; float, default 1e-4
        Number of triplets; relative error at which one counts as found. ``tol`` alone: as many as leave
        out that share of the Frobenius norm; neither: all, by "tsqr", of up to 16384 rows or columns.
    method : {"auto", "gram", "krylov", "subspace", "sketch", "tsqr"}
        See ``docs/choosing.md``.
    passes, oversampling, seed : int, default 8, a quarter of rank, and 0
        Most reads of the matrix; columns of a block beyond ``rank``; key of the random start block.
    memory : int or str, default half of what is free
        Working memory of a worker process above its baseline: ``"2 GiB"``.
    out : path, optional
        Where the result is kept, in a folder that exists; the same call again resumes a killed run, or
        returns the finished result. By default a temporary store that lives as long as the object.
    scratch : path, optional
        Folder for narrow intermediates, seen by all workers; beside ``out`` by default.
    rows, overwrite : bool
        Form and write ``U``; replace an output, or an unfinished run, of another request.
    on, workers, threads : optional
        This machine ("local"), or the jobs of a profile; worker processes or jobs, instead of the threads
        of this process; threads of each process, by default all usable cores, shared.
    client, progress : optional
        A Dask client, by default the active one. True or False, by default True on a terminal or in a
        notebook; or a function that is called with the name of a sweep, what is done, and what there is.

    Returns
    -------
    Result
        ``U`` (m, k), ``s`` (k,), ``Vt`` (k, n), and per component ``residuals``, ``error_estimates``.

    Raises
    ------
    InputError, OutputError, PlanError, DataError
        See ``rankfold.pipeline.errors``; each message says what to change.

    Reads the matrix once (Gram or TSQR without ``U``, sketch), twice (Gram), 2 to 5 times (Krylov), or more.
    """
    task = reduction_of(x, "svd", rank, tol, method, passes, oversampling, seed, rows=rows)
    place = choose_place(on=on, workers=workers, threads=threads, memory=memory, client=client)
    return execute(task, place, out=out, scratch=scratch, overwrite=overwrite, progress=progress)


@public
def pca(
    x: object,
    rank: int | None = None,
    *,
    tol: float | None = None,
    method: str = "auto",
    passes: int | None = None,
    oversampling: int | None = None,
    seed: int = 0,
    center: bool = True,
    scale: bool = False,
    whiten: bool = False,
    memory: str | int | None = None,
    out: str | Path | None = None,
    scratch: str | Path | None = None,
    rows: bool = True,
    overwrite: bool = False,
    on: str | Path | None = None,
    workers: int | None = None,
    threads: int | None = None,
    client: Any = None,
    progress: Progress | bool | None = None,
) -> Result:
    """Principal components of samples in rows, centred without a pass of their own.

    Parameters
    ----------
    center : bool
        Subtract the mean of each column.
    scale : bool
        Divide each column by its standard deviation (of m - 1; its root mean square if not centred).
        Takes one more pass for a tall matrix, unless under ``method="gram"``.
    whiten : bool
        Scores of unit variance.
    others
        As for ``svd``.

    Returns a ``Result`` with ``scores`` (m, k), ``components`` (k, n), ``mean`` and ``scale`` (n,), and
    per component ``singular_values``, ``explained_variance`` and its ``_ratio``, ``residuals`` and
    ``error_estimates``.
    """
    flags = {"center": center, "scale": scale, "whiten": whiten, "rows": rows}
    task = reduction_of(x, "pca", rank, tol, method, passes, oversampling, seed, **flags)
    place = choose_place(on=on, workers=workers, threads=threads, memory=memory, client=client)
    return execute(task, place, out=out, scratch=scratch, overwrite=overwrite, progress=progress)


@public
def qr(
    x: object,
    *,
    passes: int | None = None,
    seed: int = 0,
    memory: str | int | None = None,
    out: str | Path | None = None,
    scratch: str | Path | None = None,
    rows: bool = True,
    overwrite: bool = False,
    on: str | Path | None = None,
    workers: int | None = None,
    threads: int | None = None,
    client: Any = None,
    progress: Progress | bool | None = None,
) -> Result:
    """QR factorisation of a matrix that may be larger than memory.

    Parameters
    ----------
    x : path, array or Source, (m, n)
        Anything ``svd`` takes.
    rows : bool
        Form and write ``Q``; without it a tall matrix is read once.
    others
        As for ``svd``.

    Returns
    -------
    Result
        ``Q`` (m, k), k = min(m, n), orthonormal columns, and ``R`` (k, n), upper triangular, its diagonal
        not negative. What ``Q`` lacks of orthogonality is ``attrs["orthogonality"]``.

    Notes
    -----
    Reads the matrix once, or twice with ``Q``; once more where rows are so unlike those of a sample, and
    with ``Q`` once more where columns are nearly dependent. A wide matrix is read once, and so is its leading
    square: ``R`` is as large as the matrix.
    """
    task = reduction_of(x, "qr", None, None, "tsqr", passes, None, seed, rows=rows)
    place = choose_place(on=on, workers=workers, threads=threads, memory=memory, client=client)
    return execute(task, place, out=out, scratch=scratch, overwrite=overwrite, progress=progress)


@public
def nmf(
    x: object,
    rank: int,
    *,
    loss: str = "frobenius",
    solver: str = "auto",
    init: object = "auto",
    alpha_W: float = 0.0,
    alpha_H: float | str = "same",
    l1_ratio: float = 0.0,
    constraint_W: str | float = "nonnegative",
    constraint_H: str | float = "nonnegative",
    tol: float = DEFAULT_FALL,
    gradient: float = 0.0,
    seconds: float = 0.0,
    passes: int | None = None,
    seed: int = 0,
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
    """Nonnegative factors of a nonnegative matrix that may be larger than memory.

    Parameters
    ----------
    x : path, array or Source, (m, n)
        Anything ``svd`` takes, with no number below zero.
    rank : int
        Components.
    loss : {"frobenius", "kullback-leibler"}
    solver : {"auto", "hals", "bpp", "mu", "admm"}
        Of rows, given the other factor: coordinate descent, exact pivoting, multiplicative updates, ADMM.
        "auto" is "hals"; "mu" for Kullback-Leibler, "admm" with constraints.
    init : {"auto", "compressed", "nndsvd", "rows", "random"}, or (W, H), or a result of nmf
        Where the short factor starts; the long one follows. "auto" is "compressed": solved without reads on
        a projection of the matrix that one read makes.
    alpha_W, alpha_H, l1_ratio : float
        Penalties, weighed as scikit-learn weighs them; ``alpha_H="same"`` is ``alpha_W``. A penalty on one
        factor alone is taken where components of the other have unit norm.
    constraint_W, constraint_H : {"nonnegative", "simplex"} or float
        Rows of W, or columns of H, sum to one; or no number is larger than that.
    tol, gradient : float
        Relative fall of the error in a pass, and norm of the projected gradient over that of the matrix,
        below which passes end.
    seconds, passes, seed : float, int, int
        After which no pass begins; most reads of the matrix, default 8, or 50 for "mu"; key of random starts.
    others
        As for ``svd``.

    Returns
    -------
    Result
        ``W`` (m, k) and ``H`` (k, n), not negative, whose product is near the matrix. ``attrs`` has the
        ``relative_error`` that is left (of the divergence from independent rows and columns, under
        Kullback-Leibler), ``errors`` after each pass, ``stationarity``, and why passes ``stopped``.

    Notes
    -----
    Reads the matrix typically 3 or 4 times: see ``docs/choosing.md``. The minimum is local: ``seed`` decides.
    """
    how = {"loss": loss, "solver": solver, "constraint_w": constraint_W, "constraint_h": constraint_H}
    penalties = {"alpha_w": alpha_W, "alpha_h": alpha_H, "l1_ratio": l1_ratio}
    ends = {"tol": tol, "gradient": gradient, "seconds": seconds, "passes": passes}
    task = factors_of(x, init, rank=rank, seed=seed, **how, **penalties, **ends)
    place = choose_place(on=on, workers=workers, threads=threads, memory=memory, client=client)
    return execute(task, place, out=out, scratch=scratch, overwrite=overwrite, progress=progress)


REDUCTIONS: tuple[Callable[..., Result], ...] = (svd, pca, qr, nmf, knn)
NOT_PLANNED = {"out", "scratch", "overwrite", "progress"}
PLANNED = {each.__name__: {*inspect.signature(each).parameters} - NOT_PLANNED for each in REDUCTIONS}
"""What there are plans of, and what each may be asked."""


@public
def plan(
    kind: str,
    x: object,
    rank: int | None = None,
    *,
    tol: float | None = None,
    method: str = "auto",
    passes: int | None = None,
    oversampling: int | None = None,
    seed: int = 0,
    center: bool | None = None,
    scale: bool = False,
    whiten: bool = False,
    rows: bool = True,
    memory: str | int | None = None,
    on: str | Path | None = None,
    workers: int | None = None,
    threads: int | None = None,
    client: Any = None,
    rates: Rates | None = None,
    **others: Any,
) -> Plan:
    """The numbers of a reduction before it runs: the same as ``rankfold plan``. Reads no data.

    ``others`` are what ``nmf`` takes besides (``loss``, ``solver``, ``init``, penalties, constraints), or
    what ``knn`` takes: ``k``, ``metric``, ``queries``, ``base``, ``symmetric``.
    """
    if not isinstance(kind, str) or (isinstance(x, str) and x in PLANNED and kind not in PLANNED):
        raise ArgumentError("plan takes what is planned first, then the matrix: rankfold.plan('pca', x, ...)")
    if kind not in PLANNED:
        raise InputError(f"there is no plan for {kind!r}; plan 'svd', 'pca', 'qr', 'nmf' or 'knn'")
    if kind != "pca" and (center or scale or whiten):
        raise InputError(f"{kind} neither centres nor scales nor whitens: plan 'pca' for that")
    refuse_unknown(f"a plan of {kind}", others, PLANNED[kind])
    place = choose_place(on=on, workers=workers, threads=threads, memory=memory, client=client)
    if kind == "knn":
        if rank is not None:
            raise InputError("knn has no rank: say how many neighbours, k= (--k)")
        search = search_of(x, **others)
        return _timed(search.plan(place.budget), rates, search.source, place.budget.workers)
    if kind == "nmf":
        end = {} if tol is None else {"tol": tol}
        named = {name.lower(): value for name, value in others.items()}
        task = factors_of(x, named.pop("init", "auto"), rank=rank, passes=passes, seed=seed, **end, **named)
        return _timed(task.plan(place.budget), rates, task.source, place.budget.workers)
    centred = kind == "pca" if center is None else center
    flags = {"center": centred, "scale": scale, "whiten": whiten, "rows": rows}
    asked = reduction_of(x, kind, rank, tol, method, passes, oversampling, seed, **flags)
    made = make_plan(asked.asked, asked.source, place.budget)
    return _timed(made, rates, asked.source, place.budget.workers)


def _timed(made: Plan, rates: Rates | None, source: Source, workers: int) -> Plan:
    """With predicted seconds, if there are rates to predict them by."""
    return made if rates is None else made.timed(rates, source, workers)


def factors_of(x: object, init: object, **asked: Any) -> Nonnegative:
    """What is to be factorised without negative numbers, checked; arguments of ``nmf``."""
    named = isinstance(init, str) and (init in INITS or not Path(init).exists())
    custom = None if named else CustomStart.of(init)
    request = FactorRequest.of(init=str(init) if named else "custom", **asked)
    return Nonnegative.of(open_source(x), request, custom)


def reduction_of(
    x: object,
    kind: str,
    rank: int | None,
    tol: float | None,
    method: str,
    passes: int | None,
    oversampling: int | None,
    seed: int,
    **flags: bool,
) -> Reduction:
    """What is to be reduced, checked; arguments of ``svd``, ``pca`` and ``qr``."""
    source = open_source(x)
    if kind == "qr":
        rank, method = min(source.shape), "tsqr"
    elif rank is None and tol is None:
        rank, method = _all_of(source, method), "tsqr"
    adaptive = rank is None
    request = Request(
        kind,
        min(source.shape) if rank is None else component_count(rank),
        DEFAULT_TOL if tol is None else number("tol", tol),
        method,
        DEFAULT_PASSES if passes is None else integer("passes", passes),
        integer("seed", seed),
        adaptive=adaptive,
        oversampling=None if oversampling is None else integer("oversampling", oversampling),
        **flags,
    )
    check_request(request, source.shape, source.name)
    return Reduction(settled(request, source), source)


def _all_of(source: Source, method: str) -> int:
    """The number of all components, where those are to be found: neither a rank nor a tolerance is given."""
    count = min(source.shape)
    advice = "say how many components, rank= (--rank), or what share of the norm to leave out, tol= (--tol)"
    if method not in ("auto", "tsqr"):
        raise InputError(f"{advice}: without either all are found, by method tsqr and not by {method}")
    if method == "auto" and count > LARGEST_SQUARE:
        raise InputError(
            f"{advice}: without either all are found, and {source.name} has {count}, more than the "
            f"{LARGEST_SQUARE} up to which that is done unasked. Say method='tsqr' (--method tsqr) if all "
            "are wanted"
        )
    return count
