"""Declaration of the arguments of a method, in one place: types, bounds, choices and help.

The arguments of a method are the fields of a frozen dataclass, each ``Annotated`` with an ``Argument``. From
them follow the signature of the Python function, the options of the command line, the keys of a stage in a
workflow, their JSON Schema, the arguments of ``plan``, and the check of every value that a caller passes by
any interface. Imports nothing heavy: the command line imports it before anything is computed.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
import typing
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any

from rankfold.pipeline.errors import InputError
from rankfold.pipeline.text import suggest_name


@dataclass(frozen=True, slots=True)
class Argument:
    """Declaration of an argument besides its type and default: help, bounds and choices."""

    help: str
    """Help text for the command line, without a full stop."""

    meaning: str = ""
    """Text for docstrings, in full sentences; where it is empty, ``help`` is used. Needed where ``help`` is
    too short, or describes a flag that turns the argument off."""

    least: float | None = None
    """Inclusive lower bound of a number; None for none."""

    above: float | None = None
    """Exclusive lower bound of a number; None for none."""

    most: float | None = None
    """Inclusive upper bound of a number; None for none."""

    below: float | None = None
    """Exclusive upper bound of a number; None for none."""

    choices: tuple[str, ...] = ()
    """Words that are allowed as value; empty if any text is. If the type of the argument includes float,
    numbers are allowed as well."""

    holds: str | tuple[str, ...] = ""
    """Kind of data that the argument accepts: ``"matrix"``, or names of methods whose results are accepted;
    empty for a plain value."""

    option: str = ""
    """Command line option, if it differs from the name; else empty. A flag such as ``"--no-rows"`` sets an
    argument to False that is True by default."""

    identity: bool = True
    """True if the result depends on the value, which then is part of the request. False for the matrix by
    which the quality of a result is measured, for instance."""

    part: str = ""
    """Name of the entry of the request that holds the value, if it differs from the name of the argument;
    else empty."""

    positional: bool = False
    """True if the Python function also takes the argument by position, after the inputs."""

    python_type: str = ""
    """Type in Python, as text, if it is wider than what the command line accepts, such as a function; else
    empty."""

    advice: Callable[[object], str] | None = None
    """Function that takes a refused value and returns text on what to write instead, "" if it knows
    nothing."""

    metavar: str = ""
    default_text: bool = True
    """True if the help of the command line shows the default."""

    @property
    def sentences(self) -> str:
        """Description for a docstring: ``meaning``, else ``help`` as a sentence."""
        return self.meaning or f"{self.help[:1].upper()}{self.help[1:]}."


RESULT_TYPES = "Result | str | Path"
"""Type of an argument that is a result, as text."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument with its name, type and default."""

    name: str
    types: tuple[type, ...]
    """Accepted types: one of bool, int, float, str; or both float and str."""

    argument: Argument
    default: Any = dataclasses.MISSING

    @property
    def is_required(self) -> bool:
        """True if there is no default."""
        return self.default is dataclasses.MISSING

    @property
    def annotation(self) -> str:
        """Type of the argument in Python, as text."""
        argument = self.argument
        if argument.holds == "matrix" or (argument.holds and argument.choices):
            return "object"
        types = RESULT_TYPES if argument.holds else " | ".join(each.__name__ for each in self.types)
        return (argument.python_type or types) + " | None" * (self.default is None)

    def checked(self, value: Any) -> Any:
        """Check a value from a caller against bounds or choices; returns it in the declared type.

        A value of an argument with several types, or of one that holds a matrix or a result, is returned
        unchanged.

        Raises
        ------
        InputError
            The value has another type, is out of bounds, or is none of the choices.
        """
        argument = self.argument
        if value is None and self.default is None:
            return None
        if self.types == (bool,):
            return boolean(self.name, value)
        if self.types in ((int,), (float,)):
            convert = integer if self.types == (int,) else number
            try:
                return self._within(convert(self.name, value))
            except InputError as error:
                advice = argument.advice(value) if argument.advice else ""
                if advice:
                    raise InputError(f"{error}: {advice}") from None
                raise
        if self.types == (str,) and argument.choices and not argument.holds and not callable(value):
            if value not in argument.choices:
                raise InputError(
                    f"{self.name} must be one of {', '.join(argument.choices)}, not {value!r}"
                    f"{suggest_name(value, argument.choices)}"
                )
            return str(value)
        return value

    def _within(self, value: float) -> float:
        if not isinstance(value, int) and not math.isfinite(value):
            raise InputError(f"{self.name} must be a finite number, not {value}")
        if not all(lies(value, end) for _, lies, end in self._ends()):
            raise InputError(f"{self.name} must {self._bounds()}, not {value}")
        return value

    def _ends(self) -> list[tuple[str, Callable[[float, float], bool], float]]:
        """Declared bounds, each as (words for messages, comparison, number)."""
        argument = self.argument
        ends = (
            ("at least", operator.ge, argument.least),
            ("above", operator.gt, argument.above),
            ("at most", operator.le, argument.most),
            ("below", operator.lt, argument.below),
        )
        return [(words, lies, end) for words, lies, end in ends if end is not None]

    def _bounds(self) -> str:
        argument = self.argument
        if self.types == (int,):
            most = argument.most if argument.below is None else argument.below - 1
            ends = [None if end is None else str(int(end)) for end in (argument.least, most)]
        else:
            ends = [None if end is None else f"{end:g}" for end in (argument.least, argument.most)]
        if None not in ends:
            return f"lie in {' .. '.join(map(str, ends))}"
        return f"be {' and '.join(f'{words} {end:g}' for words, _, end in self._ends())}"


def integer(name: str, value: object) -> int:
    """Convert ``value``, of any integer type, to int; ``InputError`` on argument ``name`` for others."""
    try:
        if not isinstance(value, bool):
            return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        pass
    raise InputError(f"{name} must be an integer, not {value!r}")


def number(name: str, value: object) -> float:
    """Convert ``value``, of any number type, to float; ``InputError`` on argument ``name`` for others."""
    try:
        if not isinstance(value, bool):
            return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        pass
    raise InputError(f"{name} must be a number, not {value!r}")


def is_word(value: object, words: Collection[str]) -> bool:
    """True for text that is one of ``words``, or no path of an existing file: perhaps a misspelled word."""
    return isinstance(value, str) and (value in words or not Path(value).exists())


def boolean(name: str, value: object) -> bool:
    """Convert ``value``, of Python or NumPy, to bool; ``InputError`` on argument ``name`` for others."""
    if str(value) in ("True", "False") and not isinstance(value, str):
        return bool(value)
    raise InputError(f"{name} must be true or false, not {value!r}")


@functools.cache
def parameters_of(arguments: type) -> tuple[Parameter, ...]:
    """Declared arguments of a method, in order: one ``Parameter`` for each field of its dataclass."""
    hints = typing.get_type_hints(arguments, include_extras=True)
    return tuple(_parameter(field, hints[field.name]) for field in dataclasses.fields(arguments))


def request_values(arguments: Any) -> dict[str, Any]:
    """Values in ``arguments``, an instance of a dataclass that declares them, by name.

    Arguments on which the result does not depend (``Argument.identity``) are left out.
    """
    return {
        each.name: getattr(arguments, each.name)
        for each in parameters_of(arguments.__class__)
        if each.argument.identity
    }


def _parameter(field: dataclasses.Field[Any], hint: Any) -> Parameter:
    kind, *annotations = typing.get_args(hint)
    union = typing.get_origin(kind) in (typing.Union, UnionType)
    types = tuple(each for each in typing.get_args(kind) if each is not NoneType) if union else (kind,)
    argument = next((each for each in annotations if isinstance(each, Argument)), None)
    if argument is None:
        raise TypeError(f"{field.name} says nothing of itself: write Annotated[..., Argument(...)]")
    return Parameter(field.name, types, argument, field.default)
