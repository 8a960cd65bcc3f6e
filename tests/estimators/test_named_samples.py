"""Estimators take what has names (frames, AnnData, xarray) and samples that have weights."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from reference import to_zarr
from sklearn import decomposition

from rankfold import estimators
from rankfold.estimators import (
    NMF,
    PCA,
    IncrementalPCA,
    KNeighborsTransformer,
    MiniBatchNMF,
    NearestNeighbors,
    TruncatedSVD,
)

ROWS, COLUMNS = [f"cell {i}" for i in range(60)], [f"gene {i}" for i in range(8)]

ESTIMATORS: dict[str, Any] = {
    "PCA": lambda: PCA(3),
    "TruncatedSVD": lambda: TruncatedSVD(3, random_state=0),
    "IncrementalPCA": lambda: IncrementalPCA(3),
    "NMF": lambda: NMF(3, max_iter=5, random_state=0),
    "MiniBatchNMF": lambda: MiniBatchNMF(3, max_iter=5, random_state=0),
    "NearestNeighbors": lambda: NearestNeighbors(n_neighbors=3),
    "KNeighborsTransformer": lambda: KNeighborsTransformer(n_neighbors=3),
}
NOT_HELD = ("backed", "chunked")

pytestmark = pytest.mark.filterwarnings("ignore::rankfold.RankfoldWarning", "ignore::UserWarning:anndata")


def numbers() -> Any:
    return np.random.default_rng(0).poisson(3, (60, 8)).astype(np.float64)


def named(kind: str, folder: Path, columns: list[str] = COLUMNS) -> Any:
    """The same numbers and names in another library."""
    x = numbers()
    if kind in ("pandas", "nullable", "pandas sparse"):
        pandas = pytest.importorskip("pandas")
        if kind == "pandas sparse":
            return pandas.DataFrame.sparse.from_spmatrix(scipy.sparse.csr_matrix(x), ROWS, columns)
        frame = pandas.DataFrame(x, ROWS, columns)
        return frame.astype("Int64") if kind == "nullable" else frame
    if kind == "polars":
        return pytest.importorskip("polars").DataFrame(x, schema=columns)
    if kind in ("xarray", "chunked"):
        array = pytest.importorskip("xarray").DataArray(x, {"cell": ROWS, "gene": columns}, ("cell", "gene"))
        return array if kind == "xarray" else array.chunk({"cell": 20})
    anndata = pytest.importorskip("anndata")
    cells = anndata.AnnData(x if kind == "cells" else scipy.sparse.csr_matrix(x))
    cells.obs_names, cells.var_names = ROWS, columns
    if kind == "backed":
        cells.write_h5ad(folder / "cells.h5ad")
        return anndata.read_h5ad(folder / "cells.h5ad", backed="r")
    return cells[:, :] if kind == "view of cells" else cells


KINDS = [
    *("pandas", "nullable", "pandas sparse", "polars", "xarray", "chunked"),
    *("cells", "sparse cells", "view of cells", "backed"),
]


def made_by(estimator: Any, x: Any) -> Any:
    found = estimator.transform(x) if hasattr(estimator, "transform") else estimator.kneighbors(x)[0]
    return found.toarray() if scipy.sparse.issparse(found) else np.asarray(found)


@pytest.mark.filterwarnings("error:X does not have valid:UserWarning")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", ESTIMATORS)
def test_what_has_names_is_taken_as_its_numbers_are(tmp_path: Path, make: str, kind: str) -> None:
    x = named(kind, tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", category=Warning if "NMF" in make else RuntimeWarning)
        warnings.filterwarnings("error", "X does not have valid", UserWarning)
        estimator = ESTIMATORS[make]().fit(x)
        plain = ESTIMATORS[make]().fit(numbers())
    assert list(estimator.feature_names_in_) == COLUMNS and estimator.n_features_in_ == 8
    ours, theirs = made_by(estimator, x), made_by(plain, numbers())
    np.testing.assert_allclose(np.abs(ours), np.abs(theirs), atol=2e-5)
    assert (
        len(estimator.get_feature_names_out()) == ours.shape[1] if hasattr(estimator, "transform") else True
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", ESTIMATORS)
def test_other_names_are_refused(tmp_path: Path, make: str, kind: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator = ESTIMATORS[make]().fit(named("pandas", tmp_path))
    with pytest.raises(ValueError, match="feature names should match those that were passed during fit"):
        made_by(estimator, named(kind, tmp_path, [*COLUMNS[1:], "another"]))


@pytest.mark.parametrize("make", ["PCA", "NearestNeighbors"])
def test_columns_called_by_numbers_in_another_order_are_refused(make: str) -> None:
    pandas = pytest.importorskip("pandas")
    counted = pandas.DataFrame(numbers())
    turned, others = counted[counted.columns[::-1]], counted.set_axis(range(1, 9), axis=1)
    for fit, samples in ((counted, turned), (turned, counted), (others, others[others.columns[::-1]])):
        estimator, plain = ESTIMATORS[make]().fit(fit), ESTIMATORS[make]().fit(fit.to_numpy())
        with pytest.raises(ValueError, match=r"columns of .* in another order"):
            made_by(estimator, samples)
        for same in (fit, fit.to_numpy()):
            np.testing.assert_array_equal(made_by(estimator, same), made_by(plain, fit.to_numpy()))


@pytest.mark.filterwarnings("error:X does not have valid:UserWarning")
@pytest.mark.parametrize("container", ["pandas", "polars"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [name for name in ESTIMATORS if "eighbors" not in name])
def test_frames_come_out_with_names(tmp_path: Path, make: str, kind: str, container: str) -> None:
    pytest.importorskip(container)
    estimator, x = ESTIMATORS[make]().set_output(transform=container), named(kind, tmp_path)
    if kind in NOT_HELD:
        with pytest.raises(ValueError, match="is for samples in memory: what is made of a matrix on disk"):
            estimator.fit_transform(x)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", category=Warning if "NMF" in make else RuntimeWarning)
        warnings.filterwarnings("error", "X does not have valid", UserWarning)
        frames = estimator.fit_transform(x), estimator.transform(x)
    for frame in frames:
        assert type(frame).__module__.startswith(container)
        assert list(frame.columns) == list(estimator.get_feature_names_out())
        assert list(frame.columns) == [f"{make.lower()}{i}" for i in range(3)]
        if container == "pandas" and kind != "polars":
            assert list(frame.index) == ROWS
    np.testing.assert_allclose(np.asarray(frames[0]), np.asarray(frames[1]), atol=1e-5)


def transformers() -> list[str]:
    """Estimators that may give frames; graphs of neighbors are sparse, which scikit-learn refuses."""
    names = [name for name in estimators.__all__ if hasattr(getattr(estimators, name), "set_output")]
    return [name for name in names if not name.endswith("NeighborsTransformer")]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", transformers())
def test_each_transformer_gives_frames(tmp_path: Path, make: str) -> None:
    frame = named("pandas", tmp_path)
    settings = {
        "n_components": 2,
        "random_state": 0,
        "max_iter": 250,
        "perplexity": 5,
        "n_epochs": 20,
        "tol": 0.01,
    }
    for container in ("pandas", "polars"):
        pytest.importorskip(container)
        estimator = getattr(estimators, make)()
        known = estimator.get_params()
        estimator.set_params(**{name: value for name, value in settings.items() if name in known})
        estimator.set_output(transform=container)
        frames = [estimator.fit_transform(frame), estimator.fit(frame).transform(frame)]
        for found in frames:
            assert type(found).__module__.startswith(container)
            assert list(found.columns) == list(estimator.get_feature_names_out())
            assert container == "polars" or list(found.index) == ROWS


@pytest.mark.parametrize("make", ["PCA", "IncrementalPCA"])
def test_other_methods_take_names_too(tmp_path: Path, make: str) -> None:
    cells, frame = named("cells", tmp_path), named("pandas", tmp_path)
    if make == "PCA":
        assert PCA(3).fit(cells).score(cells) == PCA(3).fit(frame).score(frame)
        return
    parts = IncrementalPCA(3)
    for part in (cells[:30], cells[30:]):
        parts.partial_fit(part)
    assert list(parts.feature_names_in_) == COLUMNS
    np.testing.assert_allclose(parts.components_, IncrementalPCA(3).fit(frame).components_, atol=1e-9)
    with pytest.raises(ValueError, match="feature names should match"):
        parts.partial_fit(named("cells", tmp_path, [*COLUMNS[1:], "another"]))


def test_what_has_more_axes_is_refused_as_elsewhere() -> None:
    xarray = pytest.importorskip("xarray")
    with pytest.raises(ValueError, match="row_axes"):
        PCA(2).fit(xarray.DataArray(np.ones((4, 3, 2)), dims=("time", "lat", "lon")))


# Weights ------------------------------------------------------------------------------------------


def weighted_eigenvectors(x: Any, weights: Any) -> tuple[Any, Any, Any]:
    """Mean, values and vectors of the weighted covariance, by NumPy."""
    values, vectors = np.linalg.eigh(np.cov(x.T, fweights=weights))
    return np.average(x, axis=0, weights=weights), values[::-1], vectors.T[::-1]


def weights_and_samples(seed: int = 1) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((300, 12)) * np.linspace(3, 0.5, 12) + rng.random(12) * 5
    return rng.integers(0, 5, 300), x


@pytest.mark.parametrize("solver", ["auto", "full", "covariance_eigh", "arpack", "randomized"])
@pytest.mark.parametrize("kind", ["array", "csr", "zarr", "frame"])
@pytest.mark.parametrize("whiten", [False, True])
def test_components_are_those_of_the_weighted_covariance(
    tmp_path: Path, solver: str, kind: str, whiten: bool
) -> None:
    weights, x = weights_and_samples()
    mean, values, vectors = weighted_eigenvectors(x, weights)
    given: Any = {
        "array": lambda: x,
        "csr": lambda: scipy.sparse.csr_array(x),
        "zarr": lambda: to_zarr(tmp_path / "x.zarr", x, (70, 12)),
        "frame": lambda: pytest.importorskip("pandas").DataFrame(x),
    }[kind]()
    found = PCA(4, svd_solver=solver, whiten=whiten, iterated_power=15)
    scores = np.asarray(found.fit_transform(given, sample_weight=weights)[...])
    np.testing.assert_allclose(found.mean_, mean, rtol=1e-10)
    np.testing.assert_allclose(found.explained_variance_, values[:4], rtol=1e-7)
    np.testing.assert_allclose(found.explained_variance_ratio_, values[:4] / values.sum(), rtol=1e-7)
    np.testing.assert_allclose(found.noise_variance_, values[4:].mean(), rtol=1e-6)
    np.testing.assert_allclose(np.abs(found.components_ @ vectors[:4].T), np.eye(4), atol=1e-4)
    expected = (x - mean) @ found.components_.T / (np.sqrt(values[:4]) if whiten else 1)
    np.testing.assert_allclose(scores, expected, atol=1e-6)
    np.testing.assert_allclose(np.asarray(found.transform(given)[...]), expected, atol=1e-6)


@pytest.mark.parametrize("n", [0.7, "mle", None])
def test_a_weight_is_a_number_of_copies(n: Any) -> None:
    weights, x = weights_and_samples()
    repeated = decomposition.PCA(n, svd_solver="full").fit(np.repeat(x, weights, axis=0))
    found = PCA(n, svd_solver="full").fit(x, sample_weight=weights)
    assert found.n_components_ == repeated.n_components_
    for name in (
        "mean_",
        "explained_variance_",
        "explained_variance_ratio_",
        "singular_values_",
        "noise_variance_",
    ):
        np.testing.assert_allclose(getattr(found, name), getattr(repeated, name), rtol=1e-7, err_msg=name)
    np.testing.assert_allclose(found.score(x), repeated.score(x), rtol=1e-9)


def test_weights_of_one_are_none() -> None:
    _, x = weights_and_samples()
    plain = PCA(4, svd_solver="full").fit(x)
    for ones in (np.ones(300), 1.0):
        found = PCA(4, svd_solver="full").fit(x, sample_weight=ones)
        np.testing.assert_allclose(found.components_, plain.components_, atol=1e-10)
        np.testing.assert_allclose(found.explained_variance_, plain.explained_variance_, rtol=1e-10)


@pytest.mark.parametrize("kind", ["array", "csr", "zarr"])
@pytest.mark.parametrize("algorithm", ["arpack", "randomized"])
def test_truncated_components_are_those_of_weighted_rows(tmp_path: Path, kind: str, algorithm: str) -> None:
    weights, x = weights_and_samples()
    _, s, vt = np.linalg.svd(np.repeat(x, weights, axis=0), full_matrices=False)
    scores = np.repeat(x, weights, axis=0) @ vt[:4].T
    given: Any = {
        "array": lambda: x,
        "csr": lambda: scipy.sparse.csr_array(x),
        "zarr": lambda: to_zarr(tmp_path / "x.zarr", x, (70, 12)),
    }[kind]()
    found = TruncatedSVD(4, algorithm=algorithm, n_iter=15, random_state=0)
    coordinates = np.asarray(found.fit_transform(given, sample_weight=weights)[...])
    np.testing.assert_allclose(found.singular_values_, s[:4], rtol=1e-7)
    np.testing.assert_allclose(np.abs(found.components_ @ vt[:4].T), np.eye(4), atol=1e-4)
    np.testing.assert_allclose(found.explained_variance_, scores.var(axis=0), rtol=1e-5)
    total = np.repeat(x, weights, axis=0).var(axis=0).sum()
    np.testing.assert_allclose(found.explained_variance_ratio_, scores.var(axis=0) / total, rtol=1e-5)
    np.testing.assert_allclose(coordinates, x @ found.components_.T, atol=1e-6)
    np.testing.assert_allclose(np.asarray(found.transform(given)[...]), coordinates, atol=1e-8)


@pytest.mark.parametrize("make", [PCA, TruncatedSVD])
@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(299), r"sample_weight.shape == \(299,\), expected \(300,\)"),
        (np.ones((300, 2)), r"sample_weight.shape == \(300, 2\), expected \(300,\)"),
        (-np.ones(300), "sample_weight must not be negative, and there is -1"),
        (np.zeros(300), "sample_weight must not be zero for all samples"),
        (np.full(300, 1 / 300), "a sum of 1 is no more than one sample, .* Multiply the weights"),
        (np.full(300, np.nan), "contains NaN"),
    ],
)
def test_wrong_weights_are_one_clear_message(make: Any, weights: Any, message: str) -> None:
    if make is TruncatedSVD and "Multiply" in message:
        make(2).fit(weights_and_samples()[1], sample_weight=weights)
        return  # its variances are over the sum
    with pytest.raises(ValueError, match=message):
        make(2).fit(weights_and_samples()[1], sample_weight=weights)
