"""Neighbors in a matrix that has gained rows: the exact lists of a search over all rows.

The distance of a pair is one fixed sum over its two rows, and (distance, id) decides between equal ones. So
lists of old rows that new rows are merged into equal those of a search from the beginning, to the byte.
"""

from __future__ import annotations

import dataclasses

from rankfold.methods.growth.growth import Step
from rankfold.methods.knn.extend import EarlierLists
from rankfold.methods.knn.knn import Neighbors
from rankfold.methods.task import Task
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.storage.result import Result


def grow_lists(task: Task, earlier: Result | None, first: int, grows: str) -> Step:
    """Make the step by which exact lists of neighbors take in the rows that their matrix has gained.

    New rows are compared with all rows, and merged into the lists of old ones. ``task`` searches all rows.
    ``earlier`` is the result of the ``first`` rows, or None to only check that a result can grow. ``grows``
    must be ``"rows"``. See ``Method.grow``.
    """
    if not isinstance(task, Neighbors) or task.queries is not None or task.earlier is not None:
        raise InputError(
            "lists grow that are of rows among themselves: leave out grows, or queries and index"
        )
    if grows != "rows":
        raise InputError("exact lists have nothing to polish: say grows rows")
    if task.is_approximate or task.parameters.needs_tree:
        how = "approximate lists" if task.is_approximate else "a search that needs a tree"
        raise InputError(f"{how} cannot be gone on with: leave out grows, or search exactly, by pairs")
    if earlier is None:
        return Step(task, task.source.shape[0])
    lists = EarlierLists.of(earlier, task.source, task.parameters)
    return Step(dataclasses.replace(task, earlier=lists), task.source.shape[0])
