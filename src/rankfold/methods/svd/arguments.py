"""Arguments of svd, pca and qr, and the three methods that take them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Annotated, Any

from rankfold.methods.argument import Argument
from rankfold.methods.registry import Factors, Method, Transformation
from rankfold.methods.svd.solvers.solver import SOLVERS
from rankfold.pipeline.presentation import CellElements, Presentation

CHOICES = ("auto", *SOLVERS.names())
MISSING = ("raise", "mean", "em")
"""Treatments of NaN: raise an error, fill in column means, or complete by a low-rank model."""

PRECISIONS = ("float32", "float64", "tf32")
"""Allowed values of the argument ``precision``, the type of products with the matrix."""

HOME = "rankfold.methods.svd.svd"

BY_SHAPE = ("method", "passes", "oversampling")
"""Entries of a request whose defaults follow from the shape of the matrix: see ``Method.by_shape``."""


def share_as_tol(rank: object) -> str:
    """Advice for a rank that is a share of the variance, as scikit-learn takes it; empty for other ranks.

    >>> share_as_tol(0.95)
    'for components that explain 95 % of the variance say tol=0.2236, the root of 1 - 0.95, and no rank'
    """
    if not isinstance(rank, Real) or isinstance(rank, Integral) or not 0 < float(rank) < 1:
        return ""
    share = float(rank)
    tol = math.sqrt(1 - share)
    tol = math.floor(1e4 * tol) / 1e4 or tol  # rounded down: not less than that share
    return (
        f"for components that explain {100 * share:.6g} % of the variance say tol={tol:.4g}, the root of "
        f"1 - {share:g}, and no rank"
    )


Rank = Annotated[
    int | None,
    Argument(
        "number of components; found from tol if not given; all for tsqr without either",
        "Number of components. Without it as many as leave out the share ``tol`` of the Frobenius norm; "
        'without either all, by "tsqr", of up to 16384 rows or columns.',
        least=1,
        positional=True,
        advice=share_as_tol,
    ),
]
Tol = Annotated[
    float | None,
    Argument(
        "estimated relative error to stop at, 1e-4 by default; without rank, of all",
        "Estimated relative error at which a component counts as found, 1e-4 by default. Without ``rank``: "
        "the share of the Frobenius norm that all components may leave out.",
        above=0,
        below=1,
    ),
]
Solver = Annotated[
    str,
    Argument(
        f"{', '.join(CHOICES[:-1])} or {CHOICES[-1]}",
        'How components are found: see ``docs/choosing.md``. "auto" takes the one that a sample of the '
        "matrix and a nominal core speak for.",
        choices=CHOICES,
        part="method",
    ),
]
Passes = Annotated[
    int | None,
    Argument(
        "most passes over the matrix; 8 by default, more if sparse",
        "Most reads of the matrix; 8 by default, more of sparse ones.",
        least=1,
    ),
]
Oversampling = Annotated[
    int | None, Argument("columns of a block beyond the rank; a quarter of it by default", least=0)
]
Precision = Annotated[
    str | None,
    Argument(
        "type of products with the matrix; by default float32 where it holds the data, else float64",
        "Type of products with the matrix, and of its factors; by default float32 where it holds the data, "
        'else float64. "tf32", by ``solver="subspace"`` on a GPU: float32, but rounded to 11 bits in passes '
        "that others follow.",
        choices=PRECISIONS,
    ),
]
Missing = Annotated[
    str,
    Argument(
        "what becomes of NaN: refused, the mean of its column, or completed by the components asked for",
        'What becomes of NaN. "raise": an error. "mean": the mean of its column, as by '
        '``prepare="impute_mean"``. "em": what a model of ``rank`` components expects, which is fitted by '
        "passes before all others.",
        choices=MISSING,
    ),
]
Seed = Annotated[int, Argument("key of the random start", least=0, below=2**64)]
Rows = Annotated[
    bool,
    Argument(
        "leave out U or scores",
        "Form and write what has a row for each: U, scores.",
        option="--no-rows",
        part="rows",
    ),
]


def unsaid(arguments: Mapping[str, Any]) -> str:
    """Message for a workflow whose ``arguments`` leave open how many components it asks for; else empty."""
    if arguments["rank"] is not None or arguments["tol"] is not None or arguments["solver"] != "auto":
        return ""
    return (
        "say how many components, rank, or what share of the norm to leave out, tol; all of them are "
        "solver: tsqr"
    )


@dataclass(frozen=True, slots=True)
class SvdArguments:
    """Arguments of ``rankfold.svd``."""

    rank: Rank = None
    tol: Tol = None
    solver: Solver = "auto"
    passes: Passes = None
    oversampling: Oversampling = None
    seed: Seed = 0
    with_rows: Rows = True
    precision: Precision = None
    missing: Missing = "raise"


@dataclass(frozen=True, slots=True)
class PcaArguments:
    """Arguments of ``rankfold.pca``."""

    rank: Rank = None
    tol: Tol = None
    solver: Solver = "auto"
    passes: Passes = None
    oversampling: Oversampling = None
    seed: Seed = 0
    center: Annotated[bool, Argument("subtract column means")] = True
    scale: Annotated[bool, Argument("divide columns by their standard deviation")] = False
    whiten: Annotated[bool, Argument("scores of unit variance")] = False
    with_rows: Rows = True
    precision: Precision = None
    missing: Missing = "raise"


@dataclass(frozen=True, slots=True)
class QrArguments:
    """Arguments of ``rankfold.qr``."""

    passes: Passes = None
    seed: Annotated[int, Argument("key of what is random", least=0, below=2**64)] = 0
    with_rows: Annotated[
        bool, Argument("leave out Q", "Form and write ``Q``.", option="--no-rows", part="rows")
    ] = True


SVD = Method(
    "svd",
    "Leading singular triplets: U, s, Vt.",
    SvdArguments,
    f"{HOME}:svd_task",
    matrices=("U", "Vt"),
    arrays=("U if rows", "s", "Vt", "residuals", "error_estimates"),
    growth="rankfold.methods.growth.components:grow_components",
    loops=f"{HOME}:warm_solver",
    edition=6,  # auto holds dense matrices that are nearly square in memory
    transformation=Transformation("rankfold.methods.model.transform:projection_task"),
    factors=Factors("s", left_is_unit=True),
    by_shape=BY_SHAPE,
    presentation=Presentation(counts_passes=True, cells=CellElements("svd", "X_svd", "SVD", scale="s")),
    unsaid=unsaid,
)
PCA = Method(
    "pca",
    "Principal components: scores, components, mean.",
    PcaArguments,
    f"{HOME}:pca_task",
    matrices=("scores", "components"),
    arrays=(
        "scores if rows",
        "components",
        "mean",
        "scale if scale",
        "singular_values",
        "explained_variance",
        "explained_variance_ratio",
        "residuals",
        "error_estimates",
    ),
    growth="rankfold.methods.growth.components:grow_components",
    loops=f"{HOME}:warm_solver",
    edition=6,  # auto holds dense matrices that are nearly square in memory
    transformation=Transformation("rankfold.methods.model.transform:projection_task"),
    factors=Factors("singular_values"),
    by_shape=BY_SHAPE,
    presentation=Presentation(counts_passes=True, cells=CellElements("pca", "X_pca", "PCs")),
    unsaid=unsaid,
)
QR = Method(
    "qr",
    "Orthonormal basis of the columns, and R: Q, R.",
    QrArguments,
    f"{HOME}:qr_task",
    matrices=("Q", "R"),
    arrays=("Q if rows", "R"),
    presentation=Presentation(counts_passes=True),
)
