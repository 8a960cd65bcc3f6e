"""Arguments of the measures of an embedding, and of initial positions: types, defaults and limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rankfold.methods.argument import Argument
from rankfold.methods.headline import headline_of_share
from rankfold.methods.knn.arguments import ALIASES, NAMES, SearchMetric
from rankfold.methods.registry import Input, Method, X

DEFAULT_K = 5
EUCLIDEAN = "euclidean"

SPECTRAL, RANDOM, PCA, CUSTOM = "spectral", "random", "pca", "custom"
INITS = (SPECTRAL, RANDOM, PCA, CUSTOM)
"""Names of initial positions of an embedding; the last is for callers who give positions, not a name."""

StartMatrix = Annotated[
    str | None,
    Argument("that neighbors are of, for init pca", holds="matrix", metavar="STORE", identity=False),
]
Quality = Annotated[
    str | None,
    Argument(
        "matrix of the rows, by which the embedding is measured",
        holds="matrix",
        metavar="STORE",
        identity=False,
    ),
]

EMBEDDING = Input("embedding")

Count = Annotated[int, Argument("neighbors of each row", least=1, positional=True)]
SampleRows = Annotated[
    int | str | None,
    Argument('rows that are looked at, or "all"; at most 5000 by default', least=2, part="rows"),
]
Seed = Annotated[int, Argument("key of the rows that are looked at", least=0, below=2**64)]


@dataclass(frozen=True, slots=True)
class TrustworthinessArguments:
    """Arguments of ``rankfold.trustworthiness``; ``metric`` ranks rows of the data."""

    k: Count = DEFAULT_K
    metric: Annotated[str, Argument("by which rows of the matrix are ranked", choices=(*NAMES, *ALIASES))] = (
        EUCLIDEAN
    )
    sample_rows: SampleRows = None
    seed: Seed = 0


@dataclass(frozen=True, slots=True)
class ContinuityArguments:
    """Arguments of ``rankfold.continuity``; ``metric`` is the one to find neighbors in the data by."""

    k: Count = DEFAULT_K
    metric: SearchMetric = EUCLIDEAN
    sample_rows: SampleRows = None
    seed: Seed = 0


@dataclass(frozen=True, slots=True)
class PreservationArguments:
    """Arguments of ``rankfold.neighborhood_preservation``, which describes them."""

    k: Annotated[
        int | None,
        Argument("neighbors that are compared; all that both have by default", least=1, positional=True),
    ] = None


TRUSTWORTHINESS = Method(
    "trustworthiness",
    "Whether neighbors in an embedding are neighbors in the data.",
    TrustworthinessArguments,
    "rankfold.methods.embedding.trustworthiness:trustworthiness_task",
    inputs=(X, EMBEDDING),
    loops="rankfold.methods.embedding.neighbor_ranks:warm_quality",
    edition=2,  # another sample of rows
    headline=headline_of_share,
)
CONTINUITY = Method(
    "continuity",
    "Whether neighbors in the data are neighbors in an embedding.",
    ContinuityArguments,
    "rankfold.methods.embedding.trustworthiness:continuity_task",
    inputs=(X, EMBEDDING),
    source_input=EMBEDDING.name,  # ranks are those of the embedding, lists of the matrix
    loops="rankfold.methods.embedding.neighbor_ranks:warm_quality",
    edition=2,  # another sample of rows
    headline=headline_of_share,
)
PRESERVATION = Method(
    "neighborhood_preservation",
    "What two searches for neighbors have in common.",
    PreservationArguments,
    "rankfold.methods.embedding.preservation:preservation_task",
    inputs=(Input("first", ("knn",)), Input("second", ("knn",))),
    in_process=True,
    headline=headline_of_share,
)
