"""Estimators by kernel functions, beside scikit-learn's."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from reference import to_zarr
from sklearn import decomposition, kernel_approximation
from sklearn.utils.estimator_checks import parametrize_with_checks

import rankfold
from rankfold.estimators import KernelPCA, Nystroem, RBFSampler

pytestmark = pytest.mark.filterwarnings("ignore::rankfold.RankfoldWarning")


@pytest.mark.exhaustive
@parametrize_with_checks([KernelPCA(n_components=2), Nystroem(n_components=5), RBFSampler()])
def test_scikit_learn_finds_no_fault(estimator: Any, check: Any) -> None:
    check(estimator)


def samples(rows: int, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((rows, 4)) @ rng.standard_normal((4, 6))


@pytest.mark.parametrize("kernel", ["linear", "rbf", "poly", "cosine"])
def test_kernel_pca_is_that_of_scikit_learn(kernel: str) -> None:
    x, new = samples(700), samples(40, 1)
    how: dict[str, Any] = {"kernel": kernel, "gamma": 0.05, "coef0": 0.5}
    theirs = decomposition.KernelPCA(3, eigen_solver="dense", **how).fit(x)
    ours = KernelPCA(3, **how).fit(x)
    np.testing.assert_allclose(ours.eigenvalues_, theirs.eigenvalues_, rtol=1e-9)
    scale = np.sqrt(theirs.eigenvalues_[0])
    np.testing.assert_allclose(
        abs(ours.transform(new)), abs(theirs.transform(new)), rtol=0, atol=1e-5 * scale
    )
    np.testing.assert_allclose(abs(ours.eigenvectors_), abs(theirs.eigenvectors_), rtol=0, atol=1e-5)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(ours)).transform(new), ours.transform(new))
    sparse = KernelPCA(3, **how).fit(scipy.sparse.csr_array(x))
    np.testing.assert_allclose(sparse.eigenvalues_, ours.eigenvalues_, rtol=1e-9)


def test_inverse_transform_is_that_of_scikit_learn() -> None:
    x = samples(200)
    how: dict[str, Any] = {"kernel": "rbf", "gamma": 0.02, "fit_inverse_transform": True, "alpha": 1e-2}
    theirs, ours = decomposition.KernelPCA(4, **how).fit(x), KernelPCA(4, **how).fit(x)
    back = [each.inverse_transform(each.transform(x)) for each in (theirs, ours)]
    np.testing.assert_allclose(back[1], back[0], rtol=0, atol=1e-6 * np.abs(x).max())


def test_samples_on_disk_are_those_in_memory(tmp_path: Path) -> None:
    x, new = samples(900), samples(50, 1)
    store, more = (
        to_zarr(tmp_path / f"{name}.zarr", each, (300, 6)) for name, each in (("x", x), ("y", new))
    )
    how: dict[str, Any] = {"kernel": "rbf", "gamma": 0.02, "random_state": 0}
    here, there = KernelPCA(2, **how).fit(x), KernelPCA(2, **how).fit(store)
    np.testing.assert_allclose(there.eigenvalues_, here.eigenvalues_, rtol=1e-10)
    np.testing.assert_allclose(np.asarray(there.transform(more)), here.transform(new), rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="in memory"):
        KernelPCA(2, fit_inverse_transform=True).fit(store)
    marks = Nystroem(n_components=9, gamma=0.02, landmarks="rpcholesky", random_state=0)
    features = marks.fit(x).transform(new)
    np.testing.assert_allclose(np.asarray(marks.fit(store).transform(more)[...]), features, rtol=0, atol=1e-9)
    with pytest.raises(ValueError, match="block of rows"):
        RBFSampler().fit(store)


def test_samples_out_of_range_are_refused() -> None:
    x = np.abs(samples(300))
    how: dict[str, Any] = {"kernel": "poly", "degree": 2.5, "gamma": 1.0, "coef0": 1.0}
    for estimator in (KernelPCA(2, **how), Nystroem(n_components=5, random_state=0, **how)):
        with pytest.raises(rankfold.RankfoldError, match="of X are no numbers"):
            estimator.fit(x).transform(1e140 * x)


def inner(a: Any, b: Any) -> float:
    total = 1.0
    for i in range(len(a)):
        total += a[i] * b[i]
    return total


def test_samples_on_disk_are_compared_by_a_function_of_your_own(tmp_path: Path) -> None:
    x, new = samples(600), samples(50, 1)
    store, more = (
        to_zarr(tmp_path / f"{name}.zarr", each, (300, 6)) for name, each in (("x", x), ("y", new))
    )
    for estimator in (KernelPCA(2, kernel=inner), Nystroem(inner, n_components=5, random_state=0)):
        right = estimator.fit(x).transform(new)
        there = np.asarray(estimator.fit(store).transform(more)[...])
        np.testing.assert_allclose(there, right, rtol=0, atol=1e-6 * np.abs(right).max())


@pytest.mark.parametrize("landmarks", ["uniform", "kmeans", "rpcholesky"])
def test_nystroem_approximates_as_it_says(landmarks: str) -> None:
    x = samples(300)
    ours = Nystroem(gamma=0.1, n_components=40, landmarks=landmarks, random_state=0).fit(x)
    features = ours.transform(x)
    assert ours.trace_error_ == pytest.approx(1 - np.square(features).sum() / 300, abs=1e-9)
    assert hasattr(ours, "component_indices_") == (landmarks != "kmeans")


def test_kernels_of_scikit_learn_are_left_to_it() -> None:
    x = np.abs(samples(80))
    ours = Nystroem("chi2", n_components=80, random_state=0).fit(x)
    k = kernel_approximation.Nystroem("chi2", n_components=80, random_state=0).fit(x).transform(x)
    features = ours.transform(x)
    np.testing.assert_allclose(features @ features.T, k @ k.T, atol=1e-8)
    with pytest.raises(ValueError, match="left to scikit-learn"):
        Nystroem("chi2", landmarks="kmeans").fit(x)


def test_fourier_features_are_the_same_in_any_block_and_pairs_have_less_variance() -> None:
    x = samples(200) / 4
    k = np.exp(-0.5 * np.square(x[:, None] - x).sum(axis=2))
    ours, theirs = [], []
    for seed in range(5):
        sampler = RBFSampler(gamma=0.5, n_components=200, random_state=seed).fit(x[:3])
        features = sampler.transform(x)
        np.testing.assert_allclose(sampler.transform(x[50:60]), features[50:60], rtol=0, atol=1e-14)
        ours.append(np.square(features @ features.T - k).mean())
        other = kernel_approximation.RBFSampler(gamma=0.5, n_components=200, random_state=seed).fit_transform(
            x
        )
        theirs.append(np.square(other @ other.T - k).mean())
    assert np.mean(ours) < np.mean(theirs)
