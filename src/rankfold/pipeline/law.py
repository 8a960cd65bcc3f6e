"""Constraints ("laws") on the arrays and facts of a result, checked before a kernel uses them.

Facts are the attributes of a result: its request, its input, how accurate it is. A file may hold any number.
An index beyond the rows, a NaN or a decreasing pointer is found here by comparing the minimum and maximum of
a panel (rows that are read at once) with bounds, which is cheap compared to reading it. Laws are declared
with the outputs of methods; if a method of another package declares none, its arrays must be finite.
Methods are declared before anything is computed, so NumPy is imported only where numbers are checked.

The trap: NaN is neither below nor above anything, so a fault is any number that is not within bounds.
"""

from __future__ import annotations

import functools
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rankfold.pipeline.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[Any]

LARGEST = sys.float_info.max
"""Largest finite number of type float64."""

PANEL_NUMBERS = 2**20
"""Number of elements of an array that are read and checked at a time."""

REMEDY = "Restore the result, or make it again"

REAL, NUMBER = ("float32", "float64"), ("float32", "float64", "complex64", "complex128")
WHOLE = ("int32", "int64")
STORED = (
    *("bool", "float16", "float32", "float64"),
    *(f"{kind}{bits}" for kind in ("uint", "int") for bits in (8, 16, 32, 64)),
)
"""Names of the real types of a matrix, and of arrays of a result that hold its rows or columns unchanged."""

_OF_FUNCTION = re.compile(r".+-[0-9a-f]{16}")
"""Pattern for a compiled metric or kernel of the caller: its name, and a digest of its code."""

Lengths = Mapping[str, int]
"""Length of each axis of a result by its name; under ``other``, the number of rows searched for neighbors."""


def first_outside(values: Array, least: float, most: float) -> int | None:
    """Flat index, in C order, of the first value below ``least``, above ``most`` or NaN; None without one.

    Complex numbers are within bounds if both of their parts are.
    """
    import numpy as np

    if values.dtype.kind == "c":
        values = np.ascontiguousarray(values).view(values.real.dtype)
        place = first_outside(values, least, most)
        return None if place is None else place // 2
    # Compare as Python numbers: a bound beyond float32 would overflow in the type of the values.
    if not values.size or (values.min().item() >= least and values.max().item() <= most):
        return None
    wide = values if values.dtype.kind in "iub" else values.astype(np.float64)
    return int(np.argmax(~((wide >= least) & (wide <= most))))


def first_fall(values: Array) -> int | None:
    """Index of the first value of a vector that is less than the one before it; None if there is none."""
    down = values[1:] < values[:-1]
    return int(down.argmax()) + 1 if down.any() else None


class Stored(Protocol):
    """An array of a result, in a file or in memory."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each axis."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of its elements."""

    def __getitem__(self, part: Any) -> Any:
        """The part that an index or slice selects, in memory."""


@dataclass(frozen=True, slots=True)
class Law:
    """Constraints on an array of a result."""

    axes: tuple[str, ...] | None = None
    """Names of the axes of the array; None if they are not declared."""

    types: tuple[str, ...] = NUMBER
    least: float = -LARGEST
    most: float = LARGEST
    below: tuple[str, ...] = ()
    """Names of axes. Values must be below the length of the first of them that the result has.

    For arrays of indices along that axis.
    """

    reaches: tuple[str, ...] = ()
    """Names of axes. Values must be at most the length of the first of them that the result has.

    For pointers into that axis.
    """

    rising: bool = False
    """True if values must not decrease along the last axis."""

    spans: bool = False
    """True for a vector, read whole, that begins with the least allowed value and ends with the most.

    Such are the edges at which consecutive parts of all rows begin.
    """

    falling: bool = False
    """True if values must not increase along the last axis."""

    may_be_nan: bool = False
    """True if NaN is allowed, as the mark of a missing value."""

    def bounds(self, lengths: Lengths) -> tuple[float, float]:
        """Least and most allowed value, given the length of each axis."""
        known = [lengths[axis] - 1 for axis in self.below if axis in lengths]
        known += [lengths[axis] for axis in self.reaches if axis in lengths]
        return self.least, (known[0] if known else self.most)

    def fault(self, values: Array, lengths: Lengths) -> tuple[int, str] | None:
        """First value of a panel that breaks the law: its flat index in C order, and text on what is allowed.

        ``lengths`` are those of the axes of the result. None if all values are allowed.
        """
        import numpy as np

        least, most = self.bounds(lengths)
        if (place := self._first_outside(values, least, most)) is not None:
            return place, _range_in_words(least, most, whole=values.dtype.kind in "iu")
        if (self.rising or self.falling) and values.ndim:
            lines = values if self.rising else -values
            down = lines[..., 1:] < lines[..., :-1]
            if down.any():
                line, at = np.argwhere(down.reshape(-1, down.shape[-1]))[0].tolist()
                return line * values.shape[-1] + at + 1, f"at {'least' if self.rising else 'most'} " + (
                    f"the number before it, {values.reshape(-1)[line * values.shape[-1] + at]}"
                )
        if self.spans and values.size:
            for place, end in ((0, least), (values.size - 1, most)):
                if values[place] != end:
                    return place, str(int(end))
        return None

    def _first_outside(self, values: Array, least: float, most: float) -> int | None:
        """Flat index of the first value outside the bounds, or None; NaN is within them if it is allowed."""
        import numpy as np

        place = first_outside(values, least, most)
        if place is None or not self.may_be_nan:
            return place
        within = LARGEST if least > 0 else 0.0
        return first_outside(np.nan_to_num(values, nan=within, posinf=np.inf, neginf=-np.inf), least, most)

    def require(self, name: str, values: Array, lengths: Lengths, *, first: int = 0) -> None:
        """Raise ``DataError`` if a panel, ``values``, breaks the law.

        ``name`` of the array and ``first``, the index of the first row of the panel, are for the message.
        """
        import numpy as np

        if (fault := self.fault(values, lengths)) is not None:
            place, allowed = np.unravel_index(fault[0], values.shape), fault[1]
            shown = ", ".join(str(int(at) + (first if axis == 0 else 0)) for axis, at in enumerate(place))
            raise DataError(
                f"{name}[{shown}] is {values.reshape(-1)[fault[0]]}, but is to be {allowed}. {REMEDY}"
            )

    def require_some(self, name: str, lengths: Lengths, values: Array) -> None:
        """Raise ``DataError`` if values from any part of the array ``name`` are out of its bounds."""
        import numpy as np

        bounds, some = self.bounds(lengths), np.asarray(values)
        if (place := self._first_outside(some, *bounds)) is not None:
            allowed = _range_in_words(*bounds, whole=some.dtype.kind in "iu")
            raise DataError(f"{name} holds {some.reshape(-1)[place]}, but is to be {allowed}. {REMEDY}")

    def require_all(self, name: str, array: Stored, lengths: Lengths) -> None:
        """Raise ``DataError`` if the array ``name`` breaks the law; it is read a panel at a time."""
        import numpy as np

        step = max(1, PANEL_NUMBERS // max(1, math.prod(array.shape[1:])))
        if (self.rising or self.falling) and len(array.shape) == 1:
            step = max(1, array.shape[0])  # in order from the first to the last
        for start in range(0, array.shape[0], step):
            try:
                values = np.asarray(array[start : start + step])
            except DataError:
                raise
            except (OSError, ValueError, TypeError, KeyError, RuntimeError) as error:
                raise DataError(f"{name} cannot be read: {error}. {REMEDY}") from error
            self.require(name, values, lengths, first=start)


def _range_in_words(least: float, most: float, *, whole: bool) -> str:
    if not whole:
        below = "" if least == -LARGEST else f", at least {least:g}"
        return "finite" + below + ("" if most == LARGEST else f", at most {most:g}")
    return f"from {int(least)} to {int(most)}" if most < LARGEST else f"at least {int(least)}"


@dataclass(frozen=True, slots=True)
class Fact:
    """Constraints on an attribute of a result."""

    types: tuple[type, ...]
    least: float | None = None
    below: float | None = None
    choices: tuple[str, ...] = ()
    """Allowed words; empty for any text.

    The name and digest of a function that the caller gave, such as a compiled metric, are also allowed.
    """

    many: bool = False
    """True for a list of such values."""

    not_empty: bool = False
    """True if an empty list is not allowed."""

    may_lack: bool = False
    """True if it may be null; for a list, if its elements may be null."""

    unbounded: bool = False
    """True if it may be infinite, such as an error bound that is not known."""

    counts: str = ""
    """Name of the axis whose length the value must equal, if the result has that axis; empty for none."""

    def fits(self, value: object) -> bool:
        """True if a value satisfies the constraints."""
        if value is None:
            return self.may_lack and not self.many
        if self.not_empty and value == []:
            return False
        if self.many:
            one = Fact(self.types, self.least, self.below, self.choices, may_lack=self.may_lack)
            return isinstance(value, list) and all(one.fits(each) for each in value)
        if isinstance(value, bool):
            return bool in self.types
        if isinstance(value, str):
            is_word = not self.choices or value in self.choices or _OF_FUNCTION.fullmatch(value)
            return str in self.types and bool(is_word)
        if isinstance(value, int | float) and (float in self.types or type(value) in self.types):
            above = self.least is None or value >= self.least
            finite = math.isfinite(value) or (self.unbounded and value == math.inf)
            return finite and above and (self.below is None or value < self.below)
        return isinstance(value, self.types)

    def in_words(self) -> str:
        """Description of allowed values, for messages."""
        words = {int: "a whole number", float: "a number", str: "text", bool: "true or false", dict: "facts"}
        if self.choices and self.types == (str,):
            return f"one of {', '.join(self.choices)}"
        kinds = " or ".join(words.get(each, each.__name__) for each in self.types)
        low = f" of at least {self.least:g}" if self.least is not None else ""
        return ("a list, each " if self.many else "") + kinds + low + " or null" * self.may_lack


FLAG, TEXT, FACTS = Fact((bool,)), Fact((str,)), Fact((dict,))
COUNT, REAL_FACT = Fact((int,), least=0), Fact((float,))
TEXTS, COUNTS, REALS = (Fact(one.types, one.least, many=True) for one in (TEXT, COUNT, REAL_FACT))
MAYBE_REAL, MAYBE_REALS = (Fact((float,), many=many, may_lack=True) for many in (False, True))
BOUND = Fact((float,), least=0, unbounded=True)
"""Constraint on an error bound: a number of at least 0, perhaps infinite."""

COMMON = {
    "schema": COUNT,
    "kind": TEXT,
    "method": TEXT,
    "edition": COUNT,
    "device": TEXT,
    "request": FACTS,
    "input": FACTS,
    "version": TEXT,
    "passes": COUNT,
    "warnings": TEXTS,
}
"""Constraints on the facts that every result has; ``edition`` and ``device`` may be missing."""

INPUT = {
    "name": TEXT,
    "shape": COUNTS,
    "dtype": Fact((str,), choices=(*STORED, "complex64", "complex128")),
    "fingerprint": TEXT,
}
"""Constraints on the facts of every input matrix."""

OF_SOME_INPUTS = {"layout": FACTS, "prepare": TEXT}
"""Constraints on facts that only some input matrices have.

``layout`` describes a matrix taken from a larger array, ``prepare`` the preparation steps (`prepare=`).
"""

PREPARED = {
    "columns": Law(types=WHOLE, least=0),
    "of": Law(types=WHOLE, least=1, reaches=("stored_column",)),
    "dispersions": Law(types=REAL, least=-math.inf, most=math.inf, may_be_nan=True),
    "norm": Law(types=REAL, least=-math.inf, most=math.inf, may_be_nan=True),
}
"""Laws of arrays in which a preparation step keeps its choice of columns.

They are found by the last word of the name of an array, such as ``columns`` of
``prepare_1_take_columns_columns``.
"""

Condition = Callable[[Mapping[str, Any]], bool]
"""Function that takes the facts of a result and returns True if the result must have a certain array."""


@dataclass(frozen=True, slots=True)
class ResultLaw:
    """Constraints on results of one kind."""

    arrays: Mapping[str, Law] = field(default_factory=dict)
    """Law of each array, by the name of the array."""

    needed: Mapping[str, Condition] = field(default_factory=dict)
    """Condition on the facts of a result, by the name of an array that the result must have if it holds."""

    facts: Mapping[str, Fact] = field(default_factory=dict)
    """Constraints on facts of a result by name, in addition to ``COMMON``."""

    request: Mapping[str, Fact] = field(default_factory=dict)
    """Constraints on the entries of its request, by name."""

    def of(self, name: str) -> Law:
        """Law of the array with that name: what its values must be; finite, if none is declared."""
        if is_of_step(name):
            return PREPARED.get(name.rpartition("_")[2], Law(types=(*NUMBER, *WHOLE)))
        return self.arrays.get(name, Law())


def is_of_step(name: str) -> bool:
    """True if the name of an array begins with ``prepare_``: it holds what a preparation step measured."""
    return name.startswith("prepare_")


SOURCES: list[Callable[[str], ResultLaw | None]] = []
"""Functions that return the law of a kind of results, or None for other kinds; methods add theirs here."""


def result_law(kind: str) -> ResultLaw:
    """Law of results of a kind; for a kind that no method declares, values must be finite."""
    return _result_law(kind, len(SOURCES))


@functools.lru_cache(maxsize=128)
def _result_law(kind: str, sources: int) -> ResultLaw:
    found = (source(kind) for source in SOURCES[:sources])
    return next((law for law in found if law is not None), ResultLaw())


class Facts(dict[str, Any]):
    """Attributes of a result; a missing one that is looked up is reported as damage."""

    place = ""

    @classmethod
    def of(cls, path: Path, facts: Mapping[str, Any], within: str = "") -> Facts:
        """Make it from the facts of the result at ``path``; nested ones are wrapped as well.

        ``within`` is the dotted prefix of their names in messages, such as ``input.``.
        """
        made = cls()
        made.place = f"{path} is damaged: its facts lack {within}"
        for name, value in facts.items():
            made[name] = cls.of(path, value, f"{within}{name}.") if isinstance(value, dict) else value
        return made

    def __missing__(self, name: str) -> Any:
        raise MissingError(f"{self.place}{name}. {REMEDY}")


class MissingError(DataError, AttributeError, KeyError):
    """An array or an attribute is missing that results of a kind must have."""

    def __str__(self) -> str:
        return str(self.args[0])


# Checks when a result is opened: of metadata only ---------------------------------------------------


def require_facts(path: Path, facts: Any) -> None:
    """Raise ``DataError`` for facts that no result can have; ``path`` names the result in the message."""
    if not isinstance(facts, dict):
        raise DataError(f"{path} is damaged: its facts are {facts!r:.60}. {REMEDY}")
    for name, law in COMMON.items():
        if name in facts or name not in ("edition", "device"):
            _require_fact(path, name, facts, law)
    for name, law in INPUT.items():
        _require_fact(path, f"input.{name}", facts["input"], law)
    for name in OF_SOME_INPUTS.keys() & facts["input"].keys():
        _require_fact(path, f"input.{name}", facts["input"], OF_SOME_INPUTS[name])
    shape = facts["input"]["shape"]
    if len(shape) != 2 or not all(0 < length < 2**63 for length in shape):
        raise _of_facts(path, "input.shape", shape, "two whole numbers of at least 1")
    kind, asked = facts["kind"], facts["request"].get("kind")
    if asked != kind:
        raise _of_facts(path, "request.kind", asked, repr(kind))
    own = result_law(kind)
    for name in own.facts.keys() & facts.keys() - COMMON.keys():
        _require_fact(path, name, facts, own.facts[name])
    for name in own.request.keys() & facts["request"].keys():
        _require_fact(path, f"request.{name}", facts["request"], own.request[name])
    bounds = [name for name, each in own.facts.items() if each.unbounded]
    _require_finite(path, "", {name: value for name, value in facts.items() if name not in bounds})


def _require_fact(path: Path, name: str, facts: Mapping[str, Any], law: Fact) -> None:
    last = name.rpartition(".")[2]
    if last not in facts:
        raise DataError(f"{path} is damaged: its facts lack {name}. {REMEDY}")
    if not law.fits(facts[last]):
        raise _of_facts(path, name, facts[last], law.in_words())


def _of_facts(path: Path, name: str, value: object, allowed: str) -> DataError:
    said = repr(value)
    shown = said if len(said) < 60 else f"{said[:60]}..."
    return DataError(f"{path} is damaged: its fact {name} is {shown}, but is to be {allowed}. {REMEDY}")


def _require_finite(path: Path, name: str, value: object) -> None:
    """Raise ``DataError`` if a number in facts, at any depth, is NaN, infinite, or has over 64 bits."""
    if isinstance(value, float) and not math.isfinite(value):
        raise _of_facts(path, name, value, "a finite number")
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise _of_facts(path, name, value, "a whole number of 64 bits")
    inside: Iterable[tuple[str, object]] = ()
    if isinstance(value, dict):
        inside = ((f"{name}.{key}" if name else str(key), each) for key, each in value.items())
    elif isinstance(value, list):
        inside = ((f"{name}[{at}]", each) for at, each in enumerate(value))
    for key, each in inside:
        _require_finite(path, key, each)


def require_array(path: str, facts: Any, name: str, shape: tuple[int, ...] | None) -> None:
    """Raise ``DataError`` if a result lacks an array that it must have, or has it in an impossible shape.

    ``path`` and ``facts`` are those of the result, ``name`` and ``shape`` those of the array; ``shape`` is
    None if it is missing. Facts that no result can have are ignored.
    """
    try:
        require_facts(Path(path), facts)
    except DataError:
        return
    law, (rows, columns) = result_law(facts["kind"]), facts["input"]["shape"]
    if shape is None:
        condition = law.needed.get(name)
        if condition is not None and condition(facts):
            raise DataError(f"{path} is damaged: it has no {name}. {REMEDY}")
        return
    lengths = {"row": rows, "column": columns, "place": rows}
    if facts["request"].get("queries") is not None or facts["request"].get("targets") is not None:
        del lengths["row"]
    for axis, length in zip(law.of(name).axes or (), shape, strict=False):
        if lengths.get(axis, length) != length:
            raise DataError(
                f"{path} is damaged: {name} is of shape {shape}, with {length} along {axis}, of which the "
                f"matrix has {lengths[axis]}. {REMEDY}"
            )


def axis_names(array: Any) -> tuple[str | None, ...]:
    """Names of the axes of a Zarr array; empty if it has none, or is in memory."""
    return getattr(getattr(array, "metadata", None), "dimension_names", None) or ()


def require_arrays(
    path: Path, facts: Mapping[str, Any], arrays: Mapping[str, Stored], graph: tuple[int, int] | None
) -> dict[str, int]:
    """Check that a result has all arrays it must have, with the right types and shapes.

    Parameters
    ----------
    path : Path
        Result, for messages.
    facts : mapping
        Its facts, which ``require_facts`` has accepted.
    arrays : mapping
        Its arrays by name.
    graph : (int, int), optional
        Shape of its graph; None if it has none.

    Returns
    -------
    dict
        Length of each axis by its name; see ``Lengths``.

    Raises
    ------
    DataError
        An array is missing, or has another type or shape.
    """
    law, request = result_law(facts["kind"]), facts["request"]
    for name, condition in law.needed.items():
        if name not in arrays and condition(facts) and not (name == "graph" and graph):
            raise DataError(f"{path} is damaged: it has no {name}. {REMEDY}")
    rows, columns = facts["input"]["shape"]
    lengths = {"row": rows, "column": columns, "place": rows, "one": 1}
    shape = facts["input"].get("layout", {}).get("shape")
    if Fact((int,), least=1, many=True, not_empty=True).fits(shape):
        lengths["stored_column"] = shape[-1]
    said = dict.fromkeys(("row", "column", "place"), "the matrix")
    if request.get("queries") is not None or request.get("targets") is not None:
        del lengths["row"]
    for name, array in arrays.items():
        axes, types = law.of(name).axes, law.of(name).types
        if name.startswith("prepare_") and axis_names(array)[:1] == ("column",):
            axes = tuple(map(str, axis_names(array)))
        if array.dtype.name not in types:
            raise DataError(f"{path} is damaged: {name} is of {array.dtype}, not of {types[-1]}. {REMEDY}")
        if axes is None:
            continue
        if len(axes) != len(array.shape):
            raise DataError(
                f"{path} is damaged: {name} is of shape {tuple(array.shape)}, but has the axes "
                f"{', '.join(axes)}. {REMEDY}"
            )
        for axis, length in zip(axes, array.shape, strict=True):
            if lengths.setdefault(axis, length) != length:
                raise DataError(
                    f"{path} is damaged: {name} is of shape {tuple(array.shape)}, with {length} along "
                    f"{axis}, of which {said.get(axis, 'a result')} has {lengths[axis]}. {REMEDY}"
                )
            said.setdefault(axis, name)
    for name, fact in law.request.items():
        if fact.counts in lengths and request.get(name, lengths[fact.counts]) != lengths[fact.counts]:
            allowed = f"{lengths[fact.counts]}, the length along {fact.counts} of {said[fact.counts]}"
            raise _of_facts(path, f"request.{name}", request[name], allowed)
    if "edge" in lengths and lengths["edge"] != lengths.get("cluster", -1) + 1:
        partitions, edges = lengths.get("cluster", 0), lengths["edge"]
        raise DataError(f"{path} is damaged: {partitions} partitions have {edges} edges. {REMEDY}")
    if graph is not None:
        own = lengths.get("row", graph[0]), (graph[1] if request.get("queries") == "input" else rows)
        if graph != own:
            raise DataError(
                f"{path} is damaged: its graph is {graph[0]} x {graph[1]}, not {own[0]} x {own[1]}. {REMEDY}"
            )
    return lengths | {"other": rows if graph is None else graph[1]}
