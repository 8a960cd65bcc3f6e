"""Products of test parameters, cut in two: a quick part that sees every pair of values, and the rest.

A fault seldom needs three particular values to show: most need one, nearly all of the others two. So the
quick part has every pair of values of any two axes somewhere, in few tests; the rest is ``exhaustive``.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from _pytest.mark import ParameterSet

Value = tuple[int, int]
"""A value: the number of its axis, and its own on that axis."""


def cover(*axes: Iterable[Any], strength: int = 2) -> list[ParameterSet]:
    """All combinations of the values of axes, those beyond a cover marked ``exhaustive``.

    Parameters
    ----------
    axes : values of one parameter each
        A value may be ``pytest.param(value, marks=...)``, or stand for several parameters as
        ``pytest.param(one, other)``.
    strength : 2, or 1 for values that do not act on each other
        Every combination of the values of that many axes is in the cover. Two axes alone have no fewer pairs
        than combinations: what is then to be left for later takes a strength of 1.

    Returns
    -------
    list of ParameterSet
        One for each combination, in the order of nested loops, the last axis innermost.
    """
    values = [[_as_parameter(value) for value in axis] for axis in axes]
    combinations = list(itertools.product(*(range(len(axis)) for axis in values)))
    quick = _greedy(combinations, min(strength, len(values)))
    return [
        _together([axis[i] for axis, i in zip(values, where, strict=True)], where in quick)
        for where in combinations
    ]


def spread(count: int, values: Iterable[Any]) -> list[ParameterSet]:
    """All values, those beyond ``count`` evenly spread ones marked ``exhaustive``."""
    parameters = [_as_parameter(value) for value in values]
    quick = {round(i * len(parameters) / count) for i in range(count)}
    return [_together([each], i in quick) for i, each in enumerate(parameters)]


def _as_parameter(value: Any) -> ParameterSet:
    return value if isinstance(value, ParameterSet) else pytest.param(value)


def _together(parts: Sequence[ParameterSet], quick: bool) -> ParameterSet:
    marks = [mark for part in parts for mark in part.marks]
    names = [_name_of(part) for part in parts]
    return pytest.param(
        *(value for part in parts for value in part.values),
        marks=marks if quick else [*marks, pytest.mark.exhaustive],
        id="-".join(names),
    )


def _name_of(part: ParameterSet) -> str:
    """What a test is called for values: names of classes and functions, other values as they are printed."""
    if isinstance(part.id, str):
        return part.id
    names = (getattr(value, "__name__", None) or getattr(value, "name", None) for value in part.values)
    return "-".join(str(name or value) for name, value in zip(names, part.values, strict=True))


def _greedy(combinations: list[tuple[int, ...]], strength: int) -> set[tuple[int, ...]]:
    """Combinations that have all tuples: at each step the one with most new ones.

    Of equals the one whose values were taken least often, so that no value stands in most of them.
    """
    tuples = {where: _tuples(where, strength) for where in combinations}
    bits = {each: 1 << i for i, each in enumerate(set().union(*tuples.values()))}
    masks = {where: sum(bits[each] for each in tuples[where]) for where in combinations}
    open_ones, chosen = (1 << len(bits)) - 1, set()
    times: Counter[Value] = Counter()
    while open_ones:
        added = [(mask & open_ones).bit_count() for mask in masks.values()]
        most = max(added)
        equals = [where for where, count in zip(masks, added, strict=True) if count == most]
        best = max(equals, key=lambda where: -sum(times[p] for p in enumerate(where)))
        open_ones &= ~masks[best]
        times.update(enumerate(best))
        chosen.add(best)
    return chosen


def _tuples(where: tuple[int, ...], strength: int) -> set[tuple[Value, ...]]:
    return set(itertools.combinations(enumerate(where), strength))
