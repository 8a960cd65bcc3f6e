"""The function of a method of another package, as those of ours are written out by hand."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from rankfold.api.arguments import public
from rankfold.api.execute import run
from rankfold.api.where import OfMatrix, opened
from rankfold.api.where import parameters as where_parameters
from rankfold.methods.argument import Parameter
from rankfold.methods.registry import Method
from rankfold.pipeline.storage.result import Result


def function_of(method: Method) -> Callable[..., Result]:
    """A function of what the method is of, its arguments, and where it runs: see ``rankfold.svd``."""

    names = [each.name for each in method.parameters()]

    def call(*positions: Any, **keywords: Any) -> Result:
        count = len(method.inputs)
        where: Any = {name: keywords.pop(name) for name in OfMatrix.__annotations__ if name in keywords}
        pairs = zip(names, positions[count:], strict=False)
        inputs = positions[:count]
        if method.of_matrix and inputs:
            inputs = (opened(inputs[0], where),)
        return run(method.task(*inputs, **{**dict(pairs), **keywords}), where)

    own = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        for name in (each.name for each in method.inputs)
    ]
    parameters = method.parameters()
    signature = inspect.Signature(
        [*own, *map(_signature_parameter, parameters), *where_parameters(of_matrix=method.of_matrix)]
    )
    call.__signature__ = signature  # type: ignore[attr-defined]
    lines = (f"{each.name} : {each.argument.help}" for each in parameters)
    call.__doc__ = "\n".join([method.summary, "", *lines, "others : as for ``svd``"])
    return public(call, name=method.name)


def _signature_parameter(parameter: Parameter) -> inspect.Parameter:
    kind, empty = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.empty
    types = " | ".join(each.__name__ for each in parameter.types)
    default = empty if parameter.is_required else parameter.default
    return inspect.Parameter(parameter.name, kind, default=default, annotation=types)
