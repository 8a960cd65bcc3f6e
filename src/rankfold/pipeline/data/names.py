"""Names of the rows or columns of a matrix: labels along one axis, or along several that are stacked.

A table has a label for each column. A field (time x latitude x longitude) has an axis for each coordinate,
and each column is a place of its grid: one label of each axis, in C order; places on land may be left out. A
place is an index along one axis, or the flat index in C order over several. Two matrices are compared by
these labels, so that columns in another order are found, and a message names the first label that differs.

The trap: coordinates are stored with 32 bits in one file and with 64 in the next, so numbers are compared
within what 32 bits hold.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.alleles import SAME_ALLELES, other_allele
from rankfold.pipeline.data.cf_attributes import (
    Attributes,
    attributes_from,
    attributes_in,
    calendar_of,
    counted_from,
)
from rankfold.pipeline.data.index_selection import of_runs, runs_of
from rankfold.pipeline.data.longitudes import are_longitudes, degrees_east
from rankfold.pipeline.errors import DataError, InputError

Array = npt.NDArray[Any]
Int64 = npt.NDArray[np.int64]

PLACE = re.compile(r"[0-9]{1,18}")
"""Pattern of a text label that may be a number, from 0, of a row or column."""

MOST_LABELS = 2**16
"""Largest number of labels of an axis that are kept; of more, only a digest, which tells equal axes."""

MOST_TEXT = 2**20
"""Largest number of characters of all labels of an axis together, for which they are kept."""

ROUNDING = 4 * float(np.finfo(np.float32).eps)
"""Largest difference of two coordinates that count as equal, as a share of the largest one along
the axis."""


def labels_of(values: Any) -> Array | None:
    """Values as labels of an axis, (n,), text or finite real numbers; None if they cannot be labels.

    >>> labels_of([b"a", "b"]).tolist(), labels_of([1.5, float("nan")])
    (['a', 'b'], None)
    """
    labels = np.asarray(values)
    if labels.ndim != 1:
        return None
    if labels.dtype.kind == "M":
        text = np.datetime_as_string(labels.astype("datetime64[ns]"))
        whole = all(each.endswith(".000000000") for each in text)
        return np.array([each[:-10] for each in text] if whole else text, str)
    if labels.dtype.kind in "OSUT":
        texts = (each.decode(errors="replace") if isinstance(each, bytes) else str(each) for each in labels)
        return np.array(list(texts), str)
    if labels.dtype.kind in "bm":
        return labels.astype(str)
    if labels.dtype.kind not in "iuf" or not np.isfinite(labels.astype(np.float64)).all():
        return None
    return labels


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """One axis: its name, its length, and a label for each index along it, a digest of them, or neither."""

    name: str
    length: int
    labels: Array | None = None
    digest: str | None = None
    attributes: Attributes = field(default_factory=dict)
    """Attributes of its coordinate, such as units; two equal axes may differ in them."""

    @classmethod
    def of(cls, name: str, length: int, values: Any, attributes: Mapping[str, Any] | None = None) -> Axis:
        """Axis with ``values`` (read by slices) as labels, if they are ``length`` texts or finite numbers."""
        said = attributes_in(attributes)
        if values is None or tuple(np.shape(values)) != (length,):
            return cls(name, length)
        mark, labels, some = hashlib.blake2b(digest_size=16), None, None
        for start in range(0, length, MOST_LABELS):
            some = values[start : start + MOST_LABELS]  # once: this may read lines of a file
            labels = labels_of(some)
            if labels is None:
                return cls(name, length)
            _add(mark, labels)
        if labels is not None and labels.dtype.kind != "U":
            said |= counted_from(attributes)
        elif some is not None and (calendar := calendar_of(some[:1])):
            said |= {"calendar": calendar}
        if length <= MOST_LABELS and labels is not None and labels.nbytes <= 4 * MOST_TEXT:
            return cls(name, length, labels, attributes=said)
        return cls(name, length, digest=mark.hexdigest(), attributes=said)

    @property
    def is_labeled(self) -> bool:
        """True if it has labels, or a digest of them."""
        return self.labels is not None or self.digest is not None

    @property
    def mark(self) -> str | None:
        """Digest of the labels; None for an axis without any."""
        if self.labels is None:
            return self.digest
        mark = hashlib.blake2b(digest_size=16)
        _add(mark, self.labels)
        return mark.hexdigest()

    def is_like(self, other: Axis) -> bool:
        """True if both have the same labels in the same order; if one has none, the same length."""
        if self.length != other.length or not (self.is_labeled and other.is_labeled):
            return self.length == other.length
        if self.labels is None or other.labels is None:
            return self.mark == other.mark
        return bool((self.find(other.labels) == np.arange(self.length)).all())

    def find(self, labels: Array) -> Int64:
        """Index of each of ``labels`` along this axis, (n,); -1 if it is missing here, -2 if it occurs twice.

        >>> Axis.of("", 3, ["a", "b", "c"]).find(np.array(["c", "x", "a"])).tolist()
        [2, -1, 0]
        """
        own = self.labels
        if own is None:
            raise TypeError("an axis without labels")
        if own.dtype.kind == "U" or labels.dtype.kind == "U":
            own, labels = own.astype(str), labels.astype(str)
            if len(own) == len(labels) and (own == labels).all():
                return np.arange(len(own))
            return _exactly(own, labels)
        if own.dtype.kind in "iu" and labels.dtype.kind in "iu":  # numbers that identify rows
            return _exactly(own, labels)
        own, labels = own.astype(np.float64), labels.astype(np.float64)
        allowed = ROUNDING * float(np.abs(own).max(initial=0))
        if len(own) == len(labels) and (np.abs(own - labels) <= allowed).all():
            return np.arange(len(own))
        order = np.argsort(own, kind="stable")
        near, at = own[order], np.searchsorted(own[order], labels - allowed)
        there = at < len(near)
        at = np.minimum(at, len(near) - 1)
        there &= np.abs(near[at] - labels) <= allowed
        after = np.minimum(at + 1, len(near) - 1)
        twice = there & (after > at) & (np.abs(near[after] - labels) <= allowed)
        return np.where(twice, -2, np.where(there, order[at], -1))

    def as_json(self) -> dict[str, Any]:
        """The axis as JSON values, for the facts of a result."""
        facts: dict[str, Any] = {"axis": self.name, "length": self.length}
        facts |= {"attributes": dict(self.attributes)} if self.attributes else {}
        if self.labels is not None:
            return {**facts, "labels": self.labels.tolist()}
        return facts if self.digest is None else {**facts, "digest": self.digest}

    @classmethod
    def from_json(cls, facts: Any) -> Axis:
        """Read what ``as_json`` returned; ``ValueError`` for anything else."""
        if not isinstance(facts, dict) or not isinstance(facts.get("axis"), str):
            raise ValueError("an axis without a name")
        length, labels, mark = facts.get("length"), facts.get("labels"), facts.get("digest")
        if type(length) is not int or length < 1:
            raise ValueError(f"an axis of length {length!r}")
        if mark is not None and not isinstance(mark, str):
            raise ValueError(f"a digest of labels that is {mark!r:.40}")
        said = attributes_from(facts.get("attributes"))
        if labels is None:
            return cls(facts["axis"], length, digest=mark, attributes=said)
        kinds = {type(each) for each in labels} if isinstance(labels, list) else set()
        if not kinds or len(labels) != length or not (kinds <= {str} or kinds <= {int, float}):
            raise ValueError(f"labels of {facts['axis']!r:.40} that are not {length} names or numbers")
        found = labels_of(labels)
        if found is None:
            raise ValueError(f"labels of {facts['axis']!r:.40} that are no finite numbers")
        return cls(facts["axis"], length, found, attributes=said)


def distinct(axis: Axis) -> Axis:
    """The axis with labels that all differ, by the rule of ``AnnData.var_names_make_unique``.

    >>> distinct(Axis.of("var", 4, ["a", "a", "b", "a-1"])).labels.tolist()
    ['a', 'a-2', 'b', 'a-1']
    """
    labels = axis.labels
    if labels is None or labels.dtype.kind != "U":
        return axis
    known, seen, counts = set(labels.tolist()), set[str](), Counter[str]()
    if len(known) == len(labels):
        return axis
    found = []
    for label in labels.tolist():
        name = label
        while name in seen or (name in known and name != label):
            counts[label] += 1
            name = f"{label}-{counts[label]}"
        found.append(name)
        seen.add(name)
    return Axis(axis.name, axis.length, np.array(found, str))


def _add(mark: hashlib.blake2b, labels: Array) -> None:
    """Add labels to a digest; it does not depend on the width of text or on the type of numbers."""
    if labels.dtype.kind == "U":
        mark.update(json.dumps(labels.tolist()).encode())
    else:
        mark.update(np.ascontiguousarray(labels, "<f8").data)


def _exactly(own: Array, labels: Array) -> Int64:
    """Index in ``own`` of each label, compared exactly; -1 if it is missing, -2 if it occurs twice."""
    order = np.argsort(own, kind="stable")
    near = own[order]
    at = np.searchsorted(near, labels)
    there = at < len(near)
    at = np.minimum(at, len(near) - 1)
    there &= near[at] == labels
    after = np.minimum(at + 1, len(near) - 1)
    twice = there & (after > at) & (near[after] == labels)
    return np.where(twice, -2, np.where(there, order[at], -1))


@dataclass(frozen=True, slots=True, eq=False)
class Names:
    """Names of the rows, or the columns, of a matrix: one label each, or one along each of several axes."""

    axes: tuple[Axis, ...]
    """One axis, or several that are stacked in C order."""

    places: Int64 | None = None
    """Flat index over the stacked axes of each row or column, (n,); None if all exist, in C order."""

    @classmethod
    def of(cls, axes: Sequence[Axis]) -> Names | None:
        """Names along these axes; None if no axis has labels, unless there are several and all have names."""
        labeled = any(axis.is_labeled for axis in axes)
        named = len(axes) > 1 and not any(axis.name.isdecimal() for axis in axes)
        return cls(tuple(axes)) if labeled or named else None

    def __len__(self) -> int:
        return self._whole if self.places is None else len(self.places)

    @property
    def are_variants(self) -> bool:
        """True if they are variants of genomes, whose names end in the allele that is counted."""
        return len(self.axes) == 1 and self.axes[0].name in ("variant", "variants")

    @property
    def _whole(self) -> int:
        return math.prod(axis.length for axis in self.axes)

    def take(self, places: Array | None) -> Names:
        """Names of the rows or columns with these indices, in that order; of all if None."""
        if places is None:
            return self
        if len(self.axes) == 1 and self.places is None and self.axes[0].labels is not None:
            axis = self.axes[0]
            labels = self.axes[0].labels[places]
            return Names((Axis(axis.name, len(places), labels, attributes=axis.attributes),))
        return Names(self.axes, np.asarray(places if self.places is None else self.places[places], np.int64))

    @property
    def labels(self) -> Array | None:
        """Labels (n,), if there is one axis; None for several."""
        if len(self.axes) > 1 or self.axes[0].labels is None:
            return None
        labels = self.axes[0].labels
        return labels if self.places is None else labels[self.places]

    @property
    def shuffled_numbers(self) -> Int64 | None:
        """Labels (n,) as numbers if they are a permutation of 0 to n - 1, but not in order; else None."""
        labels = self.labels
        if labels is None or labels.dtype.kind not in "iuU":
            return None
        if labels.dtype.kind == "U" and not all(PLACE.fullmatch(each) for each in labels):
            return None
        numbers = labels.astype(np.int64)
        places = np.arange(len(numbers))
        return numbers if (numbers != places).any() and (np.sort(numbers) == places).all() else None

    def coordinate(self, axis: str) -> npt.NDArray[np.float64] | None:
        """Coordinate (n,) of each row or column along an axis; None unless that axis has numeric labels."""
        found = [number for number, each in enumerate(self.axes) if each.name == axis]
        labels = self.axes[found[0]].labels if found else None
        if labels is None or labels.dtype.kind == "U":
            return None
        indices = np.unravel_index(self._lines(), [each.length for each in self.axes])[found[0]]
        return np.asarray(labels, np.float64)[indices]

    def word(self, number: int) -> str:
        """Name of row or column ``number`` for a message, as ``'income'``, or ``lat 50.0, lon 30.0``."""
        title = self.title(number)
        labels = self.axes[0].labels
        return (
            repr(title) if len(self.axes) == 1 and labels is not None and labels.dtype.kind == "U" else title
        )

    def along_axes(self, start: int, stop: int) -> list[Array]:
        """Labels of rows or columns ``start:stop``, an array for each axis; indices if it has no labels."""
        places = np.arange(start, stop) if self.places is None else self.places[start:stop]
        indices = np.unravel_index(places, [axis.length for axis in self.axes])
        pairs = zip(self.axes, indices, strict=True)
        return [index if axis.labels is None else axis.labels[index] for axis, index in pairs]

    def title(self, number: int) -> str:
        """Name of row or column ``number``, as ``income``, or ``lat 50.0, lon 30.0``."""
        words = []
        for axis, labels in zip(self.axes, self.along_axes(number, number + 1), strict=True):
            label = labels[0].item()
            alone = isinstance(label, str) and len(self.axes) == 1
            words.append(str(label) if alone else f"{axis.name} {_number(label)}")
        return ", ".join(words)

    def is_like(self, other: Names) -> bool:
        """True if both have the same number of names, and the same names in the same order."""
        if len(self) != len(other) or len(self.axes) != len(other.axes):
            return False
        several = len(self.axes) > 1
        if not all(
            mine.is_like(theirs) and (mine.name == theirs.name or not several)
            for mine, theirs in zip(self.axes, other.axes, strict=True)
        ):
            return False
        if self.places is None and other.places is None:
            return True
        return np.array_equal(self._lines(), other._lines())

    def is_on_axes_of(self, other: Names) -> bool:
        """True if both have the same axes with the same labels; their rows or columns there may differ."""
        return Names(self.axes).is_like(Names(other.axes))

    def _lines(self) -> Int64:
        """Flat index over the stacked axes of each row or column, (n,)."""
        return np.arange(self._whole) if self.places is None else self.places

    def find(self, wanted: Names) -> Int64:
        """Row or column here of each wanted name, (n,); -1 if it is missing here, -2 if it occurs twice.

        Raises
        ------
        ValueError
            The axes differ, or are too long for their labels to be kept, so that nothing can be found. The
            message is the end of a sentence.
        """
        if len(self.axes) != len(wanted.axes):
            raise ValueError(f"{_axes_in_words(self)} are not {_axes_in_words(wanted)}")
        own = {axis.name: number for number, axis in enumerate(self.axes)}
        single = len(self.axes) == 1
        if not single and set(own) != {axis.name for axis in wanted.axes}:
            raise ValueError(f"{_axes_in_words(self)} are not {_axes_in_words(wanted)}")
        lengths = [axis.length for axis in wanted.axes]
        lines = wanted._lines()
        indices: list[Any] = [0] * len(own)
        lost = np.zeros(len(lines), np.int64)
        for axis, along in zip(wanted.axes, np.unravel_index(lines, lengths), strict=True):
            number = 0 if single else own[axis.name]
            found = find_along(self.axes[number], axis)[along]
            lost = np.minimum(lost, found)
            indices[number] = np.maximum(found, 0)
        places = np.ravel_multi_index(indices, [axis.length for axis in self.axes])
        if self.places is not None:
            kept = np.full(self._whole, -1, np.int64)
            kept[self.places] = np.arange(len(self.places))
            places = kept[places]
        return np.where(lost < 0, lost, places)

    def find_on_some_axes(self, wanted: Names) -> Int64:
        """Row or column here of each wanted name, where names here may have only some of its axes.

        So weights by latitude are found for each place of a grid. -1 and -2 as in ``find``.
        """
        own = [axis.name for axis in self.axes]
        some = [number for number, axis in enumerate(wanted.axes) if axis.name in own]
        if len(some) == len(wanted.axes) or len(some) < len(own):
            return self.find(wanted)
        lengths = [axis.length for axis in wanted.axes]
        along = np.unravel_index(wanted._lines(), lengths)
        axes = tuple(wanted.axes[number] for number in some)
        lines = np.ravel_multi_index([along[number] for number in some], [axis.length for axis in axes])
        return self.find(Names(axes))[lines]

    def as_json(self) -> dict[str, Any] | None:
        """The names as JSON values, for facts of a result; None if ``places`` have too many runs."""
        facts: dict[str, Any] = {"axes": [axis.as_json() for axis in self.axes]}
        if self.places is None:
            return facts
        runs = runs_of(self.places)
        return {**facts, "places": runs} if len(runs) <= MOST_LABELS else None

    @classmethod
    def from_json(cls, facts: Any) -> Names:
        """Read what ``as_json`` returned; ``ValueError`` for anything else."""
        if not isinstance(facts, dict) or not isinstance(facts.get("axes"), list) or not facts["axes"]:
            raise ValueError("names without axes")
        names = cls(tuple(Axis.from_json(each) for each in facts["axes"]))
        if names._whole >= 2**63:
            raise ValueError("axes that are too long")
        if "places" not in facts:
            return names
        return cls(names.axes, of_runs(facts["places"], names._whole))


def _number(label: object) -> str:
    """Text of a label for messages and plots: long coordinates with six digits, as float32 holds."""
    return f"{label:.6g}" if isinstance(label, float) and len(str(label)) > 8 else str(label)


def find_along(own: Axis, wanted: Axis) -> Int64:
    """Index along ``own`` of each label of ``wanted``; -1 if it is missing, -2 if it occurs twice.

    Longitudes that differ are compared modulo 360. ``ValueError`` if the axes differ, and labels of one of
    them are missing or not kept.
    """
    if own.is_like(wanted):
        return np.arange(wanted.length)
    if own.labels is not None and wanted.labels is not None:
        return _find_labels(own, wanted, wanted.labels)[0]
    if not (own.is_labeled and wanted.is_labeled):
        raise ValueError(f"{own.length} along {own.name} are not {wanted.length}")
    raise ValueError(f"the {own.length} labels along {own.name} are others, or in another order")


def _find_labels(own: Axis, wanted: Axis, labels: Array) -> tuple[Int64, bool]:
    """Index along ``own`` of each of the wanted ``labels``, and True if some were compared modulo 360."""
    found = own.find(labels)
    if (found < 0).any() and are_longitudes(own) and are_longitudes(wanted):
        modulo = replace(own, labels=degrees_east(own)).find(degrees_east(wanted))
        # One meridian may occur twice, as 0 and 360: a label that is there as it is stands for itself. Unless
        # all are turned: of -360 to 0, the last 0 stands for 360, and the first -360 for 0.
        both = np.where(found >= 0, found, modulo)
        turned = (modulo >= 0).all() and len(np.unique(both)) < len(np.unique(modulo))
        places = modulo if turned else both
        return places, bool(((places >= 0) & (found < 0)).any())
    return found, False


def turned_axis(own: Names, wanted: Names) -> str | None:
    """Name of an axis of longitudes of ``own`` that equal those of ``wanted`` only modulo 360; else None."""
    for axis, other in itertools.product(own.axes, wanted.axes):
        if axis.name != other.name or axis.labels is None or other.labels is None:
            continue
        if _find_labels(axis, other, other.labels)[1]:
            return axis.name
    return None


def _axes_in_words(names: Names) -> str:
    return " x ".join(f"{axis.name} ({axis.length})" for axis in names.axes)


def find_places(
    own: Names | None, wanted: Names | None, one: str, name: str, whose: str, remedy: str = ""
) -> Int64 | None:
    """Index in one matrix of each row or column of another, by their names.

    None if both are in the same order.

    Parameters
    ----------
    own, wanted : Names, optional
        Names that are searched, and names to find; None is returned if either is None.
    one : {"row", "column"}
        What the names are of.
    name, whose, remedy : str
        Names of the matrices of ``own`` and ``wanted`` in messages, and the end of messages.

    Raises
    ------
    InputError
        A wanted name is missing, or occurs twice; or the axes differ. For columns also if one matrix has no
        names, and the names of the other are the numbers from 0 in another order.
    """
    if one == "column":
        require_order(own, wanted, name, whose)
    if own is None or wanted is None or own.is_like(wanted):
        return None
    try:
        places = own.find(wanted)
    except ValueError as error:
        remedy = SAME_ALLELES if own.are_variants and wanted.are_variants else remedy
        raise InputError(f"{one}s of {name} are not those of {whose}: {error}{remedy}") from None
    if (places < 0).any():
        first = int(np.argmax(places < 0))
        found = f"has two {one}s" if places[first] == -2 else f"has no {one}"
        if own.are_variants and wanted.are_variants and own.labels is not None:
            remedy = other_allele(own.labels, wanted.title(first)) or remedy
        raise InputError(
            f"{name} {found} {wanted.word(first)}, which is {one} {first} (from 0) of {whose}{remedy}"
        )
    return places


def require_order(own: Names | None, wanted: Names | None, name: str, whose: str) -> None:
    """Raise ``InputError`` if one matrix has no column names, and those of the other are shuffled numbers.

    Columns named 3, 1, 0, 2 may be meant by number, or by position: the first one is column 0 of the matrix
    without names.
    """
    if (own is None) == (wanted is None):
        return
    said, other, called = (name, whose, own) if own is not None else (whose, name, wanted)
    if called is None or (numbers := called.shuffled_numbers) is None:
        return
    listed = ", ".join(map(str, numbers[:8])) + (", ..." if len(numbers) > 8 else "")
    raise InputError(
        f"columns of {said} are called {listed}, which are numbers from 0 in another order, and columns of "
        f"{other} have no names: they could be meant by number or by place. Give columns in the order of "
        "their numbers, as frame[sorted(frame.columns)], or without names, as frame.to_numpy()"
    )


def names_as_json(
    rows: Names | None, columns: Names | None, attributes: Attributes | None = None
) -> dict[str, Any]:
    """Names of rows and columns, and attributes of the values, as facts of a result; empty without any."""
    found = {"rows": rows and rows.as_json(), "columns": columns and columns.as_json()}
    found["attributes"] = dict(attributes) if attributes else None
    return {side: facts for side, facts in found.items() if facts}


def names_from(facts: Any, axis: int) -> Names | None:
    """Names of the rows (0) or columns (1) from ``names_as_json``, or None; ``ValueError`` if invalid."""
    if facts is None:
        return None
    if not isinstance(facts, Mapping):
        raise ValueError("names that are no table")
    own = facts.get(("rows", "columns")[axis])
    return None if own is None else Names.from_json(own)


def names_of_result(place: object, facts: Mapping[str, Any], axis: int) -> Names | None:
    """Names of the rows (0) or columns (1) of the matrix of a result, from its facts; None if it has none.

    Columns are those before any preparation step. Also None for rows of a result that belong to queries or
    targets, not to the matrix. ``place`` names the result in messages.

    Raises
    ------
    DataError
        The facts hold no valid names.
    """
    asked = facts["request"]
    if axis == 0 and (asked.get("queries") is not None or asked.get("targets") is not None):
        return None
    try:
        return names_from(facts["input"].get("names"), axis)
    except ValueError as error:
        raise _damaged(place, f"its names of {('rows', 'columns')[axis]}", error) from None


def attributes_of_result(place: object, facts: Mapping[str, Any]) -> dict[str, str]:
    """Attributes of its matrix, such as units, that a result keeps in its facts; ``DataError`` if invalid."""
    try:
        return attributes_from((facts["input"].get("names") or {}).get("attributes"))
    except (ValueError, AttributeError) as error:
        raise _damaged(place, "its attributes of the data", error) from None


def _damaged(place: object, what: str, error: Exception) -> DataError:
    return DataError(f"{place} is damaged: {what} are {error}. Restore the result, or make it again")


class Named:
    """An array in memory or in an object of the user, whose axes may have been given names."""

    __slots__ = ()

    if TYPE_CHECKING:
        named: tuple[Axis, ...]
        attributes: Attributes
        """Attributes of its values, such as units."""

    def axis(self, number: int) -> Axis | None:
        """An axis with its labels; None if axes have no names."""
        return self.named[number] if self.named else None

    def names(self, axis: int) -> Names | None:
        """Names of the rows (0) or columns (1) of a matrix; None if it has none."""
        return Names.of([self.named[axis]]) if self.named else None

    def named_digest(self, digest: str) -> str:
        """Digest of the names and of ``digest``, that of the data, since a result keeps both."""
        marks = [axis.mark for axis in self.named]
        if not any(marks):
            return digest
        return hashlib.blake2b(f"{digest} {marks}".encode(), digest_size=16).hexdigest()
