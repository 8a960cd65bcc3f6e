"""The suites of tests of the peers, and what of theirs is replaced by what of ours."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Suite:
    """Tests that a peer ships, and the functions or classes that they are to test instead."""

    name: str
    tests: str
    """Module of the tests."""

    replaced: str
    """Module whose names are replaced."""

    names: tuple[str, ...]
    ours: str
    """Module that has ours by the same names."""

    select: str = ""
    """Expression of pytest's ``-k``."""

    source: str = ""
    """Source distribution that has the tests, and all else of the peer, where its wheel has none of them."""

    requirements: tuple[str, ...] = ()
    """Packages that its tests need, which are installed for them alone."""

    plugins: tuple[str, ...] = ()
    """Of pytest, other than ours."""

    downloads: tuple[str, str] | None = None
    """A module with functions that download data, and one that has them by the same names without."""

    def missing(self) -> str | None:
        """Why it cannot run, in words a user would understand."""
        package = self.tests.partition(".")[0]
        try:
            found = importlib.util.find_spec(self.tests)
        except ModuleNotFoundError:
            found = None
        if found:
            return None
        fetched = f"; make peers runs those of {self.source}" if self.source else ""
        return f"this installation of {package} comes without {self.tests}{fetched}"


SUITES = {
    suite.name: suite
    for suite in (
        Suite(
            "dask",
            "dask.array.tests.test_linalg",
            "dask.array.linalg",
            ("tsqr", "sfqr", "qr", "svd", "svd_compressed"),
            "dask_functions",
            select="tsqr or sfqr or qr or svd",
        ),
        Suite(
            "scikit-learn PCA",
            "sklearn.decomposition.tests.test_pca",
            "sklearn.decomposition",
            ("PCA",),
            "rankfold.estimators",
        ),
        Suite(
            "scikit-learn TruncatedSVD",
            "sklearn.decomposition.tests.test_truncated_svd",
            "sklearn.decomposition",
            ("PCA", "TruncatedSVD"),
            "rankfold.estimators",
        ),
        Suite(
            "scikit-learn IncrementalPCA",
            "sklearn.decomposition.tests.test_incremental_pca",
            "sklearn.decomposition",
            ("PCA", "IncrementalPCA"),
            "rankfold.estimators",
        ),
        Suite(
            "scikit-learn NMF",
            "sklearn.decomposition.tests.test_nmf",
            "sklearn.decomposition",
            ("NMF", "MiniBatchNMF"),
            "rankfold.estimators",
        ),
        Suite(
            "scikit-learn randomized_svd",
            "sklearn.utils.tests.test_extmath",
            "sklearn.utils.extmath",
            ("randomized_svd",),
            "scikit_functions",
            select="svd",
        ),
        Suite(
            "scikit-learn neighbors",
            "sklearn.neighbors.tests.test_neighbors",
            "sklearn.neighbors",
            ("NearestNeighbors", "KNeighborsTransformer"),
            "rankfold.estimators",
            select="(unsupervised or not_fitted or precomputed_dense or precomputed_sparse or equidistant "
            "or nearest_neigh or neighbors_metrics or brute_backend or brute_metric or callable "
            "or non_euclidean or k_and_radius or boolean_distance or auto_algorithm "
            "or nan_euclidean_support) and not unsupervised_radius and not test_radius",
        ),
        Suite(
            "scikit-learn neighbor graphs",
            "sklearn.neighbors.tests.test_neighbors_pipeline",
            "sklearn.neighbors",
            ("NearestNeighbors", "KNeighborsTransformer"),
            "rankfold.estimators",
        ),
        Suite(
            "scikit-learn KernelDensity",
            "sklearn.neighbors.tests.test_kde",
            "sklearn.neighbors",
            ("KernelDensity",),
            "rankfold.estimators",
        ),
        Suite(
            "scikit-learn Isomap",
            "sklearn.manifold.tests.test_isomap",
            "sklearn.manifold",
            ("Isomap",),
            "rankfold.estimators",
        ),
        Suite(
            "scikit-learn TSNE",
            "sklearn.manifold.tests.test_t_sne",
            "sklearn.manifold",
            ("TSNE",),
            "rankfold.estimators",
        ),
        Suite(
            "scikit-learn SpectralEmbedding",
            "sklearn.manifold.tests.test_spectral_embedding",
            "sklearn.manifold",
            ("SpectralEmbedding", "spectral_embedding"),
            "scikit_functions",
        ),
        Suite(
            "scikit-learn KernelPCA",
            "sklearn.decomposition.tests.test_kernel_pca",
            "sklearn.decomposition",
            ("KernelPCA",),
            "rankfold.estimators",
        ),
        Suite(
            "scikit-learn kernel approximation",
            "sklearn.tests.test_kernel_approximation",
            "sklearn.kernel_approximation",
            ("Nystroem", "RBFSampler"),
            "rankfold.estimators",
        ),
        Suite(
            "pynndescent",
            "pynndescent.tests.test_pynndescent_",
            "pynndescent",
            ("NNDescent",),
            "pynndescent_functions",
            source="pynndescent==0.7.0",
        ),
        Suite(
            "scanpy",
            "tests.test_pca",
            "sklearn.decomposition",
            ("PCA", "TruncatedSVD", "IncrementalPCA"),
            "rankfold.estimators",
            source="scanpy==1.11.5",
            # Later releases of anndata have other names for what these tests take from its own.
            requirements=("scanpy==1.11.5", "anndata==0.12.2"),
            plugins=("testing.scanpy._pytest",),
            downloads=("scanpy.datasets", "scanpy_datasets"),
        ),
        Suite(
            "scipy svds",
            "scipy.sparse.linalg._eigen.tests.test_svds",
            "scipy.sparse.linalg",
            ("svds",),
            "scipy_functions",
        ),
    )
}
