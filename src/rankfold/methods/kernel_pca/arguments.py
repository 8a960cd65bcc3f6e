"""Arguments of kernel_pca: types, defaults and limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rankfold.methods.argument import Argument
from rankfold.methods.headline import Facts, effort
from rankfold.methods.registry import Method, Transformation
from rankfold.methods.similarity.arguments import COEF0, DEGREE, Coef0, Degree, Gamma, Kernel, Seed

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
    """Line of text on components of a kernel, from facts of the result; ``attempt`` is not used."""
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
