"""Compiled loops that compute weights of neighbors, run once on a few numbers."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from rankfold.kernels.graph.fuzzy import membership
from rankfold.kernels.graph.perplexity import affinities


def warm_weights(dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> None:
    """Run the compiled loop for weights of neighbors once: affinities if the request has perplexities."""
    _warm_affinities() if "perplexities" in request else _warm()


@functools.cache
def _warm() -> None:
    for wide in (np.zeros((2, 2)), np.zeros((2, 4))[:, :2]):
        membership(wide, 0.0, out=np.empty((2, 2), np.float32))


@functools.cache
def _warm_affinities() -> None:
    for wide in (np.ones((2, 2)), np.ones((2, 4))[:, :2]):
        affinities(wide, np.ones(1), out=np.empty((2, 2), np.float32))
