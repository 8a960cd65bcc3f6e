"""Seeds, and purposes of random numbers: seed and purpose are the key of a counter-based generator.

Each purpose has a number of its own. A number stays reserved when its purpose is no longer used, since
renumbering would change results.
"""

from __future__ import annotations

from enum import IntEnum, unique

from rankfold.pipeline.errors import InputError


@unique
class Purpose(IntEnum):
    """Purpose of random numbers: the second half of a Philox key, whose first half is the seed."""

    RANDOM_BLOCK = 1
    """Random block of vectors that passes over a matrix start with, where no sample of its rows provides
    one."""

    COMPLETION = 2
    """Random columns that complete an orthonormal basis, if the rank of the matrix is smaller than asked
    for."""

    SAMPLE_CHECK = 3
    """Random test vectors for a check of a sample of rows: half of the rows map them to leading directions,
    and the other half measures how well these fit."""

    SKETCH_LONG_SIDE = 4
    """Random test matrices of a sketch along the longer side, side by side: columns [co-range, error, core].
    """

    SKETCH_SHORT_SIDE = 5
    """Random test matrices of a sketch along the shorter side, side by side: columns [range, core]."""

    ROW_SIGNS = 6
    """Buckets and signs of the rows in a count sketch."""

    ROW_SIGNS_AGAIN = 10
    """Buckets and signs of the rows in a second count sketch, after directions were chosen by the first."""

    NONNEGATIVE_START = 7
    """Random starting factors of a nonnegative factorization."""

    NONNEGATIVE_ROWS = 8
    """Positions of rows that a nonnegative factorization starts from."""

    EMBEDDING_ROWS = 9
    """Sampled rows whose neighborhoods in the data and in an embedding are compared."""

    HELD_OUT = 12
    """Held-out entries of a matrix with gaps, which measure the error of a model not fitted to them."""

    RADIUS_ROWS = 16
    """Sampled rows between which edges of a graph are counted, to estimate their number."""

    LANCZOS_VECTORS = 11
    """Starting vectors of a Lanczos iteration and vectors added later. Each draw uses other row numbers of
    the generator, so that no two are equal."""

    CLUSTER_SAMPLE = 13
    """Rows that a clustering starts from."""

    CLUSTER_FAR_SAMPLE = 14
    """Sample of the rows that are far from the first centers of a clustering."""

    PARTITION_SAMPLE = 17
    """Sampled rows from which centers of partitions are computed."""

    PARTITION_CENTERS = 18
    """Sampled rows at which centers of partitions start, round by round."""

    RECALL_ROWS = 19
    """Rows whose exact neighbors are found, to measure the recall of approximate neighbors."""

    LAYOUT_START = 30
    """Starting positions of the vertices of a layout, or noise added to given ones."""

    LAYOUT_SAMPLES = 31
    """Negative samples of a layout: vertices that repel others, epoch by epoch."""

    LAYOUT_PAIRS = 32
    """Sampled pairs on which the loss of a layout is measured, and vertices at which errors of repulsion
    are."""

    WALK_VECTORS = 33
    """Random block of vectors that the first filter of a random walk is applied to, to find eigenvectors."""

    GRAPH_FACTORS = 34
    """Random vector that a graph is multiplied with, to check whether it is symmetric."""

    PLACED_ROWS = 35
    """Negative samples of rows that are added to a layout: vertices that repel them."""

    CLUSTER_SEEDS = 15
    """Rows of a sample at which centers of clusters start."""

    PATH_LANDMARKS = 40
    """Rows that shortest paths start from (landmarks), or the first of them."""

    PATH_ROWS = 41
    """Rows whose distances in an embedding are compared with shortest paths."""

    LANDMARK_ROWS = 50
    """Candidates for landmarks, drawn uniformly, or round by round with more weight on rows that are
    approximated badly so far."""

    LANDMARK_CHOICE = 51
    """Choice of landmarks among the candidates."""

    FOURIER_WEIGHTS = 52
    """Frequencies and phases of random Fourier features."""

    SIMILAR_ROWS = 53
    """Rows between which similarities are compared with their approximation."""

    SUM_TARGETS = 60
    """Sampled targets (points where kernel sums are wanted) whose sums are also computed directly over all
    points, to measure errors."""


def check_seed(seed: int) -> int:
    """Return ``seed`` if it fits 64 bits, unsigned, as the first half of a key; else raise ``InputError``."""
    if not 0 <= seed < 2**64:
        raise InputError(f"seed must lie in 0 .. 2**64 - 1, not {seed}")
    return seed
