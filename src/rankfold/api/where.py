"""Where and how a task runs: arguments that all functions which carry one out take, said once."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from pathlib import Path

    from rankfold.pipeline.engine.run import Progress
    from rankfold.pipeline.formats import Mask
    from rankfold.pipeline.prepare.words import Prepare

VIEW = ("missing_chunks", "prepare", "mask_var", "mask_obs", "numeric")
"""Arguments of ``rankfold.open`` that functions of a matrix take too."""


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


class OfMatrix(Where, total=False):
    """The same, and what becomes of a matrix before it is reduced: arguments of ``rankfold.open``."""

    missing_chunks: str | None
    prepare: Prepare
    mask_var: Mask
    mask_obs: Mask
    numeric: bool | None


class Growable(OfMatrix, total=False):
    """The same of methods that go on from an earlier result: see ``docs/growing.md``."""

    grows: str | None


def opened(x: object, where: OfMatrix) -> object:
    """A matrix as it is, or after the steps and masks that are said."""
    view: dict[str, Any] = {name: where.get(name) for name in VIEW if where.get(name) not in (None, False)}
    if not view:
        return x
    from rankfold.pipeline.formats import open_source

    return open_source(x, **view)


def signature_of(function: Any) -> inspect.Signature:
    """A signature with these arguments in place of ``**where``."""
    own = inspect.signature(function)
    kinds = {f"Unpack[{kind.__name__}]": kind for kind in (Where, OfMatrix, Growable)}
    for each in own.parameters.values():
        if each.annotation in kinds:
            others = [one for one in own.parameters.values() if one is not each]
            return own.replace(parameters=[*others, *parameters(kinds[each.annotation])])
    return own


def parameters(where: type) -> list[inspect.Parameter]:
    """The arguments of one of these as a signature shows them, those of a matrix first."""
    kind, annotations = inspect.Parameter.KEYWORD_ONLY, where.__annotations__
    names = [name for name in VIEW if name in annotations]
    names += [name for name in annotations if name not in VIEW]
    return [
        inspect.Parameter(
            name,
            kind,
            default=False if name == "overwrite" else None,
            annotation=annotations[name].__forward_arg__,
        )
        for name in names
    ]
