"""Estimators behave as scikit-learn's, and take what lies on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from sklearn import decomposition
from sklearn.utils.estimator_checks import parametrize_with_checks

import rankfold as rf
from rankfold.estimators import PCA

SHARED = ("mean_", "explained_variance_", "explained_variance_ratio_", "singular_values_", "noise_variance_")

pytestmark = pytest.mark.filterwarnings("ignore::rankfold.RankfoldWarning")


@parametrize_with_checks([PCA(), PCA(n_components=1, svd_solver="randomized", whiten=True)])
def test_scikit_learn_finds_no_fault(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("solver", ["auto", "full", "covariance_eigh", "arpack", "randomized"])
@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("shape", [(400, 30), (30, 400)], ids=str)
def test_attributes_are_those_of_scikit_learn(shape: tuple[int, int], whiten: bool, solver: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape) * np.linspace(5, 0.1, shape[1]) + 3
    ours = PCA(5, whiten=whiten, svd_solver=solver, iterated_power=15).fit(x)
    theirs = decomposition.PCA(5, whiten=whiten, svd_solver="full").fit(x)
    for name in SHARED:
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-6, err_msg=name)
    np.testing.assert_allclose(np.abs((ours.components_ * theirs.components_).sum(axis=1)), 1, rtol=1e-6)
    np.testing.assert_allclose(np.abs(ours.transform(x)), np.abs(theirs.transform(x)), atol=2e-3)
    np.testing.assert_allclose(ours.score(x), theirs.score(x), rtol=1e-6)
    np.testing.assert_allclose(ours.fit_transform(x), ours.transform(x), atol=1e-12)


@pytest.mark.parametrize("n", [0.5, 0.9, "mle", None, 1, 30])
def test_the_number_of_components_is_the_same(n: Any) -> None:
    x = np.random.default_rng(1).standard_normal((500, 30)) * np.linspace(5, 0.1, 30)
    assert PCA(n).fit(x).n_components_ == decomposition.PCA(n, svd_solver="full").fit(x).n_components_


def test_a_store_is_fitted_where_it_lies(tmp_path: Path) -> None:
    x = np.random.default_rng(2).standard_normal((5000, 40)) * np.linspace(5, 0.1, 40)
    zarr.create_array(tmp_path / "x.zarr", shape=x.shape, chunks=(500, 40), dtype=x.dtype)[...] = x
    memory = PCA(3, svd_solver="full").fit(x)
    for where in (tmp_path / "x.zarr", str(tmp_path / "x.zarr"), zarr.open_array(tmp_path / "x.zarr")):
        found = PCA(3, svd_solver="full", memory="256MiB")
        scores = found.fit_transform(where)
        np.testing.assert_allclose(found.components_, memory.components_, atol=1e-12)
        np.testing.assert_allclose(scores[...], memory.transform(x), atol=1e-10)
        np.testing.assert_allclose(found.transform(where)[...], memory.transform(x), atol=1e-10)
        assert found.n_features_in_ == 40


def test_sparse_samples_are_centred_without_becoming_dense() -> None:
    import scipy.sparse

    x = scipy.sparse.random_array((3000, 60), density=0.05, rng=3, format="csr")
    for made in (x, x.tocsc(), x.tocoo()):
        found = rf.pca(made, 5, method="gram")
        np.testing.assert_allclose(
            found.singular_values,
            np.linalg.svd(x.toarray() - x.toarray().mean(axis=0), compute_uv=False)[:5],
            rtol=1e-10,
        )
