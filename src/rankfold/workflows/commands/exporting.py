"""``rankfold export``: a result into a file of AnnData, or a netCDF file with the axes of the data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from rankfold.workflows.options import Json, command


@command()
def export(
    result: Annotated[Path, typer.Argument(metavar="RESULT", help="what other commands wrote")],
    into: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help="a .h5ad file or Zarr store of AnnData to add to, or a new .nc file"
        ),
    ],
    like: Annotated[
        str | None,
        typer.Option(metavar="DATA::VAR", help="for .nc: the data, whose coordinates and units are taken"),
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
    """Put a result where scanpy or xarray goes on with it."""
    import rankfold
    from rankfold.pipeline.errors import InputError

    found = rankfold.open_result(result)
    if into.suffix == ".nc":
        if key_added is not None or in_place:
            raise InputError(f"{into} is written anew: --key-added and --in-place are for files of AnnData")
        made = found.to_netcdf(into, like=like, overwrite=overwrite)
    elif like is not None:
        raise InputError(f"--like is for .nc files, and {into} is none")
    else:
        made = found.to_anndata(into, key_added=key_added, overwrite=overwrite, in_place=in_place)
    if as_json:
        typer.echo(json.dumps({"result": str(result), "into": str(made)}))
        return
    typer.echo(f"{made}: {found.attrs['kind']} of {found.attrs['input']['name']} added")
