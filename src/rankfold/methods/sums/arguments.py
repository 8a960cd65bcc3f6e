"""Arguments of kernel_sum and density: types, defaults and limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rankfold.methods.argument import Argument
from rankfold.methods.headline import Facts
from rankfold.methods.registry import SEARCH, Method

SOFTENED = ("gravity", "coulomb")
WIDE = ("gaussian", "cauchy", "squared_cauchy")
FORCE_KERNELS = (*SOFTENED, *WIDE)
"""Kernels of ``kernel_sum``, which have forces: those with a softening, and those with a bandwidth."""

DENSITY_KERNELS = ("gaussian", "tophat", "epanechnikov", "exponential", "linear", "cosine")
BANDWIDTH_RULES = ("scott", "silverman")

DEFAULT_TOL = 1e-3
DENSITY_TOL = 1e-4


@dataclass(frozen=True, slots=True)
class KernelSumArguments:
    """Arguments of ``rankfold.kernel_sum``, which describes them."""

    weights: Annotated[
        str | None,
        Argument(
            "one column: what each source counts, of any sign",
            holds="matrix",
            metavar="STORE",
            positional=True,
        ),
    ] = None
    targets: Annotated[
        str | None, Argument("rows at which sums are wanted instead", holds="matrix", metavar="STORE")
    ] = None
    kernel: Annotated[
        str, Argument("gravity, coulomb, gaussian, cauchy or squared_cauchy", choices=FORCE_KERNELS)
    ] = FORCE_KERNELS[0]
    softening: Annotated[float, Argument("length below which gravity and coulomb level off", least=0)] = 0.0
    bandwidth: Annotated[
        float | None, Argument("length of gaussian, cauchy and squared_cauchy, 1 by default", above=0)
    ] = None
    forces: Annotated[
        bool, Argument("whether forces are wanted", option="--no-forces", default_text=False)
    ] = True
    tol: Annotated[
        float, Argument("relative error of 99 of 100 targets at most; 0 for exact sums", least=0, below=1)
    ] = DEFAULT_TOL
    seed: Annotated[int, Argument("key of the random numbers", least=0, below=2**64)] = 0


@dataclass(frozen=True, slots=True)
class DensityArguments:
    """Arguments of ``rankfold.density``, which describes them."""

    targets: Annotated[
        str | None,
        Argument(
            "rows at which densities are wanted instead", holds="matrix", metavar="STORE", positional=True
        ),
    ] = None
    bandwidth: Annotated[
        float | str, Argument("length of the kernel, scott or silverman", choices=BANDWIDTH_RULES)
    ] = 1.0
    kernel: Annotated[str, Argument(", ".join(DENSITY_KERNELS), choices=DENSITY_KERNELS)] = DENSITY_KERNELS[0]
    weights: Annotated[
        str | None, Argument("one column: what each sample counts", holds="matrix", metavar="STORE")
    ] = None
    tol: Annotated[
        float, Argument("relative error of 99 of 100 densities at most; 0 for exact ones", least=0, below=1)
    ] = DENSITY_TOL
    seed: Annotated[int, Argument("key of the random numbers", least=0, below=2**64)] = 0


def headline(facts: Facts, attempt: Facts) -> str:
    """Line of text on kernel sums and their error, from facts of the result; ``attempt`` is not used."""
    line = f"{facts['kind']} by {facts['method']}, {facts['request']['kernel']}"
    line += f"; {facts['pairs']} pairs and {facts['nodes']} nodes"
    bound = facts["error_bound"]
    return line + (f", error of 99 of 100 targets below {bound:.2g}" if bound > 0 else "")


KERNEL_SUM = Method(
    "kernel_sum",
    "Sums of a kernel over all sources at every target, and forces: N bodies by a tree.",
    KernelSumArguments,
    "rankfold.methods.sums.summing:kernel_sum_task",
    topic=SEARCH,
    matrices=("forces",),
    arrays=("sums", "forces if forces"),
    loops="rankfold.methods.sums.work:warm_sums",
    headline=headline,
)

DENSITY = Method(
    "density",
    "Densities of samples by a kernel, as logarithms.",
    DensityArguments,
    "rankfold.methods.sums.summing:density_task",
    topic=SEARCH,
    arrays=("log_density",),
    loops="rankfold.methods.sums.work:warm_sums",
    headline=headline,
)
