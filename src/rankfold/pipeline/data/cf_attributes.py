"""Attributes of an array that say how stored numbers become values, and which of them mark missing values.

    _FillValue, missing_value      numbers that mark missing values: CF 2.5.1
    scale_factor, add_offset       value = stored x scale_factor + add_offset: CF 8.1
    valid_range, valid_min, _max   stored numbers beyond them are missing values: NUG, CF 2.5.1
    _Unsigned                      true or false: bits of an integer are read without or with a sign: NUG

CF: Climate and Forecast Metadata Conventions 1.11. NUG: NetCDF Users' Guide, Attribute Conventions. Zarr as
xarray writes it keeps them in attributes; version 2 keeps the fill value as that of the array. HDF5 files
that are netCDF-4 under another name have them too. ``MissingValue`` is what HDF-EOS5 calls ``missing_value``,
``nodata`` what GDAL does.

The traps: a mark that the stored type cannot hold is ignored, since it would wrap around to a number of data.
Bounds of packed numbers are packed too, unless they are real numbers while integers are stored. The fill
value 0 of a Zarr array is the default of Zarr, and marks nothing.

Attributes of arrays and coordinates by CF conventions: units, names, and the calendar of times.
"""

from __future__ import annotations

import base64
import binascii
import logging
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.errors import DataError, InputError

LOG = logging.getLogger("rankfold")

MARKS = ("_FillValue", "missing_value", "MissingValue")
"""Names of attributes that list stored numbers which mark missing values."""

OTHER_MARKS = (
    "FillValue",
    "fillValue",
    "fillvalue",
    "fill_value",
    "_fillvalue",
    "_Fillvalue",
    "_FillVal",
    "FILLVAL",
    "nodata",
    "NoData",
    "NODATA",
    "no_data",
    "nodata_value",
    "nodatavals",
    "missing_values",
    "missingValue",
)
"""Names that other writers give to attributes like ``MARKS``.

A 0 in them is ignored: it is the default fill value of stores.
"""

BOUNDS = ("valid_range", "valid_min", "valid_max")
SCALES = ("scale_factor", "add_offset")
OTHERS = {"ScaleFactor": 1.0, "Offset": 0.0, "Slope": 1.0, "Intercept": 0.0, "slope": 1.0, "intercept": 0.0}
"""Attributes that scale stored numbers by other rules, each with the value at which it changes nothing."""

NAMES = (*MARKS, *OTHER_MARKS, *BOUNDS, *SCALES, *OTHERS, "_Unsigned")
"""Names of all attributes that are read."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """Rule that turns stored numbers into values; the default leaves them as they are."""

    stored: np.dtype[Any]
    """Type that the stored bits are read as; its sign may differ from that of the array (``_Unsigned``)."""

    missing: tuple[float | int, ...] = ()
    """Stored numbers that mark missing values, increasing."""

    least: float = -math.inf
    most: float = math.inf
    """Bounds of valid numbers are ``least`` and ``most``; numbers outside are missing values."""

    of_values: bool = False
    """True if ``least`` and ``most`` apply after scale and offset, not to the stored numbers."""

    scale: float = 1.0
    offset: float = 0.0
    is_scaled: bool = False

    @property
    def is_bounded(self) -> bool:
        """True if the attributes limit the valid range on either side."""
        return self.least > -math.inf or self.most < math.inf

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values: one that has NaN if values may be missing."""
        if self.stored.kind == "f" or not (self.is_scaled or self.missing or self.is_bounded):
            return self.stored
        exact = self.stored.itemsize <= 2 and not self.is_scaled
        return np.dtype(np.float32 if exact else np.float64)

    def decode(self, raw: npt.NDArray[Any], out: npt.NDArray[Any]) -> None:
        """Decode stored numbers ``raw`` into ``out``, of the same shape and of type ``dtype``."""
        raw = raw.view(self.stored)
        out[...] = raw
        if self.is_scaled:
            out *= self.scale
            out += self.offset
        for value in self.missing:
            out[raw == value] = np.nan
        if self.is_bounded:
            told = out if self.of_values else raw
            out[(told < self.least) | (told > self.most)] = np.nan

    def facts(self) -> tuple[object, ...]:
        """Type, scale, offset, marks and bounds of the rule, for the fingerprint of a decoded matrix."""
        found: tuple[object, ...] = (self.dtype.str, self.scale, self.offset, self.missing)
        if self.is_bounded:
            found += (self.least, self.most, self.of_values)
        return found


def meaning_of(
    name: str, dtype: np.dtype[Any], attributes: Mapping[str, Any], *, fill: float | int | None = None
) -> Meaning | None:
    """Build the decoding rule of an array from its type and attributes; None if numbers need no decoding.

    ``name`` is that of the array, for messages. ``fill`` is the fill value of a store, if its writer keeps it
    there and not in an attribute.

    Raises
    ------
    InputError
        An attribute is no number, or one of ``OTHERS`` that would change something.
    """
    said = {each: _plain(attributes[each]) for each in NAMES if each in attributes}
    _refuse_others(name, said)
    if dtype.kind not in "iuf":
        return None
    stored, resigned = _signed(dtype, said.get("_Unsigned"))
    marks = {mark for each in MARKS if each in said for mark in _marks(said[each], stored, resigned=resigned)}
    for each in said.keys() & set(OTHER_MARKS):
        marks |= {mark for mark in _marks(said[each], stored, resigned=resigned) if mark}
    if fill is not None:
        marks |= set(_marks(fill, stored, resigned=resigned))
    meaning = Meaning(stored, tuple(sorted(marks)))
    if any(each in said for each in SCALES):
        idle = dict(zip(SCALES, (1, 0), strict=True))
        scale, offset = (_number(name, each, said.get(each, idle[each])) for each in SCALES)
        meaning = replace(meaning, scale=scale, offset=offset, is_scaled=True)
    meaning = _bounded(name, meaning, said, resigned=resigned)
    return None if meaning == Meaning(dtype) else meaning


def bounds_of_decoded(
    name: str, dtype: np.dtype[Any], attributes: Mapping[str, Any], encoding: Mapping[str, Any]
) -> Meaning | None:
    """Rule that applies the bounds of values that xarray has decoded without them; None if there are none.

    ``dtype`` is the type of the values, ``encoding`` the encoding by which xarray decoded them. Bounds of
    packed integers are widened by half a step, since values at a bound were rounded.
    """
    said = {each: attributes[each] for each in (*BOUNDS, *OTHERS) if each in attributes}
    said |= {each: encoding[each] for each in (*SCALES, "_Unsigned") if each in encoding}
    meaning = meaning_of(name, np.dtype(encoding.get("dtype") or dtype), said)
    if meaning is None or not meaning.is_bounded:
        return None
    least, most = meaning.least, meaning.most
    if meaning.is_scaled and not meaning.of_values:
        half = 0.5 if meaning.stored.kind in "iu" else 0.0
        ends = [end * meaning.scale + meaning.offset for end in (least - half, most + half)]
        least, most = min(ends), max(ends)
    return Meaning(dtype, least=least, most=most)


# What was never written ---------------------------------------------------------------------------

NETCDF_FILLS: dict[str, float | int] = {
    "f4": 9.969209968386869e36,
    "f8": 9.969209968386869e36,
    "i2": -(2**15) + 1,
    "u2": 2**16 - 1,
    "i4": -(2**31) + 1,
    "u4": 2**32 - 1,
    "i8": -(2**63) + 2,
    "u8": 2**64 - 2,
}
"""Values, by type, that netCDF puts where no data was written, if there is no ``_FillValue``: netcdf.h."""


@dataclass(frozen=True, slots=True)
class Unwritten:
    """Default fill value of netCDF, in a variable without ``_FillValue``: it marks what was never written."""

    mark: float | int
    within: float = 0.0
    """Values this close to ``mark`` count as fill; above 0 if values were scaled, and so rounded."""

    @classmethod
    def of(cls, stored: np.dtype[Any], said: Mapping[str, Any]) -> Unwritten | None:
        """Default fill value of a variable of type ``stored``, as it looks after decoding.

        ``said`` are the attributes that values were decoded by. None for types of one byte, if an
        attribute marks missing values or changes the sign, and if a scale of 0 makes all values equal.
        """
        mark = NETCDF_FILLS.get(f"{stored.kind}{stored.itemsize}")
        if mark is None or any(each in said for each in (*MARKS, *OTHER_MARKS, "_Unsigned")):
            return None
        if not any(each in said for each in SCALES):
            return cls(mark)
        scale, offset = float(said.get("scale_factor", 1)), float(said.get("add_offset", 0))
        if not scale:
            return None
        return cls(mark * scale + offset, abs(scale) / 4)

    def mask(self, name: str, values: npt.NDArray[Any]) -> None:
        """Replace the fill value by NaN in ``values``, in place; ``name`` is for messages.

        Raises
        ------
        DataError
            The values are whole numbers, which have no NaN.
        """
        found = np.abs(values - self.mark) <= self.within if self.within else values == self.mark
        if not found.any():
            return
        if values.dtype.kind != "f":
            raise DataError(
                f"{name} holds {self.mark}, which netCDF puts where nothing was written, and no _FillValue "
                "says otherwise. Set that attribute: to this number where it is missing, to another where it "
                "is data"
            )
        values[found] = np.nan


def say_fill(name: str, fill: float | int | None, meaning: Meaning | None) -> None:
    """Warn of a fill value of a store, unless the rule ``meaning`` says that numbers mark missing values."""
    if fill and math.isfinite(fill) and not isinstance(fill, bool) and not (meaning and meaning.missing):
        LOG.warning(
            "%s declares the fill value %s, and no _FillValue that it stands for nothing: it is read as a "
            "number. If it marks what is missing, say prepare='mark_missing(%s)' "
            "(--prepare 'mark_missing(%s)')",
            *(name, fill, fill, fill),
        )


def _plain(value: Any) -> Any:
    """An attribute as a plain Python value: bytes as text, lists of one element as that element."""
    value = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return _plain(value[0]) if isinstance(value, list | tuple) and len(value) == 1 else value


def _refuse_others(name: str, said: Mapping[str, Any]) -> None:
    for each, idle in OTHERS.items():
        if each in said and said[each] != idle:
            raise InputError(
                f"{name} has an attribute {each} = {said[each]!r:.40}: its numbers mean something else by a "
                "rule that is not in the conventions of CF. Decode them first, or, if they are decoded, "
                "remove the attribute"
            )


def _number(name: str, attribute: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} has a {attribute} that is no number: {value!r:.60}") from error
    if not math.isfinite(number):
        raise InputError(f"{name} has a {attribute} of {number}")
    return number


def _signed(dtype: np.dtype[Any], unsigned: Any) -> tuple[np.dtype[Any], bool]:
    """Type as which stored bits are read, by the value of ``_Unsigned``; True if that changes their sign."""
    said = str(unsigned).lower()
    kind = {"true": "u", "false": "i"}.get(said, dtype.kind) if dtype.kind in "iu" else dtype.kind
    return np.dtype(f"{kind}{dtype.itemsize}"), kind != dtype.kind


def _marks(value: Any, stored: np.dtype[Any], *, resigned: bool) -> list[float | int]:
    """Numbers that mark missing values by an attribute, in the stored type.

    Those that it cannot hold are left out.

    xarray writes floats as base64. With ``resigned``, the sign of the stored type was changed, and marks wrap
    around with it.
    """
    found: list[float | int] = []
    for each in value if isinstance(value, list) else [value]:
        number = _parsed(each) if isinstance(each, str) else each
        if isinstance(number, bool) or not isinstance(number, int | float) or number != number:
            continue
        if stored.kind == "f":
            with np.errstate(over="ignore"):
                mark = float(stored.type(number))
            found += [mark] if math.isfinite(mark) or math.isinf(number) else []
            continue
        if math.isinf(number) or number != int(number):
            continue
        limits, whole = np.iinfo(stored), _wrapped(int(number), stored) if resigned else int(number)
        if limits.min <= whole <= limits.max:
            found.append(float(whole) if int(float(whole)) == whole else whole)
    return found


def _wrapped(number: int, stored: np.dtype[Any]) -> int:
    """The number as which an integer type, ``stored``, reads the bits of one of the type of the other sign.

    >>> _wrapped(-6, np.dtype("u2")), _wrapped(250, np.dtype("i1")), _wrapped(7, np.dtype("u1"))
    (65530, -6, 7)
    """
    limits, count = np.iinfo(stored), int(2 ** (8 * stored.itemsize))
    if limits.min <= number <= limits.max:
        return number
    return number % count - (count if stored.kind == "i" else 0)


def _parsed(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return float(struct.unpack("<d", base64.b64decode(text))[0])
    except (struct.error, binascii.Error, ValueError):
        return None


def _bounded(name: str, meaning: Meaning, said: Mapping[str, Any], *, resigned: bool) -> Meaning:
    """The rule ``meaning`` with the bounds of valid numbers that the attributes ``said`` give.

    With ``resigned``, the sign of the stored type was changed, and whole bounds wrap around with it, unless
    no number would be valid: GOES-R has 0 to -6 for 0 to 65530.
    """
    given = {}
    for each, place in zip(BOUNDS[1:], ("least", "most"), strict=True):
        if each in said:
            given[place] = said[each]
    if "valid_range" in said:
        pair = said["valid_range"]
        if not isinstance(pair, list) or len(pair) != 2:
            raise InputError(f"{name} has a valid_range that is no pair of numbers: {pair!r:.60}")
        given = dict(zip(("least", "most"), pair, strict=True))
    if not given:
        return meaning
    of_values = meaning.is_scaled and meaning.stored.kind in "iu"
    of_values = of_values and any(isinstance(value, float) for value in given.values())
    least, most = _bounds(name, given, meaning.stored, of_values=of_values)
    if resigned and not of_values:
        wrapped = {
            place: _wrapped(value, meaning.stored) if type(value) is int else value
            for place, value in given.items()
        }
        ends = _bounds(name, wrapped, meaning.stored, of_values=False)
        least, most = ends if ends[0] <= ends[1] else (least, most)
    if least > most:
        raise InputError(f"{name} says that valid numbers are from {least:g} to {most:g}, which none is")
    return replace(meaning, least=least, most=most, of_values=of_values)


def _bounds(
    name: str, given: Mapping[str, Any], stored: np.dtype[Any], *, of_values: bool
) -> tuple[float, float]:
    """Bounds of valid numbers from ``given``, by keys ``least`` and ``most``; infinite if one is missing."""
    ends = (
        _bound(name, given[place], stored, of_values=of_values) if place in given else idle
        for place, idle in (("least", -math.inf), ("most", math.inf))
    )
    least, most = ends
    return least, most


def _bound(name: str, value: Any, stored: np.dtype[Any], *, of_values: bool) -> float:
    """A bound of valid numbers from the value of an attribute, rounded to the type in which it is compared.

    That is ``stored``, or float64 if it is integer or bounds apply after scaling (``of_values``). Infinite if
    it is beyond the range of that type.
    """
    if isinstance(value, str | bool) or value is None:
        raise InputError(f"{name} has a bound of valid numbers that is no number: {value!r:.60}")
    number = float(value)
    if of_values or stored.kind != "f":
        return number
    with np.errstate(over="ignore"):
        return float(stored.type(number))


DESCRIBING = ("units", "long_name", "standard_name", "positive", "axis")
"""Names of CF attributes of an array or a coordinate that a result keeps."""

VARIABLE = "variable"
"""Key under which attributes also hold the name of the variable that the array is in its file or object."""

LONGEST_ATTRIBUTE = 256
"""Largest number of characters of an attribute that a result keeps; longer ones are left out."""

Attributes = Mapping[str, str]


def attributes_in(values: Mapping[str, Any] | None, *, of: object = None) -> dict[str, str]:
    """``DESCRIBING`` attributes among ``values`` that are short text, but no units that count from a date.

    ``of`` is the path or name of the array, whose last part is added as ``VARIABLE`` if it is text.

    >>> attributes_in({"units": "K", "long_name": b"temperature", "axis": 3, "history": "x"}, of="ocean/t")
    {'units': 'K', 'long_name': 'temperature', 'variable': 't'}
    """
    found = {name: text for name, text in _texts(values, DESCRIBING).items() if " since " not in text}
    leaf = of.rstrip("/").rpartition("/")[2] if isinstance(of, str) else ""
    return found | ({VARIABLE: leaf} if 0 < len(leaf) <= LONGEST_ATTRIBUTE else {})


def counted_from(values: Mapping[str, Any] | None) -> dict[str, str]:
    """Those of the attributes ``units`` and ``calendar`` that times stored as counts from a date have.

    Such units are "days since 1900-01-01".

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
