"""Block Lanczos in memory: what it finds of matrices that are hard for it, what it reads and refuses."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse
import zarr
from reference import factors, same_bytes, to_group, to_zarr

import rankfold as rf
from rankfold.methods.svd.in_memory.basis import LanczosBasis, RitzPairs
from rankfold.methods.svd.in_memory.lanczos import (
    MISS_PROBABILITY,
    OutsideSearch,
    Probes,
    block_lanczos,
    room,
)
from rankfold.pipeline.errors import ChunkError, InputError, MemoryBudgetError, NonFiniteError

Array = npt.NDArray[Any]

SHAPES = [(500, 300), (300, 500), (200, 200), (90, 2000), (2000, 20), (40, 70)]


def sparse(rows: int, columns: int, dtype: Any = np.float64, *, seed: int = 0) -> Any:
    """Counts in 5 % of the places, more in some columns than in others, with empty rows and columns."""
    rng = np.random.default_rng(seed)
    dense = rng.poisson(0.1 / (1 + np.arange(columns)) ** 0.3, (rows, columns)) * rng.random((rows, 1))
    dense[rng.random(rows) < 0.1] = 0
    dense[:, rng.random(columns) < 0.1] = 0
    return scipy.sparse.csr_array(dense.astype(dtype))


def with_values(values: Array, rows: int = 400, columns: int = 300) -> Array:
    rng = np.random.default_rng(3)
    left, right = (np.linalg.qr(rng.standard_normal((n, len(values))))[0] for n in (rows, columns))
    return np.asarray((left * values) @ right.T)


def seen(x: Any, kind: str, *, scale: bool = False) -> Array:
    wide = (x.toarray() if scipy.sparse.issparse(x) else x).astype(np.float64)
    wide = wide - wide.mean(axis=0) if kind == "pca" else wide
    deviation = wide.std(axis=0, ddof=1)
    return wide / np.where(deviation > 0, deviation, 1) if scale else wide


def holds(result: rf.Result, y: Array, tol: float) -> None:
    """Values are known to their own estimates, factors orthonormal, and their product near the matrix."""
    left, s, right = factors(result)
    rank, eps = len(s), float(np.finfo(result.attrs["input"]["dtype"]).eps)
    true = np.linalg.svd(y, compute_uv=False)
    floor = 20 * eps * true[0]
    assert (np.abs(s - true[:rank]) <= np.minimum(result.error_estimates, tol) * s + floor).all()
    # Each vector was made orthogonal to as many as there is room for, each with a rounding of its own.
    np.testing.assert_allclose(right @ right.T, np.eye(rank), atol=2 * room(rank, min(y.shape)) * eps)
    np.testing.assert_allclose(left.T @ left, np.diag(s**2), atol=40 * eps * s[0] ** 2)
    np.testing.assert_allclose(result.attrs["squared_norm"], (true**2).sum(), rtol=1e-10)
    # Squares of what the factors lack exceed those of the best approximation by the errors of the values.
    assert (
        np.linalg.norm(y - left @ right) ** 2 <= (true[rank:] ** 2).sum() + 2 * tol * (s**2).sum() + floor**2
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["svd", "pca"])
@pytest.mark.parametrize("shape", SHAPES)
def test_triplets_are_those_of_the_dense_svd(shape: tuple[int, int], kind: str, dtype: Any) -> None:
    x, rank = sparse(*shape, dtype), min(10, min(shape) - 1)
    result = getattr(rf, kind)(x, rank, solver="lanczos", tol=1e-7)
    holds(result, seen(x, kind), 1e-7)
    assert result.attrs["passes"] == 1
    assert result.attrs["converged"]
    if kind == "pca":
        np.testing.assert_allclose(result.mean, seen(x, "svd").mean(axis=0), rtol=1e-12)


def test_sparse_and_dense_hold_the_same_matrix(tmp_path: Path) -> None:
    x = sparse(300, 500)
    how: dict[str, Any] = {"solver": "lanczos", "tol": 1e-9, "scale": True}
    one = rf.pca(x, 8, **how)
    stored = [x.toarray(), to_group(tmp_path / "csr.zarr", x), to_group(tmp_path / "csc.zarr", x.tocsc())]
    for other in (*stored, to_zarr(tmp_path / "dense.zarr", x.toarray(), (70, 500)), x.astype(np.float32)):
        two = rf.pca(other, 8, **how)
        tolerance = 1e-6 if getattr(other, "dtype", None) == np.float32 else 1e-9
        np.testing.assert_allclose(two.singular_values, one.singular_values, rtol=tolerance)
        np.testing.assert_allclose(two.scale, one.scale, rtol=tolerance)
        np.testing.assert_allclose(np.abs(two.components @ one.components.T), np.eye(8), atol=1e3 * tolerance)
    holds(one, seen(x, "pca", scale=True), 1e-9)


def test_a_store_is_read_once_and_never_filled_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = sparse(300, 500)
    where = to_group(tmp_path / "x.zarr", x)
    source = type(rf.open(where))

    def refuse(*_: object) -> None:
        raise AssertionError("zeros are filled in")

    monkeypatch.setattr(source, "read_into", refuse)
    reads: list[tuple[int, int]] = []
    entries = source.entries
    monkeypatch.setattr(source, "entries", lambda s, *span: reads.append(span) or entries(s, *span))
    result = rf.svd(where, 8)
    assert result.attrs["method"] == "lanczos"
    assert reads == [(0, x.nnz)]


def test_auto_takes_it_for_sparse_matrices_alone() -> None:
    x = sparse(300, 500)
    assert rf.svd(x, 5).attrs["method"] == "lanczos"
    assert rf.svd(x.toarray(), 5).attrs["method"] != "lanczos"
    assert rf.svd(scipy.sparse.csr_array(np.ones((100, 100))), 5).attrs["method"] != "lanczos"
    assert rf.svd(x, tol=0.5).attrs["method"] != "lanczos"
    huge = scipy.sparse.csr_array((2**21, 2**21), dtype=np.float32)  # whose basis alone is large
    assert rf.plan("svd", huge, rank=50, memory="200GiB").method != "lanczos"


@pytest.mark.parametrize("copies", [5, 8, 9, 20, 40])
@pytest.mark.parametrize("before", [[], [2.0, 1.5, 1.2]])
def test_no_copy_of_a_multiple_value_is_missed(copies: int, before: list[float]) -> None:
    values = np.r_[before, np.ones(copies), 0.9 * 0.95 ** np.arange(200)]
    result = rf.svd(with_values(values), 15, solver="lanczos")
    np.testing.assert_allclose(result.s, values[:15], rtol=1e-4)


@pytest.mark.parametrize(
    ("residual", "theirs", "expected"), [(0.2, 1, True), (0.2, 0, False), (0.05, 1, False)]
)
def test_random_vectors_go_on_while_theirs_may_exceed_a_wanted_value(
    residual: float, theirs: int, expected: bool
) -> None:
    """A basis of three columns, of which the last is theirs; the second value may rise by its residual."""
    vectors = np.eye(3)[:, [0, 1 + theirs, 2 - theirs]]
    pairs = RitzPairs(np.array([1.0, 0.9, 0.1]), vectors, np.array([0.0, residual, 0.0]))
    probes = Probes(1, 1e-6, most=np.array([1 + 4e-6]), are_out=True, first=2)
    assert probes.go_on(pairs, products=40) is expected
    assert (probes.end > 40) is expected


@pytest.mark.parametrize("rank_of_matrix", [0, 1, 5, 20])
def test_values_that_are_not_there_are_zero(rank_of_matrix: int) -> None:
    values = np.linspace(2, 1, rank_of_matrix)
    with pytest.warns(rf.RankfoldWarning, match=f"{25 - rank_of_matrix} of the 25 singular values are below"):
        result = rf.svd(with_values(values), 25, solver="lanczos")
    np.testing.assert_allclose(result.s[:rank_of_matrix], values, rtol=1e-12)
    assert not result.s[rank_of_matrix:].any()
    np.testing.assert_allclose(result.Vt @ result.Vt.T, np.eye(25), atol=1e-12)
    np.testing.assert_allclose(result.U[...].T @ result.U[...], np.eye(25), atol=1e-12)


@pytest.mark.filterwarnings("ignore:the largest estimated error")
def test_estimates_hold_of_values_whose_squares_are_rounding() -> None:
    values = np.r_[np.ones(10), np.geomspace(1e-5, 1e-9, 60)]
    result = rf.svd(with_values(values), 40, solver="lanczos", tol=1e-6)
    assert (np.abs(result.s - values[:40]) <= result.error_estimates * result.s).all()
    # What squares tell: rounding of the largest, over the value.
    assert (np.abs(result.s - values[:40]) <= 4 * np.finfo(float).eps / values[:40]).all()
    assert result.error_estimates.max() < 1e-2


@pytest.mark.parametrize("make", [np.asarray, scipy.sparse.csr_array])
def test_a_mean_far_from_zero_loses_no_more_than_its_digits(make: Any) -> None:
    x = with_values(50 * 0.8 ** np.arange(60)) + 1e6
    result = rf.pca(make(x), 6, solver="lanczos", tol=1e-7)
    true = np.linalg.svd(x - x.mean(axis=0), compute_uv=False)[:6]
    np.testing.assert_allclose(result.singular_values, true, rtol=1e-7)
    assert result.attrs["squared_norm"] == pytest.approx(((x - x.mean(axis=0)) ** 2).sum(), rel=1e-6)


@pytest.mark.parametrize("factor", [1e-145, 1e150])
@pytest.mark.parametrize("make", [np.asarray, scipy.sparse.csr_array])
def test_numbers_of_any_size(make: Any, factor: float) -> None:
    x = sparse(120, 90).toarray()
    plain, large = (rf.svd(make(each), 5, solver="lanczos") for each in (x, x * factor))
    np.testing.assert_allclose(large.s, plain.s * factor, rtol=1e-12)


def test_duplicates_add_up() -> None:
    x = sparse(300, 500)
    halves = scipy.sparse.coo_array(
        (np.tile(x.data / 2, 2), tuple(np.tile(axis, 2) for axis in x.tocoo().coords)), shape=x.shape
    )
    twice = scipy.sparse.csr_array(x.shape)
    order = np.lexsort(halves.coords[::-1])
    twice.data, twice.indices = halves.data[order], halves.coords[1][order]
    twice.indptr = 2 * x.indptr
    assert same_bytes(rf.pca(twice, 5, solver="lanczos")) == same_bytes(rf.pca(x, 5, solver="lanczos"))


def test_indices_of_any_width_give_the_same_bytes() -> None:
    x = sparse(300, 500)
    wide = x.copy()
    wide.indices, wide.indptr = x.indices.astype(np.int64), x.indptr.astype(np.int64)
    assert wide.indices.dtype == np.int64
    one, two = rf.pca(x, 5, solver="lanczos"), rf.pca(wide, 5, solver="lanczos")
    for name in ("components", "scores", "singular_values"):
        assert one[name][...].tobytes() == two[name][...].tobytes()


def test_what_is_asked_of_the_callers_matrix_leaves_it_as_it_was() -> None:
    x = sparse(300, 500)
    before = x.copy()
    rf.pca(x, 5, scale=True)
    assert (x != before).nnz == 0
    assert x.data.tobytes() == before.data.tobytes()


# Refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("turn", ["csr", "csc", "dense"])
def test_nan_is_refused_with_its_place(tmp_path: Path, turn: str, bad: float) -> None:
    x = sparse(300, 500).tolil()
    x[17, 33] = x[17, 40] = x[250, 2] = bad
    where = to_group(tmp_path / "x.zarr", x.asformat(turn)) if turn != "dense" else x.toarray()
    with pytest.raises(NonFiniteError, match="3 NaN or Inf, the first at row 17, column 33"):
        rf.svd(where, 5, solver="lanczos")


@pytest.mark.parametrize("turn", ["csr", "csc"])
def test_damaged_stores_are_refused(tmp_path: Path, turn: str) -> None:
    x = sparse(300, 500).asformat(turn)
    for name, at, value, message in (
        ("indices", 9, 10**6, r"indices\[9\] is 1000000"),
        ("indices", 9, -1, r"indices\[9\] is -1"),
        ("indptr", 3, 10**4, "is not increasing"),
    ):
        where = to_group(tmp_path / "x.zarr", x)
        zarr.open_group(where)[name][at] = value  # type: ignore[index]
        with pytest.raises(ChunkError, match=message):
            rf.svd(where, 5, solver="lanczos")


def test_what_does_not_fit_in_half_of_the_memory_is_refused_with_what_would(tmp_path: Path) -> None:
    x = sparse(2000, 3000)
    plan = rf.plan("svd", x, rank=50, solver="lanczos", memory="2GiB")
    half, enough = (f"{n * plan.peak_bytes // 2**20 + 1}MiB" for n in (1, 2))
    with pytest.raises(MemoryBudgetError, match=r"half of memory= at most.*Give memory='\d+MiB'"):
        rf.svd(x, 50, solver="lanczos", memory=half, out=tmp_path / "r.zarr")
    assert not (tmp_path / "r.zarr").exists()
    assert rf.svd(x, 50, solver="lanczos", memory=enough).attrs["method"] == "lanczos"
    tall = scipy.sparse.csr_array((10**6, 1000), dtype=np.float64)
    with pytest.raises(MemoryBudgetError, match="or solver='krylov', which reads the matrix panel by panel"):
        rf.plan("svd", tall, rank=50, solver="lanczos", memory="800MiB")


def test_the_rank_is_not_found() -> None:
    with pytest.raises(InputError, match="lanczos does not find the rank"):
        rf.svd(sparse(50, 60), tol=0.1, solver="lanczos")


# The same bytes -----------------------------------------------------------------------------------


def test_threads_memory_and_an_attempt_that_was_killed_change_no_byte(tmp_path: Path) -> None:
    where = to_group(tmp_path / "x.zarr", sparse(300, 500))
    whole = same_bytes(rf.pca(where, 8, threads=1, memory="2GiB"))
    assert same_bytes(rf.pca(where, 8, threads=3, memory="700MiB")) == whole
    calls = [0]

    def interrupt(*_: object) -> None:
        calls[0] += 1
        if calls[0] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rf.pca(where, 8, out=tmp_path / "r.zarr", progress=interrupt)
    assert same_bytes(rf.pca(where, 8, out=tmp_path / "r.zarr")) == whole


COMMAND = """
import sys
import rankfold as rf
told = lambda name, done, total: print(name, flush=True)
rf.pca(sys.argv[1], 8, solver="lanczos", out=sys.argv[2], threads=1, progress=told)
"""


@pytest.mark.process
@pytest.mark.parametrize("when", ["whole", "lanczos"])
def test_a_killed_process_starts_over_and_ends_with_the_same_bytes(tmp_path: Path, when: str) -> None:
    where, out = to_group(tmp_path / "x.zarr", sparse(300, 500)), tmp_path / "r.zarr"
    run = [sys.executable, "-W", "ignore", "-c", COMMAND, where, str(out)]
    with subprocess.Popen(run, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert any(line.strip() == when for line in child.stdout)
        child.kill()
    assert not out.exists()
    subprocess.run(run, check=True, capture_output=True)
    assert same_bytes(rf.open_result(out)) == same_bytes(rf.pca(where, 8, solver="lanczos"))


def test_an_operator_need_not_be_a_matrix() -> None:
    """The iteration asks for products and nothing else; values it cannot tell apart take all of the space."""
    values = np.r_[np.full(30, 2.0), np.linspace(1, 0, 70)]
    ritz = block_lanczos(lambda q: values[:, None] * q, 100, 40, 1e-8, 0, lambda error: None)
    np.testing.assert_allclose(ritz.squares, values[:40], rtol=1e-7)
    np.testing.assert_allclose(ritz.vectors.T @ ritz.vectors, np.eye(40), atol=1e-12)


def test_an_answer_that_is_not_good_enough_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankfold.methods.svd.in_memory.lanczos.MOST_PRODUCTS", 1)
    flat = np.diag(1 + 1e-3 * np.random.default_rng(0).random(2000))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = rf.svd(flat, 4, solver="lanczos", tol=1e-12)
    assert not result.attrs["converged"]
    assert "above tol = 1.0e-12" in str(caught[0].message)


@pytest.mark.parametrize("rank", [10, 30])
@pytest.mark.parametrize("copies", [8, 9, 10, 20, 100])
def test_copies_beyond_a_block_are_found_at_a_loose_tolerance(copies: int, rank: int) -> None:
    """Graphs of equal components have them: a Krylov space from eight vectors holds eight of each value."""
    values = np.r_[np.full(copies, 3.0), np.linspace(2.9, 0.01, 990 - copies)]
    for seed in range(2):
        x = scipy.sparse.diags_array(values).tocsr()
        result = rf.svd(x, rank, tol=1e-4, solver="lanczos", seed=seed)
        assert result.attrs["converged"]
        assert np.abs(result.s / values[:rank] - 1).max() <= result.attrs["largest_error_estimate"] <= 1e-4


def test_values_that_come_less_often_take_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a search was made")

    monkeypatch.setattr("rankfold.methods.svd.in_memory.lanczos.OutsideSearch.begin", refuse)
    values = np.r_[np.full(7, 3.0), np.linspace(2.9, 0.01, 400)]
    assert rf.svd(with_values(values, 500, 407), 10, solver="lanczos").attrs["converged"]


def test_a_search_that_finds_nothing_says_how_likely_that_was_chance() -> None:
    """The chance falls to what is asked for, and what is there is found, whatever the random start."""
    for seed in range(40):
        values = np.r_[2.0, np.linspace(1.0, 0.0, 299)] if seed % 2 else np.linspace(1.0, 0.0, 300)
        basis = LanczosBasis.begin(300, 8, 80, seed)
        basis.multiply(lambda q: np.zeros_like(q))
        search = OutsideSearch.begin(basis, basis.ritz(8), 8, 2.0, 8)
        while search.chance() > MISS_PROBABILITY:
            search.step(lambda q, values=values: values[:, None] * q)
            if search.ritz_values()[0] > 1.5:
                break
        assert (search.ritz_values()[0] > 1.5) == bool(seed % 2)
