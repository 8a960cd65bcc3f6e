"""Arguments of nystroem: types, defaults and limits.

Parameters of nystroem, checked before anything is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from rankfold.methods.argument import Argument
from rankfold.methods.registry import Method, Transformation
from rankfold.methods.similarity.arguments import (
    COEF0,
    DEGREE,
    Coef0,
    Degree,
    Gamma,
    Kernel,
    KernelChoice,
    Seed,
    check_matrix,
)
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.errors import InputError

LANDMARKS = ("kmeans", "rpcholesky", "uniform")
"""Ways to choose landmarks."""

CLUSTER_PASSES = 10
"""Most reads of the matrix that means of clusters may take."""


@dataclass(frozen=True, slots=True)
class NystroemArguments:
    """Arguments of ``rankfold.nystroem``, which describes them."""

    rank: Annotated[int, Argument("landmarks, and features of each row", least=1, positional=True)] = 100
    kernel: Kernel = "rbf"
    gamma: Gamma = None
    degree: Degree = DEGREE
    coef0: Coef0 = COEF0
    landmarks: Annotated[
        str,
        Argument(
            "means of clusters; rows by randomly pivoted Cholesky; or any rows",
            choices=LANDMARKS,
        ),
    ] = LANDMARKS[0]
    seed: Seed = 0


NYSTROEM = Method(
    "nystroem",
    "Features of rows whose products approximate a kernel function, by similarities to landmarks.",
    NystroemArguments,
    "rankfold.methods.nystroem.nystroem:nystroem_task",
    matrices=("features",),
    arrays=("features", "points", "landmarks", "normalization", "shift"),
    loops="rankfold.methods.similarity.features:warm_similarities",
    transformation=Transformation(
        "rankfold.methods.nystroem.new_rows:features_task",
        "rankfold.methods.similarity.features:warm_similarities",
    ),
)


@dataclass(frozen=True, slots=True)
class NystroemRequest:
    """Parameters of ``nystroem`` that a result depends on."""

    rank: int
    choice: KernelChoice
    landmarks: str
    seed: int

    @classmethod
    def of(cls, source: Source, arguments: NystroemArguments) -> NystroemRequest:
        """Make a request from a caller's arguments; raises ``InputError`` for invalid ones, such as more
        landmarks than rows.
        """
        check_matrix(source, "nystroem")
        (rows, columns), rank = source.shape, arguments.rank
        if rank > rows:
            raise InputError(
                f"rank {rank} was asked for, but {source.name} has {rows} row{'s' * (rows != 1)}, of which "
                f"landmarks are: ask for 1 to {rows}"
            )
        choice = KernelChoice.of(
            columns, arguments.kernel, arguments.gamma, arguments.degree, arguments.coef0
        )
        return cls(rank, choice, arguments.landmarks, arguments.seed)

    def as_dict(self) -> dict[str, Any]:
        """Parameters as a dict, for the facts of a result and to tell requests apart."""
        what = {"kind": "nystroem", "rank": self.rank, **self.choice.as_dict()}
        return {**what, "landmarks": self.landmarks, "seed": self.seed}
