"""The task of sums and forces, from checked arguments."""

from __future__ import annotations

from rankfold.methods.sums.arguments import KernelSumArguments
from rankfold.methods.sums.points import open_weights
from rankfold.methods.sums.request import sum_request
from rankfold.methods.sums.summing import KernelSums
from rankfold.pipeline.data.source import Source, require_rows
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.formats.open_like import open_beside


def kernel_sum_task(x: object, arguments: KernelSumArguments) -> KernelSums:
    """Make the task of sums of a kernel and of forces."""
    source, others = open_points(x, arguments.targets)
    return KernelSums(source, others, open_weights(arguments.weights, source), sum_request(arguments))


def open_points(x: object, targets: object) -> tuple[Source, Source | None]:
    """Open sources, and targets if given; targets go through the same preparation steps (``prepare=``)."""
    source = open_source(x)
    others = None if targets is None else open_beside(targets, source)
    for matrix in (source, others):
        if matrix is not None:
            require_rows(matrix)
    if others is not None and others.shape[1] != source.shape[1]:
        raise InputError(
            f"targets {others.name} have {others.shape[1]} columns, but {source.name} has {source.shape[1]}. "
            "Give rows of the same columns, in the same order"
        )
    return source, others
