"""How long a classic netCDF file must be, by its header.

The library reads what lies beyond the end of a file that was cut short as zeros, without a word, so the
length is compared first. The format: https://docs.unidata.ucar.edu/netcdf-c/current/file_format_specifications.html
"""

from __future__ import annotations

import math
from typing import BinaryIO, NamedTuple

TYPE_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 4, 6: 8, 7: 1, 8: 2, 9: 4, 10: 8, 11: 8}
"""Bytes of one value by the number of its type: byte, char, short, int, float, double, and those of CDF-5."""


class _Variable(NamedTuple):
    begin: int
    size: int
    record: bool


def expected_bytes(path: str) -> int:
    """Least bytes of a complete file; ``EOFError`` or ``ValueError`` for a header that is none."""
    with open(path, "rb") as file:
        return _Header(file).expected()


class _Header:
    """A header read from front to back; numbers are big-endian, names and values padded to 4 bytes."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        version = self._bytes(4)[3]
        self.count, self.offset = {1: (4, 4), 2: (4, 8), 5: (8, 8)}[version]
        self.records = self._number(self.count)
        self.streaming = self.records == 2 ** (8 * self.count) - 1
        self.dimensions = [self._dimension() for _ in range(self._list())]
        self._attributes()
        self.variables = [self._variable() for _ in range(self._list())]

    def expected(self) -> int:
        """One past the last byte of the last variable."""
        records = [variable for variable in self.variables if variable.record]
        # Records of a single variable are not padded.
        step = (
            sum(_padded(each.size) for each in records) if len(records) > 1 else sum(r.size for r in records)
        )
        ends = [v.begin + v.size for v in self.variables if not v.record]
        if self.records and not self.streaming:
            ends += [v.begin + (self.records - 1) * step + v.size for v in records]
        return max(ends, default=0)

    def _variable(self) -> _Variable:
        self._name()
        lengths = [self.dimensions[self._number(self.count)] for _ in range(self._number(self.count))]
        self._attributes()
        kind = TYPE_BYTES[self._number(4)]
        self._number(self.count)  # the size as stored, which overflows for large variables
        record = bool(lengths) and lengths[0] == 0
        return _Variable(self._number(self.offset), math.prod(lengths[record:]) * kind, record)

    def _dimension(self) -> int:
        self._name()
        return self._number(self.count)

    def _attributes(self) -> None:
        for _ in range(self._list()):
            self._name()
            kind = TYPE_BYTES[self._number(4)]
            self._bytes(_padded(self._number(self.count) * kind))

    def _list(self) -> int:
        """Elements of the list that begins here."""
        self._number(4)  # what they are
        return self._number(self.count)

    def _name(self) -> None:
        self._bytes(_padded(self._number(self.count)))

    def _number(self, size: int) -> int:
        return int.from_bytes(self._bytes(size), "big")

    def _bytes(self, size: int) -> bytes:
        read = self.file.read(size)
        if len(read) < size:
            raise EOFError("the header itself is cut short")
        return read


def _padded(size: int) -> int:
    return -(-size // 4) * 4
