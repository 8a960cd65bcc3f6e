"""Public functions of methods: their signatures and checks follow from the declarations of the methods.

A function states its inputs, its documentation and what it returns. ``method_function`` adds the arguments
of its method and those of the place of execution, and ``run_method`` runs it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar, cast

from rankfold.api.arguments import public
from rankfold.api.execute import run
from rankfold.api.where import ARGUMENTS, GrowOptions, MatrixOptions, RunOptions, opened
from rankfold.api.where import parameters as where_parameters
from rankfold.methods.argument import RESULT_TYPES, Parameter
from rankfold.methods.registry import Method, X
from rankfold.pipeline.storage.result import Result

R = TypeVar("R")


def method_function(
    method: Method, *, without: Collection[str] = ()
) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Decorator of a function that takes the inputs of a method by position, and all else by name.

    The public function has the signature of the method. ``without`` names arguments of ``RunOptions`` that it
    lacks. Some arguments may be given by position, as their declarations say.
    """
    signature = _signature(method, without)

    def decorate(function: Callable[..., R]) -> Callable[..., R]:
        @functools.wraps(function)
        def call(*arguments: Any, **keywords: Any) -> R:
            try:
                given = signature.bind_partial(*arguments, **keywords).arguments
            except TypeError as error:
                raise TypeError(f"{function.__name__}() {error}") from None
            names = [each.name for each in method.inputs]
            for name in names:
                if name not in given:
                    raise TypeError(f"{function.__name__}() needs {name}")
            inputs = [given.pop(name) for name in names]
            return function(*inputs, **given)

        returns = inspect.signature(function).return_annotation
        call.__signature__ = signature.replace(return_annotation=returns)  # type: ignore[attr-defined]
        return public(call)

    return decorate


def function_of(method: Method) -> Callable[..., Result]:
    """Make the public function of a method of another package."""

    def function(*inputs: object, **arguments: Any) -> Result:
        return run_method(method, inputs, arguments)

    function.__name__ = function.__qualname__ = method.name
    function.__module__ = __name__.partition(".")[0]  # where it is found
    function.__doc__ = method.summary
    return method_function(method)(function)


def run_method(method: Method, inputs: Sequence[object], arguments: Mapping[str, Any]) -> Result:
    """Run a method with the arguments of its public function.

    Matrices among the inputs are opened as the arguments of ``rankfold.open`` say.
    """
    where = where_of(arguments)
    ready = (
        opened(value, where) if each.holds == "matrix" else value
        for each, value in zip(method.inputs, inputs, strict=True)
    )
    return run(method.task(*ready, **options_of(arguments)), where)


def where_of(arguments: Mapping[str, Any]) -> GrowOptions:
    """Arguments of a call that ``GrowOptions`` declares: place of execution, output, opening of matrices."""
    return cast("GrowOptions", {name: value for name, value in arguments.items() if name in ARGUMENTS})


def options_of(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a call that the method declares, and not ``GrowOptions``."""
    return {name: value for name, value in arguments.items() if name not in ARGUMENTS}


def takes_of(method: Method) -> type:
    """Class of options, of ``where``, that the function of a method takes besides the method's arguments."""
    if method.growth:
        return GrowOptions
    return MatrixOptions if X in method.inputs else RunOptions


def _signature(method: Method, without: Collection[str]) -> inspect.Signature:
    kinds = inspect.Parameter
    inputs = [
        kinds(
            each.name,
            kinds.POSITIONAL_OR_KEYWORD,
            annotation="object" if each.holds == "matrix" or each.matrix_key else RESULT_TYPES,
        )
        for each in method.inputs
    ]
    declared = sorted(method.parameters(), key=lambda each: not each.argument.positional)
    where = [each for each in where_parameters(takes_of(method)) if each.name not in without]
    return inspect.Signature([*inputs, *map(_signature_parameter, declared), *where])


def _signature_parameter(parameter: Parameter) -> inspect.Parameter:
    kinds = inspect.Parameter
    return kinds(
        parameter.name,
        kinds.POSITIONAL_OR_KEYWORD if parameter.argument.positional else kinds.KEYWORD_ONLY,
        default=kinds.empty if parameter.is_required else parameter.default,
        annotation=parameter.annotation,
    )
