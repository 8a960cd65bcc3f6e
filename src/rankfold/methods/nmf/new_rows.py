"""Coordinates of new rows in the factors of an nmf: rows of W under its constraint and penalty."""

from __future__ import annotations

from pathlib import Path

from rankfold.methods.model.arguments import TRANSFORM
from rankfold.methods.model.model import FactorModel, open_model
from rankfold.methods.model.transform import Projection, RowLimits
from rankfold.methods.nmf.alternation import Penalty
from rankfold.methods.nmf.row_solvers import Pivoting, limits_of
from rankfold.methods.task import Task
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.storage.result import Result


def coordinates_task(result: FactorModel | Result | str | Path, x: object) -> Task:
    """Make the task that finds coordinates of the rows of ``x`` in H of ``result``, a fitted nmf or its path.

    ``InputError`` if the factors were not fitted by least squares.
    """
    model = open_model(result, among=TRANSFORM.results)
    source, request = model.source(x), model.result.attrs["request"]
    if request["loss"] != "frobenius":
        raise InputError(
            f"{model.name} was fitted under the Kullback-Leibler divergence, but transform solves least "
            "squares"
        )
    penalty = Penalty.of(request["alpha_w"], request["l1_ratio"], model.shape[1])
    solver = Pivoting(*limits_of(request["constraint_w"]))
    return Projection.of(model, source, RowLimits(solver, penalty))
