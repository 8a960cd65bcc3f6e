"""Targets of rows (supervision): a label for each, or numbers, of which near ones are similar."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.methods.fuzzy_graph.combination.rules import UNKNOWN
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.formats.npy import map_npy
from rankfold.pipeline.regular import is_regular

Int64 = npt.NDArray[np.int64]

BLOCK_ROWS = 2**20


def target_matrix(targets: object, rows: int) -> Source:
    """Open numeric targets, (m, 1) or (m, d); ``InputError`` if there are not ``rows`` of them."""
    source = open_source(_opened(targets))
    if source.shape[0] != rows:
        raise InputError(f"there are {source.shape[0]} targets for {rows} rows: give one for each")
    return source


def label_codes(targets: object, rows: int) -> Int64:
    """Encode labels as integers from 0 on, (rows,); ``UNKNOWN`` for -1, None and NaN.

    Parameters
    ----------
    targets : sequence of m words or numbers, or a matrix of one column
    rows : int
        Required number of labels.
    """
    targets = _opened(targets)
    if isinstance(targets, np.ndarray) and targets.ndim != 2:
        values = targets
    else:
        values = _column(target_matrix(targets, rows))
    if values.ndim != 1 or len(values) != rows:
        raise InputError(
            f"targets have shape {values.shape}, but there are {rows} rows: give a label for each"
        )
    if values.dtype.kind == "O":
        return _codes_of_words(values.tolist())
    if values.dtype.kind not in "iufbUS":
        raise InputError(f"targets of type {values.dtype} are no labels: give words or numbers")
    found, codes = np.unique(values, return_inverse=True)
    unknown = np.zeros(len(found), np.bool_)
    if found.dtype.kind in "iuf":
        unknown = (found == UNKNOWN) | (np.isnan(found) if found.dtype.kind == "f" else False)
    labels: Int64 = codes.reshape(-1).astype(np.int64)
    labels[unknown[labels]] = UNKNOWN
    return labels


def _opened(targets: object) -> object:
    """Load targets from a ``.npy`` file or a frame as an array; return other stores and sources unchanged."""
    if isinstance(targets, str | os.PathLike) and str(targets).endswith(".npy") and is_regular(targets):
        targets = map_npy(targets)
    if isinstance(targets, str | os.PathLike | Source) or hasattr(targets, "chunks"):
        return targets
    values = np.asarray(targets.to_numpy() if hasattr(targets, "to_numpy") else targets)
    return values.reshape(-1, 1) if values.ndim == 1 and values.dtype.kind in "iufb" else values


def _column(source: Source) -> npt.NDArray[Any]:
    if source.shape[1] != 1:
        raise InputError(f"{source.name} has {source.shape[1]} columns: labels are a single one")
    values = np.empty((source.shape[0], 1), source.dtype)
    for start in range(0, len(values), BLOCK_ROWS):
        stop = min(len(values), start + BLOCK_ROWS)
        source.read_into(values[start:stop], (start, stop), (0, 1))
    return values[:, 0]


def _codes_of_words(words: Sequence[Any]) -> Int64:
    """Encode labels that are Python objects: words, numbers, None."""
    unknown = [word is None or word == UNKNOWN or word != word for word in words]
    known = sorted({str(word) for word, missing in zip(words, unknown, strict=True) if not missing})
    codes = {word: code for code, word in enumerate(known)}
    labels = (UNKNOWN if missing else codes[str(word)] for word, missing in zip(words, unknown, strict=True))
    return np.fromiter(labels, np.int64, len(words))


def digest_of(labels: Int64) -> str:
    """Hash that identifies labels."""
    return hashlib.blake2b(np.ascontiguousarray(labels).data, digest_size=16).hexdigest()
