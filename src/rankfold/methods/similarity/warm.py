"""Compile the loops over pairs of rows, by running each once on a few numbers."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from rankfold.kernels.similarity.functions import Rows, Similarity
from rankfold.kernels.similarity.tiles import evaluate
from rankfold.methods.similarity.request import KINDS


def warm_similarities(dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> None:
    """Compile the loop for a kernel function; one of the caller's own is compiled already."""
    _warm(str(request["kernel"]))


@functools.cache
def _warm(kernel: str) -> None:
    import scipy.linalg

    x = Rows(np.zeros((2, 2)), np.zeros(2))
    if kernel in KINDS:
        evaluate(x, x, similarity=Similarity(int(KINDS[kernel])), out=np.empty((2, 2)))
    scipy.linalg.eigh(np.eye(2), subset_by_index=(0, 1))
    np.linalg.eigh(np.eye(2))
