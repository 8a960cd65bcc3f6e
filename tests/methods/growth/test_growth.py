"""What a result that grows goes on from, what it refuses, and what it survives."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import zarr
from reference import same_bytes
from scipy.sparse import csr_matrix, random_array

import rankfold as rf
from rankfold.pipeline.errors import InputError, OutputError

Float64 = npt.NDArray[np.float64]

X = np.abs(np.random.default_rng(7).standard_normal((400, 20)).cumsum(axis=1))

GROWING: dict[str, Callable[..., rf.Result]] = {
    "pca": lambda x, **more: rf.pca(x, 20, with_rows=False, **more),
    "few": lambda x, **more: rf.pca(x, 5, with_rows=False, **more),
    "svd": lambda x, **more: rf.svd(x, 20, with_rows=False, **more),
    "knn": lambda x, **more: rf.knn(x, 6, **more),
    "kmeans": lambda x, **more: rf.kmeans(x, 4, **more),
    "nmf": lambda x, **more: rf.nmf(x, 4, **more),
}


def begin(path: Path, x: Any = X, rows: int = 230, chunks: tuple[int, int] = (50, 11)) -> Path:
    """A store of the first rows."""
    zarr.create_array(path, shape=(rows, x.shape[1]), chunks=chunks, dtype=x.dtype)[...] = x[:rows]
    return path


def append(path: Path, x: Any = X, rows: int = 400) -> None:
    array = zarr.open_array(path, mode="r+")
    array.append(x[array.shape[0] : rows])


@pytest.mark.parametrize("name", GROWING)
def test_a_first_result_is_that_of_a_plain_call(tmp_path: Path, name: str) -> None:
    store, fit = begin(tmp_path / "x.zarr"), GROWING[name]
    plain = fit(store, out=tmp_path / "plain.zarr", threads=1)
    first = fit(store, out=tmp_path / "first.zarr", threads=1, grows="rows")
    assert set(plain) <= set(first)
    for each in plain:
        assert np.asarray(plain[each]).tobytes() == np.asarray(first[each]).tobytes()
    assert {*first.attrs} - {*plain.attrs} == {"rows", "rows_read", "row_marks"}
    assert all(first.attrs[fact] == plain.attrs[fact] for fact in plain.attrs)


@pytest.mark.parametrize("name", GROWING)
def test_threads_change_no_byte(tmp_path: Path, name: str) -> None:
    store, fit, results = begin(tmp_path / "x.zarr"), GROWING[name], []
    outs = [tmp_path / folder / "r.zarr" for folder in ("one", "three")]  # warnings have its name
    for out in outs:
        out.parent.mkdir()
        fit(store, out=out, threads=1, grows="rows")
    append(store)
    for out, threads in zip(outs, (1, 3), strict=True):
        results.append(fit(store, out=out, threads=threads, grows="rows"))
    assert same_bytes(results[0]) == same_bytes(results[1])


@pytest.mark.parametrize("name", ["pca", "knn", "kmeans", "nmf"])
def test_a_run_that_is_interrupted_leaves_the_earlier_result_and_goes_on(tmp_path: Path, name: str) -> None:
    store, fit, told = begin(tmp_path / "x.zarr"), GROWING[name], list[Any]()
    outs = [tmp_path / "whole.zarr", tmp_path / "r.zarr"]
    first = [same_bytes(fit(store, out=out, threads=1, grows="rows")) for out in outs]
    append(store)
    whole = fit(store, out=outs[0], threads=1, grows="rows", progress=lambda *each: told.append(each))

    def interrupt(*progress: Any) -> None:
        if progress == told[-1]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(store, out=outs[1], threads=1, grows="rows", progress=interrupt)
    assert same_bytes(rf.open_result(outs[1])) == first[1]
    assert same_bytes(fit(store, out=outs[1], threads=1, grows="rows")) == same_bytes(whole)
    assert not list((tmp_path / "r.zarr.run").glob("state-*"))


@pytest.mark.parametrize("name", ["pca", "knn", "kmeans", "nmf"])
def test_a_changed_past_is_refused_in_one_message_and_redone_where_asked(tmp_path: Path, name: str) -> None:
    store, fit, out = begin(tmp_path / "x.zarr"), GROWING[name], tmp_path / "r.zarr"
    before = same_bytes(fit(store, out=out, threads=1, grows="rows"))
    append(store)
    zarr.open_array(store, mode="r+")[3, 3] = 1.0
    with pytest.raises(OutputError) as refusal:
        fit(store, out=out, threads=1, grows="rows")
    assert "stands on 230 rows" in str(refusal.value)
    assert "files that hold none but these rows have another size or time" in str(refusal.value)
    assert "overwrite=True" in str(refusal.value)
    assert same_bytes(rf.open_result(out)) == before
    again = fit(store, out=out, threads=1, grows="rows", overwrite=True)
    assert again.attrs["rows"] == [[0, 400]]
    fresh = fit(store, out=tmp_path / "fresh.zarr", threads=1, grows="rows")
    assert same_bytes(again) == same_bytes(fresh)


def test_rows_that_changed_in_the_last_chunk_are_noticed(tmp_path: Path) -> None:
    store, out = begin(tmp_path / "x.zarr"), tmp_path / "r.zarr"
    rf.knn(store, 3, out=out, grows="rows")
    append(store)
    zarr.open_array(store, mode="r+")[229, 19] = 1.0
    with pytest.raises(OutputError, match="rows in its last chunks hold other numbers"):
        rf.knn(store, 3, out=out, grows="rows")
    shutil.rmtree(store)
    begin(store, rows=220)
    with pytest.raises(OutputError, match="there are 220 rows now"):
        rf.knn(store, 3, out=out, grows="rows")
    shutil.rmtree(store)
    begin(store, rows=300, chunks=(60, 20))
    with pytest.raises(OutputError, match="its type, columns, chunks or steps are others"):
        rf.knn(store, 3, out=out, grows="rows")


def test_a_store_whose_files_were_written_again_with_the_same_rows_stays_as_it_is(tmp_path: Path) -> None:
    store, out = begin(tmp_path / "x.zarr"), tmp_path / "r.zarr"
    before = same_bytes(rf.knn(store, 3, out=out, grows="rows"))
    time.sleep(0.02)
    zarr.open_array(store, mode="r+")[229, 19] = X[229, 19]  # in the last row of chunks, which is not full
    assert same_bytes(rf.knn(store, 3, out=out, grows="rows")) == before


def test_other_arguments_are_another_request(tmp_path: Path) -> None:
    store, out = begin(tmp_path / "x.zarr"), tmp_path / "r.zarr"
    rf.knn(store, 3, out=out, grows="rows")
    append(store)
    rf.knn(store, 3, out=out, grows="rows")
    with pytest.raises(OutputError, match=r"another request: .*k \(3 there, 4 now\)"):
        rf.knn(store, 4, out=out, grows="rows")
    with pytest.raises(OutputError, match="contents of the result it went on from"):
        rf.knn(store, 3, out=out)
    assert rf.knn(store, 4, out=out, grows="rows", overwrite=True).attrs["rows"] == [[0, 400]]


def test_a_result_that_was_made_without_grows_cannot_be_gone_on_from(tmp_path: Path) -> None:
    store, out = begin(tmp_path / "x.zarr"), tmp_path / "r.zarr"
    rf.kmeans(store, 3, out=out)
    assert rf.kmeans(store, 3, out=out, grows="rows").attrs.get("rows") is None  # nothing is new
    append(store)
    with pytest.raises(OutputError, match="made without grows"):
        rf.kmeans(store, 3, out=out, grows="rows")


def test_a_damaged_result_is_made_again_from_all_rows(tmp_path: Path) -> None:
    store, out = begin(tmp_path / "x.zarr"), tmp_path / "r.zarr"
    rf.knn(store, 3, out=out, grows="rows")
    shutil.rmtree(out / "indices" / "c")
    append(store)
    again = rf.knn(store, 3, out=out, grows="rows")
    assert again.attrs["rows"] == [[0, 400]]
    assert np.array_equal(again.indices[...], rf.knn(X, 3).indices)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, **more: rf.pca(x, 3, **more), "scores of earlier rows change"),
        (lambda x, **more: rf.svd(x, 3, **more), "U of earlier rows change"),
        (lambda x, **more: rf.knn(x, 3, min_recall=0.9, solver="approximate", **more), "approximate lists"),
        (lambda x, **more: rf.knn(x, 3, queries=X, **more), "lists grow that are of rows among themselves"),
        (lambda x, **more: rf.nmf(x, 3, alpha_W=1.0, **more), "alpha_w is 1.0"),
        (lambda x, **more: rf.nmf(x, 3, missing="ignore", **more), "weights, gaps"),
        (lambda x, **more: rf.nmf(x[:15], 3, **more), "more rows than columns"),
    ],
)
def test_what_does_not_grow_is_refused_before_anything_is_read(
    tmp_path: Path, call: Callable[..., rf.Result], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        call(X, out=tmp_path / "r.zarr", grows="rows")
    assert not list(tmp_path.iterdir())


def test_words_that_mean_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="grows must be one of rows, polish"):
        rf.kmeans(X, 3, out=tmp_path / "r.zarr", grows="columns")
    with pytest.raises(InputError, match="out="):
        rf.kmeans(X, 3, grows="rows")
    with pytest.raises(InputError, match="qr takes no grows"):
        rf.qr(X, out=tmp_path / "r.zarr", grows="rows")  # type: ignore[call-arg]


@pytest.mark.parametrize("name", ["kmeans", "nmf"])
def test_polish_reads_all_rows_from_what_there_is(tmp_path: Path, name: str) -> None:
    store, fit = begin(tmp_path / "x.zarr"), GROWING[name]
    outs = {grows: tmp_path / f"{grows}.zarr" for grows in ("rows", "polish")}
    for out in outs.values():
        fit(store, out=out, threads=1, grows="rows")
    append(store)
    rows, polish = (fit(store, out=out, threads=1, grows=grows) for grows, out in outs.items())
    cost = "final_inertia" if name == "kmeans" else "relative_error"
    assert polish.attrs[cost] <= rows.attrs[cost] * (1 + 1e-9)
    assert (rows.attrs["rows_read"], polish.attrs["rows_read"]) == (170, 400)
    # And new rows go on from that.
    append(store, np.concatenate([X, X[:60]]), 460)
    assert fit(store, out=outs["polish"], threads=1, grows="rows").attrs["rows_read"] == 60


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_sparse_rows_grow_with_their_vectors(tmp_path: Path, metric: str) -> None:
    x = csr_matrix(random_array((400, 60), density=0.1, rng=np.random.default_rng(1), dtype=np.float32))
    store, out = tmp_path / "x.zarr", tmp_path / "near.zarr"
    group = zarr.open_group(store, mode="w")
    names = ("data", "indices", "indptr")
    for rows in (230, 290, 400):
        part = x[:rows]
        group.attrs.update(
            {"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [rows, x.shape[1]]}
        )
        for name in names:
            values = getattr(part, name)
            if name not in group:
                group.create_array(name, shape=values.shape, chunks=(64,), dtype=values.dtype)[...] = values
            else:
                array: Any = group[name]
                array.append(values[array.shape[0] :])
        result = rf.knn(store, 4, metric=metric, out=out, grows="rows", threads=1)
        fresh = rf.knn(store, 4, metric=metric, threads=1)
        for name in ("indices", "distances"):
            assert np.asarray(result[name]).tobytes() == np.asarray(fresh[name]).tobytes()
    assert result.attrs["rows"] == [[0, 230], [230, 290], [290, 400]]
    array = group["data"]
    array[0] = 1.0
    with pytest.raises(OutputError, match="another size or time"):
        rf.knn(store, 4, metric=metric, out=out, grows="rows", threads=1)


def test_steps_of_a_row_alone_grow_and_measured_ones_do_not(tmp_path: Path) -> None:
    store, out = begin(tmp_path / "x.zarr"), tmp_path / "r.zarr"
    each: dict[str, Any] = {"with_rows": False, "out": out, "grows": "rows"}
    rf.pca(store, 20, prepare="log1p", **each)
    append(store)
    result = rf.pca(store, 20, prepare="log1p", **each)
    expected = np.linalg.svd(np.log1p(X) - np.log1p(X).mean(axis=0), compute_uv=False)
    np.testing.assert_allclose(result.singular_values, expected, rtol=1e-10)
    assert result.attrs["rows"] == [[0, 230], [230, 400]]
    with pytest.raises(InputError, match="measured on all rows"):
        rf.pca(store, 20, prepare="scale", with_rows=False, out=tmp_path / "s.zarr", grows="rows")


def test_fields_grow_along_their_first_axis(tmp_path: Path) -> None:
    store, out = tmp_path / "field.zarr", tmp_path / "r.zarr"
    field = X.reshape(400, 4, 5)
    array = zarr.create_array(store, shape=(230, 4, 5), chunks=(30, 2, 5), dtype=X.dtype)
    array[...] = field[:230]
    each: dict[str, Any] = {"with_rows": False, "out": out, "grows": "rows"}
    rf.pca(rf.open(store, row_axes="0"), 20, **each)
    array.append(field[230:])
    result = rf.pca(rf.open(store, row_axes="0"), 20, **each)
    expected = np.linalg.svd(X - X.mean(axis=0), compute_uv=False)
    np.testing.assert_allclose(result.singular_values, expected, rtol=1e-10)
    assert result.attrs["rows_read"] == 170
    with pytest.raises(InputError, match="first axis"):
        rf.pca(rf.open(store, row_axes="1,0"), 4, with_rows=False, out=tmp_path / "other.zarr", grows="rows")


@pytest.mark.process
@pytest.mark.parametrize("name", ["pca", "knn", "kmeans", "nmf"])
def test_worker_processes_change_no_byte_of_what_grows(tmp_path: Path, name: str) -> None:
    store, fit = begin(tmp_path / "x.zarr"), GROWING[name]
    outs = [tmp_path / "here.zarr", tmp_path / "there.zarr"]
    for out in outs:
        fit(store, out=out, threads=1, grows="rows")
    append(store)
    here = fit(store, out=outs[0], threads=1, grows="rows")
    there = fit(store, out=outs[1], workers=1, threads=1, grows="rows")
    assert same_bytes(here) == same_bytes(there)
