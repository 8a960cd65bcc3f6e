"""Rows that are neighbors of thousands of others throw nothing out of a layout."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import make_moons

import rankfold as rf


@pytest.mark.slow
def test_two_moons_with_hubs_have_no_outliers() -> None:
    """Hubs lie on the moons without noise, so that all others have the nearest of them as neighbors."""
    rows, hubs = 50_000, 40
    rng = np.random.default_rng(0)
    moons, moon = make_moons(rows, random_state=0)
    order = rng.permutation(rows)  # those before are in order of moons
    moons, moon = 10 * moons[order], moon[order]
    noise = rng.standard_normal((rows, 60))
    noise *= 5 / np.linalg.norm(noise, axis=1)[:, None]
    noise[:hubs] = 0
    lists = rf.knn(np.hstack([moons, noise]).astype(np.float32), 14)
    graph = rf.fuzzy_graph(lists)
    degrees = np.diff(graph.graph.indptr)
    assert np.median(degrees[:hubs]) > 4000  # few rows have others among their neighbors
    embedding = np.asarray(rf.umap(graph, init=moons, n_epochs=100).embedding)
    away = np.linalg.norm(embedding - np.median(embedding, axis=0), axis=1)
    assert away.max() < 1.5 * np.percentile(away, 99)
    # Rows lie about the hubs of their own moon.
    distances = np.linalg.norm(embedding[:, None] - embedding[None, :hubs], axis=2)
    assert (moon[:hubs][distances.argmin(axis=1)] == moon).mean() > 0.95
