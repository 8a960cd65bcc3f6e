"""Make the task of a stage of a workflow: a checked call of a method, which can be planned and run.

If an earlier stage has yet to make a result, later stages are planned by its shape and type: ``ShapeOnly``
replaces the matrix, and ``ImaginedModel`` a whole result. They go through the same checks as real ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from rankfold.methods.model.model import FactorModel, factors_of
from rankfold.methods.model.update import Update
from rankfold.methods.registry import METHODS, Method
from rankfold.methods.task import Output, Task
from rankfold.pipeline.data.origin import layout_of
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.errors import InputError, RankfoldError
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.formats.open_like import open_like
from rankfold.pipeline.formats.zarr.source import ZarrSource
from rankfold.pipeline.planning.shape_only import ImaginedResult, ShapeOnly, StoredOnly
from rankfold.pipeline.prepare.alike import named
from rankfold.pipeline.prepare.prepared import described, fitted_of
from rankfold.settings.yaml_file import Document
from rankfold.workflows.flows.flow_file import Flow
from rankfold.workflows.flows.graph import Reference, resolve, words_for
from rankfold.workflows.flows.stage_models import BaseStage
from rankfold.workflows.messages import in_file


class NotKnownYet(Exception):
    """Raised if a shape is needed that is known only after the step ``stage`` has run."""

    def __init__(self, stage: str) -> None:
        super().__init__(f"known when {stage} has run")


@dataclass(frozen=True, slots=True)
class StageResult:
    """The result of a step, or what is known of it before the step runs."""

    path: Path
    there: bool
    """True if the result is finished and will not be made again."""

    matrices: Mapping[str, ShapeOnly] | None = None
    """Shapes of the matrices of a future result, by name; None if they are unknown."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    """Attributes that the result will have, as far as tasks use them."""

    fitted: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    """Arrays measured for the preparation steps (``prepare=``) of its matrix, such as means, by name."""

    to_come: bool = False
    """True if the result will be made before the stages that use it, even if its shape is unknown."""


@dataclass(frozen=True, slots=True)
class StageInputs:
    """What a stage can use: the inputs of the workflow, and the results of its earlier steps."""

    flow: Flow
    document: Document
    outcomes: dict[str, StageResult]
    """Results of all steps that were planned before, by name of the step."""

    def of(self, text: str) -> Reference:
        """The input, step or array that a value ``text`` in the file refers to."""
        reference = resolve(text, self.flow.inputs, self.outcomes)
        assert reference is not None, text  # noqa: S101  checked when the file was read
        return reference

    def matrix(self, text: str) -> Source:
        """The matrix that a value ``text`` in the file refers to, or its shape if it does not exist yet.

        Raises ``NotKnownYet`` if even that is unknown.
        """
        reference = self.of(text)
        if reference.input:
            matrix_input = self.flow.inputs[reference.input]
            try:
                return open_source(matrix_input.store, **matrix_input.view())
            except RankfoldError as error:
                message = self.document.message_at(("inputs", reference.input), in_file(error.message))
                raise type(error)(message) from error
        outcome = self.outcomes[reference.stage]
        if outcome.there:
            return open_source(f"{outcome.path}::{reference.array}" if reference.array else outcome.path)
        if outcome.matrices is None:
            raise NotKnownYet(reference.stage)
        return outcome.matrices[reference.array]

    def result(self, text: str) -> Path | StageResult:
        """The result that a value ``text`` in the file refers to: its path, or what is known of it so far.

        Raises ``NotKnownYet`` if nothing is.
        """
        reference = self.of(text)
        if reference.input:
            return Path(self.flow.inputs[reference.input].store)
        outcome = self.outcomes[reference.stage]
        if not outcome.there and outcome.matrices is None:
            raise NotKnownYet(reference.stage)
        return outcome.path if outcome.there else outcome


# Tasks --------------------------------------------------------------------------------------------


def task_of(stage: BaseStage, scene: StageInputs) -> Task:
    """Make the task (checked call of a method) of a stage that is no import, from inputs and arguments."""
    method, arguments = METHODS[stage.method], stage.arguments()
    if method.unsaid is not None and (reason := method.unsaid(arguments)):
        raise InputError(reason)
    inputs = [
        _resolve_key(stage, key, scene, model=each.holds != "matrix")
        for key, each in zip(stage.input_keys(), method.inputs, strict=True)
    ]
    parameters = {each.name for each in method.parameters()}
    for key in parameters.intersection((*stage.MATRICES, *stage.RESULTS)) - {START}:
        arguments[key] = _resolve_key(stage, key, scene)
    if _is_slice(method, "row_range"):
        ends = (arguments["row_range"] or ":").split(":")
        arguments["row_range"] = slice(*(int(end) if end else None for end in ends))
    if START not in stage.RESULTS:
        return method.task(*inputs, **arguments)
    init = str(getattr(stage, START))
    start: object = init if init in words_for(stage, START) else scene.result(init)
    if isinstance(start, StageResult):
        if method.pending:
            return method.pending_task(inputs, arguments, start.matrices)
        start = _imagined(start)
    return method.task(*inputs, init=start, **arguments)


START = "init"
"""Name of the key for the start of a method: its value is a word such as ``random``, or names a result."""


def _is_slice(method: Method, name: str) -> bool:
    return any(each.name == name and each.types == (slice,) for each in method.parameters())


def _resolve_key(stage: BaseStage, key: str, scene: StageInputs, *, model: bool = False) -> Any:
    """The matrix or result that the value of a key of a stage names; None without a value.

    A future result is replaced by a stand-in: with ``model`` for its model, if it has factors.
    """
    text = getattr(stage, key)
    if text is None or key in stage.MATRICES:
        return None if text is None else scene.matrix(text)
    result = scene.result(text)
    if isinstance(result, Path):
        return result
    return imagined_model(result) if model and factors_of(result.facts["kind"]) else _imagined(result)


# What is to come -----------------------------------------------------------------------------------


def expected_result(name: str, path: Path, task: Task) -> StageResult:
    """Result that a task will leave at ``path``, described by shapes and types.

    ``name`` is that of its step. An adaptive rank counts as the largest possible.
    """
    (rows, columns), request = task.source.shape, task.request()
    if isinstance(task, Update):
        rows += task.model.shape[0]
    facts = {
        "kind": request["kind"],
        "request": request,
        "input": {"shape": [rows, columns], "fingerprint": "", **_known_of(task)},
    }
    arrays = {each.name: each for each in task.outputs() if len(each.shape) == 2}
    matrices = {array: _shape_of(f"{name}.{array}".rstrip("."), each) for array, each in arrays.items()}
    return StageResult(path, False, matrices, facts, fitted_of(task.source), to_come=True)


def _known_of(task: Task) -> dict[str, Any]:
    """Facts on the matrix of a task that its result will hold: preparation steps, selection and names.

    By these facts, matrices of new rows for the result are opened.
    """
    if isinstance(task, Update):
        facts = task.model.result.attrs["input"]
        names = {name: said for name, said in facts.get("names", {}).items() if name != "rows"}
        return {"names": names} if names else {}
    return {**described(task.source), **layout_of(task.source), **named(task.source)}


def _shape_of(name: str, array: Output) -> ShapeOnly:
    rows, columns = array.shape
    if array.sparse:
        return StoredOnly.of((rows, columns), array.dtype, array.stored, name, decoded=array.compressed)
    return ShapeOnly.plain((rows, columns), array.dtype, name, decoded=False)


@dataclass(frozen=True, slots=True)
class ImaginedModel(FactorModel):
    """Stand-in for the model of a result that does not exist yet, for plans: only shapes are known."""

    outcome: StageResult

    def left(self) -> ZarrSource:
        """Shape of the factor with a row for each row of the matrix."""
        assert self.outcome.matrices is not None  # noqa: S101
        return cast(ZarrSource, self.outcome.matrices[self.left_name])

    def source(self, x: object) -> Source:
        """Matrix of new rows, opened in the same way as the model's own; ``x`` itself if it is a shape."""
        return x if isinstance(x, ShapeOnly) else open_like(x, self.result, self.name)

    def digest(self) -> str:
        """Empty text: the values are unknown."""
        return ""

    def square_scale(self) -> float:
        """Return 1, since the true scale is unknown."""
        return 1.0


def imagined_model(outcome: StageResult) -> FactorModel:
    """Stand-in for the model of a result that does not exist yet, to make plans with."""
    kind, request, (rows, columns) = (
        outcome.facts["kind"],
        outcome.facts["request"],
        outcome.facts["input"]["shape"],
    )
    right = METHODS[kind].matrices[1]
    assert outcome.matrices is not None  # noqa: S101  asked before
    return ImaginedModel(
        result=_imagined(outcome),
        kind=kind,
        shape=(rows, columns),
        s=np.ones(outcome.matrices[right].shape[0]),
        size=1.0,
        whiten=bool(request.get("whiten", False)),
        right=cast(ZarrSource, outcome.matrices[right]),
        outcome=outcome,
    )


def _imagined(outcome: StageResult) -> ImaginedResult:
    """Stand-in for a result that does not exist yet, to make plans with."""
    return ImaginedResult(outcome.path, outcome.facts, outcome.matrices or {}, outcome.fitted)
