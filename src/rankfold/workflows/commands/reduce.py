"""``rankfold svd``, ``pca``, ``qr``, ``nmf``, ``knn``, other methods of one matrix, and ``plan``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from rankfold.methods.registry import METHODS, Method, methods
from rankfold.methods.svd.arguments import PCA
from rankfold.pipeline.text import json_text
from rankfold.workflows import options
from rankfold.workflows.commands.model import matrix_of, rows_of
from rankfold.workflows.options import (
    Json,
    any_arguments,
    arguments,
    command,
    output_of,
    place,
    store,
    view,
)
from rankfold.workflows.reporting import say, say_warning
from rankfold.workflows.results import is_unchanged, last_attempt, summary


def command_of(method: Method) -> Callable[..., None]:
    """Make the command of a method whose input is one matrix."""

    def body(
        store: str,
        view: dict[str, Any],
        output: dict[str, Any],
        method_arguments: dict[str, Any],
        place: dict[str, Any],
        as_json: Json = False,
    ) -> None:
        _reduce(method.name, store, view, as_json, **output, **method_arguments, **place)

    body.__name__, body.__doc__ = method.name.replace("_", "-"), method.summary
    return command(store, view, output_of(method), arguments(method), place)(body)


@command(store, view, output_of(PCA), arguments(PCA), place)
def pca(
    store: str,
    view: dict[str, Any],
    output: dict[str, Any],
    method_arguments: dict[str, Any],
    place: dict[str, Any],
    update: Annotated[
        Path | None,
        typer.Option(metavar="RESULT", help="add the rows of STORE to the samples of this pca"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Principal components: scores, components, mean."""
    from rankfold.pipeline.errors import InputError

    if update is None:
        _reduce("pca", store, view, as_json, **output, **method_arguments, **place)
        return
    if output.pop("grows") is not None:
        raise InputError(
            "--grows takes a store with all rows, --update one with the new rows: say one of them"
        )
    _reduce("update", store, view, as_json, update, rank=rank_of_update(method_arguments), **output, **place)


def reductions() -> dict[Method, Callable[..., None]]:
    """Make a command for each method whose input is one matrix, by method.

    Methods of other packages are included.
    """
    return {each: pca if each is PCA else command_of(each) for each in methods() if each.of_matrix}


def kind(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="svd, pca, knn, umap, ...; or a workflow, FLOW.yaml, alone")
    ],
) -> str:
    """The name of the method, or the path of the workflow, to plan."""
    return kind


def planned_store(
    store: Annotated[
        str | None, typer.Argument(metavar="[STORE]", help="the matrix or result, as for KIND")
    ] = None,
) -> str | None:
    """Path of the matrix or result to plan for; None for a workflow, or if ``--rows`` is given instead."""
    return store


plan_arguments = any_arguments(each for each in methods() if each.of_matrix or each.of_neighbors)


@command(kind, planned_store, view, plan_arguments, place)
def plan(
    kind: str,
    store: str | None,
    view: dict[str, Any],
    method_arguments: dict[str, Any],
    place: dict[str, Any],
    rows: Annotated[
        int | None,
        typer.Option(help="of umap or fuzzy_graph, in place of STORE: so many, with --k neighbors"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Passes, memory, time of a reduction, not run; stages of a workflow, and which would run."""
    import rankfold
    from rankfold.cluster.local.calibration import cached_rates
    from rankfold.pipeline.errors import InputError
    from rankfold.pipeline.planning.table import table
    from rankfold.workflows.flows.flow_file import is_flow

    if is_flow(kind):
        _plan_flow(kind, store, {**view, **place}, method_arguments, as_json=as_json)
        return
    kind = kind.replace("-", "_")
    of_neighbors = kind in METHODS and METHODS[kind].of_neighbors
    if store is None and not of_neighbors:
        raise InputError(f"say which matrix to plan {kind} of: rankfold plan {kind} STORE")
    if of_neighbors and store is not None:
        source: Any = matrix_of(store, view)
    else:
        source = None if of_neighbors else rankfold.open(str(store), **view)
    method_plan = rankfold.plan(kind, source, rows=rows, **method_arguments, **place, rates=cached_rates())
    say(json_text(method_plan.as_dict(), indent=1) if as_json else table(method_plan))


def _plan_flow(
    path: str, store: str | None, values: dict[str, Any], method_arguments: dict[str, Any], *, as_json: bool
) -> None:
    """Print the plan of the workflow in the file ``path``, which gives all options but ``--cluster``.

    ``values`` are the other options by name; raises if any of them is given.
    """
    from rankfold.pipeline.errors import InputError
    from rankfold.workflows.commands.flow import plan_flow

    usual = {**options.view(), **options.place()}
    extra = [name for name, value in usual.items() if values[name] != value and name != "cluster"] + list(
        method_arguments
    )
    if store is not None or extra:
        beside = repr(store) if store is not None else f"--{extra[0].replace('_', '-')}"
        raise InputError(f"{path} says itself what is asked: leave out {beside}, or write it into the file")
    plan_flow(Path(path), values["cluster"], as_json=as_json)


def rank_of_update(method_arguments: dict[str, Any]) -> int | None:
    """Rank for ``pca --update``, or None; raises for options that the updated result already determines.

    ``method_arguments`` are those of pca by name, from the options.
    """
    from rankfold.pipeline.errors import InputError

    for parameter in PCA.parameters():
        if (
            parameter.name not in ("rank", "with_rows")
            and method_arguments[parameter.name] != parameter.default
        ):
            option = parameter.name.replace("center", "no-center")
            raise InputError(
                f"--{option} has no place beside --update: samples are centered, scaled and summed up as in "
                "the result. Leave it out"
            )
    return method_arguments["rank"]  # type: ignore[no-any-return]


def _reduce(
    kind: str, store: str, view: dict[str, Any], as_json: bool, *before: Path, **options: Any
) -> None:
    import warnings

    import rankfold
    from rankfold.pipeline.planning.progress import SweepProgress

    source = rows_of(store, view) if before else rankfold.open(store, **view)
    out, earlier = options["out"], last_attempt(options["out"])
    with warnings.catch_warnings(), SweepProgress() as bar:
        warnings.simplefilter("ignore", rankfold.RankfoldWarning)  # printed below, from the result
        result = getattr(rankfold, kind)(*before, source, progress=bar, **options)
    there = is_unchanged(out, earlier, overwrite=options["overwrite"])
    if as_json:
        say(json_text({"out": str(result.path), "already_done": there, **result.attrs}, indent=1))
        return
    for message in result.attrs["warnings"]:
        say_warning(message)
    say(summary(result, already_done=there))
