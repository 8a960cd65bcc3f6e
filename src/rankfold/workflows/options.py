"""Options, in groups that commands share: a group is a function whose parameters are the options.

``@command(matrix, place)`` gives a command the options of both groups and hands it what the groups make of
them. So an option has one name, one help text and one default, whatever commands take it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from rankfold.workflows.reporting import reported

Debug = Annotated[bool, typer.Option("--debug", help="show the traceback of an error")]
Json = Annotated[bool, typer.Option("--json", help="print JSON")]


Verify = Annotated[bool, typer.Option("--verify", help="read results that are there, compare checksums")]


def command(
    *groups: Callable[..., Any], reads_results: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a function of one argument for each group, and options of its own after them.

    Commands that read results, or may find their own, take ``--verify``.
    """
    reads_results |= output in groups

    def decorate(body: Callable[..., None]) -> Callable[..., None]:
        each = [_parameters(group) for group in groups]
        own = _parameters(body)[len(groups) :]

        def run(*, debug: bool, verify: bool = False, **given: Any) -> None:
            with reported(debug), checksums_compared(verify):
                made = [
                    group(**{p.name: given.pop(p.name) for p in options})
                    for group, options in zip(groups, each, strict=True)
                ]
                body(*made, **given)

        always = {"verify": Verify} if reads_results else {}
        last = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=kind)
            for name, kind in (always | {"debug": Debug}).items()
        ]
        parameters = [p for options in each for p in options] + [*own, *last]
        keywords = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
        run.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in keywords}
        run.__name__, run.__doc__ = body.__name__.rstrip("_"), body.__doc__
        return run

    return decorate


@contextmanager
def checksums_compared(wanted: bool) -> Iterator[None]:
    """Have every result that is looked at within the block read in full, if that is wanted."""
    if not wanted:
        yield
        return
    from rankfold.pipeline.storage.manifest import COMPARED

    token = COMPARED.set(True)
    try:
        yield
    finally:
        COMPARED.reset(token)


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(function, eval_str=True).parameters.values())


# Groups --------------------------------------------------------------------------------------------


def view(
    rows: Annotated[
        str | None, typer.Option(metavar="AXIS[,AXIS]", help="axes that become the rows; others are stacked")
    ] = None,
    select_rows: Annotated[
        str | None, typer.Option(metavar="RANGES", help="such as 0:1000 or 0:50,60")
    ] = None,
    select_columns: Annotated[
        str | None, typer.Option(metavar="RANGES", help="such as 0:50,60,70:80")
    ] = None,
    drop_missing_columns: Annotated[
        bool, typer.Option("--drop-missing-columns", help="leave out columns of NaN, such as land")
    ] = False,
    missing: Annotated[
        str, typer.Option("--missing-chunks", help="error, or fill to read the fill value")
    ] = "error",
) -> dict[str, Any]:
    """How a source is seen as a matrix: arguments of ``rankfold.open``."""
    return {
        "rows": rows,
        "select_rows": select_rows,
        "select_columns": select_columns,
        "drop_missing_columns": drop_missing_columns,
        "missing": missing,
    }


def request(
    rank: Annotated[
        int | None,
        typer.Option(help="number of components; found from tol if not given; all for tsqr without either"),
    ] = None,
    tol: Annotated[
        float | None,
        typer.Option(help="estimated relative error to stop at, 1e-4 by default; without rank, of all"),
    ] = None,
    method: Annotated[str, typer.Option(help="auto, gram, krylov, subspace, sketch or tsqr")] = "auto",
    passes: Annotated[int | None, typer.Option(help="most passes over the matrix; 8 by default")] = None,
    oversampling: Annotated[
        int | None, typer.Option(help="columns of a block beyond the rank; a quarter of it by default")
    ] = None,
    seed: Annotated[int, typer.Option(help="key of the random start")] = 0,
    no_rows: Annotated[bool, typer.Option("--no-rows", help="leave out U or scores")] = False,
) -> dict[str, Any]:
    """What is asked of a reduction."""
    return {
        "rank": rank,
        "tol": tol,
        "method": method,
        "passes": passes,
        "oversampling": oversampling,
        "seed": seed,
        "rows": not no_rows,
    }


def factorisation(
    passes: Annotated[int | None, typer.Option(help="most passes over the matrix; 8 by default")] = None,
    seed: Annotated[int, typer.Option(help="key of what is random")] = 0,
    no_rows: Annotated[bool, typer.Option("--no-rows", help="leave out Q")] = False,
) -> dict[str, Any]:
    """What is asked of a factorisation."""
    return {"passes": passes, "seed": seed, "rows": not no_rows}


def nonnegative(
    rank: Annotated[int, typer.Option(help="number of components")],
    loss: Annotated[str, typer.Option(help="frobenius or kullback-leibler")] = "frobenius",
    solver: Annotated[str, typer.Option(help="auto, hals, bpp, mu or admm")] = "auto",
    init: Annotated[
        str, typer.Option(help="auto, compressed, nndsvd, rows, random, or an earlier result")
    ] = "auto",
    alpha_w: Annotated[float, typer.Option(help="penalty of W, as scikit-learn weighs it")] = 0.0,
    alpha_h: Annotated[float | None, typer.Option(help="penalty of H; that of W by default")] = None,
    l1_ratio: Annotated[float, typer.Option(help="share of penalties that are sums, not squares")] = 0.0,
    constraint_w: Annotated[
        str, typer.Option(help="nonnegative, simplex, or the largest number of W")
    ] = "nonnegative",
    constraint_h: Annotated[str, typer.Option(help="the same of H, by columns")] = "nonnegative",
    tol: Annotated[float, typer.Option(help="relative fall of the error in a pass to stop at")] = 1e-3,
    gradient: Annotated[float, typer.Option(help="norm of the projected gradient to stop at")] = 0.0,
    seconds: Annotated[float, typer.Option(help="after which no pass begins; 0 for no limit")] = 0.0,
    passes: Annotated[
        int | None, typer.Option(help="most passes over the matrix; 8 by default, 50 for mu")
    ] = None,
    seed: Annotated[int, typer.Option(help="key of the random start")] = 0,
) -> dict[str, Any]:
    """What is asked of a nonnegative factorisation."""
    how = {"loss": loss, "solver": solver, "init": init, "l1_ratio": l1_ratio}
    penalties = {"alpha_W": alpha_w, "alpha_H": "same" if alpha_h is None else alpha_h}
    constraints = {"constraint_W": _bound(constraint_w), "constraint_H": _bound(constraint_h)}
    ends = {"tol": tol, "gradient": gradient, "seconds": seconds, "passes": passes}
    return {"rank": rank, "seed": seed, **how, **penalties, **constraints, **ends}


def search(
    k: Annotated[int, typer.Option("--k", help="neighbours of each row")] = 15,
    queries: Annotated[
        str | None, typer.Option(metavar="STORE", help="rows whose neighbours are wanted instead")
    ] = None,
    metric: Annotated[
        str,
        typer.Option(help="euclidean, sqeuclidean, cosine, inner_product, manhattan or chebyshev"),
    ] = "euclidean",
    symmetric: Annotated[
        str | None, typer.Option(help="edges of the graph that either row has, union, or both, mutual")
    ] = None,
    base: Annotated[
        Path | None,
        typer.Option(metavar="RESULT", help="lists of the first rows, to be gone on with"),
    ] = None,
) -> dict[str, Any]:
    """What is asked of neighbours."""
    return {"k": k, "queries": queries, "metric": metric, "symmetric": symmetric, "base": base}


def _bound(said: str) -> str | float:
    try:
        return float(said)
    except ValueError:
        return said


def centring(
    center: Annotated[bool, typer.Option("--center/--no-center", help="subtract column means")] = True,
    scale: Annotated[
        bool, typer.Option("--scale", help="divide columns by their standard deviation")
    ] = False,
    whiten: Annotated[bool, typer.Option("--whiten", help="scores of unit variance")] = False,
) -> dict[str, Any]:
    """What principal components are of."""
    return {"center": center, "scale": scale, "whiten": whiten}


def place(
    memory: Annotated[
        str | None,
        typer.Option(help="of a worker, such as 2GiB; by default half of what is free"),
    ] = None,
    on: Annotated[
        str | None, typer.Option(help="local, slurm, allocation, or the name or path of a profile")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="worker processes, or jobs; without it the threads of this process")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="of each process; all cores by default")] = None,
) -> dict[str, Any]:
    """Where it runs and within what."""
    return {"memory": memory, "on": on, "workers": workers, "threads": threads}


def output(
    out: Annotated[Path, typer.Option(help="where the result goes; the same command again resumes")],
    scratch: Annotated[
        Path | None, typer.Option(help="folder for intermediates; beside OUT by default")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="replace another output or unfinished run")
    ] = False,
) -> dict[str, Any]:
    """Where the result goes."""
    from rankfold.api.arguments import require_output

    require_output("out", out)
    return {"out": out, "scratch": scratch, "overwrite": overwrite}


Store = Annotated[
    str, typer.Argument(help="STORE.zarr, STORE.zarr::array, s3://..., or a .npy, .h5, .nc, .fbin file")
]


def store(store: Store) -> str:
    """The matrix a command reads."""
    return store
