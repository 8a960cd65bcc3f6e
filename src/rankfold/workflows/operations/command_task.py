"""A command line as a task that can be planned: for a command that is to run elsewhere, or later."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from rankfold.api.execute import Task
from rankfold.api.neighbors import search_of
from rankfold.api.reductions import factors_of, reduction_of
from rankfold.cluster.place import positive_count
from rankfold.cluster.slurm.profile import Profile
from rankfold.cluster.slurm.submission import allocation_of
from rankfold.methods.model.check import Verification
from rankfold.methods.model.model import fitted
from rankfold.methods.model.reconstruct import Reconstruction
from rankfold.methods.model.transform import Projection
from rankfold.methods.model.update import Update
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.planning.plan import Plan
from rankfold.workflows import options
from rankfold.workflows.commands.project import window
from rankfold.workflows.commands.reduce import rank_of_update

Given = Mapping[str, Any]
"""What was typed, by the names of parameters; defaults too."""


def plan_command(name: str, given: Given, profile: Profile) -> Plan:
    """The plan of a command in one job of a profile.

    Raises
    ------
    RankfoldError
        Whatever the job would refuse: a matrix that is not there, arguments that do not fit together, memory
        that the nodes will not have, a task that does not fit into it.
    """
    if "out" not in given:
        raise InputError(
            f"{name} says what it finds where it was started, and keeps no result on a file system that all "
            f"nodes share: give it here, or submit a workflow with a stage of method: {name}"
        )
    place = _group(options.place, given)
    task = task_of_command(name, given)
    workers, threads = (positive_count(key, place[key]) for key in ("workers", "threads"))
    nodes = allocation_of(profile, workers, threads, place["memory"])
    return task.plan(nodes.budget)


def task_of_command(name: str, given: Given) -> Task:
    """What a command would carry out."""
    return BUILDERS[name](given)


def _svd(given: Given) -> Task:
    return reduction_of(_matrix(given), "svd", *_asked(given), rows=not given["no_rows"])


def _pca(given: Given) -> Task:
    flags = _group(options.centring, given)
    if given["update"] is not None:
        rank = rank_of_update(_group(options.request, given), flags)
        return Update.of(fitted(given["update"]), _matrix(given), rank)
    return reduction_of(_matrix(given), "pca", *_asked(given), rows=not given["no_rows"], **flags)


def _qr(given: Given) -> Task:
    asked = _group(options.factorisation, given)
    how = (None, None, "tsqr", asked["passes"], None, asked["seed"])
    return reduction_of(_matrix(given), "qr", *how, rows=asked["rows"])


def _nmf(given: Given) -> Task:
    asked = {key.lower(): value for key, value in _group(options.nonnegative, given).items()}
    return factors_of(_matrix(given), asked.pop("init"), **asked)


def _knn(given: Given) -> Task:
    return search_of(_matrix(given), **_group(options.search, given))


def _transform(given: Given) -> Task:
    return Projection.of(fitted(given["result"], among=("svd", "pca", "nmf")), _matrix(given, "new"))


def _reconstruct(given: Given) -> Task:
    fit = fitted(given["result"], among=("svd", "pca", "nmf"))
    return Reconstruction.of(fit, rank=given["rank"], rows=window(given["select_rows"]))


def _check(given: Given) -> Task:
    return Verification.of(fitted(given["result"]), _matrix(given))


BUILDERS: dict[str, Callable[[Given], Task]] = {
    "svd": _svd,
    "pca": _pca,
    "qr": _qr,
    "nmf": _nmf,
    "knn": _knn,
    "transform": _transform,
    "reconstruct": _reconstruct,
    "check": _check,
}


def _matrix(given: Given, key: str = "store") -> Source:
    return open_source(given[key], **_group(options.view, given))


def _asked(given: Given) -> tuple[Any, ...]:
    asked = _group(options.request, given)
    return tuple(asked[key] for key in ("rank", "tol", "method", "passes", "oversampling", "seed"))


def _group(group: Callable[..., dict[str, Any]], given: Given) -> dict[str, Any]:
    """What a group of options makes of what was given."""
    return group(**{key: given[key] for key in inspect.signature(group).parameters})
