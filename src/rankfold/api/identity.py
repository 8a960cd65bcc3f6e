"""Differences between a finished result and a request, in words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rankfold.methods.registry import METHODS

UNASKED = {"grown_from": "the result it went on from"}
"""Words for parts of a request that no argument sets."""

CONTENTS = {"queries", "base", "index", "result", "left", "update_of", "start", "second", "lists"}
CONTENTS |= {"weights", "row_weights", "quality", "targets", "grown_from"}
"""Parts of a request that identify contents; their values mean nothing to people."""

LONGEST = 40
"""Most characters of a value in a message."""


def difference_of(attrs: Mapping[str, Any], identity: Mapping[str, Any]) -> str:
    """Differences between the request of a result and another, for a message; empty if there are none.

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
    """Arguments, versions and other facts in which an unfinished run differs from a new one, as text.

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
    """Name of the argument that sets a part of a request.

    >>> argument_of("rows", "svd"), argument_of("rank", "svd")
    ('with_rows', 'rank')
    """
    declared = METHODS[kind].parameters() if kind in METHODS else ()
    return next((each.name for each in declared if each.argument.part == name), UNASKED.get(name, name))


def _of(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Description of a part of a request that differs; empty if another part already covers it."""
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
