"""Parameters of kernel_pca, checked before anything is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rankfold.methods.kernel_pca.arguments import KernelPcaArguments
from rankfold.methods.similarity.request import KernelChoice, check_matrix
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.errors import InputError


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
        """Make a request on the matrix ``source`` from arguments; ``InputError`` for invalid ones."""
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
        """Parameters by name, as JSON types: part of the facts of a result."""
        what = {"kind": "kernel_pca", "rank": self.rank, **self.choice.as_dict()}
        return {**what, "tol": self.tol, "passes": self.passes, "seed": self.seed}
