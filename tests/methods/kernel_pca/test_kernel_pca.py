"""Components in the space of a kernel function, against the dense matrix of all pairs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from reference import same_bytes, to_zarr
from scipy.sparse import csr_array
from sklearn.metrics.pairwise import pairwise_kernels

import rankfold as rf
from rankfold.kernels.similarity.functions import Kind, Similarity
from rankfold.methods.kernel_pca.arguments import KERNEL_PCA
from rankfold.methods.similarity.blocks import RowBlocks
from rankfold.methods.similarity.operator import SimilarityMatrix
from rankfold.pipeline.engine import sweep
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.formats import open_source

Float64 = npt.NDArray[np.float64]

EPS = float(np.finfo(np.float64).eps)


def samples(rows: int = 1300, columns: int = 8, seed: int = 0) -> Float64:
    """Rows around some centers."""
    rng = np.random.default_rng(seed)
    centers = 2 * rng.standard_normal((9, columns))
    return np.asarray(centers[rng.integers(0, 9, rows)] + rng.standard_normal((rows, columns)))


def centered(k: Float64) -> Float64:
    return np.asarray(k - k.mean(axis=0) - k.mean(axis=1)[:, None] + k.mean())


def closeness(values: Float64, tol: float) -> float:
    """How far scores may be off: errors of vectors go by the root of that of values over the gap."""
    gaps = np.diff(values, append=0.0)
    return float(np.sqrt(values[0]) * np.sqrt(tol * values[0] / np.abs(gaps).min()))


KERNELS: dict[str, dict[str, float]] = {
    "rbf": {"gamma": 0.02},
    "laplacian": {"gamma": 0.05},
    "polynomial": {"gamma": 0.02, "degree": 2.0, "coef0": 0.5},
    "sigmoid": {"gamma": 1e-3, "coef0": 0.1},
    "cosine": {},
    "linear": {},
}


@pytest.mark.filterwarnings("ignore::rankfold.RankfoldWarning")
@pytest.mark.parametrize("rows", [300, 1300])
@pytest.mark.parametrize("kernel", KERNELS)
def test_components_are_those_of_the_dense_matrix(kernel: str, rows: int) -> None:
    x, how = samples(rows), KERNELS[kernel]
    k = centered(pairwise_kernels(x, metric=kernel, **how))
    right = np.linalg.eigvalsh(k)[::-1]
    r = rf.kernel_pca(x, 4, kernel=kernel, **how, tol=1e-10)
    assert r.attrs["method"] == ("dense" if rows == 300 else "lanczos")
    # What is estimated holds, and is no more than was asked.
    error = np.abs(r.eigenvalues - right[:4])
    assert (error <= r.error_estimates).all()
    assert (r.error_estimates <= 1e-9 * right[0]).all()
    assert math.isclose(r.attrs["trace"], k.trace(), rel_tol=1e-9)
    scores = r.scores[...]
    # The span is what the matrix makes of it, whatever the order of values that coincide.
    residuals = np.linalg.norm(k @ scores - scores * r.eigenvalues, axis=0)
    assert (residuals <= closeness(right[:5], 1e-10) * np.sqrt(right[0])).all()


@pytest.mark.parametrize("kernel", ["rbf", "polynomial", "cosine"])
def test_rows_come_to_their_own_scores(kernel: str, tmp_path: Path) -> None:
    x, how = samples(700), KERNELS[kernel]
    r = rf.kernel_pca(x, 3, kernel=kernel, **how, tol=1e-12, out=tmp_path / "r.zarr")
    means = pairwise_kernels(x, metric=kernel, **how)
    bound = closeness(np.linalg.eigvalsh(centered(means))[::-1][:5], 1e-12)
    again = rf.transform(r, x).scores[...]
    np.testing.assert_allclose(again, r.scores[...], rtol=0, atol=bound)
    new = samples(50, seed=3)
    k = pairwise_kernels(new, x, metric=kernel, **how)
    u = r.scores[...] / np.sqrt(r.eigenvalues)
    right = (k - k.mean(axis=1)[:, None] - means.mean(axis=0) + means.mean()) @ u / np.sqrt(r.eigenvalues)
    np.testing.assert_allclose(rf.transform(tmp_path / "r.zarr", new).scores[...], right, rtol=0, atol=bound)


def test_a_function_of_your_own_is_a_kernel() -> None:
    def overlap(a: Any, b: Any) -> float:
        total = 0.0
        for i in range(len(a)):
            total += min(a[i], b[i])
        return total

    x = np.abs(samples(600, 5))
    k = centered(np.minimum(x[:, None], x).sum(axis=2))
    r = rf.kernel_pca(x, 2, kernel=overlap)
    np.testing.assert_allclose(r.eigenvalues, np.linalg.eigvalsh(k)[::-1][:2], rtol=1e-7)
    assert r.attrs["request"]["kernel"].startswith("overlap-")
    with pytest.raises(rf.RankfoldError, match="kernel of your own"):
        rf.transform(r, x)


def test_negative_eigenvalues_are_counted_and_said() -> None:
    for rows in (300, 900):
        x = samples(rows)
        k = centered(pairwise_kernels(x, metric="sigmoid", gamma=0.1, coef0=1.0))
        right = np.linalg.eigvalsh(k)
        with pytest.warns(rf.RankfoldWarning, match="is not positive here"):
            r = rf.kernel_pca(x, 2, kernel="sigmoid", gamma=0.1)
        true = int((right < -1e-9 * right[-1]).sum())
        seen = r.attrs["negative_eigenvalues"]
        assert r.attrs["least_eigenvalue"] >= right[0] * (1 + 1e-9)
        assert 0 < seen <= int((right < 0).sum())
        if r.attrs["all_eigenvalues"]:
            assert seen >= true
        np.testing.assert_allclose(r.eigenvalues, right[::-1][:2], rtol=1e-7)


@pytest.mark.parametrize("rows", [1, 2, 40, 700])
def test_rows_that_are_all_alike_have_no_components(rows: int) -> None:
    for x, how in ((np.full((rows, 3), 7.0), {}), (samples(rows, 3), {"gamma": 0.0})):
        with pytest.warns(rf.RankfoldWarning, match="no variance beyond rounding"):
            r = rf.kernel_pca(x, 1, **how)
        assert r.eigenvalues[0] == 0
        assert not r.scores[...].any()
        assert np.isfinite(rf.transform(r, x).scores[...]).all()


def test_a_bandwidth_of_nothing_tells_all_rows_apart() -> None:
    r = rf.kernel_pca(samples(800), 3, gamma=1e300)
    np.testing.assert_allclose(r.eigenvalues, 1.0, atol=1e-10)  # of the identity, centered


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"rank": 41}, "has 40 rows, whose matrix of pairs has as many eigenvalues: ask for 1 to 40"),
        ({"rank": 0}, "rank must be at least 1, not 0"),
        ({"gamma": math.inf}, "gamma must be a finite number, not inf"),
        ({"gamma": -1.0}, "gamma must be at least 0, not -1.0$"),
        ({"gamma": math.nan}, "gamma must be a finite number, not nan$"),
        ({"kernel": "chi2"}, "kernel must be one of rbf, laplacian"),
        ({"kernel": lambda a, b: "x"}, "kernel <lambda>"),
        ({"degree": -1.0}, "degree must be"),
        ({"tol": 1.0}, "tol must be at least 0 and below 1"),
        ({"passes": 0}, "passes must be at least 1"),
        ({"seed": -1}, "seed must lie"),
    ],
)
def test_what_cannot_be_is_refused(how: dict[str, Any], message: str) -> None:
    with pytest.raises(rf.RankfoldError, match=message):
        rf.kernel_pca(samples(40), **{"rank": 2, **how})


def test_sparse_rows_are_those_that_are_dense_and_complex_ones_refused() -> None:
    x = np.where(samples(700) > 1, samples(700), 0)
    for kernel, how in KERNELS.items():
        if kernel == "sigmoid":
            continue
        values = [rf.kernel_pca(each, 2, kernel=kernel, **how).eigenvalues for each in (x, csr_array(x))]
        np.testing.assert_allclose(values[1], values[0], rtol=1e-7)
    for call in (rf.kernel_pca, rf.nystroem):
        with pytest.raises(rf.RankfoldError, match="complex"):
            call(x + 1j, 2)


@pytest.mark.parametrize("rows", [300, 700])
@pytest.mark.parametrize(
    ("scale", "degree"),
    [(1.0, 2.5), (1e70, 5.0), (1e70, 2.0), (1e50, 2.0), (1e100, 9.0)],
    ids=["no power", "overflow", "sums overflow", "squares overflow", "infinite"],
)
def test_similarities_out_of_range_are_refused(rows: int, scale: float, degree: float) -> None:
    x = scale * samples(rows, 5)
    with pytest.raises(rf.RankfoldError, match="leave the range of float64"):
        rf.kernel_pca(x, 2, kernel="polynomial", degree=degree, gamma=1.0)


def test_passes_that_do_not_suffice_are_said() -> None:
    with pytest.warns(rf.RankfoldWarning, match="allow more passes"):
        r = rf.kernel_pca(samples(900), 4, gamma=0.1, passes=2)
    assert not r.attrs["converged"]
    assert r.attrs["passes"] <= 3


# The operator -------------------------------------------------------------------------------------


def test_products_are_those_of_the_matrix_to_the_same_bytes(tmp_path: Path) -> None:
    x, v = samples(3000, 6), np.random.default_rng(1).standard_normal((3000, 3))
    source = open_source(to_zarr(tmp_path / "x.zarr", x, (700, 6)))
    k = pairwise_kernels(x, metric="rbf", gamma=0.02)
    products = []
    for stay, threads, group in ((True, 1, 1), (False, 3, 1), (False, 2, 4), (False, 1, 100)):
        blocks = RowBlocks.of(source, Similarity(Kind.RBF, 0.02), stay=stay)
        assert blocks.count > 3
        products.append(SimilarityMatrix(blocks, threads, group).multiply(v))
    np.testing.assert_allclose(products[0], k @ v, rtol=0, atol=3000 * EPS * np.abs(k @ v).max())
    for other in products[1:]:
        np.testing.assert_array_equal(other, products[0])


def test_a_sweep_that_was_killed_goes_on_where_its_sums_were_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "SEGMENT_SECONDS", 0.0)
    x, v = samples(3000, 6), np.random.default_rng(1).standard_normal((3000, 2))
    blocks = RowBlocks.of(open_source(x), Similarity(Kind.RBF, 0.02), stay=False)
    whole, part, told = SimilarityMatrix(blocks, 1, 1).multiply(v), tmp_path / "sums.part", list[int]()

    def interrupt(rows: int) -> None:
        told.append(rows)
        if len(told) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        SimilarityMatrix(blocks, 1, 1, interrupt).multiply(v, part)
    told.clear()
    again = SimilarityMatrix(blocks, 2, 2, told.append).multiply(v, part)
    np.testing.assert_array_equal(again, whole)
    assert told[0] > 3000 // 3  # the first blocks, which meet most others, were not done again
    assert not part.exists()


def test_rows_are_read_in_their_turn_where_memory_is_short(tmp_path: Path) -> None:
    x = samples(4000, 400).astype(np.float32)
    store = to_zarr(tmp_path / "x.zarr", x, (500, 400))
    how: dict[str, Any] = {"gamma": 1e-3, "tol": 1e-3}
    task = KERNEL_PCA.task(store, rank=2, **how)
    least = next(m for m in range(40, 400) if _fits(task, m << 20))
    assert task.plan(Budget(2**33, 2)).slots != task.plan(Budget(least << 20, 2)).slots
    many = rf.kernel_pca(store, 2, **how, out=tmp_path / "many.zarr", memory="2GiB", threads=2)
    few = rf.kernel_pca(store, 2, **how, out=tmp_path / "few.zarr", memory=f"{least}MiB", threads=2)
    assert same_bytes(many) == same_bytes(few)
    attempt = few.run["attempts"][-1]
    assert attempt["measured_bytes"] <= attempt["planned_bytes"] <= least << 20
    with pytest.raises(rf.RankfoldError, match="Give memory="):
        rf.kernel_pca(store, 2, **how, memory="30MiB")


def _fits(task: Any, memory: int) -> bool:
    try:
        task.plan(Budget(memory, 2))
    except rf.RankfoldError:
        return False
    return True


@pytest.mark.parametrize("scale", [2.0**-100, 1.0, 2.0**100])
@pytest.mark.parametrize("kernel", ["cosine", "linear"])
@pytest.mark.parametrize("rows", [300, 600])
def test_components_beyond_the_rank_are_zero(rows: int, kernel: str, scale: float) -> None:
    # Of these similarities the sum of a row is next to nothing, so it says nothing of how large they are.
    x = np.random.default_rng(0).standard_normal((rows, 3)) * scale
    result = rf.kernel_pca(x, 5, kernel=kernel, threads=1)
    values = np.asarray(result.eigenvalues[:])
    assert (values[:3] > 0.1 * values[0]).all() and (values[3:] == 0).all()
    scores = np.asarray(rf.transform(result, x, threads=1).scores)
    assert not scores[:, 3:].any()
    np.testing.assert_allclose(np.linalg.norm(scores[:, :3], axis=0), np.sqrt(values[:3]), rtol=1e-6)
