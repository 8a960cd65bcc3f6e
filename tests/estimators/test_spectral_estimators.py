"""``SpectralEmbedding`` and ``DiffusionMap`` in scikit-learn's place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import sklearn.manifold
from reference import to_zarr
from sklearn.datasets import load_digits, make_swiss_roll
from sklearn.manifold import trustworthiness
from sklearn.utils.estimator_checks import parametrize_with_checks

import rankfold as rf
from rankfold.estimators import DiffusionMap, SpectralEmbedding

pytestmark = pytest.mark.filterwarnings("ignore::rankfold.RankfoldWarning")


@pytest.mark.slow
@parametrize_with_checks([SpectralEmbedding(n_components=1), DiffusionMap(n_components=1)])
def test_scikit_learn_finds_no_fault(estimator: Any, check: Any) -> None:
    check(estimator)


def roll(rows: int = 600) -> np.ndarray[Any, Any]:
    x: np.ndarray[Any, Any] = make_swiss_roll(rows, random_state=0)[0]
    return x


def test_an_embedding_is_that_of_scikit_learn() -> None:
    x = roll()
    for how in ({"n_neighbors": 12}, {}):
        ours = SpectralEmbedding(3, eigen_tol=1e-12, random_state=0, **how).fit(x)
        theirs = sklearn.manifold.SpectralEmbedding(3, random_state=0, **how).fit(x)
        assert ours.n_neighbors_ == theirs.n_neighbors_
        weights = theirs.affinity_matrix_ - scipy.sparse.diags_array(theirs.affinity_matrix_.diagonal())
        assert abs(ours.affinity_matrix_ - weights).max() == 0
        signs = np.sign((ours.embedding_ * theirs.embedding_).sum(axis=0))
        size = np.abs(theirs.embedding_).max()
        np.testing.assert_allclose(ours.embedding_, theirs.embedding_ * signs, atol=1e-6 * size)


def test_weights_may_be_given() -> None:
    x = roll()
    fitted = SpectralEmbedding(n_neighbors=12, random_state=0).fit(x)
    weights = fitted.affinity_matrix_ + scipy.sparse.eye_array(600)  # which loops leave as it is
    for given in (weights, weights.toarray()):
        again = SpectralEmbedding(affinity="precomputed", random_state=0).fit(given)
        np.testing.assert_array_equal(again.embedding_, fitted.embedding_)
    with pytest.raises(ValueError, match="precomputed weights are square, not 600 x 3"):
        SpectralEmbedding(affinity="precomputed").fit(x)
    with pytest.raises(ValueError, match="The 'affinity' parameter of SpectralEmbedding must be"):
        SpectralEmbedding(affinity="rbf").fit(x)


@pytest.mark.parametrize(
    "estimator", [SpectralEmbedding(n_neighbors=9, random_state=0), DiffusionMap(random_state=0)]
)
def test_samples_on_disk_give_what_samples_in_memory_give(tmp_path: Path, estimator: Any) -> None:
    x = load_digits().data[:400]
    here = estimator.fit_transform(x)
    np.testing.assert_array_equal(here, estimator.fit_transform(to_zarr(tmp_path / "x.zarr", x, (90, 64))))
    sparse = estimator.fit_transform(scipy.sparse.csr_array(x))
    np.testing.assert_allclose(sparse, here, atol=1e-4 * np.abs(here).max())


def test_a_diffusion_map_is_that_of_its_graph() -> None:
    x = load_digits().data[:600]
    fitted = DiffusionMap(10, alpha=0.5, t=2, tol=1e-10, random_state=0).fit(x)
    graph = rf.fuzzy_graph(rf.knn(x, 14))
    assert abs(fitted.graph_ - graph.graph).max() == 0
    found = rf.diffusion_map(graph, 10, alpha=0.5, t=2, tol=1e-10)
    np.testing.assert_allclose(fitted.eigenvalues_, found.eigenvalues, atol=1e-9)
    assert trustworthiness(x, fitted.embedding_, n_neighbors=10) > 0.95
