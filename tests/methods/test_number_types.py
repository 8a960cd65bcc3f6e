"""Every type of stored numbers gives every method the numbers of their copy in float64."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse
import zarr
from covers import cover
from reference import to_group
from zarr.codecs import BytesCodec

import rankfold as rf
from rankfold.pipeline.errors import InputError

Array = npt.NDArray[Any]

TYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
    *(">i2", ">i4", ">i8", ">u2", ">u4", ">u8", ">f2", ">f4", ">f8"),
]


def small(dtype: str, shape: tuple[int, int] = (160, 24)) -> Array:
    """Numbers that every type holds, most of them 0, of a few kinds of rows."""
    rng = np.random.default_rng(0)
    kinds = rng.random((4, shape[1])) ** 3
    x = rng.random(shape) < kinds[rng.integers(0, 4, shape[0])]
    if dtype == "bool":
        return x
    return (x * rng.integers(1, 4, shape)).astype(dtype)


def npy(folder: Path, x: Array) -> Any:
    np.save(folder / "x.npy", x)
    return folder / "x.npy"


def npy_by_columns(folder: Path, x: Array) -> Any:
    return npy(folder, np.asfortranarray(x))


def zarr_3(folder: Path, x: Array) -> Any:
    """In the byte order of the array, which version 3 says of a codec."""
    order = "big" if x.dtype.byteorder == ">" else "little"
    native = x.astype(x.dtype.newbyteorder("="))
    array = zarr.create_array(
        folder / "x.zarr",
        shape=x.shape,
        dtype=native.dtype,
        chunks=(50, 10),
        serializer=BytesCodec(endian=order),
    )
    array[:] = native
    return folder / "x.zarr"


def zarr_2(folder: Path, x: Array) -> Any:
    zarr.create_array(folder / "x.zarr", shape=x.shape, dtype=x.dtype, chunks=(50, 24), zarr_format=2)[:] = x
    return folder / "x.zarr"


def in_memory(folder: Path, x: Array) -> Any:
    return x


def csr_group(folder: Path, x: Array) -> Any:
    """Stored numbers of the type itself, of which SciPy knows fewer."""
    return group(folder, x, scipy.sparse.csr_array)


def csc_group(folder: Path, x: Array) -> Any:
    return group(folder, x, scipy.sparse.csc_array)


def group(folder: Path, x: Array, form: Any) -> Any:
    sparse = form((x != 0).astype(np.float64))
    where = to_group(folder / "x.zarr", sparse)
    store = zarr.open_group(where, mode="r+")
    del store["data"]
    lines = x if form is scipy.sparse.csr_array else x.T
    values = lines[lines != 0]
    store.create_array("data", shape=values.shape, dtype=values.dtype, chunks=(97,))[:] = values
    return where


STORES = [in_memory, npy, npy_by_columns, zarr_3, zarr_2, csr_group, csc_group]


def factors(method: str, x: Any) -> dict[str, Array]:
    """What a method finds that has no sign of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rf.RankfoldWarning)
        if method == "svd":
            result = rf.svd(x, 4, tol=1e-6)
            return {"s": result.s[:], "Vt": result.Vt[:].T @ result.Vt[:], "U": result.U[:] @ result.U[:].T}
        if method == "pca":
            result = rf.pca(x, 4, tol=1e-6, scale=True)
            return {
                "s": result.singular_values[:],
                "mean": result.mean[:],
                "scale": result.scale[:],
                "scores": np.abs(result.scores[:]),
            }
        if method == "qr":
            result = rf.qr(x)
            return {"R": result.R[:], "Q": result.Q[:]}
        if method == "nmf":
            start = np.random.default_rng(1).random((160, 3)), np.random.default_rng(2).random((3, 24))
            result = rf.nmf(x, 3, init=start, tol=0, passes=3)
            return {"W": result.W[:], "H": result.H[:]}
        if method == "knn":
            return {"distances": rf.knn(x, 5).distances[:]}
        result = rf.pca(x, 4, tol=1e-6)
        if method == "transform":
            return {"scores": np.abs(rf.transform(result, x).scores[:])}
        if method == "check":
            checked = rf.check(result, x)
            return {
                "residuals": checked.left_residuals[:] < 1e-3,
                "orthogonal": checked.right_residuals[:] < 1e-3,
            }
        return {"x": np.asarray(rf.reconstruct(result)[...])}


METHODS = ["svd", "pca", "qr", "nmf", "knn", "transform", "check", "reconstruct"]


@pytest.mark.parametrize(("dtype", "store", "method"), cover(TYPES, STORES, METHODS))
def test_numbers_of_a_type_are_those_of_their_copy(
    tmp_path: Path, dtype: str, store: Any, method: str
) -> None:
    if store is csc_group and method == "knn":
        pytest.skip("neighbors take rows, which a matrix compressed by columns has not")
    x = small(dtype)
    copy = tmp_path / "copy"
    copy.mkdir()
    found = factors(method, store(tmp_path, x))
    expected = factors(method, store(copy, x.astype(np.float64)))
    if store is not csc_group or method != "nmf":  # which takes factors in turn the other way round
        plain = factors(method, x.astype(np.float64))
        for name in plain:
            np.testing.assert_allclose(expected[name], plain[name], atol=1e-6, err_msg=name)
    for name in expected:
        near = 1e-3 if name in ("U", "Vt", "scores", "W", "H", "x", "Q") else 2e-5
        np.testing.assert_allclose(
            found[name], expected[name], rtol=near, atol=near * np.abs(expected[name]).max(), err_msg=name
        )


@pytest.mark.parametrize("store", [in_memory, npy, zarr_3, zarr_2, csr_group])
@pytest.mark.parametrize("dtype", TYPES)
def test_the_largest_and_smallest_numbers_of_a_type_keep_their_size(
    tmp_path: Path, dtype: str, store: Any
) -> None:
    x, kind = small(dtype), np.dtype(dtype)
    if kind.kind in "iu":
        x[3, 4], x[5, 6] = np.iinfo(kind).max, np.iinfo(kind).min
    elif kind.kind == "f":
        x[3, 4], x[5, 6] = (6e4, -6e4) if kind.itemsize == 2 else (1e18, -1e18)
    found = rf.svd(store(tmp_path, x), 2, solver="tsqr").s[:]
    expected = np.linalg.svd(x.astype(np.float64), compute_uv=False)[:2]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-15 * expected[0])


# What is none -------------------------------------------------------------------------------------


def test_types_that_are_none_are_one_clear_message() -> None:
    x = np.zeros((4, 3))
    for dtype in ("S3", "U3", "V2", "M8[s]", "O", np.longdouble):
        with pytest.raises(
            InputError, match=r"array holds .*; supported are float16, float32, .* Convert it"
        ):
            rf.open(x.astype(dtype))


def test_numbers_of_half_a_float32_are_asked_to_be_converted(tmp_path: Path) -> None:
    """As TensorStore writes; of ``.npy`` and HDF5 no file says bfloat16."""
    array = zarr.create_array(tmp_path / "x.zarr", shape=(4, 3), dtype="uint16", chunks=(4, 3))
    array[:] = 1
    metadata = tmp_path / "x.zarr" / "zarr.json"
    metadata.write_text(metadata.read_text().replace('"uint16"', '"bfloat16"'))
    with pytest.raises(
        InputError, match=r"holds bfloat16, which the zarr package does not read. Write it as float32"
    ):
        rf.open(tmp_path / "x.zarr")
