"""Several files as one matrix, and how they grow."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array, csr_matrix, random_array, save_npz

import rankfold as rf
from rankfold.pipeline.data.source import require_compressed, row_marks
from rankfold.pipeline.errors import DataError, InputError, OutputError, SourceNotFoundError

Float32 = npt.NDArray[np.float32]

X = np.random.default_rng(2).standard_normal((90, 12)).astype(np.float32)
CUTS = (0, 20, 21, 55, 90)


def write(folder: Path, parts: int) -> None:
    for number in range(parts):
        path = folder / f"day-{number}.npy"
        if not path.exists():
            np.save(path, X[CUTS[number] : CUTS[number + 1]])


def test_rows_of_files_lie_below_each_other(tmp_path: Path) -> None:
    write(tmp_path, 4)
    by_name = rf.open(f"{tmp_path}/day-*.npy")
    by_list = rf.open([tmp_path / f"day-{number}.npy" for number in range(4)])
    for source in (by_name, by_list):
        assert source.shape == X.shape
        assert source.row_grid.edges[-1] == 90
        for rows, columns in (((0, 90), (0, 12)), ((19, 56), (3, 7)), ((20, 21), (0, 1)), ((5, 5), (0, 12))):
            out = np.empty((rows[1] - rows[0], columns[1] - columns[0]), np.float32)
            source.read_into(out, rows, columns)
            assert np.array_equal(out, X[slice(*rows), slice(*columns)])
    assert by_name.fingerprint() == by_list.fingerprint()
    whole = rf.svd(X, 5, threads=1)
    np.testing.assert_allclose(rf.svd(by_name, 5, threads=1).s, whole.s, rtol=1e-5)


def test_sparse_files_stay_sparse(tmp_path: Path) -> None:
    anndata = pytest.importorskip("anndata", reason="anndata writes .h5ad files")
    x = csr_matrix(random_array((90, 40), density=0.1, rng=np.random.default_rng(1), dtype=np.float32))
    for number, (start, stop) in enumerate(itertools.pairwise(CUTS)):
        anndata.AnnData(x[start:stop]).write_h5ad(tmp_path / f"cells-{number}.h5ad")
    source = require_compressed(rf.open(f"{tmp_path}/cells-*.h5ad"))
    assert source.nnz == x.nnz
    for top, bottom in ((0, 90), (20, 21), (19, 60), (21, 21), (55, 55), (90, 90)):
        assert np.array_equal(source.pointers(top, bottom), x.indptr[top : bottom + 1])
        rows = source.read_sparse((top, bottom))
        part = csr_array((rows.data, rows.indices, rows.indptr), shape=(bottom - top, 40))
        assert (part != csr_array(x[top:bottom])).nnz == 0
    lists = rf.knn(source, 3, threads=1)
    assert np.array_equal(lists.indices, rf.knn(x, 3, threads=1).indices)


def test_new_files_are_new_rows(tmp_path: Path) -> None:
    write(tmp_path, 2)
    pattern, out = f"{tmp_path}/day-*.npy", tmp_path / "near.zarr"
    rf.knn(pattern, 4, out=out, grows="rows", threads=1)
    for parts in (3, 4):
        write(tmp_path, parts)
        result = rf.knn(pattern, 4, out=out, grows="rows", threads=1)
        fresh = rf.knn(X[: CUTS[parts]], 4, threads=1)
        assert result.distances[...].tobytes() == np.asarray(fresh.distances).tobytes()
        assert result.indices[...].tobytes() == np.asarray(fresh.indices).tobytes()
    assert result.attrs["rows"] == [[0, 21], [21, 55], [55, 90]]
    np.save(tmp_path / "day-1.npy", X[20:21] + 1)
    write_more = tmp_path / "day-4.npy"
    np.save(write_more, X[:5])
    with pytest.raises(OutputError, match="another size or time"):
        rf.knn(pattern, 4, out=out, grows="rows", threads=1)


def write_netcdf(path: Path, rows: Float32) -> None:
    xarray = pytest.importorskip("xarray", reason="xarray writes netCDF files")
    xarray.Dataset({"t2m": (("time", "place"), rows)}).to_netcdf(path)


def write_cells(path: Path, rows: Float32) -> None:
    anndata = pytest.importorskip("anndata", reason="anndata writes .h5ad files")
    anndata.AnnData(csr_matrix(np.where(rows > 0, rows, 0))).write_h5ad(path)


@pytest.mark.parametrize(
    "write_file, name, variable", [(write_netcdf, "day-*.nc", "::t2m"), (write_cells, "day-*.h5ad", "")]
)
def test_new_files_of_a_night_are_read_alone(
    tmp_path: Path, write_file: Callable[[Path, Float32], None], name: str, variable: str
) -> None:
    place, out = f"{tmp_path / name}{variable}", tmp_path / "pca.zarr"
    for number, (start, stop) in enumerate(itertools.pairwise(CUTS)):
        write_file(tmp_path / name.replace("*", str(number)), X[start:stop])
        result = rf.pca(place, 12, with_rows=False, grows="rows", out=out, threads=1)
        assert result.attrs["rows"][-1] == [start, stop]
    fresh = rf.pca(place, 12, with_rows=False, threads=1)
    np.testing.assert_allclose(result.singular_values, fresh.singular_values, rtol=1e-5)


def test_a_file_that_grows_itself_cannot_be_told(tmp_path: Path) -> None:
    write(tmp_path, 2)
    source = rf.open(f"{tmp_path}/day-*.npy")
    assert row_marks(source, 20) == row_marks(source, 20)
    with pytest.raises(InputError, match="nothing but a read of all rows"):
        row_marks(source, 7)


def test_what_does_not_fit_together_is_refused(tmp_path: Path) -> None:
    write(tmp_path, 1)
    with pytest.raises(SourceNotFoundError, match=r"week-\*.npy"):
        rf.open(f"{tmp_path}/week-*.npy")
    np.save(tmp_path / "day-1.npy", X[:, :5])
    with pytest.raises(InputError, match="have the same columns"):
        rf.open(f"{tmp_path}/day-*.npy")


TYPES = ("float16", "float32", "float64", "complex64", "int8", "int16", "uint16", "int32", "int64", "bool")


@given(types=st.lists(st.sampled_from(TYPES), min_size=2, max_size=4), sparse=st.booleans())
def test_files_of_any_types_keep_every_number(
    tmp_path_factory: pytest.TempPathFactory, types: list[str], sparse: bool
) -> None:
    folder = tmp_path_factory.mktemp("types")
    # SciPy has no sparse float16, and sparse matrices are read as real numbers.
    types = [each for each in types if not sparse or each not in ("float16", "complex64")]
    parts = [(9 * X[CUTS[i] : CUTS[i + 1]]).astype(dtype) for i, dtype in enumerate(types)]
    if not parts:
        return
    for number, part in enumerate(parts):
        if sparse:
            save_npz(folder / f"day-{number}.npz", csr_matrix(part), compressed=False)
        else:
            np.save(folder / f"day-{number}.npy", part)
    source, whole = rf.open(f"{folder}/day-*"), np.concatenate(parts)
    assert source.dtype == np.result_type(*types) == whole.dtype
    rows, columns = (3, len(whole) - 2), (2, 11)
    out = np.empty((rows[1] - rows[0], columns[1] - columns[0]), source.dtype)
    source.read_into(out, rows, columns)
    assert np.array_equal(out, whole[slice(*rows), slice(*columns)])
    if sparse:
        stored = require_compressed(source).read_sparse(rows)
        assert stored.data.dtype == source.dtype
        again = csr_array((stored.data, stored.indices, stored.indptr), shape=(len(out), 12))
        assert np.array_equal(again.toarray(), whole[slice(*rows)])


@pytest.mark.parametrize("sparse", [False, True])
def test_whole_numbers_that_the_type_of_all_files_rounds_are_refused(tmp_path: Path, sparse: bool) -> None:
    numbers = np.zeros((40, 12), np.int64)
    numbers[7, 5] = 2**53 + 1
    parts: tuple[npt.NDArray[Any], ...] = X[:20], numbers
    for number, part in enumerate(parts):
        if sparse:
            save_npz(tmp_path / f"day-{number}.npz", csr_matrix(part), compressed=False)
        else:
            np.save(tmp_path / f"day-{number}.npy", part)
    source = rf.open(f"{tmp_path}/day-*")
    source.read_into(np.empty((7, 12)), (20, 27), (0, 12))
    with pytest.raises(DataError, match=r"day-1\.np. holds whole numbers such as 9007199254740993"):
        rf.pca(source, 3, threads=1)


def test_one_wider_file_gives_the_result_of_the_whole_matrix(tmp_path: Path) -> None:
    write(tmp_path, 3)
    np.save(tmp_path / "day-3.npy", X[CUTS[3] :].astype(np.float64))
    whole = rf.svd(X.astype(np.float64), 5, threads=1)
    np.testing.assert_allclose(rf.svd(f"{tmp_path}/day-*.npy", 5, threads=1).s, whole.s, rtol=1e-12)
    assert str(rf.open(f"{tmp_path}/day-*.npy").format) == "4 of npy, of float32, float64"  # type: ignore[attr-defined]
