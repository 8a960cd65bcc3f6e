"""Decide whether a call can return the result that is already at its output path, or has to compute it."""

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


def finished_result(folder: RunDirectory, identity: dict[str, Any], *, overwrite: bool) -> Result | None:
    """The result at the output path, if it is the finished result of this request.

    None if it has to be computed, as when it is damaged.
    """
    output, damage = folder.output, ""
    result = _opened(output)
    if result is None:
        _require_damaged(folder, overwrite=overwrite)
        damage = f"{output} is damaged: what it is cannot be read"
    elif _is_answer(result.attrs, identity):
        faults = damage_of(output, sums=overwrite) or _fault_in(result)
        if not faults:
            return result
        damage = damage_in_words(output, faults)
    elif not overwrite:
        raise OutputError(
            f"{output} exists and is the answer to another request: "
            f"{difference_of(result.attrs, identity)}. Choose another out= (--out), or replace it with "
            "overwrite=True (--overwrite)."
        )
    require_replaceable(output)
    if damage:
        LOG.warning("%s. It is made again", damage)
    return None


def _is_answer(attrs: dict[str, Any], identity: dict[str, Any]) -> bool:
    """True if request, input fingerprint, edition of the method and device in a
    result equal those of a call.
    """
    return bool(
        attrs.get("request") == identity["request"]
        and attrs.get("input", {}).get("fingerprint") == identity["input"]
        and attrs.get("edition", 1) == identity["edition"]
        and attrs.get("device", "cpu") == identity.get("device", "cpu")
    )


def _require_damaged(folder: RunDirectory, *, overwrite: bool) -> None:
    """Raise ``OutputError`` unless the output, which cannot be read, was the result of this request, or may
    be replaced.
    """
    request = _request_of(folder)
    if request is None:
        raise OutputError(
            f"{folder.output} exists and is not a result of rankfold, so it is never replaced. Choose "
            "another out= (--out), or remove it yourself."
        )
    if request != folder.request and not overwrite:
        raise OutputError(
            f"{folder.output} is a damaged result of another request. Choose another out= (--out), or "
            "replace it with overwrite=True (--overwrite)."
        )


def require_replaceable(output: Path) -> None:
    """Raise ``OutputError`` if replacing a result would remove files that rankfold did not write."""
    if (reason := not_ours(output)) is not None:
        raise OutputError(
            f"{output} {reason}, so it is never replaced. Choose another out= (--out), or move that away "
            "first"
        )


def _fault_of(output: Path) -> list[str]:
    """Check all arrays and attributes of a result against the rules of its kind; returns a list with the
    first fault, or empty.
    """
    try:
        return _fault_in(Result(output))
    except DataError as error:
        return [_in_words(error, output)]
    except InputError:  # a matrix that was imported
        return []


def _fault_in(result: Result) -> list[str]:
    try:
        result.require_lawful(*result)
    except DataError as error:
        return [_in_words(error, result.path)]
    return []


def _in_words(error: DataError, output: Path) -> str:
    return str(error).removeprefix(f"{output}: ").removeprefix(f"{output} is damaged: ")


def verify(result: Result | str | Path) -> list[str]:
    """Find damage in a result: every file is read and compared with what was written.

    Parameters
    ----------
    result : Result or path
        Output of any function or command of rankfold.

    Returns
    -------
    list of str
        A line for each file that is missing, has another length, or holds other bytes; if all are intact,
        one for the first array or fact with values that no result of its kind can have. Empty if all is well.

    Raises
    ------
    SourceNotFoundError
        There is no such folder.

    Notes
    -----
    Reads the result once. The same call, or command, that made a damaged result makes it again.

    Examples
    --------
    >>> import numpy as np
    >>> import rankfold as rf
    >>> result = rf.svd(np.ones((60, 8)), 1)
    >>> rf.verify(result)
    []
    """
    path = Path(result if isinstance(result, str | Path) else result.path)
    return changed_files(path) or _fault_of(path)


def result_that_came(held: RunDirectory, identity: dict[str, Any], *, overwrite: bool) -> Result | None:
    """The finished result, if another process has published it before this one locked
    the run; see ``finished_result``.
    """
    if not os.path.lexists(held.output):
        return None
    try:
        result = finished_result(held, identity, overwrite=overwrite)
    except OutputError:
        held.clear()
        raise
    if result is not None:
        held.clear()
    return result


def _opened(output: Path) -> Result | None:
    """The result at a path; None if it is not a result, or its metadata cannot be read."""
    try:
        return Result(output)
    except (InputError, DataError):
        return None


def _request_of(folder: RunDirectory) -> str | None:
    """The request of a result that can no longer be opened; None if it never was a result."""
    if (request := request_in(folder.output)) is not None:
        return request
    if not folder.output.is_dir() or load_json(folder.output / "zarr.json", dict) is not None:
        return None  # somebody's store, or other things, under the name of a removed result
    ends = [facts for facts in load_record(folder.record)["attempts"] if facts.get("finished")]
    return str(ends[-1].get("run")) if ends and not_ours(folder.output) is None else None
