"""Make a task from the arguments of a caller: plain, or with weights of rows or entries, or gaps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rankfold.methods.nmf.arguments import INITS, MISSING
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
from rankfold.pipeline.data.places import names_of
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.prepare.alike import require_same_rows, with_columns
from rankfold.pipeline.text import suggest_name


def nmf_task(
    x: object,
    rank: object = None,
    *,
    init: object = "auto",
    weights: object = None,
    missing: object = "raise",
    row_weights: object = None,
    **arguments: Any,
) -> Nonnegative:
    """Make the checked task of a nonnegative factorization from the arguments of ``rankfold.nmf``."""
    is_name = isinstance(init, str) and (init in INITS or not Path(init).exists())
    custom = None if is_name else CustomStart.of(init)
    parameters = {name.lower(): value for name, value in arguments.items()}
    request = FactorRequest.of(rank=rank, init=str(init) if is_name else "custom", **parameters)
    if missing not in MISSING:
        raise InputError(
            f"missing must be one of {', '.join(MISSING)}, not {missing!r}{suggest_name(missing, MISSING)}"
        )
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
