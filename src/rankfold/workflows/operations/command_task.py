"""Turn a command line into a task (checked call of a method) that can be planned, if it is to run elsewhere
or later.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from rankfold.api.execute import worker_jobs
from rankfold.cluster.executor import choose_executor, positive_count
from rankfold.cluster.queues.system import JobScript
from rankfold.cluster.slurm.profile import Profile
from rankfold.cluster.slurm.submission import allocation_of
from rankfold.methods.growth.growth import grow
from rankfold.methods.model.arguments import CHECK, RECONSTRUCT, TRANSFORM, UPDATE
from rankfold.methods.model.transform import embedding_of
from rankfold.methods.registry import METHODS
from rankfold.methods.task import Task, make_plan
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.planning.plan import Plan
from rankfold.workflows import options
from rankfold.workflows.commands.model import matrix_of, rows_of, window
from rankfold.workflows.commands.reduce import rank_of_update

OptionValues = Mapping[str, Any]
"""Values of a command's options by names of parameters, including defaults."""


def plan_command(name: str, values: OptionValues, profile: Profile) -> Plan:
    """Plan the command ``name`` with given options, for one job with the settings of a profile.

    Raises
    ------
    RankfoldError
        For everything that would make the job fail at once: a missing matrix, arguments that do not fit
        together, memory that the nodes will not have, a task that does not fit into it.
    """
    if "out" not in values:
        raise InputError(
            f"{name} says what it finds where it was started, and keeps no result on a file system that all "
            f"nodes share: give it here, or submit a workflow with a stage of method: {name}"
        )
    place = _group(options.place, values)
    task = task_of_command(name, values)
    workers, threads = (positive_count(key, place[key]) for key in ("workers", "threads"))
    nodes = allocation_of(profile, workers, threads, place["memory"])
    return make_plan(task, nodes.budget)


def jobs_of_command(name: str, values: OptionValues) -> list[JobScript]:
    """Scripts of the worker jobs that the command ``name`` would submit with these options; may be empty."""
    executor = choose_executor(**{key: values[key] for key in options.place()})
    task = task_of_command(name, values)
    if "out" not in values:
        raise InputError(
            f"{name} keeps no result that its jobs and this machine share, so it has none: give it without "
            "--cluster"
        )
    overwrite = values["overwrite"]
    if values.get("grows") is not None:
        growing = grow(task, values["grows"], values["out"], executor.budget.device, redo=overwrite)
        if growing is None:
            return []
        task, overwrite = growing, overwrite or growing.replaces
    where = {"out": values["out"], "scratch": values["scratch"], "overwrite": overwrite}
    return worker_jobs(task, executor, what=f"workers of {name}", **where)


def task_of_command(name: str, values: OptionValues) -> Task:
    """Make the task that the command ``name`` with these options would run."""
    method = METHODS[name.replace("-", "_")]
    if name in BUILDERS:
        return BUILDERS[name](values)
    arguments = _group(options.arguments(method), values)
    if method.inputs[0].matrix_key:
        return method.task(
            matrix_of(values[method.inputs[0].name], _group(options.view, values)), **arguments
        )
    if not method.of_matrix:
        return method.task(*(values[each.name] for each in method.inputs), **arguments)
    if values.get("update") is not None:
        return UPDATE.task(values["update"], _rows(values), rank=rank_of_update(arguments))
    return method.task(_matrix(values), **arguments)


BUILDERS: dict[str, Callable[[OptionValues], Task]] = {
    "transform": lambda values: TRANSFORM.task(values["result"], _new_rows(values)),
    "reconstruct": lambda values: RECONSTRUCT.task(
        values["result"],
        rank=values["rank"],
        row_range=window(values["select_rows"]),
        physical=values["physical"],
    ),
    "check": lambda values: CHECK.task(values["result"], _rows(values)),
}
"""Functions, by command, that make the task of a command whose options are not just inputs and arguments."""


def _new_rows(values: OptionValues) -> object:
    """New samples for ``transform``; for an embedding, the path of the result that holds their neighbors."""
    return _rows(values, "new") if embedding_of(values["result"]) is None else str(values["new"])


def _rows(values: OptionValues, key: str = "store") -> object:
    return rows_of(str(values[key]), _group(options.view, values))


def _matrix(values: OptionValues) -> Source:
    return open_source(values["store"], **_group(options.view, values))


def _group(group: Callable[..., dict[str, Any]], values: OptionValues) -> dict[str, Any]:
    """Call ``group``, a function that turns options into arguments, with the values given for its options."""
    return group(**{key: values[key] for key in inspect.signature(group).parameters})
