"""Seeds, and what random numbers are drawn for: with a seed the key of a counter, no two purposes the same.

A number that is taken stays taken, also by what is no longer drawn: other numbers would change results.
"""

from __future__ import annotations

from enum import IntEnum, unique

from rankfold.pipeline.errors import InputError


@unique
class Purpose(IntEnum):
    """Second half of a Philox key; the first is the seed."""

    RANDOM_BLOCK = 1
    """The block that passes begin with, where no sample gives one."""

    COMPLETION = 2
    """Columns that complete a basis where the matrix has fewer directions."""

    SAMPLE_CHECK = 3
    """Random directions that half of a sample turns into leading ones, to compare with the other half."""

    SKETCH_LONG_SIDE = 4
    """Test matrices of the long side: columns [co-range, error, core]."""

    SKETCH_SHORT_SIDE = 5
    """Test matrices of the short side: columns [range, core]."""

    ROW_SIGNS = 6
    """Buckets and signs of rows in a count sketch."""

    ROW_SIGNS_AGAIN = 10
    """The same of a second sketch, where the first has chosen directions."""

    NONNEGATIVE_START = 7
    """Factors that a nonnegative factorization starts from."""

    NONNEGATIVE_ROWS = 8
    """Places of rows that it starts from."""

    EMBEDDING_ROWS = 9
    """Rows of which the neighborhoods of an embedding are looked at."""

    HELD_OUT = 12
    """Numbers of a matrix with gaps that tell the error of a model, which is not fitted to them."""

    RADIUS_ROWS = 16
    """Rows among which edges of a graph are counted before it is made."""

    LANCZOS_VECTORS = 11
    """Vectors that a Lanczos iteration begins with and takes in later: one time after the other, by rows."""

    CLUSTER_SAMPLE = 13
    """Which rows a clustering begins from."""

    CLUSTER_FAR_SAMPLE = 14
    """Which of the rows that are far from some first centers."""

    PARTITION_SAMPLE = 17
    """Rows that centers of partitions are made from."""

    PARTITION_CENTERS = 18
    """Which of these centers begin at: one round after the other."""

    RECALL_ROWS = 19
    """Rows whose true neighbors are found."""

    LAYOUT_START = 30
    """Where vertices of a layout begin, or how far from where they are given."""

    LAYOUT_SAMPLES = 31
    """Vertices that others are pushed from: one epoch after the other."""

    LAYOUT_PAIRS = 32
    """Pairs that the loss of a layout is measured on."""

    WALK_VECTORS = 33
    """Vectors that filters of a random walk begin with."""

    GRAPH_FACTORS = 34
    """What rows are multiplied with to see whether a graph is symmetric."""

    PLACED_ROWS = 35
    """Vertices that rows which are added to a layout are pushed from."""

    CLUSTER_SEEDS = 15
    """Rows of a sample that centers begin at: one time after the other, by starts."""

    PATH_LANDMARKS = 40
    """Rows that shortest paths begin at, or the first of them."""

    PATH_ROWS = 41
    """Rows of which distances in an embedding are compared with paths."""

    LANDMARK_ROWS = 50
    """Rows that similarities are told by: any, or round after round likelier where little is told yet."""

    LANDMARK_CHOICE = 51
    """Which of these are taken."""

    FOURIER_WEIGHTS = 52
    """Frequencies of random Fourier features, and their phases."""

    SIMILAR_ROWS = 53
    """Rows of whose pairs similarities are compared with their approximation."""

    SUM_TARGETS = 60
    """Targets whose sums are made source by source."""


def check_seed(seed: int) -> int:
    """A seed that is half a key: 64 bits."""
    if not 0 <= seed < 2**64:
        raise InputError(f"seed must lie in 0 .. 2**64 - 1, not {seed}")
    return seed
