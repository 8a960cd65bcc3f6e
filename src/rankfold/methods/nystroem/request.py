"""Parameters of nystroem, checked before anything is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rankfold.methods.nystroem.arguments import NystroemArguments
from rankfold.methods.similarity.request import KernelChoice, check_matrix
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.errors import InputError


@dataclass(frozen=True, slots=True)
class NystroemRequest:
    """Parameters of ``nystroem`` that a result depends on."""

    rank: int
    choice: KernelChoice
    landmarks: str
    seed: int

    @classmethod
    def of(cls, source: Source, arguments: NystroemArguments) -> NystroemRequest:
        """Make a request on the matrix ``source`` from a caller's arguments.

        Raises ``InputError`` for invalid ones, such as more landmarks than rows.
        """
        check_matrix(source, "nystroem")
        (rows, columns), rank = source.shape, arguments.rank
        if rank > rows:
            raise InputError(
                f"rank {rank} was asked for, but {source.name} has {rows} row{'s' * (rows != 1)}, of which "
                f"landmarks are: ask for 1 to {rows}"
            )
        choice = KernelChoice.of(
            columns, arguments.kernel, arguments.gamma, arguments.degree, arguments.coef0
        )
        return cls(rank, choice, arguments.landmarks, arguments.seed)

    def as_dict(self) -> dict[str, Any]:
        """Parameters by name, as JSON types: part of the facts of a result."""
        what = {"kind": "nystroem", "rank": self.rank, **self.choice.as_dict()}
        return {**what, "landmarks": self.landmarks, "seed": self.seed}
