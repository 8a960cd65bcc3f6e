"""Nonnegative factors of a sparse matrix by its stored numbers: those of the dense one, for less."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse
from reference import same_bytes, to_group

import rankfold as rf
from rankfold.kernels.sparse.products import NARROW
from rankfold.methods.nmf import in_memory
from rankfold.methods.nmf.arguments import NMF
from rankfold.pipeline.engine import blocks

Array = npt.NDArray[Any]

pytestmark = pytest.mark.filterwarnings("ignore::rankfold.RankfoldWarning")

KINDS: dict[str, dict[str, Any]] = {
    "hals": {},
    "bpp": {"solver": "bpp"},
    "mu": {"solver": "mu"},
    "admm": {"solver": "admm", "constraint_W": 50.0},
    "penalized": {"alpha_W": 0.01, "alpha_H": 0.02, "l1_ratio": 0.5},
    "kl": {"loss": "kullback-leibler"},
    "kl, penalized": {"loss": "kullback-leibler", "alpha_W": 0.01, "l1_ratio": 0.5},
}


def counts(rows: int, columns: int, dtype: Any = np.float64, *, noise: bool = True, seed: int = 0) -> Any:
    """Counts of products of sparse parts, in a twelfth of the places, with empty rows and columns."""
    rng = np.random.default_rng(seed)
    means = rng.gamma(0.3, size=(rows, 4)) @ rng.gamma(0.3, size=(4, columns))
    dense = rng.poisson(0.3 * means).astype(float) if noise else np.where(means > 0.9, means, 0)
    dense[rng.random(rows) < 0.05] = 0
    dense[:, rng.random(columns) < 0.05] = 0
    return scipy.sparse.csr_array(dense.astype(dtype))


def model(result: rf.Result) -> Array:
    w, h = np.asarray(result.W[...], np.float64), np.asarray(result.H[...], np.float64)
    assert w.min() >= 0 and h.min() >= 0
    return w @ h


def numbers(result: rf.Result) -> bytes:
    return b"".join(np.ascontiguousarray(getattr(result, name)[...]).tobytes() for name in ("W", "H"))


def start_of(x: Any, rank: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(3)
    return rng.random((x.shape[0], rank)), rng.random((rank, x.shape[1]))


@pytest.fixture
def small_panels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Panels of two thousand numbers, streams of a few of them, and no matrix that stays in memory."""
    monkeypatch.setattr(blocks, "PANEL_NUMBERS", 2000)
    monkeypatch.setattr(blocks, "READS_PER_BYTE", 4)
    monkeypatch.setattr(in_memory, "SMALL_BYTES", 0)


@pytest.fixture(params=["passes", "memory"])
def way(request: pytest.FixtureRequest) -> str:
    """Small panels, or the matrix in memory; the divergence is found by passes whatever is said."""
    if request.param == "passes":
        request.getfixturevalue("small_panels")
    return str(request.param)


# What they are ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("by", ["csr", "csc"])
def test_factors_are_those_of_the_dense_matrix(
    tmp_path: Path, way: str, by: str, dtype: Any, kind: str
) -> None:
    # Swept along the same side: the lines of a group are its long side here.
    x = counts(*((1500, 130) if by == "csr" else (130, 1500)), dtype)
    where = to_group(tmp_path / "x.zarr", x.asformat(by))
    layout = NMF.task(where, rank=4)._layout("cpu")
    assert way == "memory" or (0 < layout.fullest <= 2000 and len(layout.cut.panels) > 5)
    how = {"init": start_of(x, 4), "tol": 0, "passes": 4, **KINDS[kind]}
    sparse, dense = rf.nmf(where, 4, **how), rf.nmf(x.toarray(), 4, **how)
    # Rounding of the first pass grows with each of them by as much as factors depend on what was before.
    rounding = 1e3 * float(np.finfo(dtype).eps)
    for name in ("errors", "cost", "squared_norm", "product_norm"):
        np.testing.assert_allclose(sparse.attrs[name], dense.attrs[name], rtol=rounding)
    np.testing.assert_allclose(model(sparse), model(dense), atol=rounding * x.max())
    if kind == "hals":
        assert sparse.attrs["stationarity"] == pytest.approx(dense.attrs["stationarity"], rel=1e-3)
        difference = np.linalg.norm(x.toarray() - model(sparse)) / np.linalg.norm(x.data)
        assert sparse.attrs["relative_error"] == pytest.approx(difference, rel=1e-5)


@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_many_components_are_gathered(way: str, dtype: Any, loss: str) -> None:
    x = counts(600, 200, dtype)
    how = {"init": start_of(x, NARROW + 5), "tol": 0, "passes": 3, "loss": loss}
    sparse, dense = (rf.nmf(each, NARROW + 5, **how) for each in (x, x.toarray()))
    rounding = 1e3 * float(np.finfo(dtype).eps)
    np.testing.assert_allclose(sparse.attrs["errors"], dense.attrs["errors"], rtol=rounding)
    np.testing.assert_allclose(model(sparse), model(dense), atol=rounding * x.max())


def test_places_outside_are_refused() -> None:
    x = counts(300, 130)
    x.indices[7] = 200
    with pytest.raises(ValueError, match=r"indices\[7\] is 200, but is to be below 130"):
        rf.nmf(x, 3, init="random")


@pytest.mark.parametrize("init", ["compressed", "nndsvd", "rows", "random"])
@pytest.mark.parametrize("by", ["csr", "csc"])
def test_every_start_is_as_good(tmp_path: Path, way: str, by: str, init: str) -> None:
    x = counts(900, 130)
    sparse = rf.nmf(to_group(tmp_path / "x.zarr", x.asformat(by)), 4, init=init, tol=1e-6, passes=30)
    dense = rf.nmf(x.toarray(), 4, init=init, tol=1e-6, passes=30)
    assert sparse.attrs["relative_error"] <= 1.01 * dense.attrs["relative_error"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_small_errors_are_right(way: str, dtype: Any) -> None:
    """What is left of exact products with zeros in place of small numbers is less than differences show."""
    rng = np.random.default_rng(0)
    w, h = np.zeros((600, 3)), np.zeros((3, 90))
    w[np.arange(600), np.arange(600) % 3], h[np.arange(90) % 3, np.arange(90)] = rng.random(600), 1
    h[:, 9:] *= rng.random(81) < 0.3
    x = ((w @ h) * (1 + 1e-3 * rng.standard_normal((600, 90)))).astype(dtype)
    result = rf.nmf(scipy.sparse.csr_array(x), 3, tol=1e-6, passes=20)
    left = np.linalg.norm(x - model(result)) / np.linalg.norm(x.astype(np.float64))
    assert 5e-4 < left < 2e-3
    assert result.attrs["relative_error"] == pytest.approx(left, rel=1e-3)


@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler"])
def test_numbers_of_any_kind(tmp_path: Path, loss: str) -> None:
    x = counts(600, 130)
    halves = np.repeat(x.data / 2, 2)
    twice = scipy.sparse.csr_array((halves, np.repeat(x.indices, 2), 2 * x.indptr), shape=x.shape)
    whole = rf.nmf(to_group(tmp_path / "x.zarr", x), 3, loss=loss)
    assert numbers(rf.nmf(to_group(tmp_path / "twice.zarr", twice), 3, loss=loss)) == numbers(whole)
    small = rf.nmf(to_group(tmp_path / "small.zarr", x.astype(np.uint8)), 3, loss=loss)
    assert small.attrs["relative_error"] == pytest.approx(whole.attrs["relative_error"], rel=1e-3)


@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler"])
def test_a_matrix_of_stored_zeros_is_zero(loss: str) -> None:
    x = counts(300, 130)
    x.data[:] = 0
    assert rf.nmf(x, 3, loss=loss).attrs["relative_error"] == 0


# Refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["csr", "csc"])
@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler"])
def test_what_has_no_place_is_refused_with_its_place(tmp_path: Path, way: str, loss: str, by: str) -> None:
    x = counts(900, 130).tolil()
    x[700, 3] = x[17, 40] = x[17, 33] = -1
    where = to_group(tmp_path / "x.zarr", x.asformat(by))
    with pytest.raises(rf.RankfoldError, match="3 negative numbers, the first at row 17, column 33"):
        rf.nmf(where, 3, loss=loss, init="random")
    x[250, 2] = np.nan
    where = to_group(tmp_path / "bad.zarr", x.asformat(by))
    for init in ("random", "auto"):
        with pytest.raises(rf.RankfoldError, match="1 NaN or Inf, the first at row 250, column 2"):
            rf.nmf(where, 3, loss=loss, init=init)


# The same bytes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["csr", "csc"])
@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler"])
def test_threads_memory_and_chunks_change_no_byte(tmp_path: Path, way: str, loss: str, by: str) -> None:
    x = counts(*((6000, 60) if by == "csr" else (60, 6000))).asformat(by)
    where = to_group(tmp_path / "x.zarr", x)
    assert NMF.task(where, rank=4)._layout("cpu").cut.stream_count > (way == "passes")
    whole = rf.nmf(where, 4, loss=loss, threads=1, memory="1GiB")
    for threads, memory in ((2, "200MiB"), (7, "1GiB")):
        other = rf.nmf(where, 4, loss=loss, threads=threads, memory=memory)
        assert same_bytes(other) == same_bytes(whole)
    chunks = rf.nmf(to_group(tmp_path / "y.zarr", x, chunks=(5000,)), 4, loss=loss)
    assert numbers(chunks) == numbers(whole)


@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler"])
def test_an_attempt_that_was_killed_changes_no_byte(tmp_path: Path, way: str, loss: str) -> None:
    where = to_group(tmp_path / "x.zarr", counts(3000, 130))
    whole = same_bytes(rf.nmf(where, 4, loss=loss))

    def interrupt(name: str, done: int, _: int) -> None:
        if name in ("iteration-03", "iterations") and done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rf.nmf(where, 4, loss=loss, out=tmp_path / "r.zarr", progress=interrupt)
    assert same_bytes(rf.nmf(where, 4, loss=loss, out=tmp_path / "r.zarr")) == whole


def test_a_small_matrix_is_read_once(tmp_path: Path) -> None:
    x = counts(900, 130)
    kept = rf.nmf(to_group(tmp_path / "x.zarr", x), 4, init=start_of(x, 4), tol=0, passes=6)
    assert kept.attrs["passes"] == 1 and len(kept.attrs["errors"]) == 6 and kept.attrs["stopped"] == "passes"
    plan = rf.plan("nmf", x, 4, passes=6)
    assert [each.name for each in plan.passes if each.over == "matrix"] == ["pass-01", "whole"]
    assert rf.nmf(x, 4, tol=0, passes=6).attrs["passes"] == plan.most_passes == 2


# Memory -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler"])
def test_no_panel_is_filled_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_panels: None, loss: str
) -> None:
    where = to_group(tmp_path / "x.zarr", counts(6000, 130))
    kind = type(rf.open(where))
    read_into = kind.read_into

    def read(self: Any, out: Array, rows: Any, columns: Any) -> None:
        assert out.size <= 600 * 130, "zeros are filled in"
        read_into(self, out, rows, columns)

    monkeypatch.setattr(kind, "read_into", read)
    assert rf.nmf(where, 4, loss=loss).attrs["passes"] > 1


def test_the_plan_counts_stored_numbers() -> None:
    huge = scipy.sparse.csr_array((2**20, 2**17), dtype=np.float32)
    huge.data, huge.indices = np.ones(2**23, np.float32), np.tile(np.arange(8, dtype=np.int32), 2**20)
    huge.indptr = 8 * np.arange(2**20 + 1)
    plan = rf.plan("nmf", huge, 10, memory="6GiB")
    iteration = plan.passes[-1]
    assert iteration.reads_bytes == huge.nnz * 8 + 8 * huge.shape[0]
    assert iteration.flops == 4 * huge.nnz * 10


COMMAND = """
import json, sys
import rankfold as rf
r = rf.nmf(sys.argv[1], 10, out=sys.argv[2], memory="2GiB", threads=2, loss=sys.argv[3], passes=4)
last = r.run["attempts"][-1]
print(json.dumps([last["planned_bytes"], last["measured_bytes"]]))
"""


def scattered(rows: int, columns: int, each: int) -> Any:
    """``each`` numbers in each row, at random places."""
    rng = np.random.default_rng(0)
    places = (rng.random(rows * each) ** 3 * columns).astype(np.int32)
    values = rng.random(rows * each, dtype=np.float32)
    x = scipy.sparse.csr_array((values, places, each * np.arange(rows + 1)), shape=(rows, columns))
    x.sum_duplicates()
    return x


@pytest.mark.memory
@pytest.mark.slow
@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler"])
@pytest.mark.parametrize("shape", [(400_000, 2000), (60_000, 300_000), (100_000, 2000)], ids=str)
def test_the_peak_is_planned(tmp_path: Path, shape: tuple[int, int], loss: str) -> None:
    store = to_group(tmp_path / "x.zarr", scattered(*shape, 40), chunks=(2**18,))
    command = [sys.executable, "-W", "ignore", "-c", COMMAND, store, str(tmp_path / "r.zarr"), loss]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    planned, peak = json.loads(run.stdout)
    if peak is None:
        pytest.skip("this system does not report anonymous memory (RssAnon is Linux)")
    assert peak <= planned
