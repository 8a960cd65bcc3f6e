"""Arguments of kernel_pca: types, defaults and limits.

Parameters of kernel_pca, checked before anything is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from rankfold.methods.argument import Argument
from rankfold.methods.headline import Facts, effort
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

TOL = 1e-8
MOST_PASSES = 200


@dataclass(frozen=True, slots=True)
class KernelPcaArguments:
    """Arguments of ``rankfold.kernel_pca``, which describes them."""

    rank: Annotated[int, Argument("components", least=1, positional=True)]
    kernel: Kernel = "rbf"
    gamma: Gamma = None
    degree: Degree = DEGREE
    coef0: Coef0 = COEF0
    tol: Annotated[float, Argument("relative error of an eigenvalue", least=0, below=1)] = TOL
    passes: Annotated[int, Argument("most sweeps over all pairs of rows", least=1)] = MOST_PASSES
    seed: Seed = 0


def headline(facts: Facts, attempt: Facts) -> str:
    """Line on components of a kernel, and their accuracy."""
    error, share = facts["largest_error_estimate"], facts["explained_share"]
    line = f"kernel_pca by {facts['method']}{effort(facts)}"
    return f"{line}; largest estimated error {error:.1e}, {share:.3g} of the trace"


KERNEL_PCA = Method(
    "kernel_pca",
    "Principal components of rows in the space of a kernel function, from all pairs of rows.",
    KernelPcaArguments,
    "rankfold.methods.kernel_pca.kernel_pca:kernel_pca_task",
    matrices=("scores",),
    arrays=("scores", "eigenvalues", "rows", "offset", "shift", "residuals", "error_estimates"),
    in_process=True,
    loops="rankfold.methods.similarity.features:warm_similarities",
    edition=2,  # copies of repeated values are looked for
    headline=headline,
    transformation=Transformation(
        "rankfold.methods.kernel_pca.new_rows:scores_task",
        "rankfold.methods.similarity.features:warm_similarities",
    ),
)


@dataclass(frozen=True, slots=True)
class KernelPcaRequest:
    """Parameters of ``kernel_pca`` that a result depends on."""

    rank: int
    choice: KernelChoice
    tol: float
    passes: int
    seed: int

    @classmethod
    def of(cls, source: Source, arguments: KernelPcaArguments) -> KernelPcaRequest:
        """Make a request from a caller's arguments; raises ``InputError`` for invalid ones."""
        check_matrix(source, "kernel_pca")
        (rows, columns), rank = source.shape, arguments.rank
        if rank > rows:
            raise InputError(
                f"rank {rank} was asked for, but {source.name} has {rows} row{'s' * (rows != 1)}, whose "
                f"matrix of pairs has as many eigenvalues: ask for 1 to {rows}"
            )
        choice = KernelChoice.of(
            columns, arguments.kernel, arguments.gamma, arguments.degree, arguments.coef0
        )
        return cls(rank, choice, arguments.tol, arguments.passes, arguments.seed)

    def as_dict(self) -> dict[str, Any]:
        """Parameters as a dict, for the facts of a result and to tell requests apart."""
        what = {"kind": "kernel_pca", "rank": self.rank, **self.choice.as_dict()}
        return {**what, "tol": self.tol, "passes": self.passes, "seed": self.seed}
