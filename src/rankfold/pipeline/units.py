"""Bytes and times as people write them."""

from __future__ import annotations

import re

from rankfold.pipeline.errors import InputError

_UNITS = {
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
    # One letter is binary, as in what SLURM takes: --mem=2G.
    **{
        letter: 2 ** (10 * power) for power, pair in enumerate(("kK", "mM", "gG", "tT"), 1) for letter in pair
    },
}

SIZES = tuple(_UNITS)
"""Units of sizes that ``parse_bytes`` accepts."""


def parse_bytes(text: str | int) -> int:
    """Number of bytes in ``"256MiB"``, ``"2 GiB"``, ``"1.5GB"``, ``"2G"`` or a plain integer.

    One letter counts in powers of 1024, as SLURM does: 2G is 2GiB. Text must have a unit.

    >>> parse_bytes("256MiB"), parse_bytes("2 GiB"), parse_bytes("2G"), parse_bytes(4096)
    (268435456, 2147483648, 2147483648, 4096)
    """
    if isinstance(text, int | float):
        value = float(text)
    else:
        match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([A-Za-z]*)\s*", text if isinstance(text, str) else "")
        if match and not match[2]:
            raise InputError(f"{text!r} has no unit: write {match[1]}GiB or {match[1]}MiB")
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


def about(seconds: float | None) -> str:
    """Text of an approximate time; ``-`` for None, a time that is not known.

    >>> about(0.2), about(41.3), about(300), about(9000), about(400000)
    ('< 1 s', '41 s', '5 min', '2.5 h', '4.6 d')
    """
    if seconds is None:
        return "-"
    if seconds < 1:
        return "< 1 s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 100 * 3600 else f"{seconds / 86400:.1f} d"
