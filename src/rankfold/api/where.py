"""Arguments for the place of execution and its resources, which all functions that run a task share, declared
once.

Annotations are evaluated here, for the texts of the arguments; types that are slow to import are strings.
"""

import inspect
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, get_args

from rankfold.methods.argument import Argument

if TYPE_CHECKING:
    from pathlib import Path

    from rankfold.pipeline.data.index_selection import Selection
    from rankfold.pipeline.data.stacked import Rows
    from rankfold.pipeline.engine.run import Progress
    from rankfold.pipeline.formats import Mask
    from rankfold.pipeline.prepare.parse import Prepare

VIEW = (
    *("row_axes", "select_rows", "select_columns", "drop_missing_columns", "drop_missing_rows"),
    *("missing_chunks", "prepare", "mask_var", "mask_obs", "numeric", "index_col"),
)
"""Names of arguments of ``rankfold.open`` that functions with a matrix as input have too."""


class RunOptions(TypedDict, total=False):
    """Place of execution of a task, and path of its result. Flags are False by default, all others None."""

    memory: Annotated[
        "str | int | None",
        Argument(
            "of a worker, such as 2GiB; by default half of what is free",
            'Working memory of a worker process above its baseline, such as ``"2 GiB"``, or bytes; half of '
            "what is free by default.",
        ),
    ]
    out: Annotated[
        "str | Path | None",
        Argument(
            "where the result goes; the same command again resumes",
            "Where the result is kept, in a folder that exists; the same call again resumes a killed run, or "
            "returns the finished result. By default a temporary store that lives as long as the object.",
        ),
    ]
    scratch: Annotated[
        "str | Path | None",
        Argument(
            "folder for intermediates; beside OUT by default",
            "Folder for narrow intermediates, seen by all workers; beside ``out`` by default.",
        ),
    ]
    overwrite: Annotated[
        "bool",
        Argument(
            "replace another output or unfinished run",
            "Replace an output, or an unfinished run, of another request.",
        ),
    ]
    cluster: Annotated[
        "str | Path | None",
        Argument(
            "local, slurm, allocation, mpi, or the name or path of a profile",
            'This machine ("local"), or the jobs of a profile, by its name or path; "allocation" and "mpi" '
            "are the job, and the processes, that the call itself runs in.",
        ),
    ]
    workers: Annotated[
        "int | None",
        Argument(
            "worker processes, or jobs; without it the threads of this process",
            "Worker processes, or jobs of the profile, instead of the threads of this process.",
        ),
    ]
    threads: Annotated[
        "int | None",
        Argument(
            "of each process; all cores by default",
            "Threads of each process, by default all usable cores, shared.",
        ),
    ]
    device: Annotated[
        "str | None",
        Argument(
            "cpu or gpu; by default a GPU where a profile reserves some",
            "What panels are computed on; by default a GPU where a profile reserves some, else the host.",
            choices=("cpu", "gpu"),
        ),
    ]
    client: Annotated[
        "Any", Argument("a Dask client", "A Dask client to work with, by default the active one, if any.")
    ]
    progress: Annotated[
        "Progress | bool | None",
        Argument(
            "progress on stderr",
            "True or False, by default True on a terminal or in a notebook; or a function that is called "
            "with the name of a sweep, what is done, and what there is.",
        ),
    ]


class MatrixOptions(RunOptions, total=False):
    """Arguments of ``RunOptions``, and those of ``rankfold.open`` by which the input is opened."""

    row_axes: Annotated[
        "Rows",
        Argument(
            "axes that become the rows; others are stacked",
            "Names or numbers of the axes that become the rows; the others are stacked into columns.",
        ),
    ]
    select_rows: Annotated[
        "Selection",
        Argument(
            "such as 0:1000 or 0:50,60",
            'Rows that are kept, such as ``"0:1000"``, a slice or numbers: see ``open``.',
        ),
    ]
    select_columns: Annotated[
        "Selection",
        Argument("such as 0:50,60,70:80", "Columns that are kept, in the same way."),
    ]
    drop_missing_columns: Annotated[
        "bool",
        Argument(
            "leave out columns of NaN, such as land",
            "Leave out columns that are NaN in the first rows, 64 MiB of them, such as places on land.",
        ),
    ]
    drop_missing_rows: Annotated[
        "bool",
        Argument(
            "leave out rows of NaN, such as empty months",
            "Leave out rows without a number, such as empty months: they are counted and named.",
        ),
    ]
    missing_chunks: Annotated[
        "str | None",
        Argument(
            "chunks not in the store: their fill value, or refused",
            "What chunks are that the store does not hold: their fill value, which is the default and said "
            "in the result, or an error.",
            choices=("fill", "error"),
        ),
    ]
    prepare: Annotated[
        "Prepare",
        Argument(
            'such as "normalize_total(1e4), log1p"',
            'Steps that numbers go through as they are read, such as ``"normalize_total(1e4), log1p"``: see '
            "``open``.",
        ),
    ]
    mask_var: Annotated[
        "Mask",
        Argument(
            "columns kept: a mask in var of AnnData",
            "Columns that are kept: a mask, or the name of one in ``var`` of AnnData.",
        ),
    ]
    mask_obs: Annotated[
        "Mask",
        Argument(
            "rows kept: a mask in obs of AnnData",
            "Rows that are kept: a mask, or the name of one in ``obs`` of AnnData.",
        ),
    ]
    numeric: Annotated[
        "bool",
        Argument(
            "of a table, leave out columns that hold no numbers",
            "Of a table, leave out columns that hold something else than numbers, True and False, and say "
            "which.",
        ),
    ]
    index_col: Annotated[
        "str | None",
        Argument(
            "of a table, the column that names the rows",
            "Column of a table that names the rows, and is no number of the matrix.",
        ),
    ]


class GrowOptions(MatrixOptions, total=False):
    """Arguments of ``MatrixOptions``, for methods that continue an earlier result: ``docs/growing.md``."""

    grows: Annotated[
        "str | None",
        Argument(
            "go on from OUT where STORE has gained rows: rows reads these alone, polish then all",
            "``out`` may hold the result of an earlier state of ``x``, to whose rows others have been added "
            'since: it goes on from there. "rows" reads the new rows alone, "polish" then all.',
            choices=("rows", "polish"),
        ),
    ]


def opened(x: object, where: MatrixOptions) -> object:
    """The matrix ``x`` as it is, or opened with those arguments of ``rankfold.open`` that ``where`` gives."""
    given: dict[str, Any] = {name: where.get(name) for name in VIEW}
    view = {name: value for name, value in given.items() if value is not None and value is not False}
    if not view:
        return x
    from rankfold.pipeline.formats import open_source

    return open_source(x, **view)


def parameters(where: type) -> list[inspect.Parameter]:
    """Keyword parameters, for a signature, that the class ``where`` declares, such as ``RunOptions``.

    Those of ``rankfold.open`` are first.
    """
    kind, annotations = inspect.Parameter.KEYWORD_ONLY, where.__annotations__
    names = [name for name in VIEW if name in annotations]
    names += [name for name in annotations if name not in VIEW]
    return [
        inspect.Parameter(
            name,
            kind,
            default=False if kind_of(annotations[name]) == "bool" else None,
            annotation=kind_of(annotations[name]),
        )
        for name in names
    ]


def kind_of(annotation: Any) -> str:
    """Type of an argument as text, from its annotation ``Annotated["TYPE", Argument(...)]``."""
    return str(get_args(annotation)[0].__forward_arg__)


ARGUMENTS: dict[str, Argument] = {
    name: get_args(annotation)[1] for name, annotation in GrowOptions.__annotations__.items()
}
"""Declarations of all arguments in ``GrowOptions``, by name."""
