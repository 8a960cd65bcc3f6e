"""What is asked of a measure of an embedding, and which rows are looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.methods.knn.arguments import ALIASES
from rankfold.methods.knn.request import METRICS
from rankfold.methods.random_keys import Purpose
from rankfold.methods.svd.request import integer
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.errors import InputError

Int64 = npt.NDArray[np.int64]

SAMPLED = 5000
"""Rows that are looked at unless more are asked for: the error is then some thousandth."""


@dataclass(frozen=True, slots=True)
class EmbeddingQualityRequest:
    """Parameters that a measure of neighborhoods depends on."""

    kind: str
    """``"trustworthiness"``, or ``"continuity"``."""

    k: int
    metric: str
    """By which rows are ranked."""

    rows: int
    """That are looked at; all of them if they are as many."""

    of_rows: int
    seed: int

    @classmethod
    def of(
        cls,
        kind: str,
        ranked: Source,
        listed: Source,
        k: object,
        metric: object,
        sample_rows: object,
        seed: object,
    ) -> EmbeddingQualityRequest:
        """From what a caller says; raises ``InputError`` for what cannot be measured."""
        count, (m, _) = integer("k", k), ranked.shape
        if listed.shape[0] != m:
            raise InputError(
                f"{kind} compares the same rows twice, but {ranked.name} has {m} rows and {listed.name} has "
                f"{listed.shape[0]}. Give a matrix and an embedding of all its rows, in the same order"
            )
        if m < 3:
            raise InputError(f"{ranked.name} has {m} row{'s' * (m != 1)}: {kind} needs at least 3")
        if not 1 <= count < m / 2:
            raise InputError(
                f"k {count} was asked for, but {kind} is defined for k from 1 to less than half of the rows, "
                f"and {ranked.name} has {m}: ask for 1 to {(m - 1) // 2}"
            )
        name = ALIASES.get(str(metric), str(metric))
        if name not in METRICS:
            raise InputError(f"rows cannot be ranked by metric {metric!r}: take one of {', '.join(METRICS)}")
        number = integer("seed", seed)
        if not 0 <= number < 2**64:
            raise InputError(f"seed must lie in 0 .. 2**64 - 1, not {number}")
        return cls(kind, count, name, _looked_at(sample_rows, m), m, number)

    @property
    def exact(self) -> bool:
        """Whether all rows are looked at."""
        return self.rows == self.of_rows

    @property
    def code(self) -> int:
        """The metric as kernels know it."""
        return int(METRICS[self.metric])

    def sample(self) -> Int64 | None:
        """Rows that are looked at, in order; None for all."""
        return None if self.exact else drawn_rows(self.of_rows, self.rows, self.seed)

    def as_dict(self) -> dict[str, Any]:
        """For the facts of a result, and what tells one request from another."""
        asked = {"kind": self.kind, "k": self.k, "metric": self.metric, "rows": self.rows}
        return asked if self.exact else {**asked, "seed": self.seed}


def _looked_at(rows: object, most: int) -> int:
    if rows is None:
        return min(most, SAMPLED)
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


def drawn_rows(rows: int, count: int, seed: int) -> Int64:
    """``count`` of ``rows`` rows without replacement, all such sets being equally likely; sorted.

    Whatever is missing is drawn anew until there are enough, which favors no row. Memory follows ``count``:
    from half of the rows on, those that are left out are drawn.
    """
    bits = np.random.Philox(key=np.array([seed, Purpose.EMBEDDING_ROWS], np.uint64))
    generator, few = np.random.Generator(bits), min(count, rows - count)
    drawn = np.empty(0, np.int64)
    while len(drawn) < few:
        drawn = np.union1d(drawn, generator.integers(rows, size=few - len(drawn)))
    if few == count:
        return drawn
    left = np.ones(rows, np.bool_)
    left[drawn] = False
    return np.flatnonzero(left)
