"""``rankfold import`` and ``info``."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from rankfold.workflows.options import Json, command, store, view


def copy(
    source: Annotated[str, typer.Argument(metavar="SRC", help="a .npy file, or a Zarr array to cut anew")],
    destination: Annotated[Path, typer.Argument(metavar="STORE.zarr", help="the store to write")],
) -> tuple[str, Path]:
    """From where and to where."""
    return source, destination


@command(copy, view)
def import_(
    copy: tuple[str, Path],
    view: dict[str, Any],
    memory: Annotated[str, typer.Option(help="most memory of the copy")] = "256MiB",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace another store")] = False,
    as_json: Json = False,
) -> None:
    """Copy a matrix into a Zarr store with well-cut chunks."""
    from rankfold.pipeline.ingest import import_array
    from rankfold.pipeline.sources import open_source
    from rankfold.pipeline.units import format_bytes, parse_bytes
    from rankfold.workflows.progress import SweepProgress

    with SweepProgress("bytes") as bar:
        report = import_array(
            open_source(copy[0], **view),
            copy[1],
            memory_bytes=parse_bytes(memory),
            overwrite=overwrite,
            progress=lambda done, total: bar("import", done, total),
        )
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(report), indent=1, default=str))
        return
    rows, columns = report.shape
    typer.echo(
        f"{copy[1]}: {rows} x {columns} {report.dtype} in chunks of {report.chunks[0]} x "
        f"{report.chunks[1]}, {report.codec}, {format_bytes(report.bytes_written)} on disk"
    )


@command(store, view)
def info(store: str, view: dict[str, Any], as_json: Json = False) -> None:
    """Shape, type, chunks and size of a matrix."""
    from rankfold.pipeline.info import describe
    from rankfold.pipeline.sources import open_source

    found = describe(open_source(store, **view))
    typer.echo(json.dumps(dataclasses.asdict(found), indent=1) if as_json else str(found))
