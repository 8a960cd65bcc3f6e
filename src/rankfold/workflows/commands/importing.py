"""``rankfold import`` and ``info``: copy a matrix into a Zarr store, and describe a matrix or result."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankfold.pipeline.errors import in_command
from rankfold.pipeline.text import Lines, json_text
from rankfold.workflows.options import Json, command, store, view
from rankfold.workflows.reporting import say

if TYPE_CHECKING:
    from rankfold.pipeline.importing import ImportReport


def copy(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SRC",
            help="any matrix; also large .csv, .txt, .parquet, .npz, .mtx, .h5ad, a folder of Cell Ranger",
        ),
    ],
    destination: Annotated[Path, typer.Argument(metavar="STORE.zarr", help="the store to write")],
) -> tuple[str, Path]:
    """Paths of the source and of the store, as given."""
    return source, destination


def form(
    dtype: Annotated[str | None, typer.Option(help="type of the store, such as float32")] = None,
    columns: Annotated[str | None, typer.Option(metavar="NAME,NAME", help="of a table, to take")] = None,
    without: Annotated[str | None, typer.Option(metavar="NAME,NAME", help="of a table, to leave out")] = None,
    header: Annotated[str, typer.Option(help="auto, yes or no: does a .csv begin with names")] = "auto",
    decimal: Annotated[str, typer.Option(help="auto, . or , before fractions in text")] = "auto",
    thousands: Annotated[
        str | None, typer.Option(metavar="CHAR", help="between groups of three digits in text")
    ] = None,
    skip_lines: Annotated[int, typer.Option(metavar="N", help="lines of text before the table")] = 0,
    layout: Annotated[str, typer.Option(help="auto, or dense to write a sparse matrix out")] = "auto",
) -> dict[str, Any]:
    """Arguments of ``rankfold.import_array``, by name, on how to read the source and write the store."""
    from rankfold.pipeline.formats.tables.options import names_in_line

    return {
        "dtype": dtype,
        "columns": None if columns is None else names_in_line(columns),
        "without": None if without is None else names_in_line(without),
        "header": header,
        "decimal": decimal,
        "thousands": thousands,
        "skip_lines": skip_lines,
        "layout": layout,
    }


@command(copy, view, form, shows_progress=True)
def import_(
    copy: tuple[str, Path],
    view: dict[str, Any],
    form: dict[str, Any],
    memory: Annotated[str, typer.Option(help="most memory of the copy")] = "256MiB",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace another store")] = False,
    as_json: Json = False,
) -> None:
    """Copy a matrix into a Zarr store with well-cut chunks."""
    from rankfold.pipeline.importing import import_array
    from rankfold.pipeline.planning.progress import SweepProgress
    from rankfold.pipeline.units import parse_bytes

    with SweepProgress("bytes") as bar:
        report = import_array(
            copy[0],
            copy[1],
            memory_bytes=parse_bytes(memory),
            overwrite=overwrite,
            progress=lambda count, total: bar("import", count, total),
            **form,
            **view,
        )
    if as_json:
        say(json_text(dataclasses.asdict(report), indent=1, default=str))
        return
    for note in report.notes:
        say(f"note: {in_command(note)}", err=True)
    before = "already done: " if report.done_before else ""
    say(f"{copy[1]}: {before}{_describe_store(report)}")


def _describe_store(report: ImportReport) -> str:
    from rankfold.pipeline.units import format_bytes

    rows, columns = report.shape
    how = f"in chunks of {report.chunks[0]} x {report.chunks[1]}"
    if report.nnz is not None:
        how = f"with {report.nnz} numbers stored, sparse by rows"
    size = format_bytes(report.bytes_written)
    return f"{rows} x {columns} {report.dtype} {how}, {report.codec}, {size} on disk"


@command(store, view)
def info(store: str, view: dict[str, Any], as_json: Json = False) -> None:
    """Shape, type and size of a matrix, arrays and axes of a file, columns of a table; what a result is."""
    from rankfold.pipeline.data.describe import describe
    from rankfold.pipeline.errors import SeveralArraysError, SeveralAxesError
    from rankfold.pipeline.formats import open_source
    from rankfold.pipeline.formats.contents import describe_contents
    from rankfold.pipeline.formats.hdf5 import hdf5_arrays
    from rankfold.pipeline.formats.locate import is_address
    from rankfold.pipeline.formats.tables.overview import describe_table
    from rankfold.pipeline.outputs import is_unfinished
    from rankfold.pipeline.storage.manifest import require_whole_input
    from rankfold.workflows.results import description, description_facts, result_at

    if result := result_at(store):
        say(json_text(description_facts(result), indent=1) if as_json else description(result))
        return
    if is_unfinished(store):
        _say_how_far(Path(store), as_json=as_json)
        return
    as_it_lies = not any(view.values()) and not is_address(store)
    if as_it_lies and (table := describe_table(store)) is not None:
        say(json_text(table.as_dict(), indent=1) if as_json else in_command(str(table)))
        return
    try:
        if as_it_lies and len(arrays := hdf5_arrays(store)) > 1:
            raise SeveralArraysError.of(f"{store} holds several arrays", arrays)
        source = open_source(store, **view)
    except (SeveralArraysError, SeveralAxesError) as error:
        arrays = error.arrays if isinstance(error, SeveralArraysError) else ()
        contents = describe_contents(store, arrays, **view)
        say(json_text(contents.as_dict(), indent=1) if as_json else str(contents))
        return
    require_whole_input(getattr(source, "path", None))
    summary = describe(source)
    say(json_text(dataclasses.asdict(summary), indent=1) if as_json else in_command(str(summary)))


def _say_how_far(output: Path, *, as_json: bool) -> None:
    """Print, for the path of an unfinished output, what ``rankfold status`` prints."""
    from rankfold.workflows.operations.running import find_work
    from rankfold.workflows.operations.status import output_facts, output_lines

    work = find_work(output)
    say(json_text(output_facts(work), indent=1) if as_json else Lines(*output_lines(work)))
