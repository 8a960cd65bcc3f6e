"""Names, flags and places that callers bring from elsewhere are answered with ours, in one message."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import rankfold as rf
from rankfold.api.arguments import FOREIGN_NAMES
from rankfold.pipeline.errors import ArgumentError, InputError, MemoryBudgetError, OutputError, RankfoldError

X = np.random.default_rng(0).standard_normal((60, 8))


@pytest.fixture(scope="module")
def result() -> rf.Result:
    return rf.svd(X, 3)


@pytest.mark.parametrize(
    ("function", "given", "ours"),
    [
        (rf.svd, "n_components", "rank="),
        (rf.nmf, "n_components", "rank="),
        (rf.knn, "n_neighbors", "k="),
        (rf.svd, "algorithm", "solver="),
        (rf.nmf, "algorithm", "solver="),
        (rf.pca, "svd_solver", "solver="),
        (rf.pca, "random_state", "seed="),
        (rf.nmf, "max_iter", "passes="),
        (rf.svd, "compute_uv", "with_rows="),
        (rf.trustworthiness, "n_neighbors", "k="),
        (rf.pca, "cente", "center="),
        (rf.transform, "ouput", "out="),
        (rf.open, "select_row", "select_rows="),
    ],
)
def test_names_of_other_libraries_and_slips_are_answered(
    function: Callable[..., Any], given: str, ours: str
) -> None:
    with pytest.raises(TypeError, match=f"^{function.__name__} takes no {given}: say {ours}") as caught:
        function(X, **{given: 3})
    assert isinstance(caught.value, rf.RankfoldError) and caught.value.exit_code == 2
    assert given not in inspect.signature(function).parameters


def test_every_name_that_is_answered_is_taken_by_some_function() -> None:
    functions = [each for name in rf.__all__ if inspect.isfunction(each := getattr(rf, name))]
    taken = {name for each in functions for name in inspect.signature(each).parameters}
    assert {ours for names in FOREIGN_NAMES.values() for ours in names} <= taken


def test_a_name_that_is_like_none_lists_those_there_are() -> None:
    with pytest.raises(ArgumentError, match="svd takes no quux: it takes x, rank, tol, solver"):
        rf.svd(X, 3, quux=1)
    for kind, name, ours in (("pca", "n_components", "rank"), ("knn", "n_neighbors", "k")):
        with pytest.raises(ArgumentError, match=f"a plan of {kind} takes no {name}: say {ours}="):
            rf.plan(kind, X, **{name: 3})
    with pytest.raises(ArgumentError, match="a plan of svd takes no out: "):
        rf.plan("svd", X, 3, out="r.zarr")


@pytest.mark.parametrize("ask", [{"rank": 0.95}, {"n_components": 0.95}, {"rank": np.float32(0.9)}], ids=str)
def test_a_share_of_the_variance_is_answered_with_its_tolerance(ask: dict[str, Any]) -> None:
    share = float(next(iter(ask.values())))
    with pytest.raises(InputError, match=r"% of the variance say tol=0\.\d+, the root of 1 - ") as caught:
        rf.pca(X, **ask)
    tol = float(str(caught.value).partition("tol=")[2].partition(",")[0])
    assert rf.pca(X, tol=tol).explained_variance_ratio.sum() >= share
    with pytest.raises(InputError, match=r"rank must be an integer, not 2\.5"):
        rf.pca(X, 2.5)  # type: ignore[arg-type]


def test_arguments_that_have_changed_places_are_told(result: rf.Result) -> None:
    for function in (rf.transform, rf.update, rf.check):
        for swapped in ((X, result), (X, "r.zarr")):
            with pytest.raises(ArgumentError, match=rf"rankfold.{function.__name__}\(result, x\)"):
                function(*swapped)  # type: ignore[arg-type]
    for swapped in ((X, "pca"), ("x.zarr", "pca")):
        with pytest.raises(ArgumentError, match=r"rankfold.plan\('pca', x"):
            rf.plan(*swapped)  # type: ignore[arg-type]


def test_flags_are_true_or_false() -> None:
    for name, value in (("center", "no"), ("whiten", 2), ("overwrite", "False"), ("scale", 0.5)):
        with pytest.raises(ArgumentError, match=f"{name} must be True or False, not {value!r}"):
            rf.pca(X, 3, **{name: value})
    with pytest.raises(ArgumentError, match=r"rankfold\.open\(x, row_axes='time'\)"):
        rf.pca(X, 3, with_rows="time")  # type: ignore[arg-type]
    asked = rf.pca(X, 3, center=np.bool_(False), scale=1).attrs["request"]  # type: ignore[arg-type]
    assert asked["center"] is False and asked["scale"] is True


def test_all_are_found_where_neither_rank_nor_tolerance_is_said() -> None:
    found = rf.svd(X)
    assert found.attrs["method"] == "tsqr" and rf.plan("svd", X).rank == 8
    np.testing.assert_allclose(found.s, np.linalg.svd(X, compute_uv=False), rtol=1e-12)
    np.testing.assert_allclose(rf.pca(X).explained_variance_ratio.sum(), 1.0)
    with pytest.raises(InputError, match="without either all are found, by solver tsqr and not by krylov"):
        rf.svd(X, solver="krylov")
    wide = np.lib.stride_tricks.as_strided(X, (20_000, 20_000), (0, 0))
    with pytest.raises(InputError, match=r"has 20000, more than the 16384 .* Say solver='tsqr'"):
        rf.plan("svd", wide)
    with pytest.raises(MemoryBudgetError, match="say how many components are enough, rank="):
        rf.plan("svd", wide, solver="tsqr", memory="1GiB")


def test_a_folder_that_is_not_there_is_not_made(tmp_path: Path, result: rf.Result) -> None:
    out = tmp_path / "a b" / "c" / "r.zarr"
    calls: list[Callable[[], Any]] = [
        lambda: rf.svd(X, 3, out=out),
        lambda: rf.transform(result, X, out=str(out)),
        lambda: rf.reconstruct(result, out=out),
        lambda: rf.import_array(X, out),
    ]
    for call in calls:
        with pytest.raises(OutputError, match=f"does not exist. Make it: mkdir -p '{out.parent}'"):
            call()
    assert not list(tmp_path.iterdir())
    out.parent.mkdir(parents=True)
    assert rf.svd(X, 3, out=out).path == out
    with pytest.raises(InputError, match="out must be a path, not 3"):
        rf.svd(X, 3, out=3)  # type: ignore[arg-type]


def test_nothing_is_written_into_the_input_or_around_it(tmp_path: Path) -> None:
    store = tmp_path / "x.zarr.run" / "x.zarr"
    zarr.create_array(store, data=X, chunks=(50, 8))
    before = sorted(tmp_path.rglob("*"))
    places: list[dict[str, Path]] = [
        {"out": store},
        {"out": store / "r.zarr"},
        {"out": store.parent},
        {"out": tmp_path / "x.zarr"},
        {"out": tmp_path / "r.zarr", "scratch": store},
        {"out": tmp_path / "r.zarr", "scratch": store / "scratch"},
    ]
    for place in places:
        with pytest.raises(
            OutputError, match=r"would lie in, on or around its own input .*Choose another (out|scratch)="
        ):
            rf.svd(store, 3, overwrite=True, **place)
        assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("place", "message"),
    [("/", "/ is the root of the file system. Name a folder in it"), ("\udcff", "not UTF-8.* Rename it")],
)
def test_places_that_no_result_can_have(place: str, message: str) -> None:
    for call in (lambda: rf.svd(X, 3, out=place), lambda: rf.import_array(X, place)):
        with pytest.raises(RankfoldError, match=message):
            call()
    if place != "/":
        with pytest.raises(RankfoldError, match=message):
            rf.svd(X, 3, scratch=place)


def test_public_functions_look_as_they_are_written() -> None:
    assert rf.open.__name__ == "open" and rf.open.__module__ == "rankfold"
    for name in ("open", "svd", "knn", "transform", "import_array"):
        function = getattr(rf, name)
        assert pickle.loads(pickle.dumps(function)) is function
        assert function.__doc__ and "arguments" not in inspect.signature(function).parameters


def test_a_warning_is_at_the_line_that_asked() -> None:
    x = np.random.default_rng(0).standard_normal((3000, 100)).astype(np.float32)
    with pytest.warns(rf.RankfoldWarning) as told:
        rf.svd(x, 3, solver="subspace", passes=2)
    assert {Path(each.filename) for each in told} == {Path(__file__)}


def test_what_a_method_needs_is_asked_for() -> None:
    with pytest.raises(InputError, match="nmf needs rank: number of components"):
        rf.plan("nmf", np.abs(X))
    with pytest.raises(InputError, match="nmf needs rank: number of components"):
        rf.nmf(np.abs(X))  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"svd\(\) needs x"):
        rf.svd()  # type: ignore[call-arg]


def test_some_arguments_have_a_place() -> None:
    by_place, by_name = rf.svd(X, 2), rf.svd(X, rank=2)
    np.testing.assert_array_equal(by_place.s, by_name.s)
    with pytest.raises(TypeError, match=r"svd\(\) too many positional arguments"):
        rf.svd(X, 2, 1e-3)  # type: ignore[misc]
