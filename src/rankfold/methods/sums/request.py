"""Parameters of sums and densities, checked before anything is read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from rankfold.methods.random_keys import check_seed
from rankfold.methods.sums.arguments import (
    BANDWIDTH_RULES,
    DENSITY_KERNELS,
    FORCE_KERNELS,
    SOFTENED,
)
from rankfold.methods.sums.kernels import Kernel, bandwidth_by_rule, density_kernel, force_kernel
from rankfold.methods.svd.request import integer, number
from rankfold.pipeline.errors import InputError


@dataclass(frozen=True, slots=True)
class SumRequest:
    """Parameters of either method."""

    kind: str
    kernel: str
    length: float
    """Softening or bandwidth."""

    forces: bool
    tol: float
    seed: int

    @property
    def law(self) -> Kernel:
        """The kernel as a law."""
        if self.kind == "density":
            return density_kernel(self.kernel, self.length)
        softened = self.kernel in SOFTENED
        return force_kernel(self.kernel, self.length * softened, 1.0 if softened else self.length)

    def as_dict(self) -> dict[str, Any]:
        """For the facts of a result, and what tells one request from another."""
        name = "softening" if self.kernel in SOFTENED else "bandwidth"
        asked = {"kind": self.kind, "kernel": self.kernel, name: self.length, "tol": self.tol}
        if self.kind == "density":
            return {**asked, "seed": self.seed}
        return {**asked, "forces": self.forces, "seed": self.seed}


def sum_request(
    kernel: object, softening: object, bandwidth: object, forces: object, tol: object, seed: object
) -> SumRequest:
    """Of a sum; raises ``InputError`` for what cannot be."""
    if kernel not in FORCE_KERNELS:
        raise InputError(f"kernel {kernel!r} is not known here: take one of {', '.join(FORCE_KERNELS)}")
    if kernel in SOFTENED:
        length = number("softening", softening)
        if bandwidth is not None:
            raise InputError(f"{kernel} has no bandwidth: leave it out, or say softening")
        if not 0 <= length < math.inf:
            raise InputError(f"softening must be a number of at least 0, not {softening!r}")
    else:
        length = _bandwidth(1.0 if bandwidth is None else bandwidth)
        if number("softening", softening):
            raise InputError(f"{kernel} has no softening: leave it out, or say bandwidth")
    if not isinstance(forces, bool):
        raise InputError(f"forces must be true or false, not {forces!r}")
    return SumRequest("kernel_sum", str(kernel), length, forces, _tol(tol), _seed(seed))


def density_request(
    kernel: object, bandwidth: object, tol: object, seed: object, shape: tuple[int, int]
) -> SumRequest:
    """Of densities of samples of a shape."""
    if kernel not in DENSITY_KERNELS:
        raise InputError(f"kernel {kernel!r} is not known here: take one of {', '.join(DENSITY_KERNELS)}")
    if isinstance(bandwidth, str) and bandwidth in BANDWIDTH_RULES:
        length = bandwidth_by_rule(bandwidth, *shape)
    else:
        length = _bandwidth(bandwidth)
    return SumRequest("density", str(kernel), length, False, _tol(tol), _seed(seed))


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


def _tol(value: object) -> float:
    tol = number("tol", value)
    if not 0 <= tol < 1:
        raise InputError(f"tol must be at least 0, for exact sums, and below 1, not {value!r}")
    return tol


def _seed(value: object) -> int:
    return check_seed(integer("seed", value))
