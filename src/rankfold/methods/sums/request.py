"""Parameters of sums and densities, checked before anything is read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from rankfold.methods.sums.arguments import (
    BANDWIDTH_RULES,
    SOFTENED,
    DensityArguments,
    KernelSumArguments,
)
from rankfold.methods.sums.kernels import Kernel, bandwidth_by_rule, density_kernel, force_kernel
from rankfold.pipeline.errors import InputError


@dataclass(frozen=True, slots=True)
class SumRequest:
    """Parameters of a kernel sum or of densities."""

    kind: str
    kernel: str
    length: float
    """Softening or bandwidth."""

    forces: bool
    tol: float
    seed: int

    @property
    def law(self) -> Kernel:
        """The kernel as a law of distances, with its scale and factor."""
        if self.kind == "density":
            return density_kernel(self.kernel, self.length)
        softened = self.kernel in SOFTENED
        return force_kernel(self.kernel, self.length * softened, 1.0 if softened else self.length)

    def as_dict(self) -> dict[str, Any]:
        """Parameters as a dict, for the facts of a result and to tell requests apart."""
        name = "softening" if self.kernel in SOFTENED else "bandwidth"
        asked = {"kind": self.kind, "kernel": self.kernel, name: self.length, "tol": self.tol}
        if self.kind == "density":
            return {**asked, "seed": self.seed}
        return {**asked, "forces": self.forces, "seed": self.seed}


def sum_request(arguments: KernelSumArguments) -> SumRequest:
    """Request of a kernel sum; raises ``InputError`` for parameters that the kernel does not take."""
    kernel, bandwidth = arguments.kernel, arguments.bandwidth
    if kernel in SOFTENED:
        length = arguments.softening
        if bandwidth is not None:
            raise InputError(f"{kernel} has no bandwidth: leave it out, or say softening")
    else:
        length = _bandwidth(1.0 if bandwidth is None else bandwidth)
        if arguments.softening:
            raise InputError(f"{kernel} has no softening: leave it out, or say bandwidth")
    return SumRequest("kernel_sum", kernel, length, arguments.forces, arguments.tol, arguments.seed)


def density_request(arguments: DensityArguments, shape: tuple[int, int]) -> SumRequest:
    """Request of densities of samples, a matrix of this shape."""
    bandwidth = arguments.bandwidth
    if isinstance(bandwidth, str) and bandwidth in BANDWIDTH_RULES:
        length = bandwidth_by_rule(bandwidth, *shape)
    else:
        length = _bandwidth(bandwidth)
    return SumRequest("density", arguments.kernel, length, False, arguments.tol, arguments.seed)


def _bandwidth(value: object) -> float:
    try:
        length = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        length = math.nan
    if not 0 < length < math.inf or isinstance(value, bool):
        raise InputError(
            f"bandwidth must be a number above 0, or for densities one of {', '.join(BANDWIDTH_RULES)}, not "
            f"{value!r}"
        )
    square = length * length
    if not 0 < square * square < math.inf:
        raise InputError(
            f"bandwidth {length:g} is beyond what its fourth power can be: scale the coordinates"
        )
    return length
