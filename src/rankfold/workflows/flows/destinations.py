"""Results of stages that go on into files of AnnData or netCDF: once, and anew when the result has changed.

What is there of ours is replaced, and nothing else: a file says which result it holds.
"""

from __future__ import annotations

from pathlib import Path

from rankfold.pipeline.errors import InputError
from rankfold.pipeline.exporting.cell_files import facts_in_cells
from rankfold.pipeline.exporting.cells import key_of
from rankfold.pipeline.exporting.fields import facts_in_dataset
from rankfold.pipeline.storage.result import Result
from rankfold.workflows.flows.flow_file import resolve_path
from rankfold.workflows.flows.stage_models import BaseStage


def require_destination(stage: BaseStage, folder: Path) -> None:
    """Raise ``InputError`` for a file that nothing can be put into, before hours of work."""
    if stage.into is None:
        return
    path = Path(resolve_path(stage.into.file, folder))
    if path.suffix == ".nc":
        if stage.into.key_added is not None:
            raise InputError(f"into: {path} is a netCDF file, and key_added is for files of AnnData")
        return
    if stage.into.like is not None:
        raise InputError(f"into: {path} is no netCDF file, and like is for those")
    if not path.exists():
        raise InputError(f"into: {path} does not exist: results are added to a file that AnnData wrote")


def put_into(stage: BaseStage, result_path: Path, folder: Path) -> Path | None:
    """Put a result where its stage says, unless it is there; the file, if something was done."""
    if stage.into is None:
        return None
    path, result = Path(resolve_path(stage.into.file, folder)), Result(result_path)
    if path.suffix == ".nc":
        held = facts_in_dataset(path)
        if held == result.attrs:
            return None
        like = None if stage.into.like is None else resolve_path(stage.into.like, folder)
        return result.to_netcdf(path, like=like, overwrite=held is not None)
    held = facts_in_cells(path, key_of(result, stage.into.key_added))
    if held == result.attrs:
        return None
    result.to_anndata(path, key_added=stage.into.key_added, overwrite=held is not None)
    return path
