"""Which axes of an array are the rows of a matrix: by name or number, in the order they are named.

The others become the columns, in their own order. An axis without a name is called by its number.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from rankfold.pipeline.errors import InputError

Rows = str | int | Sequence[str | int] | None
"""What a caller may give: ``"time"``, ``"time,level"``, ``0``, ``["time", "level"]``, or nothing."""


def axis_names(shape: Sequence[int], names: Any) -> tuple[str, ...]:
    """Names from a store, which may have none, or not for every axis.

    >>> axis_names((4, 5, 6), ["time", None, "lon"])
    ('time', '1', 'lon')
    """
    if isinstance(names, str) or not isinstance(names, Sequence) or len(names) != len(shape):
        names = [None] * len(shape)
    return tuple(str(name) if name else str(number) for number, name in enumerate(names))


def row_axes(name: str, axes: tuple[str, ...], shape: Sequence[int], rows: Rows) -> tuple[int, ...]:
    """Numbers of the axes that are the rows; the first of two if none is asked for."""
    if rows is None:
        if len(shape) == 2:
            return (0,)
        raise InputError(_ask(name, axes, shape))
    wanted = _split(rows)
    found = [_axis(name, axes, shape, each) for each in wanted]
    if len(set(found)) < len(found):
        raise InputError(f"rows={rows!r} names an axis of {name} twice: name each once")
    if not found:
        raise InputError(_ask(name, axes, shape))
    if len(found) == len(axes):
        raise InputError(
            f"rows={rows!r} takes every axis of {name} ({_listed(axes, shape)}), which leaves none for the "
            "columns; leave one out"
        )
    return tuple(found)


def _split(rows: str | int | Sequence[str | int]) -> list[str | int]:
    if isinstance(rows, str):
        return [part.strip() for part in rows.split(",") if part.strip()]
    return [rows] if isinstance(rows, int) else list(rows)


def _axis(name: str, axes: tuple[str, ...], shape: Sequence[int], wanted: str | int) -> int:
    """Number of one axis."""
    if isinstance(wanted, str) and wanted in axes:
        return axes.index(wanted)
    number = int(wanted) if isinstance(wanted, int) or wanted.lstrip("-").isdecimal() else None
    if number is not None and -len(axes) <= number < len(axes):
        return number % len(axes)
    near = difflib.get_close_matches(str(wanted), axes, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise InputError(f"{name} has no axis {wanted!r}.{hint} Its axes are {_listed(axes, shape)}")


def _ask(name: str, axes: tuple[str, ...], shape: Sequence[int]) -> str:
    if len(shape) < 2:
        return (
            f"{name} has {len(shape)} axes, shape {tuple(shape)}; a matrix has two, samples in rows and "
            "features in columns. Reshape it, or name another array"
        )
    return (
        f"{name} has {len(shape)} axes, {_listed(axes, shape)}; a matrix has two. Say which become the rows, "
        f"the others are stacked into columns: --rows {axes[0]} (rows={axes[0]!r}), in Python "
        f"rankfold.open(x, rows={axes[0]!r})"
    )


def _listed(axes: tuple[str, ...], shape: Sequence[int]) -> str:
    return ", ".join(f"{axis} ({length})" for axis, length in zip(axes, shape, strict=True))
