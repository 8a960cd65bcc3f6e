"""Parameters of an index, checked before anything is read."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from rankfold.methods.index.arguments import IndexArguments
from rankfold.methods.knn.arguments import ALIASES
from rankfold.methods.knn.pair_fold import has_bounds
from rankfold.methods.knn.request import METRICS
from rankfold.pipeline.data.source import Source, require_rows
from rankfold.pipeline.errors import InputError


@dataclass(frozen=True, slots=True)
class IndexRequest:
    """Parameters of ``index`` that a result depends on."""

    metric: str
    partition_rows: int | None
    seed: int

    @classmethod
    def of(cls, arguments: IndexArguments) -> IndexRequest:
        """Make a request from a caller's arguments."""
        metric = ALIASES.get(arguments.metric, arguments.metric)
        return cls(metric, arguments.partition_rows, arguments.seed)

    @property
    def code(self) -> int:
        """Code of the metric in kernels."""
        return int(METRICS[self.metric])

    def check(self, source: Source) -> None:
        """Raise ``InputError`` for a matrix that cannot be indexed."""
        rows, columns = source.shape
        require_rows(source)
        if rows < 1:
            raise InputError(f"{source.name} has no rows: there is nothing to index")
        if not has_bounds(self.code, columns):
            raise InputError(
                f"an index is for rows of 16 columns or more, of which {source.name} has {columns}: knn "
                "searches points of few columns in a tree, queries= too"
            )

    def as_dict(self) -> dict[str, Any]:
        """Parameters that identify the request, for JSON; also written to the facts of a result."""
        return {"kind": "index", **dataclasses.asdict(self)}
