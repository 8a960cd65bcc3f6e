"""Where and how a task runs: arguments that all functions which carry one out take, said once."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from pathlib import Path

    from rankfold.pipeline.engine.run import Progress


class Where(TypedDict, total=False):
    """See ``rankfold.svd``. All are None by default, but ``overwrite``, which is False."""

    memory: str | int | None
    out: str | Path | None
    scratch: str | Path | None
    overwrite: bool
    cluster: str | Path | None
    workers: int | None
    threads: int | None
    device: str | None
    client: Any
    progress: Progress | bool | None


def signature_of(function: Any) -> inspect.Signature:
    """A signature with these arguments in place of ``**where``."""
    own = inspect.signature(function)
    own_parameters = [each for each in own.parameters.values() if each.annotation != "Unpack[Where]"]
    if len(own_parameters) == len(own.parameters):
        return own
    return own.replace(parameters=[*own_parameters, *parameters()])


def parameters() -> list[inspect.Parameter]:
    """These arguments as a signature shows them."""
    kind = inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(
            name, kind, default=False if name == "overwrite" else None, annotation=description.__forward_arg__
        )
        for name, description in Where.__annotations__.items()
    ]
