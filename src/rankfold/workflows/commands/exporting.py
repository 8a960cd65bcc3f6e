"""``rankfold export`` and ``plot``: a result into a file of AnnData or netCDF, or a picture of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rankfold.pipeline.text import json_text
from rankfold.workflows.options import Json, command
from rankfold.workflows.reporting import say


@command()
def export(
    result: Annotated[Path, typer.Argument(metavar="RESULT", help="what other commands wrote")],
    into: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="a .h5ad file or Zarr store of AnnData to add to, or a new .nc, .csv, .tsv or .parquet file",
        ),
    ],
    like: Annotated[
        str | None,
        typer.Option(metavar="DATA::VAR", help="for .nc: the data, whose coordinates and units are taken"),
    ] = None,
    physical: Annotated[
        bool,
        typer.Option("--physical", help="for .nc: mean and components in units of the data"),
    ] = False,
    array: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="for tables: scores, components, ...; rows by default"),
    ] = None,
    key_added: Annotated[
        str | None, typer.Option(help="for AnnData: in place of X_pca, PCs, neighbors, ...")
    ] = None,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="change a .h5ad without a copy: a kill may then damage it")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace what has the same names")] = False,
    as_json: Json = False,
) -> None:
    """Write a result into a file of AnnData for scanpy, of netCDF for xarray, or a table."""
    import rankfold
    from rankfold.pipeline.errors import InputError
    from rankfold.pipeline.exporting.cell_files import subscripted, write_into
    from rankfold.pipeline.exporting.frames import TABLES

    elements, already_there = tuple[str, ...](), False
    found = rankfold.open_result(result)
    if array is not None and into.suffix not in TABLES:
        raise InputError(f"--array is for {' and '.join(TABLES)} files, and {into} is none")
    if into.suffix in TABLES:
        if like is not None or physical or key_added is not None or in_place:
            raise InputError(
                f"{into} is a table: --like, --physical, --key-added and --in-place are for other files"
            )
        made, done = found.to_table(into, array, overwrite=overwrite), "written"
    elif into.suffix == ".nc":
        if key_added is not None or in_place:
            raise InputError(f"{into} is written anew: --key-added and --in-place are for files of AnnData")
        made, done = found.to_netcdf(into, like=like, physical=physical, overwrite=overwrite), "written"
    elif like is not None or physical:
        option = "--physical" if like is None else "--like"
        raise InputError(f"{option} is for .nc files, and {into} is none")
    else:
        elements, already_there = write_into(into, found, key_added, overwrite=overwrite, in_place=in_place)
        how = "already there" if already_there else "added"
        made, done = into, f"{how} as {', '.join(map(subscripted, elements))}"
    if as_json:
        facts = {"elements": elements, "already_done": already_there} if elements else {}
        say(json_text({"result": str(result), "into": str(made), **facts}))
        return
    say(f"{made}: {found.attrs['kind']} of {found.attrs['input']['name']} {done}")


@command(reads_results=True)
def plot(
    result: Annotated[Path, typer.Argument(metavar="RESULT", help="what other commands wrote")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="a .png or .svg; RESULT-KIND.png by default"),
    ] = None,
    kind: Annotated[
        str,
        typer.Option(
            help="patterns, maps, series, scatter, scree, loadings, sizes, inertia, degrees; or what fits"
        ),
    ] = "auto",
    components: Annotated[
        str | None,
        typer.Option(
            "--components", "--component", metavar="I[,J,...]", help="which are drawn, counted from 1"
        ),
    ] = None,
    color: Annotated[
        str | None,
        typer.Option(
            metavar="FILE[::NAME]",
            help="labels or values of rows: .npy, a table, Zarr, cells.h5ad::NAME, or a result of kmeans",
        ),
    ] = None,
    view: Annotated[
        str | None,
        typer.Option(metavar="ELEVATION,AZIMUTH", help="of three components, in degrees; 25,-60 by default"),
    ] = None,
    names: Annotated[
        str | None, typer.Option(metavar="FILE[::NAME]", help="of the columns, in a plot of loadings")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="replace another picture of rankfold")
    ] = False,
    as_json: Json = False,
) -> None:
    """Draw a result: patterns of fields, rows by coordinates, singular values, loadings, clusters."""
    import rankfold
    from rankfold.pipeline.exporting.plots.kinds import kinds_of

    found = rankfold.open_result(result)
    path = out or _default_path(result, kinds_of(found)[:1] if kind == "auto" else [kind])
    found.plot(
        kind,
        components=_numbers("components", components, int),
        color=color,
        view=_numbers("view", view, float),
        names=names,
        out=path,
        # The default name belongs to pictures of this kind of this result alone.
        overwrite=overwrite or out is None,
    )
    say(json_text({"result": str(result), "out": str(path)}) if as_json else str(path))


def _default_path(result: Path, kinds: Any) -> Path:
    return result.with_name("-".join([result.name.removesuffix(".zarr"), *kinds]) + ".png")


def _numbers(option: str, text: str | None, kind: type[int] | type[float]) -> Any:
    from rankfold.pipeline.errors import InputError

    if text is None:
        return None
    try:
        return tuple(kind(part) for part in text.split(","))
    except ValueError:
        example = "1,2" if kind is int else "25,-60"
        raise InputError(
            f"--{option} {text!r} are no numbers with commas between, such as {example}"
        ) from None
