"""Parameters of kernel_pca, checked before anything is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rankfold.methods.kernel_pca.arguments import MOST_PASSES, TOL
from rankfold.methods.random_keys import check_seed
from rankfold.methods.similarity.request import KernelChoice, check_matrix
from rankfold.methods.svd.request import component_count, integer, number
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.errors import InputError


@dataclass(frozen=True, slots=True)
class KernelPcaRequest:
    """Parameters that a result depends on."""

    rank: int
    choice: KernelChoice
    tol: float = TOL
    passes: int = MOST_PASSES
    seed: int = 0

    @classmethod
    def of(
        cls, source: Source, rank: object, choice: tuple[object, ...], **others: object
    ) -> KernelPcaRequest:
        """A request from arguments of a caller; raises ``InputError`` for what cannot be done.

        ``choice`` are kernel, gamma, degree and coef0; ``others`` are tol, passes and seed.
        """
        check_matrix(source, "kernel_pca")
        rows, columns = source.shape
        count, tol = component_count(rank), number("tol", others["tol"])
        passes, seed = (integer(name, others[name]) for name in ("passes", "seed"))
        if not 1 <= count <= rows:
            raise InputError(
                f"rank {count} was asked for, but {source.name} has {rows} row{'s' * (rows != 1)}, whose "
                f"matrix of pairs has as many eigenvalues: ask for 1 to {rows}"
            )
        if not 0 <= tol < 1:
            raise InputError(f"tol must lie in 0 .. 1, not {tol}")
        if passes < 1:
            raise InputError(f"passes must be 1 or more, not {passes}")
        check_seed(seed)
        return cls(count, KernelChoice.of(columns, *choice), tol, passes, seed)

    def as_dict(self) -> dict[str, Any]:
        """For the facts of a result, and what tells one request from another."""
        what = {"kind": "kernel_pca", "rank": self.rank, **self.choice.as_dict()}
        return {**what, "tol": self.tol, "passes": self.passes, "seed": self.seed}
