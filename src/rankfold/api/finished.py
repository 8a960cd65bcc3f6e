"""Decides whether a call can return the result that is already at its output, or has to compute it."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from rankfold.api.identity import difference_of
from rankfold.pipeline.errors import DataError, InputError, OutputError
from rankfold.pipeline.storage.checkpoint import load_json
from rankfold.pipeline.storage.journal import load_record
from rankfold.pipeline.storage.manifest import (
    changed_files,
    damage_in_words,
    damage_of,
    not_ours,
    request_in,
)
from rankfold.pipeline.storage.result import Result
from rankfold.pipeline.storage.run_directory import RunDirectory

LOG = logging.getLogger("rankfold")


def is_done(folder: RunDirectory, identity: dict[str, Any], *, overwrite: bool) -> bool:
    """Whether the output is the finished answer to this request; one that is damaged is made again."""
    output, damage = folder.output, ""
    attrs = _attrs_of(output)
    if not attrs:
        _require_damaged(folder, overwrite=overwrite)
        damage = f"{output} is damaged: what it is cannot be read"
    elif _is_answer(attrs, identity):
        faults = damage_of(output, sums=overwrite) or fault_of(output)
        if not faults:
            return True
        damage = damage_in_words(output, faults)
    elif not overwrite:
        raise OutputError(
            f"{output} exists and is the answer to another request: {difference_of(attrs, identity)}. Choose "
            "another --out, or replace it with --overwrite."
        )
    require_replaceable(output)
    if damage:
        LOG.warning("%s. It is made again", damage)
    return False


def _is_answer(attrs: dict[str, Any], identity: dict[str, Any]) -> bool:
    """Compare request, input fingerprint, edition and device in a result with those of a call."""
    return bool(
        attrs.get("request") == identity["request"]
        and attrs.get("input", {}).get("fingerprint") == identity["input"]
        and attrs.get("edition", 1) == identity["edition"]
        and attrs.get("device", "cpu") == identity.get("device", "cpu")
    )


def _require_damaged(folder: RunDirectory, *, overwrite: bool) -> None:
    """Raise ``OutputError`` unless what cannot be read was the answer to this request, or may be replaced."""
    request = _request_of(folder)
    if request is None:
        raise OutputError(
            f"{folder.output} exists and is not a result of rankfold, so it is never replaced. Choose "
            "another --out, or remove it yourself."
        )
    if request != folder.request and not overwrite:
        raise OutputError(
            f"{folder.output} is a damaged result of another request. Choose another --out, or replace it "
            "with --overwrite."
        )


def require_replaceable(output: Path) -> None:
    """Raise ``OutputError`` where replacing a result would take along what somebody else put there."""
    if (reason := not_ours(output)) is not None:
        raise OutputError(
            f"{output} {reason}, so it is never replaced. Choose another --out, or move that away first"
        )


def fault_of(output: Path) -> list[str]:
    """Check all arrays and attributes of a result against its law: the first fault in a list, or none."""
    try:
        result = Result(output)
        result.require_lawful(*result)
    except DataError as error:
        return [str(error).removeprefix(f"{output}: ").removeprefix(f"{output} is damaged: ")]
    except InputError:  # a matrix that was imported
        return []
    return []


def verify(result: Result | str | Path) -> list[str]:
    """What is damaged of a result: every file is read and compared with what was written.

    Parameters
    ----------
    result : Result or path
        What any function or command of rankfold wrote.

    Returns
    -------
    list of str
        A line for each file that is missing, has another length, or holds other bytes; where all are whole,
        one for the first array or fact that holds what no result of its kind holds. Empty if all is well.

    Raises
    ------
    SourceNotFoundError
        There is no such folder.

    Notes
    -----
    Reads the result once. The same call, or command, that made a damaged result makes it again.
    """
    path = Path(result if isinstance(result, str | Path) else result.path)
    return changed_files(path) or fault_of(path)


def has_come(held: RunDirectory, identity: dict[str, Any], *, overwrite: bool) -> bool:
    """Whether another process has finished this output before it was held; see ``is_done``."""
    if not os.path.lexists(held.output):
        return False
    try:
        done = is_done(held, identity, overwrite=overwrite)
    except OutputError:
        held.clear()
        raise
    if done:
        held.clear()
    return done


def _attrs_of(output: Path) -> dict[str, Any]:
    """What an output says of itself; nothing if it is no result, or says it no more."""
    try:
        return Result(output).attrs
    except (InputError, DataError):
        return {}


def _request_of(folder: RunDirectory) -> str | None:
    """The request that a result was the answer to that can no longer be opened; None if it was none."""
    if (request := request_in(folder.output)) is not None:
        return request
    if not folder.output.is_dir() or load_json(folder.output / "zarr.json", dict) is not None:
        return None  # somebody's store, or other things, under the name of a result that has gone
    ends = [facts for facts in load_record(folder.record)["attempts"] if facts.get("finished")]
    return str(ends[-1].get("run")) if ends and not_ours(folder.output) is None else None
