"""``rankfold import`` and ``info``."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer

from rankfold.workflows.options import (
    Debug,
    Json,
    Memory,
    Missing,
    Overwrite,
    Store,
)
from rankfold.workflows.reporting import reported


def import_(
    source: Annotated[str, typer.Argument(metavar="SRC", help="a .npy file, or a Zarr array to cut anew")],
    store: Annotated[Path, typer.Argument(metavar="STORE.zarr", help="the store to write")],
    memory: Memory = "256MiB",
    missing: Missing = "error",
    overwrite: Overwrite = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Copy a matrix into a Zarr store with well-cut chunks."""
    with reported(debug):
        from rankfold.pipeline.ingest import import_array
        from rankfold.pipeline.sources import open_source
        from rankfold.pipeline.units import format_bytes, parse_bytes
        from rankfold.workflows.progress import SweepProgress

        with SweepProgress("bytes") as bar:
            report = import_array(
                open_source(source, missing=missing),
                store,
                memory_bytes=parse_bytes(memory or "256MiB"),
                overwrite=overwrite,
                progress=lambda done, total: bar("import", done, total),
            )
        if as_json:
            typer.echo(json.dumps(dataclasses.asdict(report), indent=1, default=str))
        else:
            rows, columns = report.shape
            typer.echo(
                f"{store}: {rows} x {columns} {report.dtype} in chunks of {report.chunks[0]} x "
                f"{report.chunks[1]}, {report.codec}, {format_bytes(report.bytes_written)} on disk"
            )


def info(store: Store, as_json: Json = False, debug: Debug = False) -> None:
    """Shape, type, chunks and size of a matrix."""
    with reported(debug):
        from rankfold.pipeline.info import describe
        from rankfold.pipeline.sources import open_source

        found = describe(open_source(store))
        typer.echo(json.dumps(dataclasses.asdict(found), indent=1) if as_json else str(found))
