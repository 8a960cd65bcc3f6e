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

    def missing(self) -> str | None:
        """Why it cannot run, in words a user would understand."""
        package = self.tests.partition(".")[0]
        try:
            found = importlib.util.find_spec(self.tests)
        except ModuleNotFoundError:
            found = None
        return None if found else f"this installation of {package} comes without {self.tests}"


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
            "scipy svds",
            "scipy.sparse.linalg._eigen.tests.test_svds",
            "scipy.sparse.linalg",
            ("svds",),
            "scipy_functions",
        ),
    )
}
