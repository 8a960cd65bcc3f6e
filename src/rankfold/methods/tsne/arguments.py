"""Arguments of tsne: types, defaults and limits, and what steps follow from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from rankfold.methods.argument import Argument, request_values
from rankfold.methods.embedding.arguments import INITS, Quality, StartMatrix
from rankfold.methods.fuzzy_graph.arguments import Metric, Recall
from rankfold.methods.headline import Facts, dimensions, neighborhoods
from rankfold.methods.registry import LAYOUT, Input, Method, Transformation
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.presentation import CellElements, Presentation
from rankfold.pipeline.text import suggest_name

STARTS = ("pca", "umap", "tsne", "spectral", "diffusion_map", "isomap")
"""Methods whose results may be the initial positions."""


NEIGHBORS_OF_PERPLEXITY = 3
"""Neighbors that get affinities, for each unit of perplexity: weights of neighbors beyond are next to
nothing."""

MEASURED = 50
"""Number of steps from one measurement of the divergence to the next."""

LEAST_RATE = 200.0
"""Lower bound of the default learning rate: few rows would stay where early attraction has drawn them
together."""

STRONGEST = 1e6
"""Largest value of arguments that are factors of forces, since positions are float32."""


@dataclass(frozen=True, slots=True)
class TsneArguments:
    """Arguments of ``rankfold.tsne``, which describes them."""

    n_components: Annotated[int, Argument("dimensions of the embedding", least=1, below=1024)] = 2
    perplexity: Annotated[
        float | str,
        Argument(
            "neighbors that count, three times as many are needed; several with commas between",
            python_type="float | str | Sequence[float]",
        ),
    ] = 30.0
    n_iter: Annotated[int, Argument("steps after the early ones", least=0, below=2**31)] = 500
    early_exaggeration: Annotated[
        float, Argument("of attraction in early steps", least=0, most=STRONGEST)
    ] = 12.0
    early_exaggeration_iter: Annotated[int, Argument("early steps", least=0, below=2**31)] = 250
    exaggeration: Annotated[float, Argument("of attraction after that", least=0, most=STRONGEST)] = 1.0
    learning_rate: Annotated[
        float | None, Argument("of steps; rows over exaggeration by default", least=0, most=1e12)
    ] = None
    initial_momentum: Annotated[float, Argument("of early steps", least=0, below=1)] = 0.8
    final_momentum: Annotated[float, Argument("of steps after that", least=0, below=1)] = 0.8
    min_grad_norm: Annotated[
        float, Argument("length of the gradient at which to stop", least=0, most=STRONGEST)
    ] = 1e-7
    init: Annotated[
        str,
        Argument(
            "spectral, random, pca of --matrix, or a result to begin at", holds=STARTS, choices=INITS[:-1]
        ),
    ] = INITS[0]
    matrix: StartMatrix = None
    metric: Metric = None
    min_recall: Recall = None
    seed: Annotated[int, Argument("key of the random numbers", least=0, below=2**64)] = 0
    quality: Quality = None

    @property
    def perplexities(self) -> tuple[float, ...]:
        """The perplexities whose affinities are averaged, in ascending order."""
        return _perplexities(self.perplexity)

    def check(self) -> None:
        """Raise ``InputError`` if ``init`` is not known."""
        if self.init not in INITS:
            raise InputError(
                f"init {self.init!r} is not known"
                f"{suggest_name(self.init, INITS)}: "
                f"take {', '.join(INITS[:-1])}, an array of positions, or a "
                f"result of {', '.join(STARTS)}"
            )

    @property
    def steps(self) -> int:
        """Number of steps in all: early ones, and ``n_iter``."""
        return self.early_exaggeration_iter + self.n_iter

    @property
    def measures(self) -> int:
        """Upper bound on the number of times that the divergence is measured."""
        return -(-self.steps // MEASURED) + 1

    def exaggeration_of(self, step: int) -> float:
        """Factor of the attraction in a step, counted from 0."""
        return self.early_exaggeration if step < self.early_exaggeration_iter else self.exaggeration

    def rate_of(self, step: int, rows: int) -> float:
        """Learning rate of a step, counted from 0, for ``rows`` rows."""
        if self.learning_rate is not None:
            return self.learning_rate
        exaggeration = self.exaggeration_of(step)
        return max(LEAST_RATE, rows / exaggeration if exaggeration > 0 else float(rows))

    def rests_before(self, step: int, rows: int) -> bool:
        """True if velocities and gains are reset before ``step``: never but at the end of early steps.

        With learning rates above rows over exaggeration, steps swing from side to side, which leaves gains
        near their least. Both are reset then, as in scikit-learn; for more rows they are kept, as openTSNE
        does.
        """
        if not step or step != self.early_exaggeration_iter:
            return False
        return self.rate_of(step - 1, rows) * self.early_exaggeration > rows

    def momentum_of(self, step: int) -> float:
        """Momentum of a step, counted from 0."""
        return self.initial_momentum if step < self.early_exaggeration_iter else self.final_momentum

    def neighbors(self, rows: int, k: int) -> int:
        """Number of neighbors of each row that get affinities, out of the k in its list, for ``rows`` rows.

        Raises
        ------
        InputError
            A perplexity is too large for the rows or for k.
        """
        largest = max(self.perplexities)
        wanted = max(1, min(rows - 1, int(NEIGHBORS_OF_PERPLEXITY * largest)))
        if largest > wanted:
            raise InputError(
                f"perplexity {largest:g} is more than the {rows - 1} neighbors that {rows} rows have: ask "
                f"for at most {rows - 1}, and better for {max(1, (rows - 1) // NEIGHBORS_OF_PERPLEXITY)}"
            )
        if k < wanted:
            raise InputError(
                f"perplexity {largest:g} takes {wanted} neighbors of each row, but there are {k}: search for "
                f"more, rf.knn(x, k={wanted}), or ask for a perplexity of {k / NEIGHBORS_OF_PERPLEXITY:.4g}"
            )
        return wanted

    def as_dict(self) -> dict[str, Any]:
        """Arguments that determine the embedding, by name, as JSON types: part of the facts of a result."""
        identity = request_values(self)
        del identity["perplexity"]
        return {"kind": "tsne", "perplexities": list(self.perplexities), **identity}


def _perplexities(asked: object) -> tuple[float, ...]:
    """Perplexities as floats from a float, a sequence or a text with commas; ascending, each once."""
    if isinstance(asked, str):
        asked = asked.split(",")
    each = asked if isinstance(asked, Sequence) or hasattr(asked, "__len__") else (asked,)
    try:
        values = tuple(sorted({float(one) for one in each}))  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise InputError(f"perplexity must be a number, or several: not {asked!r}") from None
    if not values or not all(math.isfinite(one) and one >= 1 for one in values):
        raise InputError(f"perplexity must be a number of neighbors from 1 on, not {asked!r}")
    return values


def headline(facts: Facts, attempt: Facts) -> str:
    """Line of text on an embedding and its divergence, from facts of the result; ``attempt`` is not used."""
    quality = f"divergence {facts['kl_divergence']:.4f}, repulsion off by {facts['repulsion_error']:.1e}"
    return f"{dimensions(facts)}, {facts['steps']} steps; {quality}{neighborhoods(facts)}"


TSNE = Method(
    "tsne",
    "Rows in few dimensions, each with its neighbors in the neighborhood.",
    TsneArguments,
    "rankfold.methods.tsne.tsne:tsne_task",
    topic=LAYOUT,
    inputs=(Input("neighbors", ("knn",), matrix_key="input"),),
    matrices=("embedding",),
    arrays=("embedding", "history"),
    edition=3,  # with few rows, velocities and gains are reset after early steps
    loops="rankfold.methods.tsne.descent:warm_descent",
    headline=headline,
    transformation=Transformation(
        "rankfold.methods.tsne.transform:new_rows_task",
        "rankfold.methods.tsne.transform:warm_new_rows",
        by_neighbors=True,
    ),
    presentation=Presentation(cells=CellElements("tsne", "X_tsne")),
    pending="rankfold.methods.tsne.tsne:pending_task",
)
