"""Make a task from the arguments of a caller: plain, or with weights of rows or entries, or gaps."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from rankfold.methods.argument import is_word
from rankfold.methods.nmf.arguments import INITS, NMF, NmfArguments
from rankfold.methods.nmf.nmf import Nonnegative
from rankfold.methods.nmf.request import CustomStart, FactorRequest
from rankfold.methods.nmf.weighted.rows import (
    RowWeightedNonnegative,
    check_row_weights,
    open_row_factors,
)
from rankfold.methods.nmf.weighted.sources import Weights
from rankfold.methods.nmf.weighted.task import WeightedNonnegative
from rankfold.pipeline.data.dtypes import require_real
from rankfold.pipeline.data.origin import names_of
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.prepare.alike import require_same_rows, with_columns


def nmf_task(x: object, arguments: NmfArguments) -> Nonnegative:
    """Make the task of a nonnegative factorization of ``x``, with the weights that ``arguments`` give."""
    init: object = arguments.init
    weights, row_weights, missing = arguments.weights, arguments.row_weights, arguments.missing
    is_name = is_word(init, INITS)
    custom = None if is_name else CustomStart.of(init)
    request = FactorRequest.of(str(init) if is_name else "custom", arguments)
    source = open_source(x)
    beside = None
    if row_weights is not None:
        check_row_weights(request)
        beside = open_row_factors(row_weights, source, root=request.loss == "frobenius")
    if weights is not None or missing == "ignore":
        weighing = None if weights is None else open_source(weights)
        if weighing is not None:
            require_real("weights", weighing.dtype)
            require_same_rows(weighing, source)
            weighing = with_columns(weighing, names_of(source, 1), source.name)
        counts = Weights(weighing, ignore=missing == "ignore")
        return WeightedNonnegative.weigh(source, request, custom, counts, beside)
    plain = Nonnegative.of(source, request, custom)
    if beside is None:
        return plain
    return RowWeightedNonnegative(source, plain.parameters, row_weights=beside)


def pending_task(inputs: Sequence[object], arguments: Mapping[str, Any], start: object) -> Nonnegative:
    """Make a task, for a plan, that begins at the factors of a result still to be made.

    ``arguments`` are those besides ``init``; ``start`` is not used. See ``Method.pending_task``.
    """
    task = NMF.task(*inputs, init="random", **arguments)
    assert isinstance(task, Nonnegative)  # noqa: S101 - that is what the declaration says
    return dataclasses.replace(task, parameters=dataclasses.replace(task.parameters, init="custom"))
