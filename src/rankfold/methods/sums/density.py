"""The task of densities of samples, from checked arguments.

A density is a sum of kernels, divided by the integral of the kernel and by the total weight of the samples.
Sums are computed relative to the kernel at the nearest sample with a weight, and so is the logarithm: far
from all samples, where every kernel underflows, it is right to the last digits. Where a compact kernel
reaches no sample it is minus infinity.
"""

from __future__ import annotations

from rankfold.methods.sums.arguments import DENSITY_KERNELS, DENSITY_TOL
from rankfold.methods.sums.kernel_sum import open_points
from rankfold.methods.sums.points import open_weights
from rankfold.methods.sums.request import density_request
from rankfold.methods.sums.summing import KernelSums


def density_task(
    x: object,
    targets: object = None,
    *,
    bandwidth: object = 1.0,
    kernel: str = DENSITY_KERNELS[0],
    weights: object = None,
    tol: float = DENSITY_TOL,
    seed: int = 0,
) -> KernelSums:
    """Task of densities of the samples ``x``, at these or at ``targets``.

    Takes the arguments of ``rankfold.density``.
    """
    source, others = open_points(x, targets)
    request = density_request(kernel, bandwidth, tol, seed, source.shape)
    return KernelSums(source, others, open_weights(weights, source), request)
