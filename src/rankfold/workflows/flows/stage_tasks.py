"""From a stage of a workflow to a task that can be planned and carried out.

What an earlier stage has yet to make is planned by shape and type: every check that the real matrix would
meet is met by ``ShapeOnly``, and by ``ImaginedModel`` where a whole result is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from rankfold.methods.model.model import FactorModel
from rankfold.methods.model.update import Update
from rankfold.methods.nmf.arguments import INITS
from rankfold.methods.nmf.nmf import Nonnegative
from rankfold.methods.nmf.request import FactorRequest
from rankfold.methods.registry import METHODS, Method
from rankfold.methods.task import Output, Task
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.errors import InputError, RankfoldError
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.formats.zarr import ZarrSource
from rankfold.pipeline.planning.shape_only import ShapeOnly
from rankfold.pipeline.storage.result import Result
from rankfold.settings.yaml_file import Document
from rankfold.workflows.flows.flow_file import Flow
from rankfold.workflows.flows.graph import Reference, resolve
from rankfold.workflows.flows.stage_models import BaseStage
from rankfold.workflows.wording import in_file


class NotKnownYet(Exception):
    """A shape that only the run of an earlier stage will tell."""

    def __init__(self, stage: str) -> None:
        super().__init__(f"known when {stage} has run")


@dataclass(frozen=True, slots=True)
class StageResult:
    """What a step has left, or what is known of what it will leave."""

    path: Path
    there: bool
    """Whether it is finished and stays as it is."""

    matrices: Mapping[str, ShapeOnly] | None = None
    """By name, of what is to come; None where not even the shape is known."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    """What attributes of the result will say, as far as tasks ask."""

    to_come: bool = False
    """Whether it will be made before anything is made from it, though its shape may not be known."""


@dataclass(frozen=True, slots=True)
class StageInputs:
    """What there is for a stage to work on."""

    flow: Flow
    document: Document
    outcomes: dict[str, StageResult]
    """Of the steps so far."""

    def of(self, text: str) -> Reference:
        """What a name stands for."""
        found = resolve(text, self.flow.inputs, self.outcomes)
        assert found is not None, text  # noqa: S101  checked when the file was read
        return found

    def matrix(self, text: str) -> Source:
        """The matrix that a name stands for, or its shape."""
        found = self.of(text)
        if found.input:
            given = self.flow.inputs[found.input]
            try:
                return open_source(given.store, **given.view())
            except RankfoldError as error:
                message = self.document.told(("inputs", found.input), in_file(str(error)))
                raise type(error)(message) from error
        made = self.outcomes[found.stage]
        if made.there:
            return open_source(f"{made.path}::{found.array}" if found.array else made.path)
        if made.matrices is None:
            raise NotKnownYet(found.stage)
        return made.matrices[found.array]

    def result(self, text: str) -> Path | StageResult:
        """The result that a name stands for: where it is, or what is known of it."""
        found = self.of(text)
        if found.input:
            return Path(self.flow.inputs[found.input].store)
        made = self.outcomes[found.stage]
        if not made.there and made.matrices is None:
            raise NotKnownYet(found.stage)
        return made.path if made.there else made


# Tasks --------------------------------------------------------------------------------------------


def task_of(stage: BaseStage, scene: StageInputs) -> Task:
    """The task of any stage but an import."""
    return BUILDERS.get(stage.method, _task)(stage, scene)


def _task(stage: BaseStage, scene: StageInputs) -> Task:
    """Of a method in the registry: what it is of, then what it is asked."""
    method, asked = METHODS[stage.method], stage.asked()
    of = [(each.key or each.name, each.holds != "matrix") for each in method.inputs]
    inputs = [_held(stage, key, scene, model=model) for key, model in of]
    for key in {*stage.MATRICES, *stage.RESULTS}.difference(key for key, _ in of):
        asked[key] = _held(stage, key, scene)
    if _is_slice(method, "row_range"):
        ends = (asked["row_range"] or ":").split(":")
        asked["row_range"] = slice(*(int(end) if end else None for end in ends))
    return method.task(*inputs, **asked)


def _is_slice(method: Method, name: str) -> bool:
    return any(each.name == name and each.types == (slice,) for each in method.parameters())


def _held(stage: BaseStage, key: str, scene: StageInputs, *, model: bool = False) -> Any:
    """The matrix, result, or model of a result that a key names; nothing where it names none."""
    text = getattr(stage, key)
    if text is None or key in stage.MATRICES:
        return None if text is None else scene.matrix(text)
    found = scene.result(text)
    if isinstance(found, Path):
        return found
    return imagined_model(found) if model and found.facts["kind"] in RIGHT else ImaginedResult(found)


def _reduction(stage: BaseStage, scene: StageInputs) -> Task:
    asked = stage.asked()
    if asked["rank"] is None and asked["tol"] is None and asked["solver"] == "auto":
        raise InputError(  # a file says what it asks for
            "say how many components, rank, or what share of the norm to leave out, tol; all of them are "
            "solver: tsqr"
        )
    return _task(stage, scene)


def _factors(stage: BaseStage, scene: StageInputs) -> Task:
    asked, init, x = stage.asked(), _named(stage, "init"), scene.matrix(_named(stage, "input"))
    start = init if init in INITS else scene.result(init)
    if not isinstance(start, StageResult):
        return METHODS["nmf"].task(x, init=start, **asked)
    request = FactorRequest.of(init="custom", **{name.lower(): value for name, value in asked.items()})
    request.check(x.shape, x.name)
    return Nonnegative(x, request.resolved())


def _named(stage: BaseStage, key: str) -> str:
    """What stands under a key that only some stages have."""
    return str(getattr(stage, key))


BUILDERS: dict[str, Callable[[BaseStage, StageInputs], Task]] = {
    "svd": _reduction,
    "pca": _reduction,
    "nmf": _factors,
}
"""Of stages that say more than their function takes."""


# What is to come -----------------------------------------------------------------------------------


def expected(name: str, path: Path, task: Task) -> StageResult:
    """What a task will leave, by shape and type; of an adaptive rank the most that it may be."""
    (rows, columns), asked = task.source.shape, task.request()
    if isinstance(task, Update):
        rows += task.fitted.shape[0]
    told = {"kind": asked["kind"], "request": asked, "input": {"shape": [rows, columns], "fingerprint": ""}}
    arrays = {each.name: each for each in task.outputs() if len(each.shape) == 2}
    matrices = {
        array: _shape_of(f"{name}.{array}".rstrip("."), each, asked) for array, each in arrays.items()
    }
    return StageResult(path, False, matrices, told, to_come=True)


def _shape_of(name: str, array: Output, asked: Mapping[str, Any]) -> ShapeOnly:
    rows, columns = array.shape
    if array.sparse:
        return ShapeOnly.sparse(
            (rows, columns), array.dtype, name, decoded=asked.get("symmetric") is not None
        )
    return ShapeOnly.plain((rows, columns), array.dtype, name, decoded=False)


RIGHT = {"svd": "Vt", "pca": "components", "nmf": "H"}
"""The factor of the columns, by method of a result that can be a model."""


@dataclass(frozen=True, slots=True)
class ImaginedModel(FactorModel):
    """A model whose numbers are not known yet."""

    outcome: StageResult

    def left(self) -> ZarrSource:
        """See ``FactorModel``."""
        assert self.outcome.matrices is not None  # noqa: S101
        return cast(ZarrSource, self.outcome.matrices[self.left_name])

    def digest(self) -> str:
        """None: nothing is known of its numbers."""
        return ""

    def square_scale(self) -> float:
        """See ``FactorModel``."""
        return 1.0


def imagined_model(made: StageResult) -> FactorModel:
    """What will be a model, for plans."""
    kind, request, (rows, columns) = made.facts["kind"], made.facts["request"], made.facts["input"]["shape"]
    right = RIGHT[kind]
    assert made.matrices is not None  # noqa: S101  asked before
    return ImaginedModel(
        result=ImaginedResult(made),
        kind=kind,
        shape=(rows, columns),
        s=np.ones(made.matrices[right].shape[0]),
        size=1.0,
        whiten=bool(request.get("whiten", False)),
        right=cast(ZarrSource, made.matrices[right]),
        outcome=made,
    )


class ImaginedResult(Result):
    """A result that is to come: where it will be, and the facts that are known."""

    def __init__(self, made: StageResult) -> None:
        self._path, self._in_memory, self.attrs = made.path, False, dict(made.facts)

        self._matrices = made.matrices or {}

    def matrix(self, name: str) -> Source:
        """Its shape."""
        return self._matrices[name]

    def require_whole(self, *, sums: bool = False) -> None:
        """See ``Result``: there is nothing yet that could be damaged."""
