"""What a method may be asked, said once: types, bounds, choices and help of its arguments.

The arguments of a method are the fields of a frozen dataclass, each ``Annotated`` with an ``Argument``. From
them follow the options of the command line, the keys of a stage in a workflow, their JSON Schema and what
``plan`` takes. Imports nothing heavy: the command line reads it before anything is computed.
"""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any


@dataclass(frozen=True, slots=True)
class Argument:
    """What is known of an argument besides its type and default."""

    help: str
    """For the command line, without a full stop."""

    meaning: str = ""
    """For docstrings, in sentences; without one ``help``, which says less, or is of a flag that turns off."""

    least: float | None = None
    """Smallest number."""

    below: float | None = None
    """First number that is too large."""

    choices: tuple[str, ...] = ()
    """Words that it may be, besides numbers."""

    holds: str | tuple[str, ...] = ""
    """``"matrix"``, or the methods that a result may be of; for a plain value nothing."""

    option: str = ""
    """Of the command line, where it is not the name: a flag such as ``"--no-rows"`` turns ``True`` off."""

    metavar: str = ""
    default_text: bool = True
    """Whether the command line shows the default."""

    @property
    def sentences(self) -> str:
        """What it means, for a docstring."""
        return self.meaning or f"{self.help[:1].upper()}{self.help[1:]}."


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument with its name, type and default."""

    name: str
    types: tuple[type, ...]
    """One of bool, int, float, str; or float and str."""

    argument: Argument
    default: Any = dataclasses.MISSING

    @property
    def is_required(self) -> bool:
        """Whether there is no default."""
        return self.default is dataclasses.MISSING


def parameters_of(arguments: type) -> tuple[Parameter, ...]:
    """The fields of a dataclass of arguments, in order."""
    hints = typing.get_type_hints(arguments, include_extras=True)
    return tuple(_parameter(field, hints[field.name]) for field in dataclasses.fields(arguments))


def _parameter(field: dataclasses.Field[Any], hint: Any) -> Parameter:
    kind, *annotations = typing.get_args(hint)
    union = typing.get_origin(kind) in (typing.Union, UnionType)
    types = tuple(each for each in typing.get_args(kind) if each is not NoneType) if union else (kind,)
    argument = next((each for each in annotations if isinstance(each, Argument)), None)
    if argument is None:
        raise TypeError(f"{field.name} says nothing of itself: write Annotated[..., Argument(...)]")
    return Parameter(field.name, types, argument, field.default)
