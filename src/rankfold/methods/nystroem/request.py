"""Parameters of nystroem, checked before anything is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rankfold.methods.nystroem.arguments import LANDMARKS
from rankfold.methods.random_keys import check_seed
from rankfold.methods.similarity.request import KernelChoice, check_matrix
from rankfold.methods.svd.request import component_count, integer
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.text import suggest_name


@dataclass(frozen=True, slots=True)
class NystroemRequest:
    """Parameters that a result depends on."""

    rank: int
    choice: KernelChoice
    landmarks: str
    seed: int = 0

    @classmethod
    def of(
        cls, source: Source, rank: object, choice: tuple[object, ...], landmarks: object, seed: object
    ) -> NystroemRequest:
        """A request from arguments of a caller; raises ``InputError`` for what cannot be done.

        ``choice`` are kernel, gamma, degree and coef0.
        """
        check_matrix(source, "nystroem")
        rows, columns = source.shape
        count, key = component_count(rank), integer("seed", seed)
        if not 1 <= count <= rows:
            raise InputError(
                f"rank {count} was asked for, but {source.name} has {rows} row{'s' * (rows != 1)}, of which "
                f"landmarks are: ask for 1 to {rows}"
            )
        if landmarks not in LANDMARKS:
            raise InputError(
                f"landmarks must be one of {', '.join(LANDMARKS)}, not {landmarks!r}"
                f"{suggest_name(landmarks, LANDMARKS)}"
            )
        check_seed(key)
        return cls(count, KernelChoice.of(columns, *choice), str(landmarks), key)

    def as_dict(self) -> dict[str, Any]:
        """For the facts of a result, and what tells one request from another."""
        what = {"kind": "nystroem", "rank": self.rank, **self.choice.as_dict()}
        return {**what, "landmarks": self.landmarks, "seed": self.seed}
