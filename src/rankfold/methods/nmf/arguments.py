"""Arguments of nmf: types, defaults and limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rankfold.methods.argument import Argument
from rankfold.methods.registry import Factors, Method, Transformation
from rankfold.pipeline.presentation import CellElements, Presentation

SOLVERS = ("auto", "hals", "bpp", "mu", "admm")
LOSSES = ("frobenius", "kullback-leibler")
INITS = ("auto", "compressed", "nndsvd", "rows", "random", "custom")

MISSING = ("raise", "ignore")

DEFAULT_FALL = 1e-3
"""Default of the relative fall of the error in a pass below which passes end."""

Bound = float | str
"""Constraint of a factor: ``"nonnegative"``, ``"simplex"``, or the largest number allowed."""


@dataclass(frozen=True, slots=True)
class NmfArguments:
    """Arguments of ``rankfold.nmf``."""

    rank: Annotated[int, Argument("number of components", least=1, positional=True)]
    weights: Annotated[
        str | None,
        Argument("what each entry counts: a matrix of the same shape", holds="matrix", metavar="STORE"),
    ] = None
    missing: Annotated[
        str, Argument("raise, or ignore: NaN are errors, or do not count", choices=MISSING)
    ] = "raise"
    row_weights: Annotated[
        str | None, Argument("what each row counts: a matrix of one column", holds="matrix", metavar="STORE")
    ] = None
    loss: Annotated[str, Argument("frobenius or kullback-leibler", choices=LOSSES)] = "frobenius"
    solver: Annotated[str, Argument("auto, hals, bpp, mu or admm", choices=SOLVERS)] = "auto"
    init: Annotated[
        str,
        Argument(
            "auto, compressed, nndsvd, rows, random, or an earlier result", holds=("nmf",), choices=INITS[:-1]
        ),
    ] = "auto"
    alpha_W: Annotated[
        float, Argument("penalty of W, as scikit-learn weighs it", least=0, part="alpha_w")
    ] = 0.0
    alpha_H: Annotated[Bound, Argument("penalty of H; same for that of W", part="alpha_h")] = "same"
    l1_ratio: Annotated[float, Argument("share of penalties that are sums, not squares", least=0, most=1)] = (
        0.0
    )
    constraint_W: Annotated[
        Bound, Argument("nonnegative, simplex, or the largest number of W", part="constraint_w")
    ] = "nonnegative"
    constraint_H: Annotated[Bound, Argument("the same of H, by columns", part="constraint_h")] = "nonnegative"
    tol: Annotated[float, Argument("relative fall of the error in a pass to stop at", least=0, below=1)] = (
        DEFAULT_FALL
    )
    grad_tol: Annotated[
        float, Argument("norm of the projected gradient to stop at", least=0, part="gradient")
    ] = 0.0
    time_limit: Annotated[
        float, Argument("seconds after which no pass begins; 0 for no limit", least=0, part="seconds")
    ] = 0.0
    passes: Annotated[
        int | None,
        Argument("most passes over the matrix; 8 by default, 50 for mu, 25 with weights or gaps", least=1),
    ] = None
    seed: Annotated[int, Argument("key of the random start", least=0, below=2**64)] = 0


NMF = Method(
    "nmf",
    "Nonnegative factors: W, H.",
    NmfArguments,
    "rankfold.methods.nmf.task:nmf_task",
    matrices=("W", "H"),
    arrays=("W", "H", "W_gram?", "W_product?"),
    growth="rankfold.methods.growth.factors:grow_factors",
    loops="rankfold.methods.nmf.row_solvers:warm_factors",
    edition=2,  # compression believes a sample where it tells of other rows
    transformation=Transformation(
        "rankfold.methods.nmf.new_rows:coordinates_task", "rankfold.methods.nmf.row_solvers:warm_coordinates"
    ),
    factors=Factors(),
    presentation=Presentation(
        counts_passes=True,
        plots=("patterns", "maps", "loadings"),
        quick_plot="loadings",
        cells=CellElements("nmf", "X_nmf", "NMF"),
    ),
    pending="rankfold.methods.nmf.task:pending_task",
)
