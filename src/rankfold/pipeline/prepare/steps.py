"""What is done to numbers before a method sees them: to each by itself, or to those of a row by their sum.

Names and defaults are those of scanpy and NumPy. All of these steps leave zeros as they are, so that a sparse
matrix stays one, and none has to be measured before: a row is made of that row alone.
"""

from __future__ import annotations

import ast
import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.errors import DataError, InputError

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]


class Step(Protocol):
    """One of ``STEPS``: a frozen dataclass whose fields are its parameters."""

    name: ClassVar[str]
    by_row: ClassVar[bool]
    """Whether a number depends on others of its row."""

    def apply(self, values: Array, sums: Float64 | None, counts: npt.NDArray[np.int64]) -> None:
        """Change the numbers of some rows where they lie.

        Parameters
        ----------
        values : (numbers,) float32 or float64
            Of all rows, one row after the other; those that are not stored are zero and stay so.
        sums : (rows,)
            Of each row, where ``by_row``.
        counts : (rows,)
            Numbers of each row.
        """


@dataclass(frozen=True, slots=True)
class NormalizeTotal:
    """Rows of one sum, as ``scanpy.pp.normalize_total``: rows of zeros stay."""

    target_sum: float

    name: ClassVar[str] = "normalize_total"
    by_row: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _require(self, "target_sum", above=0)

    def apply(self, values: Array, sums: Float64 | None, counts: npt.NDArray[np.int64]) -> None:
        """See ``Step``."""
        if sums is None:
            raise TypeError("sums of rows are missing")
        # A row of NaN or Inf stays as it is, so that the one number is refused and not its row.
        known = np.isfinite(sums) & (sums != 0)
        factors = np.divide(self.target_sum, sums, out=np.ones_like(sums), where=known)
        values *= np.repeat(factors, counts).astype(values.dtype)


@dataclass(frozen=True, slots=True)
class Log1p:
    """``log(1 + x)``, natural or to a base, as ``scanpy.pp.log1p``."""

    base: float | None = None

    name: ClassVar[str] = "log1p"
    by_row: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.base is not None:
            _require(self, "base", above=1)

    def apply(self, values: Array, sums: Float64 | None, counts: npt.NDArray[np.int64]) -> None:
        """See ``Step``."""
        _require_least(self, values, -1.0, strict=True)
        np.log1p(values, out=values)
        if self.base is not None:
            values /= values.dtype.type(math.log(self.base))


@dataclass(frozen=True, slots=True)
class Sqrt:
    """The square root."""

    name: ClassVar[str] = "sqrt"
    by_row: ClassVar[bool] = False

    def apply(self, values: Array, sums: Float64 | None, counts: npt.NDArray[np.int64]) -> None:
        """See ``Step``."""
        _require_least(self, values, 0.0, strict=False)
        np.sqrt(values, out=values)


@dataclass(frozen=True, slots=True)
class Arcsinh:
    """``arcsinh(x / cofactor)``, as cytometry takes it."""

    cofactor: float = 1.0

    name: ClassVar[str] = "arcsinh"
    by_row: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _require(self, "cofactor", above=0)

    def apply(self, values: Array, sums: Float64 | None, counts: npt.NDArray[np.int64]) -> None:
        """See ``Step``."""
        values /= values.dtype.type(self.cofactor)
        np.arcsinh(values, out=values)


@dataclass(frozen=True, slots=True)
class Binarize:
    """1 above a threshold, else 0; NaN stays, and is refused as ever."""

    threshold: float = 0.0

    name: ClassVar[str] = "binarize"
    by_row: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _require(self, "threshold", least=0)

    def apply(self, values: Array, sums: Float64 | None, counts: npt.NDArray[np.int64]) -> None:
        """See ``Step``."""
        np.copyto(values, values > self.threshold, where=~np.isnan(values))


STEPS: dict[str, type[Any]] = {each.name: each for each in (NormalizeTotal, Log1p, Sqrt, Arcsinh, Binarize)}


def _require(step: Any, field: str, *, above: float = -math.inf, least: float = -math.inf) -> None:
    value = getattr(step, field)
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value <= above or value < least:
        bound = f"above {above:g}" if above > -math.inf else f"of at least {least:g}"
        raise InputError(f"{step.name}: {field} must be a number {bound}, not {value!r}")
    object.__setattr__(step, field, float(value))


def _require_least(step: Step, values: Array, least: float, *, strict: bool) -> None:
    """Raise for numbers that a step has no value for; NaN is refused by the methods, with its place."""
    with np.errstate(invalid="ignore"):
        outside = values <= least if strict else values < least
    if outside.any():
        bound = f"above {least:g}" if strict else f"of at least {least:g}"
        raise DataError(
            f"{step.name} takes numbers {bound}, and there is {values[outside][0]:g}. Is the matrix raw? "
            "Leave the step out of prepare, or give the data that it is for"
        )


# How they are said --------------------------------------------------------------------------------


Steps = tuple[Step, ...]
Prepare = str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]] | None
"""``"normalize_total(1e4), log1p"``, a list of such, or of ``{name: {parameter: value}}``."""


def parse_steps(prepare: Prepare) -> Steps:
    """Steps from what a caller says.

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
    items = [prepare] if isinstance(prepare, str | Mapping) else list(prepare)
    steps: list[Step] = []
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


ADVICE = "say steps as 'normalize_total(1e4), log1p'"


def _parse_text(text: str) -> list[Step]:
    try:
        expression = ast.parse(f"[{text}]", mode="eval").body
        nodes = expression.elts if isinstance(expression, ast.List) else []
        return [_parse_node(node, text) for node in nodes]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"prepare={text!r} cannot be read; {ADVICE}") from error


def _parse_node(node: ast.expr, text: str) -> Step:
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


def _step(name: object, values: tuple[Any, ...], named: dict[str, Any]) -> Step:
    kind = STEPS.get(str(name))
    if kind is None:
        raise InputError(f"prepare: there is no step {name!r}; there are {', '.join(STEPS)}")
    fields = [each.name for each in dataclasses.fields(kind)]
    unknown = [each for each in named if each not in fields]
    required = [each.name for each in dataclasses.fields(kind) if each.default is dataclasses.MISSING]
    lacking = [each for each in required[len(values) :] if each not in named]
    if unknown or lacking or len(values) > len(fields) or set(fields[: len(values)]) & set(named):
        takes = ", ".join(fields) or "no parameter"
        raise InputError(f"prepare: {name} takes {takes}" + (f"; say {lacking[0]}" if lacking else ""))
    step: Step = kind(*values, **named)
    return step


def in_words(steps: Steps) -> str:
    """As a caller would say them.

    >>> in_words(parse_steps("normalize_total(1e4), log1p(base=2), sqrt"))
    'normalize_total(target_sum=10000), log1p(base=2), sqrt'
    """
    return ", ".join(_in_words(each) for each in steps)


def _in_words(step: Any) -> str:
    said = [
        f"{each.name}={getattr(step, each.name):.17g}"
        for each in dataclasses.fields(step)
        if getattr(step, each.name) is not None
    ]
    return f"{step.name}({', '.join(said)})" if said else str(step.name)
