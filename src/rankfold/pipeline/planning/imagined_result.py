"""A result that does not exist, or not yet: enough of it to plan tasks that use it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt

from rankfold.pipeline.data.source import Source
from rankfold.pipeline.planning.shape_only import ShapeOnly
from rankfold.pipeline.storage.result import Result


class ImaginedResult(Result):
    """A result that does not exist yet: its path, shapes of its matrices, and facts that are known.

    Its only arrays are those that were measured for the preparation steps of its matrix (``prepare=``).
    """

    def __init__(
        self,
        path: Path,
        facts: Mapping[str, Any],
        matrices: Mapping[str, ShapeOnly],
        fitted: Mapping[str, npt.NDArray[Any]] | None = None,
    ) -> None:
        self._path, self._in_memory, self._facts = path, False, dict(facts)
        self._matrices, self._fitted = matrices, dict(fitted or {})

    def __iter__(self) -> Iterator[str]:
        """Names of the arrays that are known."""
        return iter(self._fitted)

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """A known array, by its name."""
        return self._fitted[name]

    def matrix(self, name: str) -> Source:
        """Shape and type of a matrix of the result, by its name."""
        return self._matrices[name]

    def require_whole(self, *, sums: bool = False) -> None:
        """No-op: there is nothing yet that could be damaged."""
