"""Pure arithmetic of a sweep over pairs of rows: blocks, groups of them, and the order in which groups meet,
that is, are compared.

A *block* of rows has one accumulator and is the unit of progress: a bit for every pair of blocks. A
*group* is a run of blocks that a task holds in memory while the blocks of another pass by. Blocks follow
from shape and chunks, groups from memory and workers: a run that was killed goes on under any other memory.

Within one set of rows every pair of groups meets once. No two tasks may have a group at the same time, since
both would write its accumulators: few groups meet in the rounds of a tournament; of many groups, some are
held while all others pass them, each at another distance. Between two sets (queries and rows) accumulators
belong to queries alone. There an *accumulator* has the lists for a run of row blocks, so that few queries
give work to many workers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.grid import Grid
from rankfold.pipeline.engine.blocks import panel_edges

Int64 = npt.NDArray[np.int64]

BLOCK_BYTES = 16 * 2**20
"""Bytes of a block in float32: large enough for products at full speed, small enough to be redone."""

BLOCK_ROWS = (512, 8192)
"""Fewest and most rows of a block, wherever chunks allow."""

TARGET_BLOCKS = 16
"""Least number of blocks of a matrix with enough rows: with two, a second thread has nothing to do."""

MOST_BLOCKS = 8192
"""Largest number of blocks, and so files of accumulators."""

TARGET_TASKS = 64
"""Number of tasks wanted between two sets of rows.

If queries have fewer blocks, each block gets several accumulators, as far as there are blocks of rows.
"""

FEW = 8
"""Largest number of groups, per task at a time, for which groups meet in a tournament: see ``order``."""

GROUPS_PER_THREAD = 2, 4
"""Number of groups for each thread: at least, and if possible.

With twice as many groups as threads all threads are busy; with more, the last round is short.
"""

MOST_TASKS = 100_000
"""Largest number of tasks of a sweep, one for each pair of groups.

There are more if twice as many groups as threads make more pairs.
"""


def block_edges(grid: Grid, columns: int) -> Int64:
    """Edges of blocks of rows with ``columns`` values, as row indices; unsplittable chunks stay whole."""
    rows = int(np.clip(min(BLOCK_BYTES // (4 * columns), grid.length // TARGET_BLOCKS), *BLOCK_ROWS))
    return panel_edges(grid, max(rows, -(-grid.length // MOST_BLOCKS)))


@dataclass(frozen=True, slots=True)
class Pairs:
    """Blocks of rows that are to be compared: with each other, or with those of another set."""

    rows: Int64
    """Edges of the blocks that have accumulators (results so far), as row indices."""

    others: Int64 | None = None
    """Edges of the blocks that those are compared with, if these belong to another set; else None."""

    @property
    def count(self) -> int:
        """Number of blocks with accumulators."""
        return len(self.rows) - 1

    @property
    def met(self) -> Int64:
        """Edges, as row indices, of the blocks that each block with an accumulator is compared with."""
        return self.rows if self.others is None else self.others

    @property
    def accumulators(self) -> int:
        """Number of accumulators of each block."""
        return 1 if self.others is None else min(len(self.met) - 1, -(-TARGET_TASKS // self.count))

    def accumulator(self, index: int) -> tuple[int, int]:
        """First block that accumulator ``index`` of a block is compared with, and the end."""
        blocks = len(self.met) - 1
        return blocks * index // self.accumulators, blocks * (index + 1) // self.accumulators

    @property
    def row_pairs(self) -> int:
        """Number of pairs of rows in all."""
        rows, others = int(self.rows[-1]), int(self.met[-1])
        return rows * (rows - 1) // 2 if self.others is None else rows * others

    def groups(self, count: int) -> Int64:
        """Edges of ``count`` groups (blocks that a task holds in memory), as indices of blocks."""
        return np.arange(count + 1, dtype=np.int64) * self.count // count

    def group_target(self, threads: int) -> int:
        """Number of groups that keep ``threads`` threads busy."""
        fewest, many = (each * threads for each in GROUPS_PER_THREAD)
        if self.others is None:
            return max(fewest, min(many, math.isqrt(2 * MOST_TASKS)))
        return -(-many // self.accumulators)

    @property
    def most_at_once(self) -> int:
        """Number of tasks that could run at once if every block were a group."""
        return -(-self.count // 2) if self.others is None else self.count * self.accumulators

    def tallest(self) -> int:
        """Number of rows of the tallest block that is held or passes."""
        return max(int(np.diff(self.rows).max()), int(np.diff(self.met).max()))

    @property
    def passing_rows(self) -> int:
        """Largest number of rows of a block that passes; 0 if there is one block, which is only held."""
        return 0 if self.others is None and self.count == 1 else self.tallest()


@dataclass(frozen=True, slots=True)
class Meeting:
    """Work of one task: hold a group of blocks in memory, and compare it with passing blocks."""

    group: tuple[int, int]
    """First held block, and the end; these have accumulators."""

    passing: tuple[int, int]
    """First passing block, and the end."""

    accumulator: int = 0
    """Index of the accumulator of each held block that takes the results; 0 within one set of rows."""


def schedule(pairs: Pairs, groups: Int64, at_once: int = 1) -> Iterator[tuple[Meeting, tuple[Any, ...]]]:
    """Yield all meetings of groups, in an order that keeps ``at_once`` tasks busy.

    ``groups`` are the edges of groups as indices of blocks. Each meeting comes with keys of what no other
    task may use meanwhile: the numbers of its two groups, or one pair of a group and an accumulator.
    """
    spans = [(int(a), int(b)) for a, b in itertools.pairwise(groups)]
    if pairs.others is not None:
        for group, span in enumerate(spans):
            for accumulator in range(pairs.accumulators):
                yield Meeting(span, pairs.accumulator(accumulator), accumulator), ((group, accumulator),)
        return
    for a, b in order(len(spans), at_once):
        yield Meeting(spans[a], spans[b]), (a, b)


def order(count: int, at_once: int) -> Iterator[tuple[int, int]]:
    """Yield every pair of ``count`` groups, and every group with itself, for ``at_once`` tasks at a time.

    As many groups are held as there are tasks, until all later groups have passed each of them. So a group is
    read once to be held, and once for each group that is held before it. Tasks wait for each other when the
    groups that are held change; with few groups a tournament takes less time.

    >>> list(order(4, 1))
    [(0, 0), (0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (1, 3), (2, 2), (2, 3), (3, 3)]
    >>> list(order(3, 2))
    [(0, 0), (1, 1), (2, 2), (1, 2), (0, 1), (2, 0)]
    """
    if count <= FEW * at_once and at_once > 1:
        yield from ((a, a) for a in range(count))
        yield from rounds(count)
        return
    for first in range(0, count, at_once):
        group = range(first, min(count, first + at_once))
        rest = range(group.stop, count)
        yield from ((a, a) for a in group)
        yield from ((group[a], group[b]) for a, b in rounds(len(group)))
        steps = max(len(group), len(rest))
        for step, index in itertools.product(range(steps), range(len(group))):
            passing = (step + index * steps // len(group)) % steps
            if passing < len(rest):
                yield group[index], rest[passing]


def in_order(count: int, at_once: int) -> int:
    """How many meetings before a meeting the one is that it waits for, so that groups stay in memory.

    0 if it does not wait. ``count`` is the number of groups, ``at_once`` that of tasks at a time.
    """
    if at_once == 1:
        return 1
    return 0 if count <= FEW * at_once else 2 * at_once


def rounds(count: int) -> Iterator[tuple[int, int]]:
    """Yield every pair of ``count`` groups once, round after round, by the circle method for players.

    In round ``r`` those meet whose sum is ``r`` modulo an odd number of players; the one who would meet
    himself meets the last player, if their number is even. The first of a pair is the same for many rounds,
    so that what he holds in memory stays there.

    >>> list(rounds(4))
    [(0, 3), (1, 2), (0, 1), (2, 3), (1, 3), (2, 0)]
    """
    odd = count - 1 + count % 2
    for r in range(odd):
        for a in range(odd):
            b = (r - a) % odd
            if a == b and odd < count:
                yield a, count - 1
            elif 0 < (b - a) % odd <= odd // 2:
                yield a, b
