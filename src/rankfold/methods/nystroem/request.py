"""Parameters of nystroem, checked before anything is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rankfold.methods.similarity.request import KernelChoice, check_matrix
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.errors import InputError


@dataclass(frozen=True, slots=True)
class NystroemRequest:
    """Parameters of ``nystroem`` that a result depends on."""

    rank: int
    choice: KernelChoice
    landmarks: str
    seed: int = 0

    @classmethod
    def of(
        cls, source: Source, rank: int, choice: tuple[object, ...], landmarks: str, seed: int
    ) -> NystroemRequest:
        """Make a request from a caller's arguments; raises ``InputError`` for invalid ones, such as more
        landmarks than rows.

        ``choice`` are kernel, gamma, degree and coef0.
        """
        check_matrix(source, "nystroem")
        rows, columns = source.shape
        if rank > rows:
            raise InputError(
                f"rank {rank} was asked for, but {source.name} has {rows} row{'s' * (rows != 1)}, of which "
                f"landmarks are: ask for 1 to {rows}"
            )
        return cls(rank, KernelChoice.of(columns, *choice), landmarks, seed)

    def as_dict(self) -> dict[str, Any]:
        """Parameters as a dict, for the facts of a result and to tell requests apart."""
        what = {"kind": "nystroem", "rank": self.rank, **self.choice.as_dict()}
        return {**what, "landmarks": self.landmarks, "seed": self.seed}
