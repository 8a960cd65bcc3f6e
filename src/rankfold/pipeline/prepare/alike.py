"""Match the columns of one matrix with those of another, by name if both have names.

New rows for a result go through the steps that its own rows went through, so columns are compared as they
were before any step. Columns in another order, or with additional ones, are brought to the order of the
result, with a warning; otherwise an error names the first column that differs.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.cf_attributes import Attributes
from rankfold.pipeline.data.names import (
    Names,
    find_places,
    names_as_json,
    turned_axis,
)
from rankfold.pipeline.data.origin import attributes_of, names_of, wrappers
from rankfold.pipeline.data.selection import SelectedSource, select
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.prepare.prepared import PreparedSource

Int64 = npt.NDArray[np.int64]

LOG = logging.getLogger("rankfold")


def column_names(source: Source) -> Names | None:
    """Names of the columns of a matrix before it went through any preparation step."""
    raw = source
    for wrapper in wrappers(source):
        raw = _before_steps(wrapper) if isinstance(wrapper, PreparedSource) else raw
    return names_of(raw, 1)


def _before_steps(source: PreparedSource) -> Source:
    """The source before the steps of a prepared one, also before columns were chosen by its first step."""
    inner = source.inner
    if not source.said:  # rows that a metric centers
        return inner
    chosen = source.fitted.get(f"prepare_1_{source.said[0].name}_columns")
    if chosen is None or not isinstance(inner, SelectedSource) or inner.columns is None:
        return inner
    return inner.inner if np.array_equal(inner.columns.places(), chosen) else inner


def named(source: Source) -> dict[str, Any]:
    """Names that a result keeps of its matrix, as ``{"names": ...}``; empty if it has none.

    These are names of rows, of columns before any step, and attributes such as units.
    """
    kept = names_as_json(names_of(source, 0), column_names(source), attributes_of(source))
    return {"names": kept} if kept else {}


def columns_among(own: Names | None, wanted: Names | None, name: str, whose: str) -> Int64 | None:
    """Indices of the ``wanted`` columns among ``own``, (wanted,); None if both are the same.

    ``name`` and ``whose`` are the names of the matrices of ``own`` and ``wanted`` in messages.

    Raises
    ------
    InputError
        A wanted column is missing, or occurs twice.
    """
    places = find_places(own, wanted, "column", name, whose, _REMEDY)
    if places is None or own is None or wanted is None:
        return None
    _say_order(own, wanted, places, name, whose)
    return places


def with_columns(source: Source, wanted: Names | None, whose: str) -> Source:
    """The matrix with its columns selected and ordered as ``wanted``, by name.

    It is unchanged if they are so already, or if one of both has no names. ``whose`` is the name of the
    matrix with the columns ``wanted``, for messages.

    Raises
    ------
    InputError
        A column is missing, or occurs twice; or steps were already applied to columns in another order.
    """
    (found,) = all_with_columns([source], wanted, whose)
    return found


def all_with_columns(sources: Sequence[Source], wanted: Names | None, whose: str) -> list[Source]:
    """Several matrices, such as the files of a series, with their columns selected and ordered as ``wanted``.

    Does for each what ``with_columns`` does for one, but with one warning for all. ``whose`` is the name of
    the matrix with the columns ``wanted``, for messages.
    """
    found, others = [], list[tuple[Names, Int64, str]]()
    for source in sources:
        own = column_names(source)
        places = find_places(own, wanted, "column", source.name, whose, _REMEDY)
        if places is None or own is None or wanted is None:
            found.append(source)
            continue
        if any(isinstance(each, PreparedSource) for each in wrappers(source)):
            raise InputError(
                f"columns of {source.name} went through steps already, in another order than those of "
                f"{whose}: {_first(own, wanted)}. Open it without prepare: the steps of the result are taken"
            )
        _require_once(own, wanted, places, source.name, whose)
        others.append((own, places, source.name))
        found.append(select(source, rows=None, columns=places))
    if others and wanted is not None:
        own, places, _ = next((each for each in others if not _in_order(each[1])), others[0])
        _say_order(own, wanted, places, _and_more(*(name for *_, name in others)), whose)
    return found


def _require_once(own: Names, wanted: Names, places: Int64, name: str, whose: str) -> None:
    """Raise ``InputError`` if one column would stand for two, as longitude 0 for 0 and 360.

    ``places`` (wanted,) are indices among ``own``.
    """
    order = np.argsort(places, kind="stable")
    again = np.flatnonzero(np.diff(places[order]) == 0)
    if len(again):
        first, second = order[again[0]], order[again[0] + 1]
        raise InputError(
            f"{name} has one column, {own.word(int(places[first]))}, for two of {whose}: "
            f"{wanted.word(int(first))} and {wanted.word(int(second))}, columns {first} and {second} (from 0)"
            f"{_REMEDY}"
        )


def _in_order(places: Int64) -> bool:
    return bool((np.diff(places) > 0).all())


def _say_order(own: Names, wanted: Names, places: Int64, name: str, whose: str) -> None:
    """Warn if columns of the matrix ``name`` were reordered or left out, to be those of ``whose``.

    ``places`` are the indices of the columns ``wanted`` among ``own``. Columns left out of a grid with the
    same axes need no warning.
    """
    more, turned = len(own) - len(wanted), turned_axis(own, wanted)
    modulo = "" if turned is None else f", {turned} modulo 360"
    if _in_order(places) and not more:
        LOG.warning("columns of %s are those of %s%s", name, whose, modulo)
        return
    if _in_order(places) and turned is None:
        if not own.is_on_axes_of(wanted):
            LOG.warning(
                "%d of %d columns of %s, which %s does not have, are left out", more, len(own), name, whose
            )
        return
    done = f"are put in the order of {whose} by name{modulo}" + (f", and {more} left out" if more else "")
    LOG.warning("columns of %s %s: %s", name, done, _first(own, wanted))


def compare_units(sources: Sequence[Source], wanted: Attributes, whose: str) -> None:
    """Warn once of matrices whose units differ from those of another, ``whose``; numbers are not converted.

    ``wanted`` are the attributes of the other.
    """
    theirs = wanted.get("units")
    found = [(each.name, attributes_of(each).get("units")) for each in sources]
    others = [(name, own) for name, own in found if own and theirs and _spelled(own) != _spelled(theirs)]
    if others:
        LOG.warning(
            "%s is in units of %r, but %s in %r: numbers are taken as they are. Convert them first, unless "
            "both are the same unit",
            *(_and_more(*(name for name, _ in others)), others[0][1], whose, theirs),
        )


def _and_more(first: str, *others: str) -> str:
    """Text with the first of several names, and the number of the others."""
    return f"{first} and {len(others)} more" if others else first


def _spelled(unit: str) -> str:
    """A unit in one spelling: powers as ``m2``, ``m^2`` or ``m**2`` are equal, and so are spaces.

    >>> _spelled("m s**-1") == _spelled("m  s^-1"), _spelled("mm") == _spelled("Mm")
    (True, False)
    """
    return " ".join(unit.replace("**", "").replace("^", "").split())


_REMEDY = ". Give rows with the same columns"


def _first(own: Names, wanted: Names, one: str = "column") -> str:
    """Text about the first column (or row, by ``one``) whose name differs, or about their number."""
    for number in range(min(len(own), len(wanted))):
        if own.word(number) != wanted.word(number):
            return f"{one} {number} (from 0) is {own.word(number)}, not {wanted.word(number)}"
    return f"there are {len(own)}, not {len(wanted)}"


def require_same_rows(source: Source, other: Source) -> None:
    """Raise ``InputError`` if two matrices of equally many rows both have names of rows, and these differ."""
    own, theirs = names_of(source, 0), names_of(other, 0)
    if own is None or theirs is None or own.is_like(theirs) or len(own) != len(theirs):
        return
    first = _first(own, theirs, "row")
    raise InputError(f"rows of {source.name} are not those of {other.name}: {first}. Give both in one order")
