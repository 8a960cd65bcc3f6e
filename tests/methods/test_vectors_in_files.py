"""A vector in a ``.npy`` file, in every argument that takes one: what is no such file is one message."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import rankfold as rf
from rankfold.pipeline.errors import RankfoldError
from rankfold.pipeline.exporting.plots.row_columns import open_column

X = np.random.default_rng(0).random((60, 3))

ARGUMENTS: dict[str, Callable[[str], object]] = {
    "weights of density": lambda path: rf.density(X, bandwidth=1.0, weights=path),
    "weights of kernel_sum": lambda path: rf.kernel_sum(X, weights=path),
    "weights of kmeans": lambda path: rf.kmeans(X, 3, weights=path),
    "row_weights of nmf": lambda path: rf.nmf(X, 2, row_weights=path),
    "weights of a step": lambda path: rf.pca(X.T, 2, prepare=[{"weights": {"values": path}}]),
    "targets of fuzzy_graph": lambda path: rf.fuzzy_graph(rf.knn(X, 5), targets=path),
    "labels of a plot": open_column,
}


def archive(path: str) -> None:
    with open(path, "wb") as file:
        np.savez(file, x=X)


FILES: dict[str, Callable[[str], object]] = {
    "empty": lambda path: Path(path).touch(),
    "zeros": lambda path: (Path(path).touch(), os.truncate(path, 2**31)),
    "objects": lambda path: np.save(path, np.array([{}] * 60, object)),
    "an archive": archive,
    "half of one": lambda path: (np.save(path, X[:, 0]), os.truncate(path, 300)),
}


@pytest.mark.parametrize("argument", ARGUMENTS)
@pytest.mark.parametrize("file", FILES)
def test_what_is_no_vector_is_one_message(tmp_path: Path, argument: str, file: str) -> None:
    path = str(tmp_path / "w.npy")
    FILES[file](path)
    with pytest.raises(RankfoldError, match=r"w\.npy"):
        ARGUMENTS[argument](path)


@pytest.mark.parametrize("argument", ARGUMENTS)
def test_a_vector_is_taken(tmp_path: Path, argument: str) -> None:
    path = str(tmp_path / "w.npy")
    np.save(path, np.arange(1, 61) % 3 + (1 if "labels" not in argument else 0))
    assert ARGUMENTS[argument](path) is not None
