"""Planned peaks count each buffer once, and only phases that coexist; seconds know the store."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import zarr
from every_fold import COLUMNS, folds
from hypothesis import given
from hypothesis import strategies as st
from zarr.codecs import ZstdCodec

import rankfold as rf
from rankfold.pipeline.data.view import Orientation
from rankfold.pipeline.engine.device import HostSlot
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.planning.passes import RESERVE_BYTES, Pass, blas_bytes, fit, peak_bytes, sweep_bytes
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.seconds import Rates, Seconds, measured_reading
from rankfold.pipeline.planning.shape_only import ShapeOnly

M = 2**20
RATES = Rates(80e9, 40e9, 10e9, 1.5)


def sweep(streams: int, segment: int, accumulator: int, **others: int) -> Pass:
    """A sweep with these sizes in MiB."""
    others = {name: size * M for name, size in others.items()}
    return Pass(
        "x", "matrix", 0, 0, 0.0, segment * M, 1, streams, accumulator * M, **{"blas_bytes": 0, **others}
    )


def test_one_stream_has_one_accumulator_and_what_a_checkpoint_copies() -> None:
    assert sweep_bytes(sweep(1, 100, 40), 8) == (100 - 40 + 16) * M
    assert sweep_bytes(sweep(1, 100, 4), 8) == 100 * M


def test_few_streams_are_merged_once_when_all_have_ended() -> None:
    workspace = 20
    assert sweep_bytes(sweep(2, workspace + 80, 40), 2) == (2 * workspace + 2 * (40 + 16)) * M
    assert sweep_bytes(sweep(8, workspace + 80, 40), 1) == (workspace + 2 * 40) * M
    assert sweep_bytes(sweep(8, workspace + 80, 40, merge_bytes=7), 1) == (workspace + 2 * 40 + 7) * M


def test_many_streams_are_merged_when_all_have_ended() -> None:
    # 4 segments at once of 16 streams, and then two merges of eight streams each.
    assert sweep_bytes(sweep(16, 100, 40), 4) == (4 * 20 + 4 * 56) * M
    assert sweep_bytes(sweep(16, 100, 40), 2) == (2 * 20 + 2 * 80) * M


def test_a_sweep_has_no_more_segments_than_streams() -> None:
    single, many = sweep(1, 500, 0), sweep(16, 20, 0)
    assert peak_bytes([single, many], 8, 0) == RESERVE_BYTES + 500 * M


def test_what_blas_packs_is_kept_for_threads_that_ever_called_it() -> None:
    single, many = sweep(1, 100, 0, blas_bytes=20), sweep(4, 1, 0, blas_bytes=5)
    assert peak_bytes([single, many], 4, 0) == RESERVE_BYTES + (100 + 20 + 3 * 5) * M


def test_phases_are_not_added_up() -> None:
    assert peak_bytes([sweep(1, 100, 0)], 1, 400 * M) == RESERVE_BYTES + blas_bytes(10**9) + 400 * M


def test_as_many_threads_as_fit_come_before_reading_ahead() -> None:
    budget = Budget(RESERVE_BYTES + 100 * M, threads=4)
    assert fit(lambda slots: [sweep(16, 25 * slots, 0)], 0, budget) == (4, 1, RESERVE_BYTES + 100 * M)
    assert fit(lambda slots: [sweep(16, 10 * slots, 0)], 0, budget) == (4, 2, RESERVE_BYTES + 80 * M)
    assert fit(lambda slots: [sweep(16, 200, 0)], 0, budget)[0] == 0


@given(
    st.lists(
        st.builds(
            lambda streams, workspace, each, merge, blas: sweep(
                streams, workspace + 2 * each, each, merge_bytes=merge, blas_bytes=blas
            ),
            *(
                st.integers(1, 40),
                st.integers(0, 9),
                st.integers(0, 50),
                st.integers(0, 9),
                st.integers(0, 9),
            ),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_more_segments_at_once_never_take_less(sweeps: list[Pass]) -> None:
    peaks = [peak_bytes(sweeps, concurrency, 0) for concurrency in range(1, 50)]
    assert peaks == sorted(peaks)
    for memory in (peaks[0] - 1, *peaks[::5]):
        wanted = sum(peak <= memory for peak in peaks[: max(one.streams for one in sweeps)])
        assert fit(lambda slots: sweeps, 0, Budget(memory, threads=10**20))[0] == wanted


def nbytes(value: Any) -> int:
    """Of every array in a workspace, whole buffers."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, HostSlot):
        return nbytes(value.staged)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return sum(nbytes(getattr(value, field.name)) for field in dataclasses.fields(value))
    if isinstance(value, SimpleNamespace):
        value = vars(value)
    if isinstance(value, dict):
        return sum(map(nbytes, value.values()))
    return sum(map(nbytes, value)) if isinstance(value, list | tuple) else 0


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_a_fold_states_what_it_allocates_and_no_buffer_twice(tmp_path: Path, dtype: str) -> None:
    for fold, besides in folds(tmp_path, dtype):
        work, sums = nbytes(fold.workspace()), nbytes(fold.start())
        stated = fold.memory_bytes
        # Memory is lent by the matrix nowhere here; buffers start on a cache line, vectors are counted amply.
        slack = 64 * 1024 + 16 * 8 * max(COLUMNS, fold.cut.panel_rows)
        assert work + 2 * sums <= stated + slack, type(fold).__name__
        assert stated <= (1 + besides) * (work + 2 * sums) + slack, type(fold).__name__
        accumulator = getattr(fold, "accumulator_bytes", 0)
        assert accumulator <= sums <= accumulator + slack, type(fold).__name__


def test_the_peak_of_one_stream_does_not_grow_with_threads() -> None:
    x = np.zeros((2000, 1500), np.float32)
    peaks = {rf.plan("svd", x, 10, solver="gram", threads=t, memory="4GiB").peak_bytes for t in (1, 2, 4)}
    assert len(peaks) == 1


def test_what_fits_is_not_refused() -> None:
    """A single stream has no merge: no room is kept for a second scatter matrix of 69 MiB."""
    x = np.zeros((3000, 3000), np.float32)
    segment = max(p.segment_bytes for p in rf.plan("svd", x, 10, solver="gram", memory="4GiB").passes)
    for threads in (1, 2):
        plan = rf.plan("svd", x, 10, solver="gram", threads=threads, memory=segment + 8 * M)
        assert plan.peak_bytes <= segment + 8 * M


def store(path: Path, rows: int, columns: int, chunk: int, compressors: Any) -> str:
    array = zarr.create_array(
        path, shape=(rows, columns), dtype="f4", chunks=(chunk, columns), compressors=compressors
    )
    array[...] = np.round(np.random.default_rng(0).standard_normal((rows, columns)) * 4)
    return str(path)


def test_whole_chunks_are_decoded_where_they_belong(tmp_path: Path) -> None:
    """No room for a decoded chunk where panels are whole chunks; room for one where the last is not whole."""
    whole = rf.open(store(tmp_path / "a.zarr", 8000, 250, 4000, ZstdCodec()))
    cut = rf.open(store(tmp_path / "b.zarr", 8100, 250, 4000, ZstdCodec()))
    chunk = 4000 * 250 * 4
    largest = max(file.stat().st_size for file in (tmp_path / "a.zarr").rglob("c/*/*"))
    assert largest < chunk / 4
    codec = whole.read_bytes(4000, 250) - largest
    assert 0 < codec < 8 * M
    assert whole.read_bytes(100, 250) == whole.read_bytes(4000, 250) + chunk
    assert cut.read_bytes(4000, 250) > whole.read_bytes(4000, 250) + 0.9 * chunk


def test_a_panel_of_a_compressed_store_is_decoded_for_its_time(tmp_path: Path) -> None:
    raw = rf.open(store(tmp_path / "raw.zarr", 8000, 500, 2000, None))
    zstd = rf.open(store(tmp_path / "zstd.zarr", 8000, 500, 2000, ZstdCodec(level=9)))
    readings = [
        min(found.byte_seconds for _ in range(5) if (found := measured_reading(x, Orientation.ROWS, 2000)))
        for x in (raw, zstd)
    ]
    assert readings[1] > 1.5 * readings[0]
    plans = [rf.plan("svd", x, 10, threads=1, rates=RATES) for x in (raw, zstd)]
    plain, decoded = (plan.shares for plan in plans)
    assert plain is not None and decoded is not None
    assert plain.read == decoded.read and plain.compute == decoded.compute
    assert decoded.decode > plain.decode


def test_what_is_too_large_to_be_tried_is_not_read(tmp_path: Path) -> None:
    path = store(tmp_path / "x.zarr", 4, 4, 4, ZstdCodec())
    source = dataclasses.replace(rf.open(path), shape=(40_000, 4000), chunks=(40_000, 4000))
    assert measured_reading(source, Orientation.ROWS, 40_000) is None


def test_a_matrix_that_is_not_there_yet_is_not_read() -> None:
    source = ShapeOnly.plain((8000, 100), np.dtype(np.float32))
    assert measured_reading(source, Orientation.ROWS, 2000) is None


def test_a_chunk_that_cannot_be_read_leaves_the_plan_as_it_is(tmp_path: Path) -> None:
    path = store(tmp_path / "x.zarr", 8000, 100, 2000, ZstdCodec())
    for chunk in (tmp_path / "x.zarr").rglob("c/*/*"):
        chunk.write_bytes(b"nothing")
    plan = rf.plan("svd", path, 10, rates=RATES)
    assert plan.seconds is not None and plan.seconds > RATES.start_seconds


@pytest.mark.parametrize("kind", ["svd", "pca", "qr", "nmf", "knn"])
def test_every_kind_says_where_its_seconds_go(kind: str) -> None:
    x = np.random.default_rng(0).random((3000, 40), dtype=np.float32)
    given: dict[str, Any] = {} if kind in ("qr", "knn") else {"rank": 5}
    began = time.process_time()
    plan = rf.plan(kind, x, **given, rates=RATES)
    assert time.process_time() - began < 1.0
    shares = plan.shares
    assert isinstance(shares, Seconds) and plan.seconds == shares.total
    assert shares.start == RATES.start_seconds and shares.compute > 0
    assert "start 1.5, read" in str(plan)
    assert plan.as_dict()["shares"]["compute"] == shares.compute


def test_rates_change_seconds_and_nothing_else(tmp_path: Path) -> None:
    path = store(tmp_path / "x.zarr", 8000, 100, 2000, ZstdCodec())

    def told(rates: Rates | None) -> Plan:
        return dataclasses.replace(
            rf.plan("pca", path, 10, memory="1GiB", rates=rates), seconds=None, shares=None
        )

    assert told(None) == told(RATES) == told(dataclasses.replace(RATES, flops_float32=1.0))


def test_sparse_rows_are_filled_by_one_thread_at_a_time() -> None:
    import scipy.sparse

    x = scipy.sparse.random_array((4000, 500), density=0.02, format="csr", dtype=np.float32)
    reading = measured_reading(rf.open(x), Orientation.ROWS, 1000)
    assert reading is not None and reading.byte_seconds > 0
