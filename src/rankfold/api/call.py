"""The function of a method of another package, as those of ours are written out by hand."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rankfold.api.arguments import public
from rankfold.api.execute import execute
from rankfold.cluster.executor import choose_executor
from rankfold.methods.argument import Parameter
from rankfold.methods.registry import Method
from rankfold.pipeline.engine.run import Progress
from rankfold.pipeline.storage.result import Result


def function_of(method: Method) -> Callable[..., Result]:
    """A function of what the method is of, its arguments, and where it runs: see ``rankfold.svd``."""

    def call(
        *given: Any,
        memory: str | int | None = None,
        out: str | Path | None = None,
        scratch: str | Path | None = None,
        overwrite: bool = False,
        cluster: str | Path | None = None,
        workers: int | None = None,
        threads: int | None = None,
        client: Any = None,
        progress: Progress | bool | None = None,
        **asked: Any,
    ) -> Result:
        count = len(method.inputs)
        named = zip((each.name for each in method.parameters()), given[count:], strict=False)
        task = method.task(*given[:count], **{**dict(named), **asked})
        executor = choose_executor(
            cluster=cluster, workers=workers, threads=threads, memory=memory, client=client
        )
        return execute(task, executor, out=out, scratch=scratch, overwrite=overwrite, progress=progress)

    places = inspect.signature(call).parameters.values()
    where = [each for each in places if each.kind is inspect.Parameter.KEYWORD_ONLY]
    own = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        for name in (each.name for each in method.inputs)
    ]
    parameters = method.parameters()
    signature = inspect.Signature([*own, *map(_signed, parameters), *where])
    call.__signature__ = signature  # type: ignore[attr-defined]
    told = (f"{each.name} : {each.argument.help}" for each in parameters)
    call.__doc__ = "\n".join([method.summary, "", *told, "others : as for ``svd``"])
    return public(call, name=method.name)


def _signed(parameter: Parameter) -> inspect.Parameter:
    kind, empty = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.empty
    types = " | ".join(each.__name__ for each in parameter.types)
    default = empty if parameter.required else parameter.default
    return inspect.Parameter(parameter.name, kind, default=default, annotation=types)
