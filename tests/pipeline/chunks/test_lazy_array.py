"""Arrays that are read when they are used can be asked what NumPy's can, with the same answers."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import dask.array
import h5py
import numpy as np
import pytest
import scipy.sparse
import zarr
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import rankfold as rf
from rankfold.pipeline.chunks.lazy_array import BLOCK_BYTES, LazyArray

Array = np.ndarray[Any, np.dtype[Any]]


class Lines(LazyArray):
    """An array in memory that counts the numbers that are read of it."""

    def __init__(self, values: Array) -> None:
        self.values, self.shape, self.dtype, self.numbers = values, values.shape, values.dtype, 0

    def read_selection(self, selection: tuple[Any, ...]) -> Array:
        for line in selection:
            assert isinstance(line, slice) or (np.diff(line) > 0).all()
            assert not isinstance(line, slice) or (line.step or 1) > 0
        lines = [
            np.arange(n)[line] if isinstance(line, slice) else line
            for line, n in zip(selection, self.shape, strict=True)
        ]
        part = self.values[np.ix_(*lines)] if lines else self.values
        self.numbers += part.size
        return part


def lazy(values: Array) -> Any:
    return Lines(values)


@given(st.data())
def test_every_index_of_numpy_gives_what_numpy_gives(data: st.DataObject) -> None:
    values = np.arange(4 * 3 * 5.0).reshape(4, 3, 5)[: data.draw(st.integers(1, 4))]
    kind = data.draw(st.sampled_from(("basic", "arrays", "mask")))
    if kind == "basic":
        key: Any = data.draw(hnp.basic_indices(values.shape, allow_newaxis=True, allow_ellipsis=True))
    elif kind == "mask":
        key = data.draw(hnp.arrays(bool, data.draw(st.sampled_from([values.shape[:n] for n in (1, 2, 3)]))))
    else:
        key = data.draw(hnp.integer_array_indices(values.shape))
    found, expected = lazy(values)[key], values[key]
    assert np.shape(found) == np.shape(expected)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "key",
    [
        (slice(None), [2, 0]),
        ([True, False, True, True], slice(1, 3)),
        (np.array([[3, -1], [0, 0]]), 1),
        (slice(None, None, -2), slice(None, None, -1)),
        ([], slice(None)),
        (-1, ...),
        (..., None, 0),
        (np.array([0, 2]), np.array([1, 1])),
        np.int64(2),
        slice(2, 2),
        np.array([2, 1], np.uint8),
    ],
)
def test_mixed_indices_give_what_numpy_gives(key: Any) -> None:
    values = np.arange(12).reshape(4, 3)
    np.testing.assert_array_equal(lazy(values)[key], values[key])


@pytest.mark.parametrize("key", [4, -5, (0, 0, 0), [4], [0.5], [True, False], "a", (..., ...), 1.5])
def test_indices_beyond_are_errors_as_in_numpy(key: Any) -> None:
    values = np.arange(12).reshape(4, 3)
    with pytest.raises(IndexError):
        values[key]
    with pytest.raises(IndexError):
        lazy(values)[key]


def test_a_part_is_read_and_not_the_whole() -> None:
    array = lazy(np.zeros((1000, 8)))
    array[[5, 900]], array[3:5, 2], array[np.arange(1000) % 100 == 0]
    assert array.numbers == 2 * 8 + 2 + 10 * 8


@pytest.mark.parametrize("name", ["sum", "mean", "min", "max", "var", "std"])
def test_reductions_are_those_of_numpy(name: str) -> None:
    for dtype, axis in itertools.product(
        (np.float32, np.float64, np.int32, np.uint8, bool, np.complex128), (None, 0, 1, -1, (0, 1))
    ):
        values = (np.random.default_rng(0).standard_normal((500, 7)) * 9).astype(dtype)
        if dtype is np.complex128:
            values = values + 1j * values[::-1]
        expected = getattr(values, name)(axis)
        kept = getattr(lazy(values), name)(axis, keepdims=True)
        assert np.shape(kept) == np.shape(getattr(values, name)(axis, keepdims=True))
        found = getattr(np, name)(lazy(values), axis=axis)
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-5 if dtype is np.float32 else 1e-12)


def test_sums_take_a_block_of_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).standard_normal((1000, 4))
    array, parts = lazy(values), []
    monkeypatch.setattr(
        Lines, "row_blocks", lambda self: (parts.append(1) or self[i : i + 90] for i in range(0, 1000, 90))
    )
    np.testing.assert_allclose(array.std(0, ddof=1), values.std(0, ddof=1))
    np.testing.assert_allclose(array.max(1), values.max(1))
    assert len(parts) == 3 * 12
    monkeypatch.undo()
    assert len(next(lazy(np.zeros((BLOCK_BYTES // 8, 2))).row_blocks())) == BLOCK_BYTES // 16


def test_arithmetic_and_methods_give_arrays_in_memory() -> None:
    values = np.arange(12.0).reshape(4, 3)
    array = lazy(values)
    for found, expected in (
        (array * 2, values * 2),
        (1 - array, 1 - values),
        (array == 3, values == 3),
        (array[array.mean(1) > 3], values[values.mean(1) > 3]),
        (array @ np.ones(3), values @ np.ones(3)),
        (array.T, values.T),
        (array + array, values + values),
        (np.exp(array), np.exp(values)),
        (array.astype(int), values.astype(int)),
        (array.argsort(0), values.argsort(0)),
        (array.reshape(-1), values.reshape(-1)),
        (np.percentile(array, 20), np.percentile(values, 20)),
        (np.concatenate([array, array]), np.concatenate([values, values])),
    ):
        assert isinstance(found, (np.ndarray, np.generic))
        np.testing.assert_array_equal(found, expected)
    assert len(array) == 4
    assert array.ndim == 2
    assert array.size == 12
    assert [row.tolist() for row in array] == values.tolist()
    with pytest.raises(ValueError, match=r"a\.any\(\)"):
        bool(array)
    with pytest.raises(TypeError, match="copy"):
        array += 1
    with pytest.raises(ValueError, match="is a copy"):
        np.array(array, copy=False)


# What the package gives -------------------------------------------------------------------------------

X = np.random.default_rng(3).standard_normal((60, 6))


def test_scores_have_the_same_habits_with_and_without_out(tmp_path: Path) -> None:
    labels = np.arange(60) % 4
    in_memory = rf.pca(X, 2, threads=1).scores
    stored = rf.pca(X, 2, threads=1, out=tmp_path / "r.zarr").scores
    assert isinstance(stored, LazyArray)
    assert repr(stored) == "<r.zarr::scores: 60 x 2 float64>"
    for use in (
        lambda a: a * 2,
        lambda a: a[labels == 3],
        lambda a: a.mean(0),
        lambda a: len(a),
        lambda a: a[:, 0],
        lambda a: a[::-1],
        lambda a: a.T @ a,
        lambda a: np.linalg.norm(a, axis=1),
        lambda a: dask.array.from_array(a).sum().compute(),
        lambda a: list(a)[3],
    ):
        np.testing.assert_allclose(use(stored), use(in_memory), rtol=1e-12, atol=1e-14)


def test_a_result_is_a_mapping_of_its_arrays() -> None:
    result = rf.pca(X, 2, threads=1)
    assert list(dict(result)) == list(result.keys()) == list(result)
    assert len(result) == len(result.items()) == len(result.values())
    assert "scores" in result
    assert "U" not in result
    assert result.get("U") is None
    assert not any(name.startswith("_") for name in dir(result))
    with pytest.raises(TypeError, match=r"numpy\.asarray\(r\.components\)"):
        np.asarray(result)
    np.testing.assert_array_equal(np.asarray(rf.transform(result, X)), rf.transform(result, X).scores)


def as_npy(folder: Path) -> Any:
    np.save(folder / "x.npy", X)
    return folder / "x.npy"


def as_zarr(folder: Path) -> Any:
    zarr.create_array(folder / "x.zarr", data=X, chunks=(7, 4))
    return folder / "x.zarr"


def as_hdf5(folder: Path) -> Any:
    with h5py.File(folder / "x.h5", "w") as file:
        file["x"] = X
    return f"{folder / 'x.h5'}::x"


GIVEN = {
    "NumPy": lambda folder: X,
    "npy": as_npy,
    "Zarr": as_zarr,
    "HDF5": as_hdf5,
    "Dask": lambda folder: dask.array.from_array(X, chunks=(20, 6)),
    "sparse": lambda folder: scipy.sparse.csr_array(X),
    "series": lambda folder: [as_npy(folder)],
}


@pytest.mark.parametrize("kind", GIVEN)
@pytest.mark.parametrize("options", [{}, {"select_rows": "5:50"}, {"prepare": "arcsinh"}])
def test_matrices_have_the_habits_of_arrays(kind: str, options: dict[str, Any], tmp_path: Path) -> None:
    matrix: Any = rf.open(GIVEN[kind](tmp_path), **options)
    values = X[5:50] if "select_rows" in options else np.arcsinh(X / 5) if options else X
    values = np.arcsinh(X) if "prepare" in options else values
    rows = len(values)
    assert len(matrix) == rows
    assert matrix.ndim == 2
    assert matrix.size == values.size
    assert np.asarray(matrix).dtype == values.dtype
    for key in (slice(3), 0, (slice(None), 1), ([7, 2, 2], slice(1, 5)), np.arange(rows) % 2 == 0, (-1, -1)):
        np.testing.assert_allclose(matrix[key], values[key], rtol=1e-12)
    np.testing.assert_allclose(matrix.mean(0), values.mean(0), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose([row.sum() for row in matrix], values.sum(1), rtol=1e-9, atol=1e-12)
    assert repr(matrix).startswith("<")
    assert "\n" not in repr(matrix)
    assert matrix._repr_html_().startswith("<p")
    np.testing.assert_allclose(rf.pca(matrix, 2, threads=1).mean, values.mean(0), rtol=1e-9, atol=1e-12)
    assert {matrix: 1}[matrix] == 1


def test_a_long_name_is_shortened_at_a_prompt() -> None:
    steps = ", ".join(["log1p", "sqrt"] * 40)
    matrix = rf.open(np.abs(X), prepare=steps)
    assert len(repr(matrix)) < 220
    assert len(repr(rf.pca(matrix, 2, threads=1))) < 420


def test_a_result_given_as_a_matrix_is_asked_for_one_of_its_arrays() -> None:
    with pytest.raises(rf.RankfoldError, match=r"give one of its arrays, r\.scores or r\.components"):
        rf.kmeans(rf.pca(X, 2, threads=1), 3)
