"""A result that is not there, or not yet: enough of it to plan what is made of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rankfold.pipeline.data.source import Source
from rankfold.pipeline.planning.shape_only import ShapeOnly
from rankfold.pipeline.storage.result import Result


class ImaginedResult(Result):
    """A result that is to come: where it will be, shapes of its matrices, and facts that are known."""

    def __init__(self, path: Path, facts: Mapping[str, Any], matrices: Mapping[str, ShapeOnly]) -> None:
        self._path, self._in_memory, self._facts = path, False, dict(facts)
        self._matrices = matrices

    def matrix(self, name: str) -> Source:
        """Shape and type of a matrix of the result, by its name."""
        return self._matrices[name]

    def require_whole(self, *, sums: bool = False) -> None:
        """See ``Result``: there is nothing yet that could be damaged."""
