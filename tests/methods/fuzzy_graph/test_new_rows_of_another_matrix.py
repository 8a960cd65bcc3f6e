"""Neighbors of new rows in another matrix than was embedded are told of; by another metric, refused."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import rankfold as rf

X = np.random.default_rng(0).standard_normal((300, 16))
NEW = X[:20] + 0.01


def embeddings() -> dict[str, Any]:
    near = rf.knn(X, 15, threads=1)
    short = {"n_iter": 5, "early_exaggeration_iter": 5, "perplexity": 5}
    return {
        "umap": rf.umap(near, n_epochs=5),
        "tsne": rf.tsne(near, **short),
        "spectral": rf.spectral(near, 2),
        "diffusion_map": rf.diffusion_map(near, 2),
    }


@pytest.mark.parametrize("method", ["umap", "tsne", "spectral", "diffusion_map"])
def test_rows_of_another_matrix_are_told_of(method: str) -> None:
    fit = embeddings()[method]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rf.transform(fit, rf.knn(X, 15, queries=NEW)).attrs["warnings"] == []
        assert rf.transform(fit, rf.knn(NEW, 15, index=rf.index(X))).attrs["warnings"] == []
    with pytest.warns(rf.RankfoldWarning, match="which is another matrix than"):
        rf.transform(fit, rf.knn(X + 1, 15, queries=NEW))
    with pytest.raises(rf.RankfoldError, match="has neighbors by cosine, but those of the embedding are by"):
        rf.transform(fit, rf.knn(X, 15, queries=NEW, metric="cosine"))


@pytest.mark.parametrize("name", ["learning_rate", "density_share", "density_shift", "min_dist"])
def test_numbers_that_are_none_are_refused(name: str) -> None:
    with pytest.raises(rf.RankfoldError, match=name):
        rf.umap(rf.knn(X, 5), density=1.0, **{name: None})
