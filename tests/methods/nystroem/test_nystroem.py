"""Features by landmarks, against the dense matrix of all pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.kernel_approximation import Nystroem
from sklearn.metrics.pairwise import pairwise_kernels

import rankfold as rf
from rankfold.methods.kernel_pca.new_rows import scores_task
from rankfold.methods.nystroem.arguments import LANDMARKS
from rankfold.methods.nystroem.nystroem import sampled_error
from rankfold.methods.similarity import features
from rankfold.pipeline.engine import blocks
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.storage.scratch import NOWHERE

Float64 = npt.NDArray[np.float64]

GAMMA = 0.1


def uneven(seed: int = 0) -> Float64:
    """Clusters of very different sizes, of which a uniform sample misses the small ones."""
    rng = np.random.default_rng(seed)
    sizes = (1600, 300, 60, 25, 10, 5)
    return np.vstack([rng.standard_normal((n, 10)) * 0.5 + 6 * rng.standard_normal(10) for n in sizes])


def error_of(k: Float64, features: Float64) -> float:
    return float(1 - np.square(features).sum() / k.trace())


@pytest.mark.parametrize("landmarks", LANDMARKS)
def test_errors_are_what_is_said_of_them(landmarks: str) -> None:
    x = uneven()[::2]
    k, covered = pairwise_kernels(x, metric="rbf", gamma=GAMMA), 0
    off = ~np.eye(len(x), dtype=bool)
    for seed in range(5):
        r = rf.nystroem(x, 30, gamma=GAMMA, landmarks=landmarks, seed=seed)
        features, facts = r.features[...], r.attrs
        low, high = facts["trace_error_interval"]
        assert low <= error_of(k, features) <= high < 1.001 * facts["trace_error"] + 1e-9
        products = features @ features.T
        left = np.sqrt(np.square((k - products)[off]).sum() / np.square(k[off]).sum())
        low, high = facts["pair_error_interval"]
        covered += low <= left <= high
        # What is left is positive, but for rounding.
        assert np.linalg.eigvalsh(k - products)[0] > -1e-8
    assert covered >= 3  # of five intervals of 95 %: fewer by a chance of one in a thousand


def test_landmarks_leave_less_than_those_of_scikit_learn() -> None:
    """By the mean over seeds, of 100: means of clusters at most 0.7, pivots at most 0.95 of its error."""
    x = uneven()
    k = pairwise_kernels(x, metric="rbf", gamma=GAMMA)
    seeds = range(3)
    theirs = np.mean(
        [
            error_of(k, Nystroem(gamma=GAMMA, n_components=100, random_state=seed).fit_transform(x))
            for seed in seeds
        ]
    )
    ours = {
        name: np.mean(
            [rf.nystroem(x, 100, gamma=GAMMA, landmarks=name, seed=s).attrs["trace_error"] for s in seeds]
        )
        for name in ("kmeans", "rpcholesky")
    }
    assert ours["kmeans"] <= 0.7 * theirs
    assert ours["rpcholesky"] <= 0.95 * theirs
    best = np.linalg.eigvalsh(k)[::-1][100:].sum() / len(x)
    assert ours["kmeans"] >= best


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "polynomial", "cosine", "linear"])
@pytest.mark.parametrize("landmarks", LANDMARKS)
def test_as_many_landmarks_as_directions_tell_all(kernel: str, landmarks: str) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((60, 3))
    how: dict[str, Any] = {} if kernel in ("cosine", "linear") else {"gamma": 0.3}
    k = pairwise_kernels(x, metric=kernel, **({**how, "coef0": 1.0} if kernel == "polynomial" else how))
    r = rf.nystroem(x, 60, kernel=kernel, **how, landmarks=landmarks)
    features = r.features[...]
    # Directions of 1e-12 of the largest are left out, and others known to eps over their root.
    np.testing.assert_allclose(features @ features.T, k, rtol=0, atol=1e-6 * np.abs(k).max())
    np.testing.assert_allclose(rf.transform(r, x).features[...], features, rtol=0, atol=1e-12)


def test_pivots_end_where_nothing_is_left() -> None:
    x = np.repeat(np.random.default_rng(2).standard_normal((9, 4)), 50, axis=0)
    with pytest.warns(rf.RankfoldWarning, match="9 landmarks tell all similarities"):
        r = rf.nystroem(x, 30, gamma=0.5, landmarks="rpcholesky")
    assert r.features.shape == (450, 9)
    assert r.attrs["trace_error"] < 1e-9
    assert len({tuple(row) for row in r.points}) == 9
    np.testing.assert_array_equal(r.points, x[r.landmarks])


def test_rows_of_the_matrix_are_landmarks_once() -> None:
    x = uneven()
    for landmarks in ("uniform", "rpcholesky"):
        r = rf.nystroem(x, 50, gamma=GAMMA, landmarks=landmarks, seed=5)
        assert len(set(r.landmarks.tolist())) == 50
        np.testing.assert_array_equal(r.points, x[r.landmarks])
    assert (rf.nystroem(x, 10, gamma=GAMMA).landmarks == -1).all()


def test_rows_all_alike_and_one_row() -> None:
    for x in (np.full((40, 3), 2.0), np.ones((1, 3))):
        for landmarks in ("uniform", "kmeans"):
            r = rf.nystroem(x, 1, landmarks=landmarks)
            np.testing.assert_allclose(r.features[...], 1.0, atol=1e-12)
            assert r.attrs["trace_error"] < 1e-12


def test_a_kernel_that_is_not_positive_says_so() -> None:
    with pytest.warns(rf.RankfoldWarning, match="negative eigenvalues, whose directions are left out"):
        rf.nystroem(uneven()[::10], 40, kernel="sigmoid", gamma=0.1, landmarks="uniform")


@pytest.mark.parametrize("rank", [10, 100])
def test_pivots_are_not_drawn_by_a_kernel_that_is_not_positive(rank: int) -> None:
    x = np.random.default_rng(0).standard_normal((300, 4))
    with pytest.raises(rf.RankfoldError, match="the kernel sigmoid is not positive for rows"):
        rf.nystroem(x, rank, kernel="sigmoid", landmarks="rpcholesky")


@pytest.mark.filterwarnings("ignore:.*directions are left out:rankfold.RankfoldWarning")
def test_features_that_tell_more_than_there_is_say_so() -> None:
    x = np.random.default_rng(0).standard_normal((300, 4))
    with pytest.warns(rf.RankfoldWarning, match="of the trace of similarities more than there is"):
        r = rf.nystroem(x, 60, kernel="sigmoid", landmarks="uniform")
    own = np.tanh(np.square(x).sum(axis=1) / 4 + 1).sum()
    right = 1 - np.square(r.features[...]).sum() / own
    assert r.attrs["trace_error"] == pytest.approx(right, rel=1e-9)
    assert r.attrs["trace_error"] < 0
    assert rf.transform(r, x).attrs["trace_error"] == pytest.approx(right, rel=1e-9)


@pytest.mark.parametrize("landmarks", LANDMARKS)
@pytest.mark.parametrize(("scale", "degree"), [(1.0, 2.5), (1e70, 5.0)], ids=["no power", "overflow"])
def test_similarities_out_of_range_are_refused(landmarks: str, scale: float, degree: float) -> None:
    x = scale * np.random.default_rng(0).standard_normal((300, 5))
    with pytest.raises(rf.RankfoldError, match="leave the range of float64"):
        rf.nystroem(x, 60, kernel="polynomial", degree=degree, gamma=1.0, landmarks=landmarks)


@pytest.mark.filterwarnings("ignore::rankfold.RankfoldWarning")
def test_features_out_of_range_are_refused() -> None:
    x = np.random.default_rng(0).standard_normal((400, 5))
    how: dict[str, Any] = {"kernel": "polynomial", "degree": 2.5, "gamma": 1.0}
    positive = np.abs(x)  # whose products are, too
    for r in (rf.kernel_pca(positive, 2, **how), rf.nystroem(positive, 5, landmarks="uniform", **how)):
        for new in (x, 1e140 * positive):
            with pytest.raises(rf.RankfoldError, match="leave the range of float64"):
                rf.transform(r, new)
    single = rf.nystroem(positive.astype(np.float32), 5, landmarks="uniform", **how)
    with pytest.raises(rf.RankfoldError, match="leave the range of float32"):
        rf.transform(single, (1e15 * positive).astype(np.float32))
    # The landmarks alone are in range.
    x[:-4] = positive[:-4]
    with pytest.raises(rf.RankfoldError, match="leave the range of float64"):
        rf.nystroem(x, 5, landmarks="uniform", **how)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"rank": 41}, "of which landmarks are: ask for 1 to 40"),
        ({"landmarks": "leverage"}, "landmarks must be one of kmeans, rpcholesky, uniform"),
        ({"gamma": float("nan")}, "gamma must be a finite number"),
        ({"seed": 2**64}, "seed must lie"),
    ],
)
def test_what_cannot_be_is_refused(how: dict[str, Any], message: str) -> None:
    with pytest.raises(rf.RankfoldError, match=message):
        rf.nystroem(np.random.default_rng(0).standard_normal((40, 3)), **{"rank": 2, **how})


def test_new_rows_have_the_columns_of_the_fit() -> None:
    r = rf.nystroem(uneven(), 5, gamma=GAMMA, landmarks="uniform")
    with pytest.raises(rf.RankfoldError, match="fitted to 10 columns"):
        rf.transform(r, np.ones((3, 4)))


def test_points_that_do_not_stay_are_read_once_for_each_panel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(blocks.GRAIN_BYTES, "cpu", 2**14)  # 256 rows
    x, new = uneven(), np.vstack([uneven(1)] * 8)
    fit, reads = rf.kernel_pca(x, 2, gamma=GAMMA), list[int]()
    whole, each = rf.transform(fit, new), features.Points.each

    def counted(points: features.Points) -> Any:
        reads.append(1)
        return each(points)

    monkeypatch.setattr(features, "RESIDENT_BYTES", 0)
    monkeypatch.setattr(features.Points, "each", counted)
    task = scores_task(fit, new)
    cut = task.fold(NOWHERE, 1).cut
    assert len(cut.panels) - 1 < cut.grain_count
    np.testing.assert_array_equal(rf.transform(fit, new).scores[...], whole.scores[...])
    assert len(reads) == len(cut.panels) - 1
    (sweep,) = task.plan(Budget(2**30, 1)).passes
    assert sweep.reads_bytes == new.nbytes + len(reads) * (x.nbytes + 8 * len(x) * 2)


def test_all_rows_in_the_sample_leave_nothing_to_chance() -> None:
    rng = np.random.default_rng(3)
    k = rng.standard_normal((20, 20))
    k = k + k.T
    value, low, high = sampled_error(k, 0.9 * k, 20)
    assert value == pytest.approx(0.1)
    assert (low, high) == pytest.approx((value, value))
