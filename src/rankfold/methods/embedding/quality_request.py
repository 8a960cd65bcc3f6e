"""Parameters of a measure of an embedding, and its sample of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.methods.argument import integer
from rankfold.methods.knn.arguments import ALIASES
from rankfold.methods.knn.request import METRICS
from rankfold.methods.random_keys import Purpose, check_seed
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.errors import InputError

Int64 = npt.NDArray[np.int64]

DEFAULT_ROWS = 5000
"""Number of sampled rows by default: the standard error is then some thousandth."""


@dataclass(frozen=True, slots=True)
class EmbeddingQualityRequest:
    """Parameters that trustworthiness or continuity depends on; ``of_rows`` is the number of all rows."""

    kind: str
    """The measure to compute: ``"trustworthiness"`` or ``"continuity"``."""

    k: int
    metric: str
    """Metric by which rows are ranked; neighbors may be found by another one."""

    rows: int
    """Number of sampled rows; ``of_rows`` if all rows are used."""

    of_rows: int
    seed: int

    @classmethod
    def of(
        cls,
        kind: str,
        rank_source: Source,
        neighbor_source: Source,
        k: object,
        metric: object,
        sample_rows: object,
        seed: object,
    ) -> EmbeddingQualityRequest:
        """Make a request from a caller's arguments; raises ``InputError`` if they cannot be measured.

        ``rank_source`` is the matrix that ranks rows, ``neighbor_source`` the one that neighbors are found
        in.
        """
        count, (m, _) = integer("k", k), rank_source.shape
        if neighbor_source.shape[0] != m:
            raise InputError(
                f"{kind} compares the same rows twice, but {rank_source.name} has {m} rows and "
                f"{neighbor_source.name} has {neighbor_source.shape[0]}. Give a matrix and an embedding of "
                "all its rows, in the same order"
            )
        if m < 3:
            raise InputError(f"{rank_source.name} has {m} row{'s' * (m != 1)}: {kind} needs at least 3")
        if not 1 <= count < m / 2:
            raise InputError(
                f"k {count} was asked for, but {kind} is defined for k from 1 to less than half of the rows, "
                f"and {rank_source.name} has {m}: ask for 1 to {(m - 1) // 2}"
            )
        name = ALIASES.get(str(metric), str(metric))
        if name not in METRICS:
            raise InputError(f"rows cannot be ranked by metric {metric!r}: take one of {', '.join(METRICS)}")
        number = check_seed(integer("seed", seed))
        return cls(kind, count, name, _count_rows(sample_rows, m), m, number)

    @property
    def exact(self) -> bool:
        """True if all rows are used."""
        return self.rows == self.of_rows

    @property
    def code(self) -> int:
        """Number of the metric in kernels: a ``Metric``."""
        return int(METRICS[self.metric])

    def sample(self) -> Int64 | None:
        """(rows,) row numbers of the sampled rows, ascending; None if all rows are used."""
        return None if self.exact else draw_rows(self.of_rows, self.rows, self.seed)

    def as_dict(self) -> dict[str, Any]:
        """Parameters by name, as JSON types: part of the facts of a result."""
        fields = {"kind": self.kind, "k": self.k, "metric": self.metric, "rows": self.rows}
        return fields if self.exact else {**fields, "seed": self.seed}


def _count_rows(rows: object, most: int) -> int:
    if rows is None:
        return min(most, DEFAULT_ROWS)
    if isinstance(rows, str):
        if rows == "all":
            return most
        raise InputError(f'sample_rows must be a number, None or "all", not {rows!r}')
    count = integer("rows", rows)
    if not 2 <= count <= most:
        raise InputError(
            f'sample_rows {count} was asked for: look at 2 to {most} rows, or at sample_rows="all", since '
            "from fewer than 2 nothing is known of the error"
        )
    return count


def draw_rows(rows: int, count: int, seed: int) -> Int64:
    """(count,) numbers of rows drawn from ``rows`` rows without replacement, all sets equally likely; sorted.

    Repeated rows are drawn again until there are enough, which favors no row. Memory follows ``count``: for
    more than half of the rows, the rows left out are drawn instead.
    """
    bits = np.random.Philox(key=np.array([seed, Purpose.EMBEDDING_ROWS], np.uint64))
    generator, few = np.random.Generator(bits), min(count, rows - count)
    sample = np.empty(0, np.int64)
    while len(sample) < few:
        sample = np.union1d(sample, generator.integers(rows, size=few - len(sample)))
    if few == count:
        return sample
    rest = np.ones(rows, np.bool_)
    rest[sample] = False
    return np.flatnonzero(rest)
