"""Attributes of arrays and coordinates by CF conventions: units, names, and the calendar of times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

DESCRIBING = ("units", "long_name", "standard_name", "positive", "axis")
"""CF attributes of an array or a coordinate that a result keeps."""

VARIABLE = "variable"
"""Key, beside the attributes of an array, of the name of the variable that it is in its file or object."""

LONGEST_ATTRIBUTE = 256
"""Most characters of such an attribute; a longer one is not kept."""

Attributes = Mapping[str, str]


def attributes_in(values: Mapping[str, Any] | None, *, of: object = None) -> dict[str, str]:
    """``DESCRIBING`` attributes: only those that are short text, and without units that count from a date.

    ``of`` is the path or name of the array, whose last part is added as ``VARIABLE`` if it is text.

    >>> attributes_in({"units": "K", "long_name": b"temperature", "axis": 3, "history": "x"}, of="ocean/t")
    {'units': 'K', 'long_name': 'temperature', 'variable': 't'}
    """
    found = {name: text for name, text in _texts(values, DESCRIBING).items() if " since " not in text}
    leaf = of.rstrip("/").rpartition("/")[2] if isinstance(of, str) else ""
    return found | ({VARIABLE: leaf} if 0 < len(leaf) <= LONGEST_ATTRIBUTE else {})


def counted_from(values: Mapping[str, Any] | None) -> dict[str, str]:
    """Attributes ``units`` and ``calendar`` of times stored as counts from a date ("days since 1900-01-01").

    Empty if the units do not count from a date. For values that were not decoded to dates.
    """
    texts = _texts(values, ("units", "calendar"))
    return texts if " since " in texts.get("units", "") else {}


def _texts(values: Mapping[str, Any] | None, names: tuple[str, ...]) -> dict[str, str]:
    """Attributes of these names that are text of at most ``LONGEST_ATTRIBUTE`` characters."""
    found = {name: values[name] for name in names if name in values} if values else {}
    texts = {
        name: value.decode(errors="replace") if isinstance(value, bytes) else value
        for name, value in found.items()
    }
    return {
        name: str(text)
        for name, text in texts.items()
        if isinstance(text, str) and len(text) <= LONGEST_ATTRIBUTE
    }


def calendar_of(values: Any) -> str | None:
    """Name of the calendar of ``cftime`` times, which have no NumPy type; None for other labels."""
    values = np.asarray(values)
    found = getattr(values.flat[0], "calendar", None) if values.dtype.kind == "O" and values.size else None
    return found if isinstance(found, str) and found else None


def attributes_from(facts: Any) -> dict[str, str]:
    """Attributes read from the facts of a result; ``ValueError`` if they are no mapping of text to text."""
    texts = facts is None or (
        isinstance(facts, Mapping) and all(isinstance(each, str) for each in (*facts, *facts.values()))
    )
    if not texts:
        raise ValueError("attributes that are no text")
    return dict(facts or {})
