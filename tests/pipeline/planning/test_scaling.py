"""A plan says how many workers help, and what ends it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

import rankfold as rf
from rankfold.methods.registry import METHODS
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.planning.plan import Plan
from rankfold.pipeline.planning.scaling import Scaling, tail_seconds
from rankfold.pipeline.planning.shape_only import ShapeOnly

GB, GIB = 10**9, 2**30
SHAPE = (250_000_000, 1000)
"""A terabyte of float32."""


def source() -> ShapeOnly:
    return ShapeOnly.with_chunks(SHAPE, np.dtype(np.float32), (65_536, SHAPE[1]))


def plan(threads: int = 1, bandwidth: float = 0.0) -> Plan:
    task = METHODS["svd"].task(source(), rank=50, solver="krylov")
    return task.plan(Budget(64 * GIB, threads, bandwidth=bandwidth))


@pytest.mark.parametrize("threads", [1, 16])
def test_without_more_streams_more_workers_have_nothing_to_fold(threads: int) -> None:
    made = plan(threads)
    scaling = made.scaling
    streams = max(sweep.streams for sweep in made.passes if sweep.over == "matrix")
    assert scaling.workers == scaling.streams == -(-streams // threads) <= made.useful_workers
    assert scaling.reason == "streams" and scaling.reading is None
    assert f"{scaling.workers}; more find no stream to fold" in str(made)


def test_a_file_system_feeds_as_many_workers_as_ask_for_what_it_gives() -> None:
    slow, fast = plan(16, 100 * GB).scaling, plan(16, 200 * GB).scaling
    assert slow.reason == "reading" and slow.workers == slow.reading
    assert fast.workers == pytest.approx(2 * slow.workers, abs=1)
    # A nominal core reads a byte in 0.67 ns, and multiplies 256 times for each of four of them: 0.8 ns.
    seconds = 1 / 1.5e9 + 256 / 80e9 / 4
    # Besides it measures numbers on the way, and writes Y: a few per cent of the bytes.
    assert slow.workers == pytest.approx(100 * GB * seconds / 16, rel=0.1)
    assert "more wait for a file system of 93.1 GiB/s" in str(plan(16, 100 * GB))
    assert plan(16, 1e6 * GB).scaling.reason == "streams"


def test_merges_end_it_where_they_take_as_long_as_folding() -> None:
    made = plan()
    heavy = [dataclasses.replace(sweep, accumulator_bytes=10**10) for sweep in made.passes]
    scaling = dataclasses.replace(made, passes=tuple(heavy)).scaling
    assert scaling.reason == "merges" and scaling.workers < made.useful_workers
    assert "merging streams takes longer than folding them" in str(scaling)
    # Four levels of the tree for 4096 streams, each a merge of eight accumulators at 4 ns a byte.
    single = dataclasses.replace(heavy[0], streams=4096)
    assert tail_seconds(single) == pytest.approx(4 * 8 * 10**10 * 4e-9)
    assert tail_seconds(dataclasses.replace(single, streams=1)) == 0


def test_an_exchange_ends_it_where_reading_it_once_more_takes_what_a_worker_gains() -> None:
    made = plan(16, 500 * GB)
    exchanging = [dataclasses.replace(sweep, exchange_bytes=10**12) for sweep in made.passes]
    scaling = dataclasses.replace(made, passes=tuple(exchanging)).scaling
    assert scaling.reason == "exchange" and scaling.workers == scaling.exchange
    # As above: 0.8 ns for each byte of the matrix, on 16 threads; each worker reads 1e12 bytes.
    seconds = 4 * SHAPE[0] * SHAPE[1] * (1 / 1.5e9 + 256 / 80e9 / 4) / 16
    assert scaling.workers == pytest.approx((seconds * 500 * GB / 1e12) ** 0.5, rel=0.1)
    assert f"{scaling.workers}; more take longer to read what the others wrote" in str(scaling)
    assert made.scaling.exchange is None


def test_on_a_device_streams_alone_count() -> None:
    made = dataclasses.replace(plan(1, 100 * GB), device="gpu")
    assert made.scaling == Scaling(made.useful_workers, "streams", made.useful_workers, None, None)


def test_a_profile_says_what_its_file_system_gives(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text("cores: 16\nmemory: 80GiB\nbandwidth: 100GB\n")
    made = rf.plan("svd", source(), 50, solver="krylov", cluster=tmp_path / "site.yaml")
    assert made.scaling.reason == "reading" and made.scaling.bandwidth == 100 * GB
    assert json.loads(json.dumps(made.as_dict()))["scaling"]["workers"] == made.scaling.workers
