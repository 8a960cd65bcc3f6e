"""``Isomap`` in scikit-learn's place: its checks, its embeddings, samples on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from reference import to_zarr
from sklearn import manifold
from sklearn.datasets import make_swiss_roll
from sklearn.utils.estimator_checks import parametrize_with_checks

import rankfold as rf
from rankfold.estimators import Isomap

pytestmark = pytest.mark.filterwarnings("ignore:.*number of connected components:UserWarning")


@pytest.mark.slow
@parametrize_with_checks([Isomap()])
def test_scikit_learn_finds_no_fault(estimator: Any, check: Any) -> None:
    check(estimator)


def roll(samples: int = 400, seed: int = 0) -> np.ndarray:
    return make_swiss_roll(samples, random_state=seed)[0]


@pytest.mark.parametrize("how", [{"n_neighbors": 8}, {"n_neighbors": None, "radius": 9.0}])
@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "cosine", "canberra"])
def test_all_samples_as_landmarks_are_scikit_learns_isomap(how: dict[str, Any], metric: str) -> None:
    x, new = roll(), roll(90, 1)
    if "radius" in how and metric in ("cosine", "canberra"):
        how = {**how, "radius": 1.5}
    ours, theirs = (kind(metric=metric, **how).fit(x) for kind in (Isomap, manifold.Isomap))
    # Theirs may measure distances by products, which leave some units of rounding of squared norms: of
    # a distance d some 1e-15 |x|^2 / d, here 1e-12 at most. Eigenvectors lose as much again.
    close: dict[str, Any] = {"rtol": 0, "atol": 1e-10 * theirs.dist_matrix_.max()}
    np.testing.assert_allclose(ours.dist_matrix_, theirs.dist_matrix_, **close)
    np.testing.assert_allclose(ours.embedding_, theirs.embedding_, **close)
    np.testing.assert_allclose(ours.transform(new), theirs.transform(new), **close)
    assert ours.reconstruction_error() == pytest.approx(theirs.reconstruction_error(), rel=1e-6)


def test_samples_on_disk_give_what_samples_in_memory_give(tmp_path: Path) -> None:
    x, new = roll(), roll(70, 1)
    how: dict[str, Any] = {"n_neighbors": 8, "n_landmarks": 50, "random_state": 3}
    here, there = Isomap(**how).fit(x), Isomap(**how).fit(to_zarr(tmp_path / "x.zarr", x, (90, 3)))
    np.testing.assert_array_equal(here.embedding_, there.embedding_)
    np.testing.assert_array_equal(here.landmarks_, there.landmarks_)
    for queries in (new, to_zarr(tmp_path / "new.zarr", new, (30, 3))):
        np.testing.assert_array_equal(here.transform(queries), there.transform(queries))
    with pytest.raises(ValueError, match="by n_neighbors, not by radius"):
        Isomap(n_neighbors=None, radius=5.0).fit(rf.open(x)).transform(new)


def test_components_are_joined_as_scikit_learn_joins_them(tmp_path: Path) -> None:
    apart = np.array([[0, 0, 0], [90, 0, 0], [0, 200, 0]])
    x = np.concatenate([roll(60 - 10 * (each // 2), each) + apart[each] for each in range(3)])
    with pytest.warns(UserWarning, match="number of connected components"):
        theirs = manifold.Isomap(n_neighbors=12).fit_transform(x)
    with pytest.warns(UserWarning, match="number of connected components.* is 3 > 1: the nearest"):
        ours = Isomap(n_neighbors=12).fit_transform(x)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9)
    with pytest.warns(rf.RankfoldWarning, match="had 3 components, the largest of 60 rows: 3 edges"):
        on_disk = Isomap(n_neighbors=12).fit_transform(to_zarr(tmp_path / "x.zarr", x, (50, 3)))
    np.testing.assert_allclose(on_disk, theirs, rtol=0, atol=1e-9)


def test_sparse_samples_are_taken() -> None:
    x = np.where(roll(200) > 0, roll(200), 0)
    dense, sparse = (Isomap(n_neighbors=9).fit_transform(a) for a in (x, scipy.sparse.csr_array(x)))
    np.testing.assert_allclose(sparse, dense, atol=1e-6)


def test_single_precision_stays() -> None:
    fitted = Isomap(n_neighbors=8).fit(roll().astype(np.float32))
    assert fitted.embedding_.dtype == fitted.dist_matrix_.dtype == np.float32
    exact = Isomap(n_neighbors=8).fit(roll().astype(np.float32).astype(np.float64)).embedding_
    # Coordinates are sums of squared distances that are rounded to float32.
    assert np.abs(fitted.embedding_ - exact).max() < 1e-5 * np.abs(exact).max()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_neighbors": 3, "radius": 1.0}, "Both n_neighbors and radius are provided"),
        ({"landmarks": "nearest"}, "The 'landmarks' parameter of Isomap must be"),
        ({"n_landmarks": 0}, "The 'n_landmarks' parameter of Isomap must be"),
    ],
)
def test_what_cannot_be_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Isomap(**wrong).fit(roll(50))
