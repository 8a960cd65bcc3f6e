"""``rankfold svd``, ``pca``, ``qr``, ``nmf``, ``knn`` and ``plan``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from rankfold.workflows import options
from rankfold.workflows.options import (
    Json,
    centring,
    command,
    factorisation,
    nonnegative,
    output,
    place,
    request,
    search,
    store,
    view,
)
from rankfold.workflows.results import found_done, last_attempt, summary


@command(store, view, output, request, place)
def svd(
    store: str,
    view: dict[str, Any],
    output: dict[str, Any],
    request: dict[str, Any],
    place: dict[str, Any],
    as_json: Json = False,
) -> None:
    """Leading singular triplets: U, s, Vt."""
    _reduce("svd", store, view, as_json, **output, **request, **place)


@command(store, view, output, request, centring, place)
def pca(
    store: str,
    view: dict[str, Any],
    output: dict[str, Any],
    request: dict[str, Any],
    centring: dict[str, Any],
    place: dict[str, Any],
    update: Annotated[
        Path | None,
        typer.Option(metavar="RESULT", help="add the rows of STORE to the samples of this pca"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Principal components: scores, components, mean."""
    if update is None:
        _reduce("pca", store, view, as_json, **output, **request, **centring, **place)
        return
    rank = rank_of_update(request, centring)
    _reduce("update", store, view, as_json, update, rank=rank, **output, **place)


@command(store, view, output, factorisation, place)
def qr(
    store: str,
    view: dict[str, Any],
    output: dict[str, Any],
    factorisation: dict[str, Any],
    place: dict[str, Any],
    as_json: Json = False,
) -> None:
    """Orthonormal basis of the columns, and R: Q, R."""
    _reduce("qr", store, view, as_json, **output, **factorisation, **place)


@command(store, view, output, nonnegative, place)
def nmf(
    store: str,
    view: dict[str, Any],
    output: dict[str, Any],
    nonnegative: dict[str, Any],
    place: dict[str, Any],
    as_json: Json = False,
) -> None:
    """Nonnegative factors: W, H."""
    _reduce("nmf", store, view, as_json, **output, **nonnegative, **place)


@command(store, view, output, search, place)
def knn(
    store: str,
    view: dict[str, Any],
    output: dict[str, Any],
    search: dict[str, Any],
    place: dict[str, Any],
    as_json: Json = False,
) -> None:
    """Nearest neighbours of every row, exactly: indices, distances, graph."""
    _reduce("knn", store, view, as_json, **output, **search, **place)


def kind(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="svd, pca, qr, nmf or knn; or a workflow, FLOW.yaml, alone")
    ],
) -> str:
    """What is planned."""
    return kind


def planned_store(
    store: Annotated[str | None, typer.Argument(metavar="[STORE]", help="the matrix, as for svd")] = None,
) -> str | None:
    """The matrix, unless a workflow is planned."""
    return store


@command(kind, planned_store, view, request, centring, place)
def plan(
    kind: str,
    store: str | None,
    view: dict[str, Any],
    request: dict[str, Any],
    centring: dict[str, Any],
    place: dict[str, Any],
    k: Annotated[int, typer.Option("--k", help="neighbours of each row, for knn")] = 15,
    as_json: Json = False,
) -> None:
    """Passes, memory, time of a reduction, not run; stages of a workflow, and which would run."""
    import rankfold
    from rankfold.cluster.local.calibration import cached_rates
    from rankfold.pipeline.errors import InputError
    from rankfold.workflows.flows.model import is_flow

    if is_flow(kind):
        _plan_flow(kind, store, {**view, **request, **centring, **place, "k": k}, as_json=as_json)
        return
    if store is None:
        raise InputError(f"say which matrix to plan {kind} of: rankfold plan {kind} STORE")
    centring["center"] &= kind == "pca"
    others: dict[str, Any] = {"k": k} if kind == "knn" else {}
    source = rankfold.open(store, **view)
    made = rankfold.plan(kind, source, **request, **centring, **place, **others, rates=cached_rates())
    typer.echo(json.dumps(made.as_dict(), indent=1) if as_json else str(made))


def _plan_flow(path: str, store: str | None, given: dict[str, Any], *, as_json: bool) -> None:
    """The plan of a workflow, which says everything itself but where it is to run."""
    from rankfold.pipeline.errors import InputError
    from rankfold.workflows.commands.flow import plan_flow

    usual = {**options.view(), **options.request(), **options.centring(), **options.place(), "k": 15}
    said = [name for name, value in usual.items() if given[name] != value and name != "on"]
    if store is not None or said:
        beside = repr(store) if store is not None else f"--{said[0].replace('_', '-')}"
        raise InputError(f"{path} says itself what is asked: leave out {beside}, or write it into the file")
    plan_flow(Path(path), given["on"], as_json=as_json)


def rank_of_update(request: dict[str, Any], centring: dict[str, Any]) -> int | None:
    """The rank of an update; raises for what follows from the result that is updated."""
    from rankfold.pipeline.errors import InputError

    usual = {"tol": None, "method": "auto", "passes": None, "oversampling": None, "seed": 0}
    usual |= {"center": True, "scale": False, "whiten": False}
    given = [name for name, value in usual.items() if {**request, **centring}[name] != value]
    if given:
        option = given[0].replace("center", "no-center")
        raise InputError(
            f"--{option} has no place beside --update: samples are centred, scaled and summed up as in the "
            "result. Leave it out"
        )
    return request["rank"]  # type: ignore[no-any-return]


def _reduce(
    kind: str, store: str, view: dict[str, Any], as_json: bool, *before: Path, **options: Any
) -> None:
    import warnings

    import rankfold
    from rankfold.pipeline.planning.progress import SweepProgress

    source = rankfold.open(store, **view)
    out, earlier = options["out"], last_attempt(options["out"])
    with warnings.catch_warnings(), SweepProgress() as bar:
        warnings.simplefilter("ignore", rankfold.RankfoldWarning)  # printed below, from the result
        result = getattr(rankfold, kind)(*before, source, progress=bar, **options)
    there = found_done(out, earlier, overwrite=options["overwrite"])
    if as_json:
        typer.echo(json.dumps({"out": str(result.path), "already_done": there, **result.attrs}, indent=1))
        return
    for message in result.attrs["warnings"]:
        typer.echo(f"warning: {message}", err=True)
    typer.echo(summary(result, already_done=there))
