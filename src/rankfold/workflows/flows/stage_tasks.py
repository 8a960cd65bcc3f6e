"""Make the task of a stage of a workflow: a checked call of a method, which can be planned and run.

If an earlier stage has yet to make a result, later stages are planned by its shape and type: ``ShapeOnly``
replaces the matrix, and ``ImaginedModel`` a whole result. They go through the same checks as real ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from rankfold.methods.kmeans.kmeans import Clustering
from rankfold.methods.model.model import FactorModel, factors_of
from rankfold.methods.model.update import Update
from rankfold.methods.nmf.arguments import INITS
from rankfold.methods.nmf.nmf import Nonnegative
from rankfold.methods.registry import METHODS, Input, Method
from rankfold.methods.task import Output, Task
from rankfold.methods.umap.umap import PENDING_START
from rankfold.pipeline.data.origin import layout_of
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.errors import InputError, RankfoldError
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.formats.open_like import open_like
from rankfold.pipeline.formats.zarr.source import ZarrSource
from rankfold.pipeline.planning.imagined_result import ImaginedResult
from rankfold.pipeline.planning.shape_only import ShapeOnly, StoredOnly
from rankfold.pipeline.prepare.alike import named
from rankfold.pipeline.prepare.prepared import described, fitted_of
from rankfold.settings.yaml_file import Document
from rankfold.workflows.flows.flow_file import Flow
from rankfold.workflows.flows.graph import Reference, resolve, words_for
from rankfold.workflows.flows.stage_models import BaseStage
from rankfold.workflows.messages import in_file


class NotKnownYet(Exception):
    """Raised if a shape is needed that is known only after an earlier stage has run."""

    def __init__(self, stage: str) -> None:
        super().__init__(f"known when {stage} has run")


@dataclass(frozen=True, slots=True)
class StageResult:
    """The result of a step, or what is known of it before the step runs."""

    path: Path
    there: bool
    """True if the result is finished and will not be made again."""

    matrices: Mapping[str, ShapeOnly] | None = None
    """Shapes of the arrays of a future result, by name; None if they are unknown."""

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
        """The input, stage or array that a name refers to."""
        reference = resolve(text, self.flow.inputs, self.outcomes)
        assert reference is not None, text  # noqa: S101  checked when the file was read
        return reference

    def matrix(self, text: str) -> Source:
        """The matrix that a name refers to, or only its shape if it does not exist yet.

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
        """The result that a name refers to: its path, or what is known of it if it is still to be made."""
        reference = self.of(text)
        if reference.input:
            return Path(self.flow.inputs[reference.input].store)
        outcome = self.outcomes[reference.stage]
        if not outcome.there and outcome.matrices is None:
            raise NotKnownYet(reference.stage)
        return outcome.path if outcome.there else outcome


# Tasks --------------------------------------------------------------------------------------------


def task_of(stage: BaseStage, scene: StageInputs) -> Task:
    """Make the task (checked call of a method) of any stage except an import."""
    return BUILDERS.get(stage.method, _task)(stage, scene)


def _task(stage: BaseStage, scene: StageInputs) -> Task:
    """Make the task of a method in the registry, from its inputs and arguments."""
    method, arguments = METHODS[stage.method], stage.arguments()
    of = [(key_of_input(stage, each), each.holds != "matrix") for each in method.inputs]
    inputs = [_resolve_key(stage, key, scene, model=model) for key, model in of]
    others = {each.matrix_key for each in method.inputs} | {each.key or each.name for each in method.inputs}
    for key in {*stage.MATRICES, *stage.RESULTS} - others:
        arguments[key] = _resolve_key(stage, key, scene)
    if _is_slice(method, "row_range"):
        ends = (arguments["row_range"] or ":").split(":")
        arguments["row_range"] = slice(*(int(end) if end else None for end in ends))
    return method.task(*inputs, **arguments)


def key_of_input(stage: BaseStage, of: Input) -> str:
    """Key of a stage that names an input: a result, or the matrix in its place."""
    key = of.key or of.name
    return of.matrix_key if of.matrix_key and getattr(stage, key) is None else key


def _is_slice(method: Method, name: str) -> bool:
    return any(each.name == name and each.types == (slice,) for each in method.parameters())


def _resolve_key(stage: BaseStage, key: str, scene: StageInputs, *, model: bool = False) -> Any:
    """The matrix or result that a key names, or with ``model`` the model made from the
    result; None if it names none.
    """
    text = getattr(stage, key)
    if text is None or key in stage.MATRICES:
        return None if text is None else scene.matrix(text)
    result = scene.result(text)
    if isinstance(result, Path):
        return result
    return imagined_model(result) if model and factors_of(result.facts["kind"]) else _imagined(result)


def _reduction(stage: BaseStage, scene: StageInputs) -> Task:
    arguments = stage.arguments()
    if arguments["rank"] is None and arguments["tol"] is None and arguments["solver"] == "auto":
        raise InputError(  # a file says what it asks for
            "say how many components, rank, or what share of the norm to leave out, tol; all of them are "
            "solver: tsqr"
        )
    return _task(stage, scene)


def _factors(stage: BaseStage, scene: StageInputs) -> Task:
    arguments, init, x = stage.arguments(), _text_of(stage, "init"), scene.matrix(_text_of(stage, "input"))
    arguments |= {key: _resolve_key(stage, key, scene) for key in ("weights", "row_weights")}
    start = init if init in INITS else scene.result(init)
    if not isinstance(start, StageResult):
        return METHODS["nmf"].task(x, init=start, **arguments)
    task = METHODS["nmf"].task(
        x, init="random", **arguments
    )  # whose start is read as late as that of a stage
    assert isinstance(task, Nonnegative)  # noqa: S101
    return dataclasses.replace(task, parameters=dataclasses.replace(task.parameters, init="custom"))


def _clusters(stage: BaseStage, scene: StageInputs) -> Task:
    arguments, init, x = stage.arguments(), _text_of(stage, "init"), scene.matrix(_text_of(stage, "input"))
    arguments["weights"] = _resolve_key(stage, "weights", scene)
    start = init if init in words_for(stage, "init") else scene.result(init)
    if not isinstance(start, StageResult):
        return METHODS["kmeans"].task(x, init=start, **arguments)
    if arguments["k"] is None and start.matrices is not None:
        arguments["k"] = start.matrices["centers"].shape[0]
    task = METHODS["kmeans"].task(x, init="sample", **arguments)
    assert isinstance(task, Clustering)  # noqa: S101
    return dataclasses.replace(task, parameters=dataclasses.replace(task.parameters, init="custom"))


def _layout(stage: BaseStage, scene: StageInputs) -> Task:
    arguments, init = stage.arguments(), _text_of(stage, "init")
    key = key_of_input(stage, METHODS[stage.method].inputs[0])
    neighbors = _resolve_key(stage, key, scene)
    arguments |= {each: _resolve_key(stage, each, scene) for each in stage.MATRICES if each != "input"}
    start = init if init in words_for(stage, "init") else scene.result(init)
    if not isinstance(start, StageResult):
        return METHODS[stage.method].task(neighbors, init=start, **arguments)
    return METHODS[stage.method].task(neighbors, init=PENDING_START, **arguments)


def _coordinates(stage: BaseStage, scene: StageInputs) -> Task:
    key = "input" if getattr(stage, "neighbors") is None else "neighbors"  # noqa: B009
    result, new = _resolve_key(stage, "result", scene, model=True), _resolve_key(stage, key, scene)
    return METHODS["transform"].task(result, new)


def _text_of(stage: BaseStage, key: str) -> str:
    """Value of a key that only some stages have, as text."""
    return str(getattr(stage, key))


BUILDERS: dict[str, Callable[[BaseStage, StageInputs], Task]] = {
    "svd": _reduction,
    "pca": _reduction,
    "nmf": _factors,
    "kmeans": _clusters,
    "umap": _layout,
    "transform": _coordinates,
    "tsne": _layout,
}
"""Functions that make the task of a stage, by method, if keys allow more than arguments of the function."""


# What is to come -----------------------------------------------------------------------------------


def expected_result(name: str, path: Path, task: Task) -> StageResult:
    """Result that a task will leave, described by shapes and types; an adaptive rank
    counts as the largest possible.
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
    matrices = {
        array: _shape_of(f"{name}.{array}".rstrip("."), each, request) for array, each in arrays.items()
    }
    return StageResult(path, False, matrices, facts, fitted_of(task.source), to_come=True)


def _known_of(task: Task) -> dict[str, Any]:
    """Facts of its matrix that a result will hold: preparation steps, selection and names.

    New rows for the result are opened by them.
    """
    if isinstance(task, Update):
        facts = task.model.result.attrs["input"]
        names = {name: said for name, said in facts.get("names", {}).items() if name != "rows"}
        return {"names": names} if names else {}
    return {**described(task.source), **layout_of(task.source), **named(task.source)}


def _shape_of(name: str, array: Output, request: Mapping[str, Any]) -> ShapeOnly:
    rows, columns = array.shape
    if array.sparse:
        decoded = request.get("symmetric") is not None or request["kind"] == "fuzzy_graph"
        return StoredOnly.of((rows, columns), array.dtype, array.stored, name, decoded=decoded)
    return ShapeOnly.plain((rows, columns), array.dtype, name, decoded=False)


@dataclass(frozen=True, slots=True)
class ImaginedModel(FactorModel):
    """Stand-in for the model of a result that does not exist yet, to make plans
    with: only shapes are known.
    """

    outcome: StageResult

    def left(self) -> ZarrSource:
        """Shape of the factor with a row for each row of the matrix."""
        assert self.outcome.matrices is not None  # noqa: S101
        return cast(ZarrSource, self.outcome.matrices[self.left_name])

    def source(self, x: object) -> Source:
        """Matrix of new rows, opened in the same way as the model's own matrix; if it
        does not exist yet, returned as it is.
        """
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
