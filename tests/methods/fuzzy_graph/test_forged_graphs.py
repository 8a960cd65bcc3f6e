"""Graphs in files that hold any numbers: what kernels would follow is refused before they do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import zarr

import rankfold as rf
from rankfold.methods.fuzzy_graph.stored_rows import StoredRows
from rankfold.pipeline.errors import ChunkError, DataError

FORGED = [
    ("indices", 5, 10**8),
    ("indices", 5, -3),
    ("indptr", 0, 1),
    ("indptr", 5, 10**9),
    ("indptr", 5, -7),
    ("indptr", -1, 3),
    ("data", 5, np.nan),
    ("data", 5, np.inf),
    ("data", 5, -1.0),
]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The graph of a few neighbors, without a manifest that would know of changes."""
    folder = tmp_path_factory.mktemp("graph")
    lists = rf.knn(np.random.default_rng(0).standard_normal((80, 4)), 5, out=folder / "lists.zarr")
    rf.fuzzy_graph(lists, out=folder / "graph.zarr")
    (folder / "graph.zarr" / "manifest.json").unlink()
    return folder / "graph.zarr"


@pytest.fixture(params=FORGED, ids=[f"{name}[{place}]={value}" for name, place, value in FORGED])
def forged(graph: Path, request: pytest.FixtureRequest) -> Path:
    """The same with one number changed, and back again afterwards."""
    name, place, value = request.param
    array = zarr.open_array(graph / "graph" / name, mode="r+")
    before = array[place]
    array[place] = value
    request.addfinalizer(lambda: array.__setitem__(place, before))
    return graph


def read_all(graph: Path) -> None:
    stored = StoredRows(graph / "graph")
    stored.between(0, len(stored.pointers) - 1)


@pytest.mark.parametrize(
    "read",
    [
        read_all,
        lambda graph: rf.umap(str(graph), n_epochs=2),
        lambda graph: rf.combine_graphs(str(graph), str(graph)),
        lambda graph: rf.spectral(str(graph)),
    ],
    ids=["rows", "umap", "combine_graphs", "spectral"],
)
def test_what_kernels_would_follow_is_refused(forged: Path, read: Callable[[Path], object]) -> None:
    with pytest.raises(DataError):
        read(forged)


@pytest.mark.parametrize("forged", [each for each in FORGED if each[0] != "data"], indirect=True)
def test_a_graph_in_memory_is_checked(forged: Path) -> None:
    result = rf.open_result(forged)
    with pytest.raises(DataError):
        _ = result.graph


@pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
@pytest.mark.parametrize("value", [-1, 10**6])
def test_places_of_a_sparse_matrix_are_checked(kind: str, value: int) -> None:
    x = scipy.sparse.random(50, 9, 0.3, kind, random_state=0)
    (x.col if kind == "coo" else x.indices)[3] = value
    with pytest.raises(ChunkError, match=r"\[3\]"):
        rf.svd(x, 2)


@pytest.mark.parametrize(("place", "value"), [(0, 1), (4, -2), (4, 10**6), (-1, 10**6)])
def test_pointers_of_a_sparse_matrix_are_checked(place: int, value: int) -> None:
    x = scipy.sparse.random(50, 9, 0.3, "csr", random_state=0)
    x.indptr[place] = value
    with pytest.raises(ChunkError, match="indptr"):
        rf.svd(x, 2)
