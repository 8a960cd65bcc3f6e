"""Correlation is the cosine of centered rows, wherever neighbors are searched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.spatial.distance import cdist
from sklearn.manifold import trustworthiness

import rankfold as rf

RNG = np.random.default_rng(11)
X = RNG.normal(size=(200, 20)) + 5 * RNG.normal(size=(200, 1)) + 30
NEW = RNG.normal(size=(30, 20)) + 9


def apart(x: Any, q: Any = None) -> Any:
    """All distances, by SciPy; infinite ones of rows from themselves."""
    x = np.asarray(x, np.float64)
    found = cdist(x if q is None else np.asarray(q, np.float64), x, "correlation")
    if q is None:
        np.fill_diagonal(found, np.inf)
    return found


def assert_nearest(result: rf.Result, distances: Any, atol: float = 1e-14) -> None:
    k = result.indices.shape[1]
    expected = np.argsort(distances, axis=1)[:, :k]
    np.testing.assert_array_equal(result.indices, expected)
    np.testing.assert_allclose(result.distances, np.take_along_axis(distances, expected, 1), atol=atol)


@pytest.mark.parametrize(
    ("x", "atol"),
    [
        (X, 1e-14),
        (X[:, :5], 1e-14),
        (X.astype(np.float32), 1e-6),
        ((20 * X).astype(np.int16), 1e-6),
        (sp.random(200, 30, 0.3, "csr", rng=3), 1e-14),
    ],
    ids=["by products", "by pairs", "float32", "integers", "sparse"],
)
def test_neighbors_are_those_of_scipy(x: Any, atol: float) -> None:
    assert_nearest(rf.knn(x, 5, metric="correlation"), apart(x.toarray() if sp.issparse(x) else x), atol)


def test_queries_indexes_and_longer_matrices_have_the_same_neighbors() -> None:
    how: dict[str, Any] = {"metric": "correlation"}
    found = rf.knn(X, 5, queries=NEW, **how)
    assert_nearest(found, apart(X, NEW))
    index = rf.index(X, **how)
    assert_nearest(rf.knn(NEW, 5, index=index, **how), apart(X, NEW))
    with pytest.raises(rf.RankfoldError, match="is by correlation, and neighbors by euclidean"):
        rf.knn(NEW, 5, index=index)
    approximate = rf.knn(X, 5, solver="approximate", min_recall=0.5, partition_rows=60, **how)
    assert np.mean(approximate.indices[:] == np.argsort(apart(X), axis=1)[:, :5]) > 0.5
    both = np.concatenate([X, NEW])
    longer = rf.knn(both, 5, base=rf.knn(X, 5, **how), **how)
    assert_nearest(longer, apart(both))
    facts = longer.attrs
    assert facts["request"]["metric"] == "correlation" and "prepare" not in facts["input"]
    assert facts["input"]["fingerprint"] == rf.open(both).fingerprint()


def test_constant_rows_are_at_distance_1_from_all() -> None:
    x = X.copy()
    x[3], x[4] = 5.0, 0.1
    assert (np.asarray(rf.knn(x, 3, metric="correlation").distances)[3:5] == 1).all()


def test_embeddings_and_their_measures_take_it() -> None:
    measured = rf.trustworthiness(X, X[:, :2], metric="correlation").value
    assert measured == pytest.approx(trustworthiness(X, X[:, :2], metric="correlation"), abs=1e-12)
    given = rf.umap(rf.knn(X, 7, metric="correlation"), n_epochs=5, seed=1)
    searched = rf.umap(X, n_neighbors=8, metric="correlation", n_epochs=5, seed=1)
    np.testing.assert_array_equal(searched.embedding, given.embedding)
    assert rf.continuity(X, X[:, :2], metric="correlation").value < 1


def test_steps_come_before_centering_and_queries_go_through_both() -> None:
    x, new = np.abs(X), np.abs(NEW)
    result = rf.knn(rf.open(x, prepare="log1p"), 5, queries=new, metric="correlation")
    assert_nearest(result, apart(np.log1p(x), np.log1p(new)))
    assert result.attrs["input"]["prepare"] == "log1p"
