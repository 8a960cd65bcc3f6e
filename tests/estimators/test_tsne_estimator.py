"""``TSNE`` in scikit-learn's place: its checks, samples on disk, new samples, distances."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference import to_zarr
from sklearn.metrics import pairwise_distances
from sklearn.utils.estimator_checks import parametrize_with_checks

from rankfold.estimators import TSNE

QUICK: dict[str, Any] = {"perplexity": 3, "max_iter": 250, "random_state": 0}


@pytest.mark.slow
@parametrize_with_checks([TSNE(perplexity=2, max_iter=250)])
def test_scikit_learn_takes_it_for_an_estimator(estimator: Any, check: Any) -> None:
    check(estimator)


def samples() -> Any:
    return np.random.default_rng(0).standard_normal((60, 5)) + 9 * (np.arange(60) % 2)[:, None]


def test_samples_on_disk_are_as_those_in_memory(tmp_path: Path) -> None:
    x = samples()
    here = TSNE(**QUICK).fit(x)
    there = TSNE(**QUICK).fit(to_zarr(tmp_path / "x.zarr", x, (20, 5)))
    np.testing.assert_allclose(here.kl_divergence_, there.kl_divergence_, rtol=1e-3)
    assert here.n_iter_ == 250 and here.embedding_.shape == (60, 2)
    new = here.transform(x[:7] + 0.01)
    assert new.shape == (7, 2)
    np.testing.assert_array_equal(here.transform(x[:3]), here.embedding_[:3])


def test_distances_do_in_place_of_samples() -> None:
    x = samples()
    own = TSNE(**QUICK, init="random").fit(x)
    of_distances = TSNE(**QUICK, init="random", metric="precomputed").fit(pairwise_distances(x))
    np.testing.assert_allclose(own.kl_divergence_, of_distances.kl_divergence_, rtol=0.05)
    with pytest.raises(ValueError, match="cannot be used with metric"):
        TSNE(metric="precomputed").fit(pairwise_distances(x))


def test_a_perplexity_of_all_samples_is_refused() -> None:
    with pytest.raises(ValueError, match=r"perplexity \(60\) must be less than n_samples \(60\)"):
        TSNE(perplexity=60).fit(samples())


def test_the_names_of_opentsne_are_taken() -> None:
    fit = TSNE(perplexity=[2, 4], n_iter=10, early_exaggeration_iter=5, exaggeration=2).fit(samples())
    assert fit.n_iter_ == 15 and fit.history_[-1, 0] == 15
