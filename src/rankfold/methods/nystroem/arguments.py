"""Arguments of nystroem: types, defaults and limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rankfold.methods.argument import Argument
from rankfold.methods.registry import Method, Transformation
from rankfold.methods.similarity.arguments import COEF0, DEGREE, Coef0, Degree, Gamma, Kernel, Seed

LANDMARKS = ("kmeans", "rpcholesky", "uniform")
"""Ways to choose landmarks."""

CLUSTER_PASSES = 10
"""Largest number of reads of the matrix to find clusters, whose means are landmarks."""


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
