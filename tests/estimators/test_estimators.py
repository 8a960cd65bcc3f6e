"""Estimators behave as scikit-learn's, and take what lies on disk."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import zarr
from covers import cover
from reference import to_zarr
from sklearn import decomposition
from sklearn.utils.estimator_checks import parametrize_with_checks

import rankfold as rf
from rankfold.estimators import (
    NMF,
    PCA,
    IncrementalPCA,
    MiniBatchNMF,
    TruncatedSVD,
)
from rankfold.estimators.embeddings.eigenmaps import WORDS
from rankfold.estimators.samples import in_own_words, words_of_components

SHARED = ("mean_", "explained_variance_", "explained_variance_ratio_", "singular_values_", "noise_variance_")

pytestmark = pytest.mark.filterwarnings("ignore::rankfold.RankfoldWarning")


def beyond_the_samples(estimator: Any) -> dict[str, str]:
    """Checks whose answer is no property of the data: 27 components of 9 different samples."""
    if not isinstance(estimator, PCA) or estimator.n_components is not None:
        return {}
    checks = [f"check_sample_weight_equivalence_on_{kind}_data" for kind in ("dense", "sparse")]
    return dict.fromkeys(checks, "components beyond the different samples are arbitrary")


@parametrize_with_checks([PCA(), NMF(max_iter=20)], expected_failed_checks=beyond_the_samples)
def test_scikit_learn_finds_no_fault(estimator: Any, check: Any) -> None:
    """One estimator of each family."""
    check(estimator)


@pytest.mark.exhaustive
@parametrize_with_checks(
    [
        PCA(n_components=1, svd_solver="randomized", whiten=True),
        TruncatedSVD(),
        IncrementalPCA(),
        NMF(n_components=2, solver="mu", beta_loss="kullback-leibler", max_iter=20),
        MiniBatchNMF(),
    ]
)
def test_scikit_learn_finds_no_fault_in_the_others(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize(
    ("solver", "whiten", "shape"),
    cover(["auto", "full", "covariance_eigh", "arpack", "randomized"], [False, True], [(400, 30), (30, 400)]),
)
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


@pytest.mark.filterwarnings("error::rankfold.RankfoldWarning")
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("make", [PCA, TruncatedSVD])
def test_what_nobody_asked_for_is_not_warned_of(make: Any, dtype: Any, sparse: bool) -> None:
    """Products of float32 tell no more than it holds: only a tolerance that was given may be missed."""
    rng = np.random.default_rng(6)
    x = (rng.standard_normal((300, 40)) * (rng.random((300, 40)) < 0.1)).astype(dtype)
    how = {"svd_solver": "arpack"} if make is PCA else {"algorithm": "arpack"}
    make(4, **dict.fromkeys(how, "randomized")).fit(x)
    theirs = getattr(decomposition, make.__name__)(4, **how, random_state=0).fit(x)
    ours = make(4, **how).fit(scipy.sparse.csr_array(x) if sparse else x)
    assert ours.result_.attrs["method"] == "lanczos"
    assert make(4, **how, memory="1 GiB").fit(x).result_.attrs["method"] == "krylov"
    np.testing.assert_allclose(ours.singular_values_, theirs.singular_values_, rtol=1e-5)
    exact = 1e-3 if dtype == np.float32 else 1e-6
    np.testing.assert_allclose(np.abs(ours.components_ @ theirs.components_.T), np.eye(4), atol=exact)


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


def on_disk(folder: Path, shape: tuple[int, int] = (5000, 40)) -> tuple[str, Any]:
    x = np.random.default_rng(4).standard_normal(shape) * np.linspace(5, 0.1, shape[1]) + 2
    return to_zarr(folder / "x.zarr", x, (500, shape[1])), x


def test_a_list_of_paths_is_the_files_of_one_matrix(tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((40, 5))
    files = [tmp_path / "a.npy", tmp_path / "b.npy"]
    for file, part in zip(files, (x[:15], x[15:]), strict=True):
        np.save(file, part)
    for make in (PCA, TruncatedSVD):
        fitted, expected = make(2).fit(files), make(2).fit(x)
        np.testing.assert_allclose(np.abs(fitted.components_), np.abs(expected.components_), atol=1e-6)
        np.testing.assert_array_equal(fitted.transform(files)[15:], fitted.transform(str(files[1]))[:])


def test_a_share_of_the_variance_of_a_store_takes_no_more_components_than_it_needs(tmp_path: Path) -> None:
    store, x = on_disk(tmp_path)
    found, fit = PCA(0.8), decomposition.PCA(0.8, svd_solver="full").fit(x)
    scores = found.fit_transform(store)
    assert found.n_components_ == fit.n_components_ == scores.shape[1]
    assert found.noise_variance_ == pytest.approx(fit.noise_variance_)
    np.testing.assert_allclose(found.transform(store)[...], scores[...], atol=1e-8)


@pytest.mark.parametrize(
    ("n", "shape"), cover([0, 0.2, 0.9, "mle", None], [(700, 200), (5000, 12)], strength=1)
)
def test_all_of_a_store_has_as_many_components(tmp_path: Path, n: Any, shape: tuple[int, int]) -> None:
    store, x = on_disk(tmp_path, shape)
    found = PCA(n, svd_solver="covariance_eigh" if n == "mle" else "auto")
    scores = found.fit_transform(store)
    k = found.n_components_
    assert scores.shape == (shape[0], k) == found.transform(store).shape
    assert found.components_.shape[0] == k == len(found.explained_variance_)
    np.testing.assert_allclose(found.transform(store)[...], found.transform(x), atol=1e-8)


@pytest.mark.parametrize("make", [PCA, TruncatedSVD, IncrementalPCA])
def test_what_a_store_cannot_give_is_said_before_it_is_read(tmp_path: Path, make: Any) -> None:
    pandas = pytest.importorskip("pandas", reason="frames come with pandas")
    store, x = on_disk(tmp_path, (300, 7))
    found = make(2).fit(pandas.DataFrame(np.hstack([x, x[:, :1]]), columns=list("abcdefgh"))).fit(store)
    assert found.n_features_in_ == 7 and not hasattr(found, "feature_names_in_")
    assert found.transform(x).shape == (300, 2)
    with pytest.raises(ValueError, match="for samples in memory"):
        found.set_output(transform="pandas").transform(store)
    if make is PCA:
        with pytest.raises(TypeError, match="take samples in memory"):
            found.score(store)


def test_shares_of_a_store_without_variance_are_those_of_an_array(tmp_path: Path) -> None:
    x = np.ones((40, 5), np.float32)
    found = TruncatedSVD(2).fit(to_zarr(tmp_path / "x.zarr", x, (10, 5)))
    assert not np.isfinite(found.explained_variance_ratio_).all()
    assert found.explained_variance_.dtype == found.explained_variance_ratio_.dtype == np.float32


@pytest.mark.parametrize("algorithm", ["randomized", "arpack"])
def test_truncated_svd_of_a_store_is_that_of_the_array(tmp_path: Path, algorithm: str) -> None:
    store, x = on_disk(tmp_path)
    found = TruncatedSVD(5, algorithm=algorithm, n_iter=15, memory="256MiB")
    scores = found.fit_transform(store)
    memory = decomposition.TruncatedSVD(5, algorithm="arpack").fit(x)
    assert isinstance(found.transform(store), type(scores))
    for name in ("singular_values_", "explained_variance_", "explained_variance_ratio_"):
        np.testing.assert_allclose(getattr(found, name), getattr(memory, name), rtol=1e-6, err_msg=name)
    np.testing.assert_allclose(np.abs(scores[...]), np.abs(memory.transform(x)), atol=1e-2)
    np.testing.assert_allclose(found.transform(store)[...], found.transform(x), atol=1e-9)


@pytest.mark.parametrize(
    ("sizes", "whiten"), cover([[5000], [7, 1, 2000, 2992], [10, *[1] * 30, 4960]], [False, True], strength=1)
)
def test_batches_of_any_size_give_the_components_of_all(
    tmp_path: Path, sizes: list[int], whiten: bool
) -> None:
    store, x = on_disk(tmp_path)
    found, start = IncrementalPCA(7, whiten=whiten), 0
    for size in sizes:
        found.partial_fit(x[start : start + size])
        start += size
    fit = decomposition.PCA(7, whiten=whiten, svd_solver="full").fit(x)
    assert found.n_samples_seen_ == 5000 and found.error_estimates_.max() == 0
    for name in SHARED:
        np.testing.assert_allclose(getattr(found, name), getattr(fit, name), rtol=1e-9, err_msg=name)
    assert np.abs(found.components_.T @ found.components_ - fit.components_.T @ fit.components_).max() < 1e-10
    np.testing.assert_allclose(found.transform(store)[...], found.transform(x), atol=1e-10)
    whole = IncrementalPCA(7, whiten=whiten).fit(store)
    np.testing.assert_allclose(whole.components_, found.components_, atol=1e-10)


def test_what_is_cut_off_between_batches_is_bounded() -> None:
    x = np.random.default_rng(5).standard_normal((900, 600)) * np.linspace(2, 1, 600)
    found = IncrementalPCA(5)
    for start in range(0, 900, 100):
        found.partial_fit(x[start : start + 100])
    s = np.linalg.svd(x - x.mean(axis=0), compute_uv=False)[:5]
    assert (np.abs(found.singular_values_ - s) / s <= found.error_estimates_).all()
    assert found.error_estimates_.min() > 0.01
    with pytest.raises(ValueError, match="more than the 5 of earlier batches"):
        found.set_params(n_components=9).partial_fit(x[:50])


def test_a_result_that_nobody_keeps_goes_without_a_word(recwarn: pytest.WarningsRecorder) -> None:
    folder = rf.svd(np.eye(30), 2, with_rows=False).path
    assert not folder.exists() and not [w for w in recwarn if w.category is ResourceWarning]


@pytest.mark.parametrize("kind", [PCA, TruncatedSVD, IncrementalPCA])
def test_names_of_features_go_in_and_out(kind: Any) -> None:
    pandas = pytest.importorskip("pandas", reason="frames come with pandas")
    frame = pandas.DataFrame(np.random.default_rng(6).standard_normal((50, 4)), columns=list("abcd"))
    estimator = kind(2).set_output(transform="pandas")
    out = estimator.fit_transform(frame)
    name = kind.__name__.lower()
    assert list(out.columns) == [f"{name}0", f"{name}1"]
    assert list(estimator.feature_names_in_) == list("abcd")


def test_sparse_samples_are_centered_without_becoming_dense() -> None:
    import scipy.sparse

    x = scipy.sparse.random_array((3000, 60), density=0.05, rng=3, format="csr")
    for made in (x, x.tocsc(), x.tocoo()):
        found = rf.pca(made, 5, solver="gram")
        np.testing.assert_allclose(
            found.singular_values,
            np.linalg.svd(x.toarray() - x.toarray().mean(axis=0), compute_uv=False)[:5],
            rtol=1e-10,
        )


def counts(rows: int = 3000, columns: int = 40, rank: int = 5) -> np.ndarray:
    rng = np.random.default_rng(0)
    x = rng.gamma(0.5, size=(rows, rank)) @ rng.gamma(0.5, size=(rank, columns))
    return np.asarray(x + 0.05 * x.mean() * rng.random(x.shape))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("alpha", [0.0, 1e-3])
def test_coordinates_of_a_fit_are_those_of_a_transform_and_exact(dtype: Any, alpha: float) -> None:
    x = counts().astype(dtype)
    model = NMF(5, alpha_W=alpha, l1_ratio=0.5)
    fitted = model.fit_transform(x)
    np.testing.assert_array_equal(fitted, model.transform(x))
    h, w = model.components_.astype(np.float64), fitted.astype(np.float64)
    weight = alpha * 0.5 * x.shape[1]
    gram = h @ h.T + weight * np.eye(5)
    slope = w @ gram - x.astype(np.float64) @ h.T + weight
    # Rounding of w as it is stored and of both products, and the ridge of what solves them.
    near = 8 * np.finfo(dtype).eps * (w @ gram).max() + 1e-14 * np.trace(gram) * w.max()
    assert np.abs(slope[w > 0]).max() <= near and slope.min() >= -near


def test_components_are_as_good_as_those_of_scikit_learn() -> None:
    x = counts(600)
    ours = min(NMF(5, random_state=i).fit(x).reconstruction_err_ for i in range(3))
    theirs = min(
        decomposition.NMF(5, init="random", random_state=i, max_iter=500).fit(x).reconstruction_err_
        for i in range(3)
    )
    assert ours <= 1.005 * theirs
    batches = MiniBatchNMF(5, batch_size=100, max_iter=30, random_state=0).fit(x)
    assert batches.reconstruction_err_ <= 2 * theirs


def test_factors_of_a_store_are_read_where_it_lies(tmp_path: Path) -> None:
    x = counts()
    store = to_zarr(tmp_path / "x.zarr", x, (500, 40))
    for made in (NMF(5, random_state=0), MiniBatchNMF(5, random_state=0, batch_size=500, max_iter=20)):
        memory, disk = made.fit(x).components_, made.fit(store)
        w = disk.transform(store)
        assert np.linalg.norm(x - w[...] @ disk.components_) <= 0.1 * np.linalg.norm(x)
        np.testing.assert_allclose(w[...], disk.transform(x), atol=1e-10 * np.abs(x).max())
        if isinstance(made, NMF):
            np.testing.assert_allclose(disk.components_, memory, atol=1e-8 * memory.max())
    with pytest.raises(ValueError, match="is for samples in memory"):
        NMF(5).set_output(transform="pandas").fit_transform(store)


def test_there_may_be_more_components_than_the_smaller_side() -> None:
    x = counts(6, 4, 2)
    model = NMF(7, tol=1e-8, random_state=0)
    coordinates = model.fit_transform(x)
    assert model.components_.shape == (7, 4)
    assert np.linalg.norm(x - coordinates @ model.components_) < 0.01 * np.linalg.norm(x)
    with pytest.raises(ValueError, match="can only be used when n_components"):
        NMF(7, init="nndsvd").fit(x)
    with pytest.raises(ValueError, match="is not there"):
        NMF(2, solver="mu", beta_loss="itakura-saito").fit(x + 1)


@pytest.mark.parametrize("solver", ["full", "randomized"])
def test_all_components_leave_no_noise(solver: str) -> None:
    """What scikit-learn's ``test_pca_zero_noise_variance_edge_cases`` asks before it scores."""
    x = np.random.default_rng(0).standard_normal((100, 3)) * 0.1 + [3, 4, 5]
    ours, theirs = (kind(3, svd_solver=solver).fit(x) for kind in (PCA, decomposition.PCA))
    assert ours.noise_variance_ == 0 and ours.score(x) == pytest.approx(theirs.score(x))
    ours = PCA(3, svd_solver=solver).fit(x.T)
    assert ours.noise_variance_ == 0
    with pytest.raises(ValueError, match="no variance in 98 of 100 dimensions"):
        ours.score(x.T)


@pytest.mark.parametrize("k", [1, 3, 4])
def test_samples_in_a_plane_have_no_density_to_score_by(k: int) -> None:
    """A singular matrix was inverted: LinAlgError, or a number that rounding made."""
    x = np.random.default_rng(2).standard_normal((50, 2)) @ np.ones((2, 4))
    with pytest.raises(ValueError, match=r"no variance in 3 of 4 dimensions"):
        PCA(k).fit(x).score(x)


@pytest.mark.filterwarnings("always")
@pytest.mark.parametrize(
    ("make", "parameter"),
    [
        (lambda: NMF(3, max_iter=2, tol=1e-12, random_state=0), "iterations 2 reached. Increase it"),
        (
            lambda: PCA(3, svd_solver="randomized", iterated_power=1, tol=1e-13),
            "allow more with iterated_power=, or raise tol",
        ),
        (lambda: TruncatedSVD(3, n_iter=1, tol=1e-13), "allow more with n_iter=, or raise tol"),
    ],
    ids=["NMF", "PCA", "TruncatedSVD"],
)
def test_warnings_name_parameters_of_the_estimator(
    make: Any, parameter: str, recwarn: pytest.WarningsRecorder
) -> None:
    make().fit(np.random.default_rng(0).random((300, 40)))
    said = [str(each.message) for each in recwarn]
    assert any(parameter in each for each in said), said
    assert not any("passes=" in each for each in said)


@pytest.mark.filterwarnings("always")
@pytest.mark.parametrize(
    ("words", "said", "expected"),
    [
        (
            words_of_components(None),
            "after 9 passes: allow more with passes=, take solver='gram' or tsqr, or raise tol",
            "after 9 passes: take svd_solver='covariance_eigh' or 'full', or raise tol",
        ),
        (words_of_components(None), "allow more with passes=, or raise tol", "raise tol"),
        (words_of_components("n_iter"), "allow more with passes=, or", "allow more with n_iter=, or"),
        (WORDS, "allow more passes, or a larger tol", "give a larger tol"),
    ],
)
def test_arguments_of_functions_become_parameters(words: Any, said: str, expected: str) -> None:
    with pytest.warns(rf.RankfoldWarning, match=f"^{re.escape(expected)}$"), in_own_words(words):
        warnings.warn(said, rf.RankfoldWarning, stacklevel=1)
