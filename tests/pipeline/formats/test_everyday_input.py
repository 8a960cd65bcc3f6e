"""Lists, pandas frames, AnnData objects and backed matrices are read as what they hold."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import zarr
from stores import COLUMNS, ROWS, numbers, read, zarr_store

import rankfold as rf
from rankfold.pipeline.data import dtypes
from rankfold.pipeline.data.origin import names_of
from rankfold.pipeline.errors import InputError, RankfoldError
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.importing import import_array


def whole(x: object) -> Any:
    source = open_source(x)
    return read(source, (0, source.shape[0]), (0, source.shape[1]))


def of_anndata(name: str, **fields: Any) -> Any:
    """An object whose type is one of AnnData's, by its module and name."""
    kind = type(name, (SimpleNamespace,), {"__module__": "anndata._core.anndata"})
    return kind(**fields)


def test_lists_of_rows() -> None:
    np.testing.assert_array_equal(whole([[1, 2], [3, 4.5]]), [[1, 2], [3, 4.5]])
    np.testing.assert_array_equal(whole((np.arange(3), [4, 5, 6])), [[0, 1, 2], [4, 5, 6]])
    with pytest.raises(InputError, match="a list is read as a list of rows, all of the same length"):
        open_source([[1, 2], [3]])
    for wrong in ([["a", "b"]], [[None, 1]], [[{}, 2]]):
        with pytest.raises(InputError, match="a list of rows must hold numbers; this one holds"):
            open_source(wrong)
    with pytest.raises(InputError, match="has 1 axes"):
        open_source([1, 2, 3])
    x = numbers("f8")
    np.testing.assert_allclose(rf.svd(x.tolist(), 3).s, rf.svd(x, 3).s)


def test_frames_of_pandas() -> None:
    pd = pytest.importorskip("pandas")
    x = numbers("f8")
    np.testing.assert_array_equal(whole(pd.DataFrame(x)), x)
    assert open_source(pd.DataFrame(x.astype("f4"))).dtype == np.float32
    mixed = pd.DataFrame({"a": [1, 2], "b": [0.5, np.nan], "c": [True, False]})
    np.testing.assert_array_equal(whole(mixed), [[1, 0.5, 1], [2, np.nan, 0]])
    nullable = pd.DataFrame({"a": pd.array([1, None], dtype="Int64"), "b": pd.array([1, 2], dtype="Int64")})
    np.testing.assert_array_equal(whole(nullable), [[1, 1], [np.nan, 2]])
    np.testing.assert_array_equal(whole(pd.DataFrame(np.eye(3)).astype(pd.SparseDtype("f8", 0))), np.eye(3))
    for column in (["x", "y"], pd.to_datetime(["2020", "2021"]), pd.Categorical(["u", "v"])):
        with pytest.raises(
            InputError, match=r"column 'city' of the DataFrame holds .*drop\(columns=\['city'\]\)"
        ):
            open_source(pd.DataFrame({"a": [1.0, 2.0], "city": column}))
    with pytest.raises(InputError, match="without columns"):
        open_source(pd.DataFrame(index=[1, 2]))
    with pytest.raises(InputError, match="pass a DataFrame"):
        open_source(pd.Series([1.0, 2.0]))
    np.testing.assert_allclose(rf.svd(pd.DataFrame(x), 3).s, rf.svd(x, 3).s)


WIDE = 2**53 + 1


@pytest.mark.parametrize("other", [[1.5, 2.5], [1, None]])
@pytest.mark.parametrize("library", ["pandas", "dask", "polars", "list"])
def test_whole_numbers_keep_their_digits_or_are_refused(library: str, other: list[Any]) -> None:
    if library == "list":
        x: Any = [[WIDE, other[0]], [-3, other[0]]]
        if other[1] is None:
            np.testing.assert_array_equal(whole(x), x)
            return
    elif library == "polars":
        x = pytest.importorskip("polars").DataFrame({"id": [WIDE, -3], "b": other})
    else:
        pd = pytest.importorskip("pandas")
        x = pd.DataFrame({"id": [WIDE, -3], "b": pd.array(other, dtype="Int64") if None in other else other})
        if library == "dask":
            x = pytest.importorskip("dask.dataframe").from_pandas(x, npartitions=1)
    with pytest.raises(RankfoldError, match="holds whole numbers such as 9007199254740993, which float64"):
        whole(x)


@pytest.mark.parametrize("shape", [(40, 3), (3, 40)])
def test_digits_are_not_lost_without_a_word_on_the_way_to_a_method(
    tmp_path: Path, shape: tuple[int, int], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = 2**12 * (np.arange(120, dtype=np.int64).reshape(shape) ** 2 % 1013) + 1
    np.save(tmp_path / "x.npy", x + 2**60)
    for given in (x + 2**60, tmp_path / "x.npy", x.view(np.uint64) + np.uint64(2**63)):
        for method in (
            lambda each: rf.pca(each, 2),
            lambda each: rf.svd(each, 2),
            lambda each: rf.knn(each, 2),
            lambda each: rf.svd(rf.open(each, prepare="binarize"), 2),
        ):
            monkeypatch.setattr(dtypes, "_NOTED", set())
            caplog.clear()
            method(given)
            assert caplog.text.count("are rounded to the 53 bits of float64") == 1
    import_array(tmp_path / "x.npy", tmp_path / "x.zarr", dtype="float64")  # as the message says
    assert open_source(tmp_path / "x.zarr").dtype == np.float64
    np.testing.assert_allclose(rf.svd(tmp_path / "x.zarr", 2).s, rf.svd((x + 2**60).astype(float), 2).s)
    np.testing.assert_allclose(rf.svd(x, 2).s, rf.svd(x.astype(float), 2).s)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_small_numbers_of_one_place_add_up_or_are_refused(tmp_path: Path, dtype: str) -> None:
    dask = pytest.importorskip("dask.array")
    largest = np.iinfo(dtype).max
    parts = np.array([largest, 3, 4, 5], dtype), np.array([0, 0, 1, 1]), np.array([0, 2, 4, 4])
    x = scipy.sparse.csr_array(parts, (3, 2))
    total = [[largest + 3, 0], [0, 9], [0, 0]]
    coo = scipy.sparse.coo_array((parts[0], ([0, 0, 1, 1], parts[1])), (3, 2))
    for given in (x, x.tocsc(copy=True), coo):
        np.testing.assert_array_equal(whole(given), total)
    assert (
        open_source(scipy.sparse.csr_array((parts[0][1:], parts[1][1:], [0, 1, 3, 3]), (3, 2))).dtype == dtype
    )
    scipy.sparse.save_npz(tmp_path / "x.npz", x, compressed=False)
    with pytest.raises(RankfoldError, match=f"add up to {largest + 3}, which {dtype} .*dtype='int64'"):
        whole(tmp_path / "x.npz")
    with pytest.raises(
        RankfoldError, match=f"dtype='int64'.* holds them: {largest + 3} cannot be written as {dtype}"
    ):
        import_array(tmp_path / "x.npz", tmp_path / "x.zarr")
    import_array(tmp_path / "x.npz", tmp_path / "y.zarr", dtype="int64")  # as the messages say
    np.testing.assert_array_equal(whole(tmp_path / "y.zarr"), total)
    for meta in (x, x.toarray()):
        blocks = dask.from_array(np.zeros((3, 2), dtype)).map_blocks(lambda _: x, meta=meta[:0])
        with pytest.raises(RankfoldError, match="holds int64"):
            whole(blocks)


def test_a_list_of_rows_keeps_gaps_and_labels() -> None:
    pd = pytest.importorskip("pandas")
    with pytest.raises(InputError, match="a list of masked arrays has gaps"):
        open_source([np.ma.masked_array([1.0, 2.0], [0, 1]), np.ma.masked_array([3.0, 4.0])])
    one = pd.Series([1.0, 2.0], ["a", "b"])
    np.testing.assert_array_equal(whole([one, one]), [[1, 2], [1, 2]])
    with pytest.raises(InputError, match="the rows of a list have other labels, or in another order"):
        open_source([one, one[::-1]])


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_objects_that_are_numbers_are_numbers(missing: Any) -> None:
    pd = pytest.importorskip("pandas")
    x = pd.DataFrame({"a": [1, 2, 3], "b": [0.5, 1.5, 2.5], "c": [True, False, True]})
    with_text = x.assign(name=[*"xyz"]).set_index("name").T.T  # all columns are of objects
    assert set(with_text.dtypes) == {np.dtype(object)}
    source = open_source(with_text)
    np.testing.assert_array_equal(source[...], x.to_numpy(float))
    assert names_of(source, 0).labels.tolist() == [*"xyz"]  # type: ignore[union-attr]
    assert open_source(x[["a"]].astype(object)).dtype == np.int64
    with_text.iloc[1, :] = missing
    expected = x.to_numpy(float)
    expected[1] = np.nan
    np.testing.assert_array_equal(whole(with_text), expected)


@pytest.mark.parametrize("values", [[2**53 + 1, 1.5], ["1", 2], [None, None], [2**70 + 1, 1]])
def test_objects_that_are_no_numbers_or_lose_digits_are_refused(values: list[Any]) -> None:
    pd = pytest.importorskip("pandas")
    with pytest.raises(RankfoldError, match="column 'a' of the DataFrame holds"):
        open_source(pd.DataFrame({"a": values, "b": [0.5, 1.5]}, dtype=object))


def test_frames_hold_complex_numbers() -> None:
    pd = pytest.importorskip("pandas")
    x = np.arange(6).reshape(3, 2) * (1 + 2j)
    x[1, 0] = np.nan
    np.testing.assert_array_equal(whole(pd.DataFrame(x, columns=["a", "b"])), x)
    assert open_source(pd.DataFrame({"a": x[:, 1].astype("c8"), "b": [0.5, 1, 2]})).dtype == np.complex128


def test_a_masked_array_without_gaps_is_an_array() -> None:
    x = numbers("f8")
    for mask in (np.ma.nomask, np.zeros(x.shape, bool)):
        np.testing.assert_array_equal(whole(np.ma.masked_array(x, mask)), x)
        assert open_source(np.ma.masked_array(x, mask)[:, :, None], row_axes=0).shape == x.shape
    with pytest.raises(InputError, match="a masked array has gaps"):
        open_source(np.ma.masked_equal(x, x[0, 0]))


def test_records_are_answered_with_what_keeps_their_names() -> None:
    pd = pytest.importorskip("pandas")
    x = np.rec.fromarrays([[1.0, 2.0], [3.0, 4.0]], names="a,b")
    with pytest.raises(InputError, match=r"records of a, b; pass pandas\.DataFrame\(x\)"):
        open_source(x)
    np.testing.assert_array_equal(whole(pd.DataFrame(x)), [[1, 3], [2, 4]])


def test_frames_of_derived_classes_are_frames() -> None:
    pd = pytest.importorskip("pandas")

    class Derived(pd.DataFrame):  # type: ignore[misc]
        @property
        def _constructor(self) -> Any:
            return Derived

    x = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0], "place": ["x", "y"]}, ["p", "q"])
    source = open_source(Derived(x), numeric=True)
    np.testing.assert_array_equal(source[...], x[["a", "b"]])
    assert [names_of(source, axis).labels.tolist() for axis in (0, 1)] == [["p", "q"], ["a", "b"]]  # type: ignore[union-attr]
    with pytest.raises(InputError, match="column 'place' of the DataFrame holds object"):
        open_source(Derived(x))
    anndata = pytest.importorskip("anndata")
    cells = anndata.AnnData(np.eye(2), x[[]], obsm={"numbers": x[["a", "b"]]})
    np.testing.assert_array_equal(whole(cells[::-1].obsm["numbers"]), [[2, 4], [1, 3]])


def test_a_delayed_object_is_answered_with_what_is_read() -> None:
    dask = pytest.importorskip("dask")
    with pytest.raises(InputError, match=r"cannot read a dask\.Delayed"):
        open_source(dask.delayed(lambda: np.eye(3))())


def test_a_list_of_named_rows_has_their_names() -> None:
    pd = pytest.importorskip("pandas")
    x = pd.DataFrame(np.random.default_rng(0).normal(size=(6, 3)), [*"pqrstu"], [*"abc"])
    rows = open_source([x.iloc[i] for i in range(6)])
    assert [names_of(rows, axis).labels.tolist() for axis in (0, 1)] == [[*"pqrstu"], [*"abc"]]  # type: ignore[union-attr]
    result, turned = rf.pca(x, 2), x[["c", "a", "b"]]
    np.testing.assert_allclose(
        rf.transform(result, [turned.iloc[i] for i in range(6)]).scores, result.scores, atol=1e-12
    )
    numbered = x.set_axis(range(6)).set_axis(range(3), axis=1)
    assert names_of(open_source([numbered.iloc[i] for i in range(6)]), 0) is None


@pytest.mark.parametrize("name", ["Unnamed: 0", "Unnamed: 0.1", "__index_level_0__"])
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_an_index_that_came_back_as_a_column_is_no_number(library: str, name: str) -> None:
    x = pytest.importorskip(library).DataFrame({name: [0, 1, 2], "a": [1.5, 2.5, 4.0]})
    for options in ({}, {"numeric": True}):
        found = open_source(x, **options)
        np.testing.assert_array_equal(np.asarray(found), [[1.5], [2.5], [4.0]])
        assert names_of(found, 0) is None


def test_truth_values_of_polars_that_are_missing_are_nan() -> None:
    x = pytest.importorskip("polars").DataFrame({"a": [True, None, False], "b": [1, 2, 3]})
    np.testing.assert_array_equal(whole(x), [[1, 1], [np.nan, 2], [0, 3]])


def test_frames_of_dask() -> None:
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    frame = pd.DataFrame(
        {"a": [1, 2, 3], "b": pd.array([1, None, 3], dtype="Int64"), "n": list("xyz")},
        index=pd.Index([5, 6, 7], name="id"),
    )
    x = dd.from_pandas(frame, npartitions=2)
    kept = open_source(x, numeric=True)
    np.testing.assert_array_equal(np.asarray(kept), [[1, 1], [2, np.nan], [3, 3]])
    assert names_of(kept, 1).labels.tolist() == ["a", "b"]  # type: ignore[union-attr]
    with pytest.raises(InputError, match=r"column 'n' .*numeric=True"):
        open_source(x)
    with pytest.raises(InputError, match="cannot read a dask Series; pass a DataFrame"):
        open_source(x.a)


def test_objects_of_arrow_are_answered_with_how_they_become_arrays() -> None:
    arrow = pytest.importorskip("pyarrow")
    for given, words in (
        (arrow.array([1.0]), r"cannot read a pyarrow\.DoubleArray; pass x\.to_pandas\(\), or"),
        (arrow.Tensor.from_numpy(np.eye(2)), r"cannot read a pyarrow\.Tensor; pass x\.to_numpy\(\), or"),
    ):
        with pytest.raises(InputError, match=words):
            open_source(given)


def lists_of(kind: str, x: Any) -> Any:
    """A matrix as a column of lists."""
    library, _, kind = kind.partition(" ")
    module = pytest.importorskip(library)
    if library == "pandas":
        column = module.Series([row.tolist() for row in x] if kind == "lists" else list(x), name="emb")
        return column.to_frame() if kind == "frame" else column
    if library == "polars":
        frame = module.DataFrame({"emb": x if kind == "array" else list(x)})
        return frame["emb"] if kind == "series" else frame
    if kind == "large":
        return module.table({"emb": module.array(list(x), module.large_list(module.float64()))})
    if kind in ("array", "fixed"):
        parts = module.array(list(x), module.list_(module.float64(), 4 if kind == "fixed" else -1))
        return parts if kind == "array" else module.table({"emb": parts})
    if kind == "tensor":
        return module.table({"emb": module.FixedShapeTensorArray.from_numpy_ndarray(x)})
    return module.concat_tables([module.table({"emb": list(x[:2])}), module.table({"emb": list(x[2:])})])


@pytest.mark.parametrize(
    "kind",
    [
        *("pandas series", "pandas lists", "pandas frame", "polars series", "polars frame", "polars array"),
        *("pyarrow table", "pyarrow large", "pyarrow fixed", "pyarrow tensor", "pyarrow array"),
    ],
)
def test_a_column_of_lists_is_a_matrix(kind: str) -> None:
    x = np.random.default_rng(0).standard_normal((7, 4))
    np.testing.assert_array_equal(whole(lists_of(kind, x)), x)
    np.testing.assert_array_equal(rf.pca(lists_of(kind, x), 2).scores[...], rf.pca(x, 2).scores[...])


def test_a_column_of_lists_keeps_its_type_its_gaps_and_the_names_of_its_rows() -> None:
    pd, pl, pa = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))
    lists = [[1, None], [3, 4]]
    for column in (pd.Series(lists), pl.Series(lists), pa.array(lists)):
        np.testing.assert_array_equal(whole(column), [[1, np.nan], [3, 4]])
    truth = [[True, None], [False, True]]
    for column in (pd.Series(truth), pl.Series(truth), pa.array(truth)):
        np.testing.assert_array_equal(whole(column), [[1, np.nan], [0, 1]])
    x = np.ones((2, 3), np.float32)
    assert open_source(pd.Series(list(x))).dtype == np.float32
    named = open_source(pd.Series(list(x), ["a", "b"]))
    assert names_of(named, 0).labels.tolist() == ["a", "b"]  # type: ignore[union-attr]
    for frame in (pd, pl):
        chosen = open_source(frame.DataFrame({"id": ["a", "b"], "emb": list(x)}), index_col="id")
        assert chosen.shape == (2, 3) and names_of(chosen, 0).labels.tolist() == ["a", "b"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ([[1, 2], [3, 4], [5]], "column 'emb' has a list of 1 numbers at row 2, where the first list has 2"),
        ([None, [3, 4]], "column 'emb' has no list at row 0, where the first list has 2"),
        ([["a", "b"], ["c", "d"]], "column 'emb' has no list"),
        ([[2**60 + 1, None], [1, 2]], "column 'emb' .*1152921504606846977"),
        ([[], []], "column 'emb' has no list with numbers in it"),
    ],
)
@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_lists_that_are_no_rows_are_named(library: str, lists: Any, message: str) -> None:
    module = pytest.importorskip(library)
    table = (module.table if library == "pyarrow" else module.DataFrame)({"emb": lists})
    with pytest.raises(RankfoldError, match=message):
        open_source(table)


def test_a_cell_that_is_no_list_of_numbers_is_named() -> None:
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    for cell, words in (("abc", "but 'abc'"), (np.eye(2), "shape"), (["a", 1], "but "), ([1j, 2], "but ")):
        with pytest.raises(RankfoldError, match=f"column 'emb' has no list of numbers at row 1, .*{words}"):
            open_source(pd.Series([[1, 2], cell], name="emb"))
    with pytest.raises(RankfoldError, match="no lists of numbers, but of Array"):
        open_source(pl.DataFrame({"emb": np.zeros((2, 2, 2))}))


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_a_column_of_lists_among_others_is_answered_with_how_to_take_it(library: str) -> None:
    module = pytest.importorskip(library)
    make = module.table if library == "pyarrow" else module.DataFrame
    x = make({"n": [1.0, 2.0], "emb": [[1, 2], [3, 4]]})
    with pytest.raises(InputError, match=r"Lists of one length are a matrix .*: pass x\['emb'\]"):
        open_source(x)
    np.testing.assert_array_equal(whole(x["emb"]), [[1, 2], [3, 4]])


def test_tables_of_arrow() -> None:
    arrow, pd = pytest.importorskip("pyarrow"), pytest.importorskip("pandas")
    x = arrow.table({"a": [1, None, 3], "b": [0.5, 1.5, 2.5], "c": [True, False, True]})
    np.testing.assert_array_equal(whole(x), [[1, 0.5, 1], [np.nan, 1.5, 0], [3, 2.5, 1]])
    np.testing.assert_array_equal(whole(x.to_batches()[0]), whole(x))
    assert names_of(open_source(x), 1).labels.tolist() == ["a", "b", "c"]  # type: ignore[union-attr]
    named = arrow.Table.from_pandas(pd.DataFrame(np.eye(2), ["p", "q"], ["a", "b"]))
    assert names_of(open_source(named), 0).labels.tolist() == ["p", "q"]  # type: ignore[union-attr]


def test_objects_of_h5py(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    x = numbers("f8")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["g/x"] = x
        for given in (file["g/x"], file):
            np.testing.assert_array_equal(whole(given), x)
        with pytest.raises(InputError, match=r"x\.h5::g is a group of x, .*Name one: .*x\.h5::g/x"):
            open_source(file["g"])
        dataset = file["g/x"]
    with pytest.raises(InputError, match="a file that was closed: give its path"):
        open_source(dataset)


def tensor(array: Any, device: int = 1, dtype: str = "torch.float32", error: str = "") -> Any:
    """An object that shares its memory as tensors of PyTorch do."""

    def share(**options: Any) -> Any:
        if error:
            raise BufferError(error)
        return array.__dlpack__(**options)

    members = {
        "__module__": "torch",
        "__dlpack__": lambda self, **options: share(**options),
        "__dlpack_device__": lambda self: (device, 0),
    }
    return type("Tensor", (SimpleNamespace,), members)(shape=array.shape, dtype=dtype)


def test_tensors() -> None:
    x = numbers("f4")
    np.testing.assert_array_equal(whole(tensor(x)), x)
    for given, words in (
        (tensor(x, dtype="torch.bfloat16"), r"bfloat16. Pass x\.float\(\)"),
        (tensor(x, device=2), r"lies on a device. Pass x\.cpu\(\)"),
        (tensor(x, error="tensors that require gradient"), r"require gradient.*x\.detach\(\)"),
    ):
        with pytest.raises(InputError, match=words):
            open_source(given)


def test_objects_of_anndata(tmp_path: Path) -> None:
    x = numbers()
    for held in (x, scipy.sparse.csr_matrix(x), scipy.sparse.csc_array(x)):
        np.testing.assert_array_equal(whole(of_anndata("AnnData", X=held)), x)
    with pytest.raises(InputError, match=r"has no X; pass one of its layers"):
        open_source(of_anndata("AnnData", X=None))
    view = type("CSRMatrixView", (scipy.sparse.csr_matrix,), {"__module__": "anndata._core.views"})
    np.testing.assert_array_equal(whole(of_anndata("AnnData", X=view(x))), x)


def test_sparse_matrices_that_anndata_keeps_on_disk(tmp_path: Path) -> None:
    x = scipy.sparse.random(30, 20, 0.2, "csr", random_state=0)
    scipy.sparse.save_npz(tmp_path / "x.npz", x)
    import_array(tmp_path / "x.npz", tmp_path / "x.zarr")
    group = zarr.open_group(tmp_path / "x.zarr", mode="r")
    kept = of_anndata("_CSRDataset", group=group, to_memory=lambda: pytest.fail("it need not be loaded"))
    np.testing.assert_array_equal(whole(of_anndata("AnnData", X=kept)), x.toarray())
    is_remote = of_anndata("_CSRDataset", group=None, to_memory=lambda: x)
    np.testing.assert_array_equal(whole(is_remote), x.toarray())


def test_datasets_of_h5py_are_read_in_their_file(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.h5ad", "w") as file:
        file["layers/X"] = numbers()
    with h5py.File(tmp_path / "x.h5ad", "r") as file:
        source = open_source(of_anndata("AnnData", X=file["layers/X"]))
        assert source.name.endswith("x.h5ad::layers/X")
        np.testing.assert_array_equal(whole(source), numbers())
    np.testing.assert_array_equal(whole(source), numbers())


def test_nothing_is_imported_for_what_is_not_used() -> None:
    code = """
import sys
from rankfold.pipeline.formats import open_source
open_source([[1.0, 2.0], [3.0, 4.0]])
sys.exit(any(name in sys.modules for name in ("pandas", "anndata", "h5py", "zarr", "dask")))
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_axes_given_where_a_flag_is_meant_are_told_what_to_type(tmp_path: Path) -> None:
    for x in (np.ones((20, 3, 4)), np.ones((20, 5))):
        for ask in (rf.pca, rf.svd):
            with pytest.raises(InputError, match="has no axis 'time'"):
                ask(x, 2, row_axes="time")
            for name in ("rows", "with_rows"):
                with pytest.raises(InputError, match=r"open it first: rankfold\.open\(x, row_axes='time'\)"):
                    ask(x, 2, **{name: "time"})
    with pytest.raises(InputError, match=r"stacked into columns: row_axes='0'$"):
        rf.pca(np.ones((20, 3, 4)), 2)
    store = zarr_store(tmp_path / "x.zarr", numbers())
    assert open_source(store).shape == (ROWS, COLUMNS)


def test_a_prompt_shows_a_matrix_in_one_line(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((30, 8)).astype(np.float32)
    store = tmp_path / "x.zarr"
    zarr.create_array(store, data=x, chunks=(10, 8))
    np.save(tmp_path / "x.npy", x)
    assert repr(rf.open(x)) == "<array float32 (30, 8)>"
    assert repr(rf.open(store)) == f"<{store}: 30 x 8 float32>"
    assert repr(rf.open(store, select_columns=[1, 2])).endswith(": 30 x 2 float32>")
    opened = [
        rf.open(tmp_path / "x.npy"),
        rf.open(scipy.sparse.csr_array(x)),
        rf.open(store, prepare="arcsinh, scale"),
        rf.open(x.reshape(5, 6, 8), row_axes=[0, 1]),
        rf.open(store, mask_obs=np.arange(30) < 20),
    ]
    for matrix in opened:
        assert len(repr(matrix)) < len(str(tmp_path)) + 120 and "Grid" not in repr(matrix)
        assert repr(matrix).startswith("<") and "\n" not in repr(matrix)


def test_a_file_is_closed_when_a_call_ends(tmp_path: Path) -> None:
    """So that it can be written, as AnnData does: nothing that is collected later holds it open."""
    h5py, anndata = pytest.importorskip("h5py"), pytest.importorskip("anndata")
    cells = anndata.AnnData(scipy.sparse.random(60, 30, 0.4, format="csr", random_state=0))
    cells.write_h5ad(tmp_path / "cells.h5ad")
    gc.collect()
    gc.disable()
    try:
        rf.umap(f"{tmp_path}/cells.h5ad::X", n_neighbors=5, n_epochs=2, threads=1)
        assert not h5py.h5f.get_obj_count(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_FILE)
        cells.write_h5ad(tmp_path / "cells.h5ad")
    finally:
        gc.enable()
