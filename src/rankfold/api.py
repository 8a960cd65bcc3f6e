"""The functions that people call: arguments in, results out. All work is done by the layers below."""

from __future__ import annotations

import operator
import shutil
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

from rankfold.cluster.client import Client, active_client
from rankfold.cluster.threads import Threads, usable_cores
from rankfold.pipeline.errors import DataError, InputError, OutputError
from rankfold.pipeline.layout import lay_out
from rankfold.pipeline.memory import available_bytes, watched_memory
from rankfold.pipeline.methods.reduction import reduce
from rankfold.pipeline.plan import Plan, Rates, check_disk, make_plan
from rankfold.pipeline.request import DEFAULT_PASSES, DEFAULT_TOL, Request, check_request
from rankfold.pipeline.result import Result
from rankfold.pipeline.run import Progress, Run
from rankfold.pipeline.rundir import RunDirectory, digest, machine_facts
from rankfold.pipeline.scheduler import Budget, Scheduler
from rankfold.pipeline.source import Source
from rankfold.pipeline.sources import open_source
from rankfold.pipeline.units import parse_bytes
from rankfold.pipeline.warm import warm_kernels


class RankfoldWarning(UserWarning):
    """Something was done that the caller should know of; also kept in the result."""


def svd(
    x: object,
    rank: int | None = None,
    *,
    tol: float | None = None,
    method: str = "auto",
    passes: int | None = None,
    seed: int = 0,
    memory: str | int | None = None,
    out: str | Path | None = None,
    scratch: str | Path | None = None,
    rows: bool = True,
    overwrite: bool = False,
    client: Any = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Result:
    """Leading singular triplets of a matrix that may be larger than memory.

    Parameters
    ----------
    x : path, array or Source, (m, n)
        ``"STORE.zarr::array"``, a ``.npy`` file, a NumPy, Zarr or Dask array, or what ``rf.open`` gave.
    rank : int, 1 <= rank <= min(m, n)
        Number of triplets.
    tol : float, default 1e-4
        Estimated relative error at which every singular value counts as found.
    method : {"auto", "gram", "krylov", "subspace", "sketch"}
        See ``docs/choosing.md``. "auto" decides for gram or krylov by shape, type, rank and tol.
    passes : int, default 8
        Most reads of the matrix. A result short of ``tol`` says so.
    seed : int
        Key of the random start block.
    memory : int or str, default half of what is free
        Working memory of one worker process above its baseline, such as ``"2 GiB"``.
    out : path, optional
        Where the result is kept. The same call again resumes a run that was killed, or returns the
        finished result. Without it the result lives in a temporary store as long as the object.
    scratch : path, optional
        Folder for narrow intermediates, seen by all workers; beside ``out`` by default.
    rows : bool
        Whether ``U`` is formed and written.
    overwrite : bool
        Replace an output, or an unfinished run, of another request.
    client : distributed.Client, optional
        Where to run; the active client if there is one, else the threads of this process.
    threads : int, optional
        Threads of this process to use when no client is; all usable cores by default.
    progress : callable, optional
        Called with the name of a sweep, rows done, and rows in all.

    Returns
    -------
    Result
        ``U`` (m, k), ``s`` (k,), ``Vt`` (k, n), and per component ``residuals``, ``error_estimates``.

    Raises
    ------
    InputError, OutputError, PlanError, DataError
        See ``rankfold.pipeline.errors``; each message says what to change.

    Notes
    -----
    Reads the matrix once (Gram without ``U``, sketch), twice (Gram), 3 to 5 times (Krylov), or more.
    """
    request = Request(
        "svd", _rank(rank), _tol(tol), method, _passes(passes), _integer("seed", seed), rows=rows
    )
    return _run(x, request, memory, out, scratch, overwrite, client, threads, progress)


def pca(
    x: object,
    rank: int | None = None,
    *,
    tol: float | None = None,
    method: str = "auto",
    passes: int | None = None,
    seed: int = 0,
    center: bool = True,
    scale: bool = False,
    whiten: bool = False,
    memory: str | int | None = None,
    out: str | Path | None = None,
    scratch: str | Path | None = None,
    rows: bool = True,
    overwrite: bool = False,
    client: Any = None,
    threads: int | None = None,
    progress: Progress | None = None,
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
    checked = (_rank(rank), _tol(tol), method, _passes(passes), _integer("seed", seed))
    request = Request("pca", *checked, center, scale, whiten, rows)
    return _run(x, request, memory, out, scratch, overwrite, client, threads, progress)


def plan(
    kind: str,
    x: object,
    rank: int | None = None,
    *,
    tol: float | None = None,
    method: str = "auto",
    passes: int | None = None,
    seed: int = 0,
    center: bool | None = None,
    scale: bool = False,
    whiten: bool = False,
    rows: bool = True,
    memory: str | int | None = None,
    threads: int | None = None,
    workers: int = 1,
    rates: Rates | None = None,
) -> Plan:
    """The numbers of a reduction before it runs: the same as ``rankfold plan``. Reads no data."""
    if kind not in ("svd", "pca"):
        raise InputError(f"there is no plan for {kind!r}; plan 'svd' or 'pca'")
    if kind == "svd" and (center or scale or whiten):
        raise InputError("svd neither centres nor scales nor whitens: plan 'pca' for that")
    centred = kind == "pca" if center is None else center
    request = Request(
        kind,
        _rank(rank),
        _tol(tol),
        method,
        _passes(passes),
        _integer("seed", seed),
        centred,
        scale,
        whiten,
        rows,
    )
    source = open_source(x)
    check_request(request, source.shape, source.name)
    budget = Budget(_memory(memory), _threads(threads), workers)
    return make_plan(request, source, budget, rates)


def _run(
    x: object,
    request: Request,
    memory: str | int | None,
    out: str | Path | None,
    scratch: str | Path | None,
    overwrite: bool,
    client: Any,
    threads: int | None,
    progress: Progress | None,
) -> Result:
    source = open_source(x)
    check_request(request, source.shape, source.name)
    scheduler, budget = _place(client, memory, threads, source)
    made = make_plan(request, source, budget)
    source.check()
    fingerprint = source.fingerprint()
    identity = {"request": request.as_dict(), "input": fingerprint}
    temporary = tempfile.TemporaryDirectory(prefix="rankfold-") if out is None else None
    output = Path(temporary.name) / "result.zarr" if temporary is not None else Path(out or "").absolute()
    folder = RunDirectory.beside(output, None if scratch is None else Path(scratch), digest(identity))
    _require_place(output, source)
    if output.exists() and _done(output, identity, overwrite=overwrite):
        return Result(output)
    check_disk(made, _free(folder.scratch), folder.scratch)
    with folder.claimed(identity, overwrite=overwrite):
        _carry_out(folder, source, request, made, scheduler, fingerprint, progress)
    return Result(output, temporary=temporary)


def _carry_out(
    folder: RunDirectory,
    source: Source,
    request: Request,
    made: Plan,
    scheduler: Scheduler,
    fingerprint: str,
    progress: Progress | None,
) -> None:
    run = Run(folder.state, folder.scratch, folder.result, scheduler, made.concurrency, made.slots, progress)
    warm_kernels(source.dtype)
    facts = {**machine_facts(), "plan": made.as_dict()}
    began = time.perf_counter()
    with watched_memory() as memory:
        folder.log_attempt(facts)
        try:
            found = reduce(run, lay_out(request, source), request, fingerprint)
        except DataError:
            folder.discard()
            raise
    folder.log_attempt(
        {
            **facts,
            "seconds": time.perf_counter() - began,
            "passes": run.passes,
            "sweep_seconds": run.seconds,
            "baseline_bytes": memory.baseline,
            "peak_bytes": memory.peak,
            "measured_bytes": memory.above_baseline,
            "planned_bytes": made.peak_bytes,
            "finished": True,
        }
    )
    folder.publish()
    for message in found["warnings"]:
        warnings.warn(message, RankfoldWarning, stacklevel=5)


def _place(
    client: Any, memory: str | int | None, threads: int | None, source: Source
) -> tuple[Scheduler, Budget]:
    client = active_client() if client is None else client
    if client is None:
        return Threads(), Budget(_memory(memory), _threads(threads))
    workers = Client(client)
    return workers, Budget(_memory(memory), workers.threads, workers.workers)


def _done(output: Path, identity: dict[str, Any], *, overwrite: bool) -> bool:
    """Whether the output is the finished answer to this request."""
    try:
        attrs = Result(output).attrs
    except InputError:
        attrs = {}
    if (
        attrs
        and attrs["request"] == identity["request"]
        and attrs["input"]["fingerprint"] == identity["input"]
    ):
        return True
    if not attrs:
        raise OutputError(
            f"{output} exists and is not a result of rankfold, so it is never replaced. Choose another "
            "--out, or remove it yourself."
        )
    if overwrite:
        return False
    raise OutputError(
        f"{output} exists and is the result of another request, or of data that has changed since. Choose "
        "another --out, or replace it with --overwrite."
    )


def _require_place(output: Path, source: Source) -> None:
    """Refuse an output that would write into its own input, or around it."""
    path = getattr(source, "path", None)
    if path is None:
        return
    held, out = Path(path).resolve(), output.resolve()
    if held == out or held in out.parents or out in held.parents:
        raise OutputError(f"{output} would lie in, on or around its own input {path}. Choose another --out.")


def _rank(rank: int | None) -> int:
    if rank is None:
        raise InputError("say how many components: rank= (--rank)")
    return _integer("rank", rank)


def _tol(tol: float | None) -> float:
    return DEFAULT_TOL if tol is None else float(tol)


def _passes(passes: int | None) -> int:
    return DEFAULT_PASSES if passes is None else _integer("passes", passes)


def _integer(name: str, value: object) -> int:
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise InputError(f"{name} must be an integer, not {value!r}") from None


def _threads(threads: int | None) -> int:
    count = usable_cores() if threads is None else _integer("threads", threads)
    if count < 1:
        raise InputError(f"threads must be at least 1, not {count}")
    return count


def _memory(memory: str | int | None) -> int:
    return available_bytes() // 2 if memory is None else parse_bytes(memory)


def _free(folder: Path) -> int:
    """Bytes free where a folder is or will be."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free
