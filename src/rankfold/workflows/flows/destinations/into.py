"""Results of stages that go on into files of AnnData or netCDF: once, and anew when the result has changed.

What is there of ours is replaced, and nothing else: a file says which result it holds, and by which numbers
that is known again.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rankfold.pipeline.errors import InputError, OutputError
from rankfold.pipeline.exporting.cell_files import held_in_cells
from rankfold.pipeline.exporting.cells import digest_of_facts, key_of, kind_of, paths_of
from rankfold.pipeline.exporting.fields import facts_in_dataset
from rankfold.pipeline.exporting.outcome import exported_facts
from rankfold.pipeline.storage.result import Result
from rankfold.workflows.flows.flow_file import resolve_path
from rankfold.workflows.flows.stage_models import BaseStage, Destination


def require_distinct(stages: Iterable[tuple[str, BaseStage]], folder: Path) -> None:
    """Raise ``InputError`` where two results would go into one place."""
    places: dict[tuple[str, str], str] = {}
    for name, stage in stages:
        if stage.into is None:
            continue
        path = resolve_path(stage.into.file, folder)
        key = "" if path.endswith(".nc") else key_of(stage.method, stage.into.key_added)
        if (path, key) in places:
            raise InputError(
                f"into: {places[path, key]} and {name} both go into {path}{f' as {key}' if key else ''}: "
                "give one of them another file or key_added"
            )
        places[path, key] = name


def require_destination(stage: BaseStage, folder: Path) -> None:
    """Raise for a file that the result cannot be put into, before hours of work.

    Raises
    ------
    InputError
        The file is not there, or what is said of it does not go with its kind.
    OutputError
        It holds elements of that name which are not of a workflow.
    """
    if stage.into is None:
        return
    path = Path(resolve_path(stage.into.file, folder))
    if path.suffix == ".nc":
        if stage.into.key_added is not None:
            raise InputError(f"into: {path} is a netCDF file, and key_added is for files of AnnData")
        if path.exists() and facts_in_dataset(path) is None:
            raise OutputError(
                f"into: {path} exists and is not of a workflow. Remove it, or choose another name"
            )
        return
    for option in ("like", "physical"):
        if getattr(stage.into, option):
            raise InputError(f"into: {path} is no netCDF file, and {option} is for those")
    if not path.exists():
        raise InputError(f"into: {path} does not exist: results are added to a file that AnnData wrote")
    key = stage.into.key_added
    paths = paths_of(stage.method, key)
    held = held_in_cells(path, key_of(stage.method, key), paths)
    foreign = held.present & set(paths) if held.digest is None else held.changed
    _require_ours(path, foreign)


def put_into(stage: BaseStage, result_path: Path, folder: Path) -> Path | None:
    """Put a result where its stage says, unless it is there; the file, if something was done."""
    if stage.into is None:
        return None
    path, result = Path(resolve_path(stage.into.file, folder)), Result(result_path)
    if path.suffix == ".nc":
        return _put_into_dataset(path, result, stage.into, folder)
    key = stage.into.key_added
    paths = paths_of(result.attrs["kind"], key)
    held = held_in_cells(path, key_of(kind_of(result), key), paths)
    if (
        held.digest == digest_of_facts(exported_facts(result))
        and set(paths) <= held.present
        and not held.changed
    ):
        return None
    _require_ours(path, held.changed)
    result.to_anndata(path, key_added=key, overwrite=held.digest is not None)
    return path


def _put_into_dataset(path: Path, result: Result, into: Destination, folder: Path) -> Path | None:
    held = facts_in_dataset(path)
    if held == exported_facts(result, physical=into.physical):
        return None
    like = None if into.like is None else resolve_path(into.like, folder)
    return result.to_netcdf(path, like=like, physical=into.physical, overwrite=held is not None)


def _require_ours(path: Path, foreign: Iterable[str]) -> None:
    names = ", ".join(sorted(foreign))
    if names:
        raise OutputError(
            f"into: {path} holds {names}, which this workflow did not write: it is never replaced. Remove "
            "it, or say into: {file: ..., key_added: ...} for another name"
        )
