"""Arguments of the operations on a result: types, defaults and limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from rankfold.methods.argument import Argument
from rankfold.methods.headline import Facts, headline_of_factors, neighborhoods, unexplained
from rankfold.methods.registry import METHODS, Input, Method, X
from rankfold.pipeline.law import Law
from rankfold.pipeline.presentation import Presentation

HOME = "rankfold.methods.model"


@dataclass(frozen=True, slots=True)
class NoArguments:
    """Arguments of a method that takes none besides its inputs."""


@dataclass(frozen=True, slots=True)
class UpdateArguments:
    """Arguments of ``rankfold.update``."""

    rank: Annotated[int | None, Argument("components to keep; as many as there are by default", least=1)] = (
        None
    )


@dataclass(frozen=True, slots=True)
class ReconstructArguments:
    """Arguments of ``rankfold.reconstruct``."""

    rank: Annotated[int | None, Argument("leading components to use; all by default", least=1)] = None
    row_range: Annotated[
        slice | None, Argument("consecutive rows to write, START:STOP; all by default", part="rows")
    ] = None
    physical: Annotated[bool, Argument("in units of the data, without what prepare did to columns")] = False


def _fits(is_one: Callable[[Method], bool]) -> tuple[str, ...]:
    """Names of the methods of this package for which ``is_one`` is true, without those of this module."""
    others = (name for name, home in METHODS.ours.items() if not home.startswith(f"{HOME}."))
    return tuple(name for name in others if is_one(METHODS[name]))


FITS = _fits(lambda each: each.transformation is not None and not each.transformation.by_neighbors)
"""Names of methods whose results give coordinates to new rows of a matrix."""

EMBEDDINGS = _fits(lambda each: each.transformation is not None and each.transformation.by_neighbors)
"""Names of methods whose embeddings accept new rows, which are placed by their neighbors among the old
rows."""

FACTORIZATIONS = _fits(lambda each: each.factors is not None)
"""Names of methods whose results are two factors of the matrix."""

ORDERED = _fits(lambda each: each.factors is not None and bool(each.factors.spectrum))
"""Names of methods whose results are two factors and singular values, which order the components."""


def _headline_of_rows(facts: Facts, attempt: Facts) -> str:
    """One line of text on a result of transform, from its facts and those of its last run (``attempt``)."""
    rows, asked = facts["input"]["shape"][0], facts["request"]
    if "residual_variance" in facts:
        line = f"{rows} rows in {asked['rank']} components of isomap; {unexplained(facts)}"
        return f"{line}{neighborhoods(facts)}"
    if "rows_of_the_fit" in facts:
        among = f"{facts['rows_of_the_fit']} rows of {asked['of'].replace('_', ' ')}"
        line = f"{rows} rows placed by {asked['k']} neighbors each among {among}"
        return f"{line}; relative standard error {facts['standard_error']:.2g}"
    if "epochs" in facts:
        return f"{rows} rows placed in a layout by {asked['k']} neighbors each, {facts['epochs']} epochs"
    return headline_of_factors(facts, attempt)


TRANSFORM = Method(
    "transform",
    "Coordinates of new rows in the components of a result, or in an embedding.",
    NoArguments,
    f"{HOME}.transform:transform_task",
    laws={"U": Law(("row", "component"))},
    inputs=(Input("result", FITS), X),
    arrays=tuple(f"{METHODS[name].matrices[0]} if of={name}" for name in (*FITS, *EMBEDDINGS)),
    loops=f"{HOME}.transform:warm_transform",
    headline=_headline_of_rows,
    presentation=Presentation(like_fit=True),
)
UPDATE = Method(
    "update",
    "Principal components of the samples of a result and of new ones.",
    UpdateArguments,
    f"{HOME}.update:update_task",
    inputs=(Input("result", ("pca", "update")), X),
    matrices=("components",),
    presentation=Presentation(sweeps={"rows": "adding rows"}),
)
CHECK = Method(
    "check",
    "Residuals and orthogonality of a result, by one more pass over its matrix.",
    NoArguments,
    f"{HOME}.check:check_task",
    inputs=(Input("result", ORDERED, needs_rows=True), X),
    arrays=("left_residuals", "right_residuals"),
)
RECONSTRUCT = Method(
    "reconstruct",
    "The matrix as the components of a result have it.",
    ReconstructArguments,
    f"{HOME}.reconstruct:reconstruct_task",
    inputs=(Input("result", FACTORIZATIONS, needs_rows=True),),
    laws={"X": Law(("chosen_row", "column"), may_be_nan=True)},
    arrays=("X",),
)
