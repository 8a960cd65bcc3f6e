"""Trustworthiness, continuity and preservation: those of the definition, however they are counted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from covers import cover
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from reference import to_zarr
from sklearn.manifold import trustworthiness as peer

import rankfold as rf
from rankfold.kernels.neighbors.lists import BY_PRODUCTS, Metric
from rankfold.kernels.neighbors.meeting import doubles
from rankfold.kernels.neighbors.ranking import reaches
from rankfold.methods.embedding.neighbor_ranks import CountNearer
from rankfold.methods.embedding.quality_request import draw_rows
from rankfold.methods.knn.row_blocks import BlockReader
from rankfold.pipeline.errors import InputError, MemoryBudgetError, NonFiniteError
from rankfold.pipeline.formats import open_source

Matrix = np.ndarray[Any, Any]


def data(rows: int, columns: int, dtype: str = "float32", *, seed: int = 0) -> tuple[Matrix, Matrix]:
    """A matrix with some structure, and a plane that shows part of it."""
    rng = np.random.default_rng([rows, columns, seed])
    x = rng.standard_normal((rows, columns)) * np.arange(1, columns + 1) ** -0.5
    return (x + 2).astype(dtype), (x[:, :2] + 0.1 * rng.standard_normal((rows, 1))).astype(dtype)


def apart(x: Matrix, metric: str = "euclidean") -> Matrix:
    """Distances of all pairs; a row is infinitely far from itself."""
    x = x.astype(np.float64)
    if metric == "manhattan":
        found = np.stack([np.abs(x - row).sum(axis=1) for row in x])
    elif metric == "chebyshev":
        found = np.stack([np.abs(x - row).max(axis=1) for row in x])
    elif metric == "inner_product":
        found = -(x @ x.T)
    else:
        found = np.stack([np.square(x - row).sum(axis=1) for row in x])
    np.fill_diagonal(found, np.inf)
    return found


def by_definition(x: Matrix, embedding: Matrix, k: int, metric: str = "euclidean") -> float:
    """Ranks by (distance, index), from matrices of all pairs."""
    m = len(x)
    ranks = np.argsort(np.argsort(apart(x, metric), axis=1, kind="stable"), axis=1)
    near = np.argsort(apart(embedding), axis=1, kind="stable")[:, :k]
    total = int(np.maximum(np.take_along_axis(ranks, near, 1) + 1 - k, 0).sum())
    return 1.0 - total * (2.0 / (m * k * (2.0 * m - 3.0 * k - 1.0)))


@pytest.fixture
def small_panels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many panels and streams, as a matrix of millions of rows has."""
    from rankfold.methods.embedding import trustworthiness as quality

    monkeypatch.setattr(quality, "PANEL_ROWS", (64, 64))
    monkeypatch.setattr(quality, "STREAM_SECONDS", 1e-7)


# The definition ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "columns", "k", "seed"), cover(["float32", "float64"], [2, 15, 16, 50], [1, 7], [0, 1])
)
def test_it_is_that_of_scikit_learn(dtype: str, columns: int, k: int, seed: int) -> None:
    x, embedding = data(203, columns, dtype, seed=seed)
    found = rf.trustworthiness(x, embedding, k, threads=1)
    assert found.value == peer(x, embedding, n_neighbors=k)
    assert (found.standard_error, found.rows, found.of_rows, found.k) == (0.0, 203, 203, k)
    assert float(found) == found.value


@pytest.mark.parametrize("metric", ["cosine", "manhattan", "chebyshev", "sqeuclidean"])
def test_other_metrics_are_those_of_scikit_learn(metric: str) -> None:
    x, embedding = data(150, 30, "float64")
    assert float(rf.trustworthiness(x, embedding, 6, metric=metric, threads=1)) == peer(
        x, embedding, n_neighbors=6, metric=metric
    )


def test_it_is_that_of_the_definition_by_inner_products() -> None:
    x, embedding = data(150, 30, "float64")
    found = rf.trustworthiness(x, embedding, 6, metric="inner_product", threads=1)
    assert float(found) == by_definition(x, embedding, 6, "inner_product")


def test_the_most_neighbors_there_can_be() -> None:
    for rows, k in ((3, 1), (4, 1), (5, 2), (21, 10)):
        x, embedding = data(rows, 20)
        assert float(rf.trustworthiness(x, embedding, k, threads=1)) == peer(x, embedding, n_neighbors=k)


@examples(15)
@given(
    seed=st.integers(0, 2**16),
    columns=st.sampled_from([1, 3, 20]),
    distinct=st.integers(1, 40),
    k=st.integers(1, 29),
    sampled=st.booleans(),
)
def test_of_rows_that_are_equally_far_the_smaller_index_is_nearer(
    seed: int, columns: int, distinct: int, k: int, sampled: bool
) -> None:
    """Small whole numbers: all distances are exact, and very many are equal."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 3, (distinct, columns))[rng.integers(0, distinct, 60)].astype(np.float32)
    embedding = rng.integers(0, 4, (60, 2)).astype(np.float32)
    expected = by_definition(x, embedding, k)
    found = rf.trustworthiness(x, embedding, k, sample_rows=59 if sampled else None, threads=1)
    if sampled:  # of the row that is left out the penalty is at most k times the largest rank
        pow2_scale = 2.0 / (60 * k * (120.0 - 3.0 * k - 1.0))
        assert abs(found.value - expected) <= pow2_scale * (60 / 59) * k * 60
    else:
        assert found.value == expected


def test_continuity_is_trustworthiness_with_roles_exchanged() -> None:
    x, embedding = data(300, 20)
    for k in (3, 40):
        found, other = (
            rf.continuity(x, embedding, k, threads=1),
            rf.trustworthiness(embedding, x, k, threads=1),
        )
        assert found.value == other.value == peer(embedding, x, n_neighbors=k)
    assert rf.continuity(x, x, 5, threads=1).value == 1.0
    by_city = rf.continuity(x, embedding, 5, metric="manhattan", threads=1)
    near = np.argsort(apart(x, "manhattan"), axis=1)[:, :5]
    ranks = np.argsort(np.argsort(apart(embedding), axis=1), axis=1)
    total = int(np.maximum(np.take_along_axis(ranks, near, 1) - 4, 0).sum())
    assert by_city.value == 1.0 - total * (2.0 / (300 * 5 * (600.0 - 15.0 - 1.0)))


# Independence of the run -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "columns", "chunk_rows", "compressors"),
    cover(
        ["float32", "float64", "uint8", "int32"],
        [3, 40],
        [700, 7, 130, 61],
        [pytest.param(None, id="plain"), "auto"],
        strength=1,
    ),
)
def test_it_does_not_depend_on_how_the_matrix_is_cut(
    dtype: str, columns: int, chunk_rows: int, compressors: Any, tmp_path: Path, small_panels: None
) -> None:
    x, embedding = data(700, columns, "float64")
    x = (x * 20 + 100).clip(0, 255).astype(dtype)
    expected = by_definition(x, embedding, 9)
    chunks = chunk_rows, 2 if chunk_rows == 130 else columns
    first = to_zarr(tmp_path / "x.zarr", x, chunks, compressors=compressors)
    second = to_zarr(tmp_path / "e.zarr", embedding, (103, 2))
    for threads, memory in ((1, "500MiB"), (3, "900MiB")):
        found = rf.trustworthiness(first, second, 9, threads=threads, memory=memory)
        assert found.value == expected
    sampled = [
        rf.trustworthiness(a, b, 9, sample_rows=333, threads=2) for a, b in ((x, embedding), (first, second))
    ]
    assert sampled[0] == sampled[1]


def test_rows_that_do_not_fit_are_held_in_groups(
    tmp_path: Path, small_panels: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rankfold.methods.embedding import trustworthiness

    monkeypatch.setattr(trustworthiness, "FEWEST_ROWS", 10)
    x, embedding = data(3000, 1000, "float64")
    store = to_zarr(tmp_path / "x.zarr", x, (50, 1000))
    expected = rf.trustworthiness(x, embedding, 5, threads=1, memory="1GiB")
    found = rf.trustworthiness(store, embedding, 5, threads=1, memory="100MiB")
    last = [run["attempts"][-1] for run in (expected.runs[1], found.runs[1])]
    assert [attempt["plan"]["groups"] for attempt in last] == [1, last[1]["passes"]]
    assert last[1]["passes"] > 1
    assert found == expected
    assert found.value == peer(x, embedding, n_neighbors=5)


def test_products_in_float64_count_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Far from the mean float32 leaves most pairs open; numbers out of its range are not multiplied in it."""
    x, embedding = data(400, 24, "float64")
    rng = np.random.default_rng(0)
    two = 1e4 * np.sign(rng.standard_normal((400, 1))) + 0.1 * x
    seen, counted = set(), CountNearer.step

    def spy(self: CountNearer, state: Any, work: Any, *rest: Any) -> None:
        counted(self, state, work, *rest)
        seen.update(key.split()[1] for key in work.room)

    monkeypatch.setattr(CountNearer, "step", spy)
    for matrix, types in ((two, {"float32", "float64"}), (x * 1e100, {"float64"}), (x * 1e-40, {"float64"})):
        seen.clear()
        many = np.vstack([matrix] * 3)[: 1100 if matrix is two else 400]
        plane = np.vstack([embedding] * 3)[: len(many)] + 1e-3 * rng.standard_normal((len(many), 2))
        found = rf.trustworthiness(many, plane, 5, threads=1)
        assert seen <= types
        if matrix is not two:
            assert "float64" in seen
            assert found.value == peer(x, plane, n_neighbors=5)
        else:
            assert found.value == by_definition(many, plane, 5)


def test_a_matrix_on_disk_is_read_once_to_count(tmp_path: Path, small_panels: None) -> None:
    x, embedding = data(2000, 30)
    store = to_zarr(tmp_path / "x.zarr", x, (100, 30))
    found = rf.trustworthiness(store, embedding, 5, sample_rows=500, threads=2)
    attempt = found.runs[1]["attempts"][-1]
    assert attempt["passes"] == 1
    assert [name for name in attempt["sweep_seconds"] if name.startswith("ranks")] == ["ranks-0-500"]


@given(
    size=st.floats(1e-12, 1e12),
    mean=st.floats(0, 1e6),
    columns=st.sampled_from([16, 50, 1500]),
    dtype=st.sampled_from([np.float32, np.float64]),
    metric=st.sampled_from(BY_PRODUCTS),
)
@examples(60)
def test_bounds_hold_on_both_sides(
    size: float, mean: float, columns: int, dtype: Any, metric: Metric
) -> None:
    """Half of a squared distance, or the key itself, lies between what products and norms say."""
    rng = np.random.default_rng(columns)
    x = (size * (rng.standard_normal((40, columns)) * rng.lognormal(0, 2, (40, 1)) + mean)).astype(np.float32)
    x[20:30] = x[:10] * np.float32(1 + 1e-6)
    euclidean = metric in (Metric.EUCLIDEAN, Metric.SQEUCLIDEAN)
    shift = x.mean(axis=0, dtype=float) if euclidean and mean > 2 else None
    reader = BlockReader(open_source(x), int(metric), shift, True)
    rows = reader.read(reader.buffer(40), 0, 40, 0)
    assert rows.copy is not None
    factor = rows.copy if dtype == np.float32 else doubles(rows, reader.metric, reader.shift)
    low, high = reaches(rows, int(metric), np.dtype(dtype))
    tile = factor @ factor.T
    wide = x.astype(np.longdouble)
    if metric == Metric.COSINE:
        wide = wide / np.sqrt(np.square(wide).sum(axis=1, keepdims=True))
    if metric == Metric.INNER_PRODUCT:
        truth = -(wide @ wide.T)
    else:
        truth = np.stack([np.square(wide - row).sum(axis=1) for row in wide]) / 2
    least, most = (side[:, None] + side[None] - tile for side in (low, high))
    assert (least <= truth).all()
    assert (truth <= most).all()


# Samples ---------------------------------------------------------------------------------------------


def test_a_sample_is_within_its_error() -> None:
    x, embedding = data(1200, 20)
    exact = rf.trustworthiness(x, embedding, 8, threads=1).value
    off = []
    for seed in range(12):
        found = rf.trustworthiness(x, embedding, 8, sample_rows=240, seed=seed, threads=1)
        assert 0 < found.standard_error < 0.01
        assert found.rows == 240
        off.append((found.value - exact) / found.standard_error)
    assert np.abs(off).max() < 4
    assert 0.5 < np.sqrt(np.mean(np.square(off))) < 1.6  # the root of chi squared over 12, within 3 sigma


def test_the_error_is_that_of_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows drawn without replacement: the variance of a mean with the correction for a finite population."""
    x, embedding = data(300, 20)
    k, m, r = 4, 300, 100
    ranks = np.argsort(np.argsort(apart(x), axis=1), axis=1)
    near = np.argsort(apart(embedding), axis=1)[:, :k]
    penalty = np.maximum(np.take_along_axis(ranks, near, 1) + 1 - k, 0).sum(axis=1)[draw_rows(m, r, 3)]
    found = rf.trustworthiness(x, embedding, k, sample_rows=r, seed=3, threads=1)
    pow2_scale = 2.0 / (k * (2.0 * m - 3.0 * k - 1.0))
    assert found.value == pytest.approx(1 - pow2_scale * penalty.mean(), rel=1e-14)
    error = pow2_scale * penalty.std(ddof=1) / np.sqrt(r) * np.sqrt(1 - r / m)
    assert found.standard_error == pytest.approx(error, rel=1e-12)


@given(rows=st.integers(2, 300), share=st.floats(0, 1), seed=st.integers(0, 2**64 - 1))
def test_rows_are_drawn_once_each(rows: int, share: float, seed: int) -> None:
    count = round(share * rows)
    drawn = draw_rows(rows, count, seed)
    assert len(drawn) == count
    assert (np.diff(drawn) > 0).all()
    assert count == 0 or 0 <= drawn[0] <= drawn[-1] < rows
    np.testing.assert_array_equal(drawn, draw_rows(rows, count, seed))


def test_every_row_is_as_likely_to_be_drawn() -> None:
    for count in (3, 9):
        counts = np.zeros(12)
        for seed in range(3000):
            counts[draw_rows(12, count, seed)] += 1
        # Binomial: within five standard deviations of the mean.
        assert np.abs(counts - 250 * count).max() < 5 * np.sqrt(3000 * count / 12 * (1 - count / 12))


def test_many_rows_are_sampled_unless_all_are_asked_for() -> None:
    x, embedding = data(5100, 3)
    found, all_rows = (
        rf.trustworthiness(x, embedding, 5, sample_rows=rows, threads=2) for rows in (None, "all")
    )
    assert (found.rows, all_rows.rows, all_rows.standard_error) == (5000, 5100, 0.0)
    assert abs(found.value - all_rows.value) < 4 * found.standard_error
    assert repr(found).startswith("<trustworthiness 0.") and "5000 of 5100 rows, k=5>" in repr(found)
    assert "±" in repr(found) and "±" not in repr(all_rows)
    assert repr(all_rows).endswith("all 5100 rows, k=5>")


# Preservation ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [None, 1, 4])
def test_preservation_is_the_share_of_neighbors_in_common(
    k: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, embedding = data(500, 20)
    results = rf.knn(x, 9, threads=1), rf.knn(embedding, 6, threads=1, out=tmp_path / "e.zarr")
    most = 6 if k is None else k
    shares = [
        len(set(a[:most]) & set(b[:most])) / most
        for a, b in zip(results[0].indices[...], results[1].indices[...], strict=True)
    ]
    for size in (8 * 2**20, 1000):
        monkeypatch.setattr("rankfold.methods.embedding.preservation.COMPARED_BYTES", size)
        found = rf.neighborhood_preservation(results[0], str(tmp_path / "e.zarr"), k)
        assert found.value == pytest.approx(np.mean(shares), rel=1e-14)
        assert found.standard_error == pytest.approx(np.std(shares, ddof=1) / np.sqrt(500), rel=1e-12)
        assert (found.rows, found.of_rows, found.k) == (500, 500, most)
    assert float(rf.neighborhood_preservation(results[0], results[0])) == 1.0


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    x, embedding = data(100, 20)
    first = rf.knn(x, 5, threads=1)
    with pytest.raises(InputError, match="both results have 5: ask for 1 to 5"):
        rf.neighborhood_preservation(first, first, 6)
    with pytest.raises(InputError, match="neighbors of 100 rows, the second of 90"):
        rf.neighborhood_preservation(first, rf.knn(embedding[:90], 5, threads=1))
    with pytest.raises(InputError, match="is the result of svd: give two of knn"):
        rf.neighborhood_preservation(first, rf.svd(x, 2, threads=1))


# Refusals --------------------------------------------------------------------------------------------


def test_what_cannot_be_measured_is_refused() -> None:
    x, embedding = data(40, 20)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"k": 20}, "k 20 was asked for.* has 40: ask for 1 to 19"),
        ({"k": 0}, "k must be at least 1, not 0"),
        ({"k": 2.5}, "k must be an integer"),
        ({"sample_rows": 41}, "sample_rows 41 was asked for: look at 2 to 40"),
        ({"sample_rows": 1}, "sample_rows 1 was asked for"),
        ({"sample_rows": "some"}, "sample_rows must be a number, None or"),
        ({"seed": -1}, "seed must lie in"),
        ({"metric": "hamming"}, "metric must be one of euclidean"),
    ]
    for options, message in cases:
        with pytest.raises(InputError, match=message):
            rf.trustworthiness(x, embedding, **options)
    with pytest.raises(InputError, match=r"has 40 rows and .* has 39\. Give a matrix and an embedding"):
        rf.trustworthiness(x, embedding[:39])
    with pytest.raises(InputError, match="needs at least 3"):
        rf.trustworthiness(x[:2], embedding[:2], 1)


@pytest.mark.parametrize("side", [0, 1])
def test_what_is_not_a_number_is_refused(side: int, tmp_path: Path) -> None:
    pair = list(data(200, 20))
    pair[side][177, 1] = np.nan
    for rows in (None, 50):
        with pytest.raises(NonFiniteError, match="NaN or Inf"):
            rf.trustworthiness(*pair, sample_rows=rows, threads=1)
        with pytest.raises(NonFiniteError, match="NaN or Inf"):
            rf.continuity(*pair, sample_rows=rows, threads=1, scratch=tmp_path)


def test_too_little_memory_is_refused_before_anything_runs(tmp_path: Path) -> None:
    x, embedding = data(5000, 400)
    store = to_zarr(tmp_path / "x.zarr", x, (2500, 400), compressors="auto")
    with pytest.raises(
        MemoryBudgetError, match=r"trustworthiness of 5000 rows.*Give memory='\d+MiB', or cut"
    ):
        rf.trustworthiness(store, embedding, memory="60MiB", progress=pytest.fail)  # type: ignore[arg-type]


def test_scratch_is_used_and_left_empty(tmp_path: Path) -> None:
    x, embedding = data(300, 20)
    seen: list[int] = []
    found = rf.trustworthiness(
        x,
        embedding,
        threads=1,
        scratch=tmp_path,
        progress=lambda *_: seen.append(len(list(tmp_path.iterdir()))),
    )
    assert max(seen) == 1
    assert not list(tmp_path.iterdir())
    assert found == rf.trustworthiness(x, embedding, threads=1)


@pytest.mark.process
def test_processes_find_the_same(tmp_path: Path) -> None:
    x, embedding = data(900, 20)
    store = to_zarr(tmp_path / "x.zarr", x, (100, 20))
    expected = rf.trustworthiness(x, embedding, sample_rows=300, threads=1)
    assert (
        rf.trustworthiness(store, embedding, sample_rows=300, workers=2, threads=1, memory="400MiB")
        == expected
    )


# Memory ----------------------------------------------------------------------------------------------

COMMAND = """
import json, sys
import rankfold as rf
found = getattr(rf, sys.argv[1])(sys.argv[2], sys.argv[3], **json.loads(sys.argv[4]))
last = [run["attempts"][-1] for run in found.runs]
print(json.dumps([[a["planned_bytes"], a["measured_bytes"]] for a in last]))
"""


@pytest.fixture(scope="module")
def tall(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A matrix ten times as large as the memory it is given, and a plane of as many rows."""
    rng, rows = np.random.default_rng(0), 656_000
    stores = []
    for columns in (512, 2):
        path = tmp_path_factory.mktemp("tall") / "x.zarr"
        layout = {"chunks": (4000, columns), "compressors": None}
        array = zarr.create_array(path, shape=(rows, columns), dtype="f4", **layout)
        for start in range(0, rows, 4000):
            array[start : start + 4000] = rng.standard_normal((4000, columns), dtype=np.float32)
        stores.append(str(path))
    return stores


@pytest.mark.memory
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["trustworthiness", "continuity"])
def test_the_peak_is_planned(kind: str, tall: list[str]) -> None:
    options = {"sample_rows": 100, "threads": 2, "memory": "128MiB"}
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", COMMAND, kind, *tall, json.dumps(options)],
        capture_output=True,
        text=True,
        check=True,
    )
    for planned, peak in json.loads(run.stdout):
        if peak is None:
            pytest.skip("this system does not report anonymous memory (RssAnon is Linux)")
        assert peak <= planned <= 128 * 2**20
