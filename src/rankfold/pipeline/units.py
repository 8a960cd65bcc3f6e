"""Bytes as people write them."""

from __future__ import annotations

import re

from rankfold.pipeline.errors import InputError

_UNITS = {
    "": 1,
    "B": 1,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
}


def parse_bytes(text: str | int) -> int:
    """Number of bytes in ``"256MiB"``, ``"2 GiB"``, ``"1.5GB"`` or a plain integer.

    >>> parse_bytes("256MiB"), parse_bytes("2 GiB"), parse_bytes(4096)
    (268435456, 2147483648, 4096)
    """
    if not isinstance(text, str):
        value = float(text)
    else:
        match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([A-Za-z]*)\s*", text)
        if not match or match[2] not in _UNITS:
            raise InputError(f"{text!r} is not a size in bytes: write for instance 256MiB, 2GiB or 1.5GB")
        value = float(match[1]) * _UNITS[match[2]]
    if value < 1:
        raise InputError(f"{text!r} is no memory at all: write for instance 256MiB or 2GiB")
    return int(value)


def format_bytes(count: float) -> str:
    """A number of bytes in binary units, three digits.

    >>> format_bytes(3_200_000_000), format_bytes(999)
    ('2.98 GiB', '999 B')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.4g} TiB"
