"""The task of densities of samples, from checked arguments.

A density is a sum of kernels, divided by the integral of the kernel and by the total weight of the samples.
Sums are computed relative to the kernel at the nearest sample with a weight, and so is the logarithm: far
from all samples, where every kernel underflows, it is right to the last digits. Where a compact kernel
reaches no sample it is minus infinity.
"""

from __future__ import annotations

from rankfold.methods.sums.arguments import DensityArguments
from rankfold.methods.sums.kernel_sum import open_points
from rankfold.methods.sums.points import open_weights
from rankfold.methods.sums.request import density_request
from rankfold.methods.sums.summing import KernelSums


def density_task(x: object, arguments: DensityArguments) -> KernelSums:
    """Make the task of densities of the samples ``x``, at these or at targets."""
    source, others = open_points(x, arguments.targets)
    request = density_request(arguments, source.shape)
    return KernelSums(source, others, open_weights(arguments.weights, source), request)
