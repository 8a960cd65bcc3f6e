"""The tolerance alone finds the rank: the fewest components that leave out no more."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import zarr
from covers import cover
from examples import examples
from hypothesis import example, given
from hypothesis import strategies as st
from reference import exact, factors, same_bytes, to_zarr

import rankfold as rf
from rankfold.methods.svd.error_estimates import Truncation

Array = npt.NDArray[Any]

INDEX = np.arange(1.0, 201)
SPECTRA = {"1/i": 1 / INDEX, "0.8^i": np.maximum(0.8**INDEX, 1e-13), "1/√i": INDEX**-0.5}


def matrix(shape: tuple[int, int], spectrum: Array, dtype: Any = np.float64) -> Array:
    rng, k = np.random.default_rng(0), min(shape)
    left = np.linalg.qr(rng.standard_normal((shape[0], k)))[0]
    right = np.linalg.qr(rng.standard_normal((shape[1], k)))[0]
    return np.asarray((left * spectrum[:k]) @ right.T + 0.01, dtype)


def left_out(x: Array, found: rf.Result) -> float:
    """Relative Frobenius error of the factors as they are stored."""
    y = x.astype(np.float64)
    if found.attrs["kind"] == "pca":
        y = y - y.mean(axis=0)
    left, _, right = factors(found)
    return float(np.linalg.norm(y - left @ right) / np.linalg.norm(y))


def fewest(s: Array, tol: float) -> int:
    left = [float((s[k:] ** 2).sum()) for k in range(1, len(s) + 1)]
    return 1 + next(i for i, rest in enumerate(left) if rest <= tol**2 * (s**2).sum())


@pytest.mark.parametrize(
    ("method", "kind", "shape", "name", "tol"),
    cover(
        ["auto", "gram", "krylov", "tsqr"],
        ["svd", "pca"],
        [(1500, 200), (200, 1500)],
        SPECTRA,
        [0.3, 1e-2, 1e-5],
    ),
)
def test_the_rank_is_the_fewest_that_will_do(
    method: str, kind: str, shape: tuple[int, int], name: str, tol: float
) -> None:
    x = matrix(shape, SPECTRA[name])
    found = getattr(rf, kind)(x, tol=tol, solver=method, passes=12)
    s = exact(x, kind)[1]
    best = fewest(s, tol)
    rank = found.attrs["rank"]
    assert best <= rank <= best + (method == "krylov") * (1 + best // 10), (best, rank)
    values = factors(found)[1] if kind == "pca" else found.s
    wrong, rounding = np.abs(values - s[:rank]) / s[:rank], 1e-14 * s[0] / s[:rank]
    assert wrong.max() <= found.error_estimates.max() + rounding.max()
    assert (wrong <= 2 * found.error_estimates + rounding).all()
    error = left_out(x, found)
    assert error <= tol * (1 + 1e-9) and error <= found.attrs["approximation_error"] * (1 + 1e-9)
    assert found.attrs["approximation_error"] <= tol and found.attrs["converged"]


@pytest.mark.parametrize(("tol", "method"), [(1e-2, "gram"), (1e-6, "gram"), (1e-9, "tsqr")])
def test_the_method_holds_what_the_tolerance_asks(tol: float, method: str) -> None:
    x = matrix((1500, 200), SPECTRA["0.8^i"])
    found = rf.svd(x, tol=tol)
    assert found.attrs["method"] == method and left_out(x, found) <= tol


@pytest.mark.parametrize(
    ("method", "dtype", "tol"), [("krylov", np.float32, 1e-6), ("gram", np.float64, 1e-10)], ids=str
)
def test_what_rounding_hides_is_said(method: str, dtype: Any, tol: float) -> None:
    x = matrix((1500, 200), SPECTRA["0.8^i"], dtype)
    with pytest.warns(rf.RankfoldWarning, match=r"may leave out .* above tol"):
        found = rf.svd(x, tol=tol, solver=method)
    assert left_out(x, found) <= found.attrs["approximation_error"] and not found.attrs["converged"]


@pytest.mark.parametrize(
    ("decay", "dtype", "tol"), [(0.8, np.float32, 1e-6), (0.8, np.float64, 1e-7)], ids=str
)
def test_values_near_rounding_are_as_good_as_is_said(decay: float, dtype: Any, tol: float) -> None:
    """Where what the basis leaves out drowns in the rounding of products with it."""
    x = matrix((1500, 200), decay**INDEX, dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rf.RankfoldWarning)
        found = rf.svd(x, tol=tol, solver="krylov")
    s = np.linalg.svd(x.astype(np.float64), compute_uv=False)[: len(found.s)]
    assert (np.abs(found.s - s) <= 2 * found.error_estimates * s + 1e-14 * s[0]).all()


def test_passes_that_run_out_are_said() -> None:
    x = np.random.default_rng(1).standard_normal((3000, 1200))
    with pytest.warns(rf.RankfoldWarning, match="allow more with passes="):
        found = rf.svd(x, tol=0.1, solver="krylov", passes=2)
    assert found.attrs["rank"] == 320 and not found.attrs["converged"]
    assert left_out(x, found) == pytest.approx(found.attrs["approximation_error"], rel=0.05)


@examples(30)
@given(
    rows=st.integers(2, 200),
    columns=st.integers(1, 30),
    rank=st.integers(0, 5),
    exponent=st.integers(-15, 15),
    method=st.sampled_from(["gram", "krylov", "tsqr"]),
    tol=st.sampled_from([0.5, 1e-3]),
)
@example(
    rows=95, columns=29, rank=2, exponent=2, method="gram", tol=0.5
)  # a direction of rounding seems exact
@pytest.mark.filterwarnings("ignore::rankfold.RankfoldWarning")
def test_any_small_matrix_of_any_scale(
    rows: int, columns: int, rank: int, exponent: int, method: str, tol: float
) -> None:
    rng = np.random.default_rng(rank)
    x = rng.standard_normal((rows, rank)) @ rng.standard_normal((rank, columns)) * 10.0**exponent
    found = rf.svd(x, tol=tol, solver=method)
    assert found.attrs["rank"] <= max(rank, 1)
    assert not rank or left_out(x, found) <= tol


@pytest.mark.parametrize("method", ["krylov", "gram", "tsqr"])
def test_rows_far_from_the_others_hide_nothing(method: str) -> None:
    x = np.random.default_rng(5).standard_normal((20_000, 30)) * np.linspace(1.5, 0.3, 30)
    x[::40] += 1e3
    found = rf.pca(x, tol=1e-7 if method != "gram" else 2e-7, solver=method)
    s = np.linalg.svd(x - x.mean(axis=0), compute_uv=False)[: found.attrs["rank"]]
    wrong = np.abs(found.singular_values - s) / s
    assert (wrong <= 4 * found.error_estimates + 1e-11).all()


def test_a_matrix_that_is_read_along_its_shorter_side_alone_is_taken(tmp_path: Path) -> None:
    import scipy.sparse

    x = scipy.sparse.random_array((50, 400), density=0.2, rng=6, format="csr")
    group = zarr.open_group(tmp_path / "x.zarr", mode="w")
    group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [50, 400]})
    for name in ("data", "indices", "indptr"):
        values = getattr(x, name)
        group.create_array(name, shape=values.shape, dtype=values.dtype, chunks=values.shape)[...] = values
    with pytest.warns(rf.RankfoldWarning, match="may leave out"):
        assert rf.svd(tmp_path / "x.zarr", tol=1e-9).attrs["rank"] == 50


def test_threads_and_cuts_change_nothing(tmp_path: Path) -> None:
    x = matrix((9000, 200), SPECTRA["1/i"])
    store = to_zarr(tmp_path / "x.zarr", x, (500, 200))
    made = [
        rf.svd(store, tol=0.05, solver="krylov", threads=threads, out=tmp_path / f"{threads}.zarr")
        for threads in (1, 2)
    ]
    assert same_bytes(made[0]) == same_bytes(made[1])
    assert set(rf.plan("svd", store, tol=0.05).as_dict()) and made[0].attrs["passes"] < 8


def test_what_cannot_be_is_refused() -> None:
    x = matrix((300, 40), SPECTRA["1/i"])
    for options, message in (
        ({"tol": 0.1, "solver": "sketch"}, "sketch does not find the rank"),
        ({"tol": 0.1, "oversampling": 8}, "oversampling counts columns beyond a rank"),
    ):
        with pytest.raises(rf.RankfoldError, match=message):
            rf.svd(x, **options)


def test_truncations_add_up() -> None:
    s = 1 / INDEX
    of_all, of_sum = Truncation.of_all(s, 0.1), Truncation.of(s**2, float((s**2).sum()), 0.1)
    assert of_all.rank == of_sum.rank and of_all.error == pytest.approx(of_sum.error, rel=1e-6)
    assert Truncation.of_all(np.zeros(3), 0.1) == Truncation(1, 0.0)


def test_values_whose_sizes_are_not_known_are_counted_beside_what_converged() -> None:
    x = np.random.default_rng(0).standard_normal((60, 20_000)).astype(np.float32)
    with pytest.warns(rf.RankfoldWarning, match="tol = 0.5 bounds what is left out of the norm") as caught:
        found = rf.svd(x, tol=0.5, solver="krylov")
    unknown = int((found.error_estimates >= 1).sum())
    assert unknown and f"the last {unknown} of {found.attrs['rank']} have" in str(caught[0].message)
    assert found.attrs["converged"] and found.attrs["approximation_error"] <= 0.5
    assert rf.svd(x[:, :600], tol=0.5, solver="gram").attrs["warnings"] == []
