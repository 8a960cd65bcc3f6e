"""Files of AnnData are read where they lie, and are known again after results were added to them."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse
from reference import same_bytes

import rankfold as rf
from rankfold.pipeline.data.source import compressed
from rankfold.pipeline.errors import ChunkError, InputError, SourceNotFoundError
from rankfold.pipeline.formats import open_source

anndata = pytest.importorskip("anndata", reason="pip install anndata")
h5py = pytest.importorskip("h5py", reason="pip install h5py")

Array = npt.NDArray[Any]


def counts(rows: int = 400, columns: int = 50) -> Array:
    rng = np.random.default_rng(0)
    return rng.poisson(rng.gamma(0.4, 0.4, columns), (rows, columns)).astype(np.float32)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    x = counts()
    adata = anndata.AnnData(scipy.sparse.csr_matrix(x))
    adata.layers["dense"] = x
    adata.layers["columns"] = scipy.sparse.csc_matrix(x)
    adata.write_h5ad(tmp_path / "cells.h5ad", compression="gzip")
    return tmp_path / "cells.h5ad"


@pytest.mark.parametrize(
    ("part", "by"), [("", "rows"), ("::X", "rows"), ("::layers/columns", "columns"), ("::layers/dense", None)]
)
def test_matrices_are_read_in_place(file: Path, part: str, by: str | None) -> None:
    source = pickle.loads(pickle.dumps(open_source(f"{file}{part}")))
    out = np.empty((400, 50), np.float32)
    source.read_into(out, (0, 400), (0, 50))
    np.testing.assert_array_equal(out, counts())
    stored = compressed(source)
    if by is None:
        assert stored is None
        return
    assert stored is not None and stored.by == by and stored.nnz == np.count_nonzero(counts())
    lines = counts() if by == "rows" else counts().T
    part_ = stored.read_sparse((7, 31))
    found = scipy.sparse.csr_array((part_.data, part_.indices, part_.indptr), (24, lines.shape[1]))
    np.testing.assert_array_equal(found.toarray(), lines[7:31])
    source.check()
    assert source.stored_bytes() > 0 and source.codec == "deflate"


def test_backed_objects_are_read_by_their_place(file: Path) -> None:
    adata = anndata.read_h5ad(file, backed="r")
    source = open_source(adata)
    assert compressed(source) is not None and source.name == f"{file}::X"
    adata.file.close()


def test_results_go_into_the_file_that_the_matrix_lies_in_and_it_stays_known(
    tmp_path: Path, file: Path
) -> None:
    result = rf.pca(f"{file}::X", 4, out=tmp_path / "r.zarr")
    before = open_source(file).fingerprint()
    result.to_anndata(file)
    rf.knn(result.scores, 5).to_anndata(file)
    assert open_source(file).fingerprint() == before
    again = rf.pca(f"{file}::X", 4, out=tmp_path / "r.zarr")  # already done
    assert same_bytes(again) == same_bytes(result)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert anndata.read_h5ad(file).obsm["X_pca"].shape == (400, 4)


@pytest.mark.parametrize("part", ["data", "indices"])
def test_other_numbers_in_the_same_places_are_another_matrix(file: Path, part: str) -> None:
    before = open_source(file).fingerprint()
    with h5py.File(file, "r+") as opened:
        values = opened["X"][part][:]
        opened["X"][part][:] = np.roll(values, 1)
    assert open_source(file).fingerprint() != before


def test_the_same_numbers_as_in_memory(tmp_path: Path, file: Path) -> None:
    steps = "normalize_total(1e4), log1p, highly_variable(20), scale(max_value=10)"
    a = rf.pca(rf.open(file, prepare=steps), 4, out=tmp_path / "a", solver="krylov")
    b = rf.pca(
        rf.open(scipy.sparse.csr_array(counts()), prepare=steps), 4, out=tmp_path / "b", solver="krylov"
    )
    np.testing.assert_array_equal(a.singular_values[:], b.singular_values[:])


def test_damage_is_told(file: Path, tmp_path: Path) -> None:
    with pytest.raises(SourceNotFoundError, match="has no dataset layers/none"):
        open_source(f"{file}::layers/none")
    with pytest.raises(InputError, match=r"is a group of .*, not a matrix"):
        open_source(f"{file}::layers")
    with h5py.File(file, "r+") as opened:
        opened["X/indices"][3] = 50
    with pytest.raises(ChunkError, match=r"indices\[3\] is 50, but the matrix has 50 columns"):
        rf.svd(f"{file}::X", 2)
    with h5py.File(file, "r+") as opened:
        del opened["X/indptr"]
    with pytest.raises(ChunkError, match="has no indptr, so it is not whole"):
        open_source(file)
    (tmp_path / "short.h5ad").write_bytes(file.read_bytes()[:5000])
    with pytest.raises((ChunkError, InputError)):
        open_source(tmp_path / "short.h5ad")
