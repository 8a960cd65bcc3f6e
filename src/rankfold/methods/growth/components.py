"""Components of a matrix that has gained rows: components of an earlier result, updated by the new rows."""

from __future__ import annotations

from rankfold.methods.growth.growth import Step
from rankfold.methods.growth.join_rows import new_rows
from rankfold.methods.model.model import open_model
from rankfold.methods.model.update import Update
from rankfold.methods.registry import METHODS
from rankfold.methods.svd.svd import Reduction
from rankfold.methods.task import Task
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.storage.result import Result


def grow_components(task: Task, earlier: Result | None, first: int, grows: str) -> Step:
    """Make the step by which a result of svd or pca takes in the rows that its matrix has gained.

    ``task`` decomposes all rows. ``earlier`` is the result of the ``first`` rows, or None to only check that
    a result can grow. ``grows`` must be ``"rows"``. See ``Method.grow``.
    """
    assert isinstance(task, Reduction)  # noqa: S101 - that is what the registry says
    parameters, source = task.parameters, task.source
    if grows != "rows":
        raise InputError(f"{parameters.kind} takes in rows without a second look at others: say grows rows")
    if parameters.rows:
        left = METHODS[parameters.kind].matrices[0]
        raise InputError(
            f"{left} of earlier rows change with each new one, so that nothing but a read of all rows makes "
            f"them: say with_rows=False (--no-rows) beside grows, and `transform` where {left} are wanted"
        )
    if parameters.missing == "em" or source.dtype.kind == "c":
        what = "a matrix with gaps" if parameters.missing == "em" else "complex numbers"
        raise InputError(
            f"{parameters.kind} of {what} does not go on from an earlier result: leave out grows"
        )
    if earlier is None:
        return Step(task, source.shape[0])
    rank = None if parameters.adaptive else parameters.rank
    update = Update.of(open_model(earlier), new_rows(source, first), rank, source)
    return Step(update, source.shape[0] - first)
