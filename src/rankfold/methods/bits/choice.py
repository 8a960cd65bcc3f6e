"""Decide whether a search is one of sets, and of packed bits or sparse rows: the lists are the same.

Hamming distance is one of sets for a boolean matrix, where every number is a bit. Other numbers are compared
one by one, as by other metrics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from rankfold.kernels.bits.bit_meeting import words_of
from rankfold.methods.bits.folds import NearestBits, NearestSets
from rankfold.methods.bits.rows import BitReader, SetReader
from rankfold.methods.knn.arguments import PACKED_NAMES, SET_NAMES
from rankfold.methods.knn.sparse_rows import cut_blocks, sparse_rows
from rankfold.pipeline.data.source import CompressedSource, compressed
from rankfold.pipeline.data.view import Orientation, View
from rankfold.pipeline.engine.pairs import Pairs
from rankfold.pipeline.errors import InputError

if TYPE_CHECKING:
    from rankfold.methods.knn.knn import Neighbors

FEW_WORDS, WORDS_PER_SHARE = 14.0, 7.0
"""Time to compare two lists of members, in numbers of packed words that are counted meanwhile: for any two
lists, and in addition for each member that both hold."""


def finds_sets(task: Neighbors) -> bool:
    """True if a search compares rows as sets; by Hamming distance, only if both matrices are boolean."""
    metric = task.parameters.metric
    if metric == "hamming":
        return all(side.dtype == np.bool_ for side in (task.left, task.source))
    return metric in SET_NAMES


def require_bits(task: Neighbors) -> None:
    """Raise ``InputError`` if a metric takes packed bits and rows are not, or if values are complex."""
    metric = task.parameters.metric
    if metric not in SET_NAMES:
        return
    for side in (task.left, task.source):
        _ = View(side, Orientation.ROWS).dtype  # raises for numbers that are not real
        if metric not in PACKED_NAMES:
            continue
        if side.dtype != np.uint8 or compressed(side) is not None:
            what = "sparse" if compressed(side) is not None else str(side.dtype)
            raise InputError(
                f"{metric} takes packed bits, bytes (uint8) of eight columns each, but {side.name} is {what}"
                f". Pack them, by numpy.packbits(x, axis=1), or ask for {metric.removeprefix('bit_')}"
            )


def sparse_sides(task: Neighbors) -> tuple[CompressedSource, CompressedSource] | None:
    """Queries and rows as sparse sources, if sets are compared as lists of their members; else None."""
    if not finds_sets(task):
        return None
    left, source = sparse_rows(task.left), sparse_rows(task.source)
    return None if left is None or source is None or are_packed(left, source) else (left, source)


def are_packed(left: CompressedSource, source: CompressedSource) -> bool:
    """True if sparse rows are compared faster as packed bits: few columns, or many members.

    Members are assumed to be spread evenly: two rows share the product of their counts, over the columns.
    """
    columns = source.shape[1]
    shared = (left.nnz / left.shape[0]) * (source.nnz / source.shape[0]) / columns
    return words_of(columns) <= FEW_WORDS + WORDS_PER_SHARE * shared


def set_fold(task: Neighbors, common: npt.NDArray[np.int64] | None) -> NearestBits | NearestSets | None:
    """Fold that compares blocks of rows as sets and keeps the nearest of each; None if rows are no sets.

    ``common`` are columns that many rows hold; None for a plan, before some rows have been read.
    """
    if not finds_sets(task):
        return None
    k, code, sides = task.parameters.k, task.parameters.code, sparse_sides(task)
    if sides is None:
        packed = task.parameters.metric in PACKED_NAMES
        left, right = (BitReader(side, packed) for side in (task.left, task.source))
        return NearestBits(task.pairs(), left, right, k, code)
    also = () if task.earlier is None else (task.earlier.rows,)
    blocks = cut_blocks(sides[0], also)
    others = blocks if task.queries is None else cut_blocks(sides[1])
    pairs = Pairs(blocks.edges, None if task.queries is None else others.edges)
    readers = [SetReader(side, code) for side in sides]
    columns = np.zeros(0, np.int64) if common is None else common
    return NearestSets(pairs, readers[0], readers[1], k, code, blocks, others, columns)
