"""Decide whether a call can return the result that is already at its output path, or has to compute it.

Differences between a finished result and a request, in words.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rankfold.methods.registry import METHODS
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
    """The result at ``folder.output``, if it has this identity; None if it has to be computed.

    It has to be computed if it is damaged, or has another identity and ``overwrite`` is True. Raises
    ``OutputError`` for another identity without ``overwrite``, and for what must not be replaced.
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
    """True if the attributes of a result have the request, input, edition and device of ``identity``."""
    return bool(
        attrs.get("request") == identity["request"]
        and attrs.get("input", {}).get("fingerprint") == identity["input"]
        and attrs.get("edition", 1) == identity["edition"]
        and attrs.get("device", "cpu") == identity.get("device", "cpu")
    )


def _require_damaged(folder: RunDirectory, *, overwrite: bool) -> None:
    """Raise ``OutputError`` if the output, which cannot be read, was no result, or one of another request.

    With ``overwrite``, one of another request is accepted.
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
    """The result, if another process has published it before this one locked the run; else None.

    The folder of the locked run ``held`` is then cleared. Raises as ``finished_result`` does.
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
    """Digest of the request of a result that can no longer be opened; None if it never was a result."""
    if (request := request_in(folder.output)) is not None:
        return request
    if not folder.output.is_dir() or load_json(folder.output / "zarr.json", dict) is not None:
        return None  # somebody's store, or other things, under the name of a removed result
    ends = [facts for facts in load_record(folder.record)["attempts"] if facts.get("finished")]
    return str(ends[-1].get("run")) if ends and not_ours(folder.output) is None else None


UNASKED = {"grown_from": "the result it went on from"}
"""Words, for messages, by the name of a part of a request that no argument sets."""

CONTENTS = {"queries", "base", "index", "result", "left", "update_of", "start", "second", "lists"}
CONTENTS |= {"weights", "row_weights", "quality", "targets", "grown_from"}
"""Names of parts of a request whose values, such as digests, identify data; messages leave the values out."""

LONGEST = 40
"""Largest number of characters of a value in a message."""


def difference_of(attrs: Mapping[str, Any], identity: Mapping[str, Any]) -> str:
    """Text on the differences between the request of a result and a new one; empty if there are none.

    Parameters
    ----------
    attrs
        Attributes of the result: ``request``, ``input`` and ``edition``, as far as they exist.
    identity
        The new request: ``request``, fingerprint of the ``input``, and ``edition``.

    >>> old = {"request": {"kind": "svd", "rank": 4}, "input": {"name": "x.zarr", "fingerprint": "a"}}
    >>> difference_of(old, {"request": {"kind": "svd", "rank": 5}, "input": "b", "edition": 1})
    'rank (4 there, 5 now); data that has changed since, or another matrix (x.zarr there)'
    """
    old, new = attrs.get("request") or {}, identity["request"]
    data, kind = attrs.get("input") or {}, new.get("kind")
    if old.get("kind") != kind:
        return f"method ({old.get('kind')} there, {kind} now)"
    parts = [
        line
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name) and (line := _of(name, old, new))
    ]
    if data.get("fingerprint") != identity["input"]:
        name = f" ({data['name']} there)" if data.get("name") else ""
        parts.append(f"data that has changed since, or another matrix{name}")
    devices = attrs.get("device", "cpu"), identity.get("device", "cpu")
    if devices[0] != devices[1]:
        parts.append(f"device ({devices[0]} there, {devices[1]} now)")
    if attrs.get("edition", 1) != identity["edition"]:
        parts.append(f"edition of {kind} ({attrs.get('edition', 1)} there, {identity['edition']} now)")
    return "; ".join(parts)


def difference_of_runs(earlier: Mapping[str, Any], mine: Mapping[str, Any]) -> str:
    """Text on the arguments, versions and other facts in which an unfinished run differs from a new one.

    Both are identities (see ``identity_of`` in ``execute``) with the versions that a run adds.

    >>> old = {"request": {"kind": "svd", "rank": 4}, "input": "a", "edition": 1, "version": "1.2"}
    >>> difference_of_runs(old, {**old, "request": {"kind": "svd", "rank": 5}, "version": "1.3"})
    'rank (4 there, 5 now); version (1.2 there, 1.3 now)'
    """
    parts = [difference_of({**earlier, "input": {"fingerprint": earlier.get("input")}}, mine)]
    names = sorted({*earlier, *mine} - {"request", "input", "edition", "device"})
    parts += [
        f"{name} ({earlier.get(name)} there, {mine.get(name)} now)"
        for name in names
        if earlier.get(name) != mine.get(name)
    ]
    return "; ".join(filter(None, parts))


def argument_of(name: str, kind: str) -> str:
    """Name of the argument that sets the part ``name`` of a request of the method ``kind``.

    >>> argument_of("rows", "svd"), argument_of("rank", "svd")
    ('with_rows', 'rank')
    """
    declared = METHODS[kind].parameters() if kind in METHODS else ()
    return next((each.name for each in declared if each.argument.part == name), UNASKED.get(name, name))


def _of(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Text on the part ``name``, which differs in two requests; empty if another part already covers it."""
    argument = argument_of(name, new["kind"])
    if name in CONTENTS:
        return f"contents of {argument}"
    if name == "adaptive":
        name = argument = "rank"
    elif name == "rank" and old.get("adaptive") != new.get("adaptive"):
        return ""
    return f"{argument} ({_value(name, old)} there, {_value(name, new)} now)"


def _value(name: str, request: Mapping[str, Any]) -> str:
    if name == "rank" and request.get("adaptive"):
        return "found from tol"
    text = "none" if request.get(name) is None else str(request[name])
    text = re.sub(r"-[0-9a-f]{16}$", "", text)  # the digest of a function
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
