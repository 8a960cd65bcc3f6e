"""Parameters of an index, checked before anything is read."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from rankfold.methods.index.arguments import NAMES
from rankfold.methods.knn.arguments import ALIASES
from rankfold.methods.knn.pair_fold import has_bounds
from rankfold.methods.knn.request import METRICS
from rankfold.methods.random_keys import check_seed
from rankfold.methods.svd.request import integer
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.errors import InputError


@dataclass(frozen=True, slots=True)
class IndexRequest:
    """Parameters of ``index`` that a result depends on."""

    metric: str = "euclidean"
    partition_rows: int | None = None
    seed: int = 0

    @classmethod
    def of(cls, metric: object, partition_rows: object, seed: object) -> IndexRequest:
        """A request from arguments of a caller; raises ``InputError`` for those that cannot be."""
        name = ALIASES.get(str(metric), str(metric))
        if name not in NAMES:
            raise InputError(
                f"an index is by {', '.join(NAMES)}, by which near rows share what they are near to, not by "
                f"{metric!r}. Ask knn for neighbors without one"
            )
        rows = None if partition_rows is None else integer("partition_rows", partition_rows)
        if rows is not None and rows < 2:
            raise InputError(f"partition_rows must be at least 2, not {rows}")
        key = check_seed(integer("seed", seed))
        return cls(name, rows, key)

    @property
    def code(self) -> int:
        """The metric as kernels know it."""
        return int(METRICS[self.metric])

    def check(self, source: Source) -> None:
        """Raise ``InputError`` for a matrix that cannot be indexed."""
        rows, columns = source.shape
        if source.row_grid.scattered:
            raise InputError(
                f"{source.name} is compressed by columns, so that rows cannot be read by themselves. Write "
                "it by rows (CSR) first"
            )
        if rows < 1:
            raise InputError(f"{source.name} has no rows: there is nothing to index")
        if not has_bounds(self.code, columns):
            raise InputError(
                f"an index is for rows of 16 columns or more, of which {source.name} has {columns}: knn "
                "searches points of few columns in a tree, queries= too"
            )

    def as_dict(self) -> dict[str, Any]:
        """For the facts of a result, and what tells one request from another."""
        return {"kind": "index", **dataclasses.asdict(self)}
