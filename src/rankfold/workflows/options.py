"""Options, in groups that commands share: a group is a function whose parameters are the options.

``@command(matrix, place)`` gives a command the options of both groups and passes it the return values of the
groups. So an option has one name, one help text and one default in all commands.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any

import typer

from rankfold.api.where import ARGUMENTS
from rankfold.methods.argument import Parameter
from rankfold.methods.registry import Method
from rankfold.workflows.reporting import RESUME_HINT, report_errors

Debug = Annotated[bool, typer.Option("--debug", help="show the traceback of an error")]
Json = Annotated[bool, typer.Option("--json", help="print JSON")]


SHOW_JOBS: ContextVar[Callable[[str, Mapping[str, Any]], None]] = ContextVar("SHOW_JOBS")
"""Function that prints the jobs that a command would submit, given its name and the values of its options by
name. It is set by ``cli``, which knows all commands.
"""

Print = Annotated[
    bool, typer.Option("--print", help="show the jobs that would be submitted; submit none, write nothing")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="no progress: how it ends, and what goes wrong")]
Verify = Annotated[bool, typer.Option("--verify", help="read results that are there, compare checksums")]


def command(
    *groups: Callable[..., Any],
    reads_results: bool = False,
    shows_progress: bool = False,
    keeps_state: bool = False,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate the function of a command, which takes the value of each group, followed by its own options.

    A group is a function of options. Commands that read results, or may find their own, get ``--verify``.
    Those of them with a ``place`` may submit jobs, and get ``--print``. Those that show progress, including
    these, get ``--quiet``. Those with an output, or with ``keeps_state``, keep what they finished when they
    are stopped.
    """
    has_output = output in groups or growing_output in groups
    reads_results |= has_output
    hint = RESUME_HINT if has_output or keeps_state else ""
    may_submit = reads_results and place in groups
    shows_progress |= may_submit

    def decorate(body: Callable[..., None]) -> Callable[..., None]:
        each = [_parameters(group) for group in groups]
        own = _parameters(body)[len(groups) :]

        def run(*, debug: bool, verify: bool = False, **values: Any) -> None:
            silent = shows_progress and values.pop("quiet")
            with report_errors(debug, hint), compare_checksums(verify), silence(silent):
                if may_submit and values.pop("show"):
                    SHOW_JOBS.get()(run.__name__, values)
                    return
                group_values = [
                    group(**{p.name: values.pop(p.name) for p in options})
                    for group, options in zip(groups, each, strict=True)
                ]
                body(*group_values, **values)

        always: dict[str, Any] = {"show": Print} if may_submit else {}
        always |= {"quiet": Quiet} if shows_progress else {}
        always |= {"verify": Verify} if reads_results else {}
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
def compare_checksums(enable: bool) -> Iterator[None]:
    """Verify the checksums of every result that is opened within the block, if enabled."""
    if not enable:
        yield
        return
    from rankfold.pipeline.storage.manifest import COMPARISON

    token = COMPARISON.set(True)
    try:
        yield
    finally:
        COMPARISON.reset(token)


@contextmanager
def silence(enable: bool) -> Iterator[None]:
    """Show no progress within the block, if enabled."""
    if not enable:
        yield
        return
    from rankfold.pipeline.planning.progress import SILENCE

    token = SILENCE.set(True)
    try:
        yield
    finally:
        SILENCE.reset(token)


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(function, eval_str=True).parameters.values())


def _said(name: str, *declarations: str, metavar: str | None = None) -> Any:
    """An option of the command line, with the help text of the argument ``name`` in
    ``rankfold.api.where``.
    """
    return typer.Option(*declarations, metavar=metavar, help=ARGUMENTS[name].help)


# Groups -------------------------------------------------------------------------------------------


def view(
    row_axes: Annotated[str | None, _said("row_axes", metavar="AXIS[,AXIS]")] = None,
    select_rows: Annotated[str | None, _said("select_rows", metavar="RANGES")] = None,
    select_columns: Annotated[str | None, _said("select_columns", metavar="RANGES")] = None,
    drop_missing_columns: Annotated[bool, _said("drop_missing_columns", "--drop-missing-columns")] = False,
    drop_missing_rows: Annotated[bool, _said("drop_missing_rows", "--drop-missing-rows")] = False,
    missing_chunks: Annotated[str | None, _said("missing_chunks", metavar="fill|error")] = None,
    prepare: Annotated[str | None, _said("prepare", metavar="STEPS")] = None,
    mask_var: Annotated[str | None, _said("mask_var", metavar="NAME")] = None,
    mask_obs: Annotated[str | None, _said("mask_obs", metavar="NAME")] = None,
    numeric: Annotated[bool, _said("numeric", "--numeric")] = False,
    index_col: Annotated[str | None, _said("index_col", metavar="COLUMN")] = None,
) -> dict[str, Any]:
    """Arguments of ``rankfold.open`` by name, from the options on how a source is read as a matrix."""
    return {
        "row_axes": row_axes,
        "select_rows": select_rows,
        "select_columns": select_columns,
        "drop_missing_columns": drop_missing_columns,
        "drop_missing_rows": drop_missing_rows,
        "missing_chunks": missing_chunks,
        "prepare": prepare,
        "mask_var": mask_var,
        "mask_obs": mask_obs,
        "numeric": numeric,
        "index_col": index_col,
    }


def arguments(method: Method) -> Callable[..., dict[str, Any]]:
    """Make a group (function of options) for the arguments of a method; it returns their values by name."""
    return _group({each.name: each for each in method.parameters()}, unsaid=False)


def any_arguments(methods: Iterable[Method]) -> Callable[..., dict[str, Any]]:
    """Make a group (function of options) for the arguments of all methods together.

    It returns the values of those that are given, by name.
    """
    parameters: dict[str, Parameter] = {}
    for each in methods:
        for parameter in each.parameters():
            parameters.setdefault(parameter.name, parameter)
    return _group(parameters, unsaid=True)


def _group(parameters: Mapping[str, Parameter], *, unsaid: bool) -> Callable[..., dict[str, Any]]:
    options = {_option_name(each): each for each in parameters.values()}

    def group(**option_values: Any) -> dict[str, Any]:
        values = {options[name].name: _value(options[name], value) for name, value in option_values.items()}
        return {name: value for name, value in values.items() if not (unsaid and value is None)}

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    order = sorted(options.items(), key=lambda item: not (item[1].is_required and not unsaid))
    group.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [_option(name, each, kind, unsaid=unsaid) for name, each in order]
    )
    return group


def _option_name(parameter: Parameter) -> str:
    """Name of the Python parameter for the option of an argument, such as no_rows for --no-rows."""
    return (parameter.argument.option or parameter.name).strip("-").replace("-", "_").lower()


def _option(name: str, parameter: Parameter, kind: Any, *, unsaid: bool) -> inspect.Parameter:
    argument, (first, *others) = parameter.argument, parameter.types
    option_name = parameter.name.lower().replace("_", "-")
    declaration, default = f"--{option_name}", None if unsaid else parameter.default
    if first is bool and (argument.option or not parameter.default):
        declaration, default = argument.option or declaration, None if unsaid else False
    elif first is bool:
        declaration = f"--{option_name}/--no-{option_name}"
    option = typer.Option(declaration, help=argument.help, metavar=argument.metavar or None)
    annotation: Any = str if others or first is str else first
    if parameter.default is None or unsaid:
        annotation = annotation | None
    empty = inspect.Parameter.empty
    return inspect.Parameter(
        name,
        kind,
        default=empty if default is dataclasses.MISSING else default,
        annotation=Annotated[annotation, option],
    )


def _value(parameter: Parameter, value: Any) -> Any:
    """Value of an argument of a method from the value of its option.

    Flags that turn something off are negated, and numbers given as text are converted.
    """
    if value is None:
        return None
    if parameter.types == (bool,) and parameter.argument.option:
        return not value
    if set(parameter.types) == {float, str}:
        with suppress(ValueError):
            return float(value)
    return value


def place(
    memory: Annotated[str | None, _said("memory")] = None,
    cluster: Annotated[str | None, _said("cluster")] = None,
    workers: Annotated[int | None, _said("workers")] = None,
    threads: Annotated[int | None, _said("threads")] = None,
    device: Annotated[str | None, _said("device")] = None,
) -> dict[str, Any]:
    """Options of the place of execution and its resources, by name of the argument."""
    place = {"memory": memory, "cluster": cluster, "workers": workers, "threads": threads}
    return {**place, "device": device}


Out = Annotated[Path, _said("out")]
Scratch = Annotated[Path | None, _said("scratch")]
Overwrite = Annotated[bool, _said("overwrite", "--overwrite")]


def output(
    out: Out,
    scratch: Scratch = None,
    overwrite: Overwrite = False,
) -> dict[str, Any]:
    """Options of the path of the result and its scratch (temporary files), by name of the argument."""
    from rankfold.api.arguments import require_output

    require_output("out", out)
    return {"out": out, "scratch": scratch, "overwrite": overwrite}


def growing_output(
    out: Out,
    scratch: Scratch = None,
    overwrite: Overwrite = False,
    grows: Annotated[str | None, _said("grows", metavar="WHAT")] = None,
) -> dict[str, Any]:
    """Options of ``output`` and ``grows``, by name: the path may hold the result of a shorter matrix."""
    return {**output(out, scratch, overwrite), "grows": grows}


def output_of(method: Method) -> Callable[..., dict[str, Any]]:
    """The group (function of options) for the output of a method: ``growing_output`` if it can grow."""
    return growing_output if method.growth else output


Store = Annotated[
    str,
    typer.Argument(
        metavar="STORE", help="STORE.zarr, STORE.zarr::array, s3://..., or a .npy, .h5, .nc, .csv file"
    ),
]


def store(store: Store) -> str:
    """Path or address of the matrix that a command reads."""
    return store
