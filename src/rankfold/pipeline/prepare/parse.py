"""Text of steps, as in a workflow, and its parser; and the registry of their names."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rankfold.pipeline.errors import InputError
from rankfold.pipeline.prepare.chosen_columns import HighlyVariable, TakeColumns
from rankfold.pipeline.prepare.gaps import ImputeLowRank, MarkMissing
from rankfold.pipeline.prepare.given_weights import Coslat, SampleWeight, Weights
from rankfold.pipeline.prepare.measured_columns import ImputeMean, NormalizeTotal, Patterson, Scale, Tfidf
from rankfold.pipeline.prepare.steps import Arcsinh, Binarize, Log1p, Sqrt
from rankfold.pipeline.text import suggest_name

STEPS: dict[str, type[Any]] = {
    each.name: each
    for each in (
        NormalizeTotal,
        Log1p,
        Sqrt,
        Arcsinh,
        Binarize,
        Tfidf,
        Scale,
        HighlyVariable,
        ImputeMean,
        Patterson,
        Weights,
        Coslat,
        SampleWeight,
        TakeColumns,
        MarkMissing,
        ImputeLowRank,
    )
}

UNASKED = (TakeColumns.name, ImputeLowRank.name)
"""Names of steps that no caller writes, but results keep.

The arguments ``mask_var`` and ``missing`` add them.
"""

Steps = tuple[Any, ...]
"""Tuple of ``Step`` or ``MeasuredStep``."""

Prepare = str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]] | None
"""Steps as a caller gives them: text as ``"normalize_total(1e4), log1p"``, a mapping, or a list of both.

A mapping is ``{name: {parameter: value}}``.
"""


def parse_steps(prepare: Prepare) -> Steps:
    """Parse preparation steps that a caller gives as text, a list or a mapping; None gives no steps.

    Raises
    ------
    InputError
        No step has that name, or it has no such parameter.

    >>> parse_steps("normalize_total(1e4), log1p")
    (NormalizeTotal(target_sum=10000.0), Log1p(base=None))
    >>> parse_steps([{"arcsinh": {"cofactor": 5}}, "sqrt"])
    (Arcsinh(cofactor=5.0), Sqrt())
    """
    if prepare is None:
        return ()
    if not isinstance(prepare, str | Mapping | Sequence):
        raise InputError(f"prepare={prepare!r} are no steps; {ADVICE}")
    items = [prepare] if isinstance(prepare, str | Mapping) else list(prepare)
    steps: list[Any] = []
    for item in items:
        if isinstance(item, str):
            steps += _parse_text(item)
        elif isinstance(item, Mapping):
            steps += [_step(name, (), _parameters(name, values)) for name, values in item.items()]
        elif type(item) in STEPS.values():
            steps.append(item)
        else:
            raise InputError(f"prepare holds {item!r}; {ADVICE}")
    return tuple(steps)


ADVICE = "say steps as 'normalize_total(1e4), log1p', and text in quotes, as in 'weights(\"w.npy\")'"


def _parse_text(text: str) -> list[Any]:
    try:
        expression = ast.parse(f"[{text}]", mode="eval").body
        nodes = expression.elts if isinstance(expression, ast.List) else []
        return [_parse_node(node, text) for node in nodes]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"prepare={text!r} cannot be read; {ADVICE}") from error


def _parse_node(node: ast.expr, text: str) -> Any:
    call = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
    if not isinstance(call.func, ast.Name) or any(each.arg is None for each in call.keywords):
        raise InputError(f"prepare={text!r} cannot be read; {ADVICE}")
    values = tuple(ast.literal_eval(each) for each in call.args)
    named = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
    return _step(call.func.id, values, named)


def _parameters(name: object, values: Any) -> dict[str, Any]:
    if values is None:
        return {}
    if isinstance(values, Mapping):
        return {str(key): value for key, value in values.items()}
    raise InputError(f"prepare: {name} takes parameters by name, as {{{name}: {{parameter: value}}}}")


def _step(name: object, values: tuple[Any, ...], named: dict[str, Any]) -> Any:
    kind = STEPS.get(str(name))
    if kind is None:
        names = [each for each in STEPS if each not in UNASKED]
        raise InputError(
            f"prepare: there is no step {name!r}{suggest_name(name, names)}; there are {', '.join(names)}"
        )
    fields = [each.name for each in dataclasses.fields(kind) if each.init]
    unknown = [each for each in named if each not in fields]
    required = [each.name for each in dataclasses.fields(kind) if each.default is dataclasses.MISSING]
    lacking = [each for each in required[len(values) :] if each not in named]
    if unknown or lacking or len(values) > len(fields) or set(fields[: len(values)]) & set(named):
        takes = ", ".join(fields) or "no parameter"
        hint = f", not {unknown[0]}{suggest_name(unknown[0], fields)}" if unknown else ""
        raise InputError(f"prepare: {name} takes {takes}{hint}" + (f"; say {lacking[0]}" if lacking else ""))
    return kind(*values, **named)


def in_words(steps: Steps) -> str:
    """Text of steps, as a caller would write them.

    >>> in_words(parse_steps("normalize_total(1e4), log1p(base=2), sqrt"))
    'normalize_total(target_sum=10000), log1p(base=2), sqrt'
    """
    return ", ".join(_in_words(each) for each in steps)


def _in_words(step: Any) -> str:
    said = []
    for each in (one for one in dataclasses.fields(step) if one.init):
        value = getattr(step, each.name)
        if (value is None and each.default is None) or isinstance(value, np.ndarray):
            continue
        number = isinstance(value, float) and not isinstance(value, bool)
        said.append(f"{each.name}={f'{value:.17g}' if number else repr(value)}")
    return f"{step.name}({', '.join(said)})" if said else str(step.name)
