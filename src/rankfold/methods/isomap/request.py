"""Parameters of an embedding by paths, checked before anything is read."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from rankfold.methods.isomap.arguments import IsomapArguments
from rankfold.pipeline.errors import InputError

FEW_ROWS = 1000
"""Largest number of rows for which all rows are landmarks by default."""

MANY = 500
"""Default number of landmarks for more rows."""


@dataclass(frozen=True, slots=True)
class IsomapRequest:
    """Parameters of ``isomap`` that a result depends on."""

    n_components: int
    n_landmarks: int
    landmarks: str
    seed: int
    disconnected: str

    @classmethod
    def of(cls, rows: int, arguments: IsomapArguments) -> IsomapRequest:
        """Make a request from a caller's arguments; raises ``InputError`` for invalid ones."""
        components, given = arguments.n_components, arguments.n_landmarks
        landmarks = (rows if rows <= FEW_ROWS else MANY) if given is None else given
        if not 1 <= landmarks <= rows:
            raise InputError(f"n_landmarks must lie in 1 .. {rows}, as many as there are rows, not {given}")
        if not 1 <= components <= landmarks:
            raise InputError(
                f"n_components must lie in 1 .. {landmarks}, as many as there are landmarks, not {components}"
            )
        return cls(components, landmarks, arguments.landmarks, arguments.seed, arguments.disconnected)

    def as_dict(self) -> dict[str, Any]:
        """Parameters that identify the request, for JSON; also written to the facts of a result."""
        return {"kind": "isomap", **dataclasses.asdict(self)}
