"""The stages of a workflow in the order they run: references, parameter sweeps, cycles.

A reference is the name of an input, of a stage, or ``STAGE.ARRAY``. A parameter sweep runs a stage for each
of several values of a key. The stage becomes one step for each value, ``STAGE-VALUE``, and so do the stages
that depend on it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rankfold.methods.model.arguments import EMBEDDINGS, FITS
from rankfold.methods.registry import METHODS
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.text import Lines, suggest_name
from rankfold.settings.yaml_file import Document, explain_mistake, keys_of, no_such
from rankfold.workflows.flows.flow_file import Flow, resolve_path
from rankfold.workflows.flows.stage_models import BaseStage, Transform

COORDINATES = {name: METHODS[name].matrices[0] for name in (*FITS, *EMBEDDINGS)}
"""Name of the array that ``transform`` writes, by the method of the result that it uses."""

UNITS = ("method", "needs", "resources", "keep", "into", "picture", "grows", "changed")
"""Keys of a stage that a parameter sweep cannot vary."""


@dataclass(frozen=True, slots=True)
class Reference:
    """What a name in a stage refers to: an input, a stage, or an array of a stage; names, or empty."""

    input: str = ""
    stage: str = ""
    array: str = ""


@dataclass(frozen=True, slots=True)
class StageNode:
    """A step of a workflow: a stage with one value of a parameter sweep, or a stage without one."""

    name: str
    """Name of the step and of its result: the name of the stage, with the value of a
    parameter sweep if any.
    """

    stage: BaseStage
    stage_name: str
    """The name of the stage in the file."""

    after: tuple[str, ...] = ()
    """Names of the steps that run before it."""

    feeds_on: tuple[str, ...] = ()
    """Names of the steps whose results it reads."""

    def file(self, path: str, folder: Path) -> Path:
        """Path of an additional file that the step writes, from the ``path`` in the workflow file.

        It is relative to ``folder``. For a step of a parameter sweep, the file name includes the value.
        """
        whole = Path(resolve_path(path, folder))
        return whole.with_name(f"{whole.stem}{self.name.removeprefix(self.stage_name)}{whole.suffix}")


def steps_of(flow: Flow, document: Document) -> tuple[StageNode, ...]:
    """All steps of a workflow, each after the steps that it needs, otherwise in the order of the file."""
    for name in flow.stages:
        if name in flow.inputs:
            raise InputError(
                document.message_at(
                    ("stages", name),
                    f"{name!r} is an input already, in line "
                    f"{document.lines['inputs', name]}. Rename one of them",
                )
            )
    for name, stage in flow.stages.items():
        _check(name, stage, flow, document)
    _refuse_circles(flow, document)
    steps = list(_expand_sweep(flow, document) if flow.sweep is not None else _plain(flow))
    _refuse_same_names(steps, flow, document)
    stages, order = {step.name: step.stage for step in steps}, list[StageNode]()
    waiting = [_with_predecessors(step, flow, stages) for step in steps]
    while waiting:
        names = {step.name for step in order}
        ready = next((step for step in waiting if names.issuperset(step.after)), None)
        if ready is None:
            raise InputError(
                document.message_at(
                    ("sweep",), f"makes {waiting[0].name} wait for itself. Go over another key"
                )
            )
        order.append(ready)
        waiting.remove(ready)
    return tuple(order)


def _plain(flow: Flow) -> Iterator[StageNode]:
    for name, stage in flow.stages.items():
        yield StageNode(name, stage, name)


def _with_predecessors(step: StageNode, flow: Flow, stages: Mapping[str, BaseStage]) -> StageNode:
    """A copy of a step with the names of the steps that run before it.

    ``stages`` maps the names of all steps to their stages.
    """
    read = [reference.stage for _, reference in references(step.stage, flow.inputs, stages)]
    feeds = tuple(dict.fromkeys(name for name in read if name))
    return StageNode(
        step.name, step.stage, step.stage_name, tuple(dict.fromkeys([*feeds, *step.stage.needs])), feeds
    )


# References ----------------------------------------------------------------------------------------


def resolve(text: str, inputs: Iterable[str], stages: Iterable[str]) -> Reference | None:
    """The input, stage or array that the name ``text`` refers to; None if it refers to nothing.

    ``inputs`` and ``stages`` are the names of all inputs and of all stages or steps.
    """
    if text in inputs:
        return Reference(input=text)
    names = list(stages)
    if text in names:
        return Reference(stage=text)
    stage, _, array = text.rpartition(".")
    return Reference(stage=stage, array=array) if stage in names else None


def references(
    stage: BaseStage, inputs: Iterable[str], stages: Iterable[str]
) -> Iterator[tuple[str, Reference]]:
    """Yield each key of a stage whose value refers to an input or stage, with the reference.

    ``inputs`` and ``stages`` are the names that there are; values that are none of them are left out.
    """
    inputs, stages = list(inputs), list(stages)
    for key in (*stage.MATRICES, *stage.RESULTS):
        text = getattr(stage, key)
        reference = None if text is None or text in words_for(stage, key) else resolve(text, inputs, stages)
        if reference is not None:
            yield key, reference


def words_for(stage: BaseStage, key: str) -> tuple[str, ...]:
    """Words that the key ``key`` of a stage takes in place of the name of an input or of another stage.

    An example is ``random`` for ``init``. Empty if the key takes none.
    """
    own = METHODS[stage.method].parameters() if stage.method in METHODS else ()
    return next((each.argument.choices for each in own if each.name == key), ())


def is_matrix(name: str) -> bool:
    """True if a result of the method ``name``, or of ``import``, is a matrix itself, without named arrays."""
    return name not in METHODS or METHODS[name].is_matrix


def matrices_of(name: str) -> tuple[str, ...]:
    """Names of the matrices in a result of the method ``name`` with rows; empty if it is a matrix itself."""
    return () if is_matrix(name) else METHODS[name].matrices


def arrays_of(stage: BaseStage, stages: Mapping[str, BaseStage]) -> tuple[str, ...]:
    """Names of the matrices in the result of a stage; ``stages`` are all, by name.

    For a transform whose result is an input, all names that are possible.
    """
    if isinstance(stage, Transform):
        source = stages.get(stage.result)
        every = tuple(dict.fromkeys(COORDINATES.values()))
        return every if source is None else (COORDINATES.get(source.method, "U"),)
    arrays = matrices_of(stage.method)
    return arrays[1:] if getattr(stage, "with_rows", True) is False else arrays


def _check(name: str, stage: BaseStage, flow: Flow, document: Document) -> None:
    """Raise if a key of the stage ``name`` refers to nothing, or to something of another kind."""
    for number, other in enumerate(stage.needs):
        if other not in flow.stages:
            raise InputError(
                document.message_at(("stages", name, "needs", number), no_such("stage", other, flow.stages))
            )
    inputs = METHODS[stage.method].inputs if stage.method in METHODS else ()
    for of in inputs:
        keys = (of.key or of.name, of.matrix_key)
        if of.matrix_key and sum(getattr(stage, key) is not None for key in keys) != 1:
            reason = f"say {keys[0]}: a stage whose result it is of, or {keys[1]}: a matrix, and not both"
            raise InputError(document.message_at(("stages", name), reason))
    for key in stage.MATRICES:
        if (text := getattr(stage, key)) is not None:
            _check_matrix(text, ("stages", name, key), flow, document)
    for key, methods in stage.RESULTS.items():
        text = getattr(stage, key)
        words = words_for(stage, key)
        if text is None or text in words:
            continue
        fitting = [other for other, each in flow.stages.items() if each.method in methods]
        if text not in fitting and text not in flow.inputs:
            choices = [*fitting, *flow.inputs, *words]
            what = f"{text!r} is neither a stage of {' or '.join(methods)} nor an input"
            what += suggest_name(text, choices)
            raise InputError(
                document.message_at(("stages", name, key), f"{what}. There are {', '.join(choices)}")
            )
        if isinstance(stage, Transform) and text in flow.stages:
            reason = _mistake_of_new_rows(stage, key, text, flow.stages[text].method)
            if reason:
                raise InputError(document.message_at(("stages", name, key), reason))
        needs_rows = any(of.needs_rows for of in inputs if (of.key or of.name) == key)
        if needs_rows and getattr(flow.stages.get(text), "with_rows", True) is False:
            reason = f"{text} has with_rows: false, and {stage.method} needs its rows. Leave that out"
            raise InputError(document.message_at(("stages", name, key), reason))


def _mistake_of_new_rows(stage: BaseStage, key: str, text: str, method: str) -> str:
    """Message if a transform gives ``input`` where it takes ``neighbors``, or the reverse; else empty.

    ``text`` is the value of the key ``key``; ``method`` is that of the stage ``text``.
    """
    by_neighbors = getattr(stage, "neighbors", None) is not None
    if key != "result" or by_neighbors == (method in EMBEDDINGS):
        return ""
    if by_neighbors:
        return f"{text} is of {method}, into which rows of input are brought: give input, not neighbors"
    return f"{text} is of {method}, where new rows lie by their neighbors: give a stage of knn as neighbors"


def _check_matrix(text: str, keys: tuple[str, ...], flow: Flow, document: Document) -> None:
    reference = resolve(text, flow.inputs, flow.stages)
    choices = [*flow.inputs]
    for name, stage in flow.stages.items():
        arrays = arrays_of(stage, flow.stages)
        choices += [name] if is_matrix(stage.method) else [f"{name}.{array}" for array in arrays]
    if text in choices:
        return
    if reference is not None and reference.stage:
        stage = flow.stages[reference.stage]
        if reference.array and reference.array in matrices_of(stage.method):
            reason = (
                f"{reference.stage} has with_rows: false, so it makes no {reference.array}. Leave that out"
            )
            raise InputError(document.message_at(keys, reason))
        found = [one for one in choices if one.startswith(f"{reference.stage}.")]
        if not reference.array and found:
            reason = f"{reference.stage} is a result of several arrays: say which, {' or '.join(found)}"
            raise InputError(document.message_at(keys, reason))
    raise InputError(
        document.message_at(
            keys,
            f"there is no input or array {text!r}{suggest_name(text, choices)}. "
            f"There are {', '.join(choices)}",
        )
    )


def _refuse_circles(flow: Flow, document: Document) -> None:
    """Raise for stages that depend on each other in a circle."""
    after = {
        name: _with_predecessors(StageNode(name, stage, name), flow, flow.stages).after
        for name, stage in flow.stages.items()
    }
    for start in flow.stages:
        if way := _way_round(start, after):
            circle = [start, *way]
            chain = ", ".join(f"{a} needs {b}" for a, b in itertools.pairwise(circle))
            raise InputError(
                document.message_at(("stages", start), f"waits for itself: {chain}. Take one of these away")
            )


def _way_round(start: str, after: Mapping[str, tuple[str, ...]]) -> list[str] | None:
    """Stages on a path from ``start`` through stages that it needs back to itself; None if there is no cycle.

    ``after`` holds, by name, the stages that a stage needs. Each stage is tried once: a stage that does not
    lead back on one path does not on another.
    """
    path, way, stack = set[str](), list[str](), [iter(after[start])]
    while stack:
        other = next((each for each in stack[-1] if each not in path), None)
        if other is None:
            stack.pop()
            if way:
                way.pop()
            continue
        path.add(other)
        way.append(other)
        if other == start:
            return way
        stack.append(iter(after[other]))
    return None


# Sweeps -------------------------------------------------------------------------------------------


def _expand_sweep(flow: Flow, document: Document) -> Iterator[StageNode]:
    """Yield every stage as a step; stages that a parameter sweep changes yield one step for each value."""
    name, key, values = _sweep(flow, document)
    tails = [re.sub(r"[^\w.+-]+", "-", str(value)) for value in values]
    for number, tail in enumerate(tails):
        if tail in tails[:number]:
            raise InputError(
                document.message_at(
                    ("sweep", key, number), f"{values[number]!r} stands there twice. Take one away"
                )
            )
    dependents = _dependents_of(name, flow)
    for other, stage in flow.stages.items():
        if other not in dependents:
            needs = [[f"{n}-{tail}" for tail in tails] if n in dependents else [n] for n in stage.needs]
            yield StageNode(other, stage.model_copy(update={"needs": tuple(itertools.chain(*needs))}), other)
            continue
        for number, tail in enumerate(tails):
            one: BaseStage = stage
            if other == name:
                one = _with(stage, key, values[number], document, ("sweep", key, number), flow)
            yield StageNode(f"{other}-{tail}", _with_suffix(one, dependents, tail, flow), other)


def _refuse_same_names(steps: Iterable[StageNode], flow: Flow, document: Document) -> None:
    """Raise if a step of a parameter sweep has the name of an input or another step."""
    owners = {name: ("inputs", name) for name in flow.inputs}
    for step in sorted(steps, key=lambda step: step.name != step.stage_name):
        if step.name not in owners:
            owners[step.name] = ("stages", step.stage_name)
            continue
        kind, other = owners[step.name]
        raise InputError(
            document.message_at(
                (kind, other),
                f"the sweep in line {document.lines['sweep',]} makes a step {step.name!r} of "
                f"{step.stage_name!r} too. Rename {other!r} or {step.stage_name!r}",
            )
        )


def _sweep(flow: Flow, document: Document) -> tuple[str, str, list[Any]]:
    """The stage, the key and the values of a parameter sweep, checked."""
    assert flow.sweep is not None  # noqa: S101
    name, extra = flow.sweep.stage, flow.sweep.model_extra or {}
    if name not in flow.stages:
        raise InputError(document.message_at(("sweep", "stage"), no_such("stage", name, flow.stages)))
    keys = [key for key in keys_of([type(flow.stages[name])]) if key not in UNITS]
    for key in extra:
        if key not in keys:
            raise InputError(document.message_at(("sweep", key), no_such(f"key of {name}", key, keys)))
    if len(extra) != 1:
        problem = f"{', '.join(extra)} are several keys" if extra else "there is no key to go over"
        raise InputError(document.message_at(("sweep",), f"{problem}: write one, such as rank: [10, 20, 50]"))
    ((key, values),) = extra.items()
    if not isinstance(values, list) or not values or any(isinstance(value, list | dict) for value in values):
        raise InputError(document.message_at(("sweep", key), "write a list of values, such as [10, 20, 50]"))
    return name, key, values


def _dependents_of(name: str, flow: Flow) -> set[str]:
    """Names of the stage ``name`` and of all stages that read its result, or results made from it."""
    dependents, before = {name}, 0
    while len(dependents) > before:
        before = len(dependents)
        for other, stage in flow.stages.items():
            read = {reference.stage for _, reference in references(stage, flow.inputs, flow.stages)}
            if read & dependents:
                dependents.add(other)
    return dependents


def _with(
    stage: BaseStage, key: str, value: object, document: Document, keys: tuple[str | int, ...], flow: Flow
) -> BaseStage:
    """A copy of a stage with another ``value`` of the key ``key``, checked as the file was.

    ``keys`` is the place of the value in the document, for messages.
    """
    try:
        variant = type(stage).model_validate({**stage.model_dump(exclude_unset=True), key: value})
    except ValidationError as error:
        lines = [explain_mistake(document, type(stage), {**each, "loc": ()}, keys) for each in error.errors()]
        raise InputError(Lines(*lines)) from None
    if key in stage.MATRICES:
        _check_matrix(str(value), keys, flow, document)  # type: ignore[arg-type]
    return variant


def _with_suffix(stage: BaseStage, dependents: set[str], tail: str, flow: Flow) -> BaseStage:
    """A copy of a stage of a parameter sweep that reads the results of steps with the same value.

    ``dependents`` are the names of stages that have a step for each value; ``tail`` is the suffix of this
    value in names of steps.
    """
    new: dict[str, Any] = {"needs": tuple(f"{n}-{tail}" if n in dependents else n for n in stage.needs)}
    for key, reference in references(stage, flow.inputs, flow.stages):
        if reference.stage in dependents:
            array = f".{reference.array}" if reference.array else ""
            new[key] = f"{reference.stage}-{tail}{array}"
    return stage.model_copy(update=new)
