"""How well embeddings keep neighbors, counted on a device: the integers of the host."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from conftest import missing_device
from stand_in import COUNTS

import rankfold as rf
from rankfold.methods.embedding import neighbor_ranks
from rankfold.pipeline import gpu

Array = npt.NDArray[Any]
GPU: dict[str, Any] = {"device": "gpu", "memory": "1GiB"}


def rows(kind: str, dtype: str = "f4", columns: int = 24) -> tuple[Array, Array]:
    """Some, and an embedding of them."""
    rng = np.random.default_rng(0)
    plane = rng.standard_normal((500, 2))
    x = plane @ rng.standard_normal((2, columns)) + 0.3 * rng.standard_normal((500, columns))
    if kind == "far from the mean":
        x = 1e4 * np.sign(rng.standard_normal((500, 1))) + 0.1 * x
    if kind == "beyond float32":
        x *= 1e100
    x = (x * 20 + 100).clip(0, 255).astype("u1") if dtype == "u1" else x.astype(dtype)
    return x, plane + 0.1 * rng.standard_normal(plane.shape)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "kind, dtype", [("", "f4"), ("", "u1"), ("far from the mean", "f4"), ("beyond float32", "f8")]
)
def test_trust_is_that_of_the_host(kind: str, dtype: str) -> None:
    x, plane = rows(kind, dtype)
    for metric in ("euclidean", "cosine"):
        expected = rf.trustworthiness(x, plane, 5, metric=metric, threads=1)
        found = rf.trustworthiness(x, plane, 5, metric=metric, **GPU)
        assert (found.value, found.standard_error) == (expected.value, expected.standard_error)


@pytest.mark.gpu
def test_a_sample_of_rows_and_many_thresholds_are_those_of_the_host() -> None:
    x, plane = rows("")
    for how in ({"k": 7, "sample_rows": 60}, {"k": 160}):
        expected = rf.trustworthiness(x, plane, **how, threads=1)
        assert rf.trustworthiness(x, plane, **how, **GPU).value == expected.value


@pytest.mark.gpu
def test_continuity_takes_its_neighbors_from_a_device() -> None:
    x, plane = rows("")
    expected = rf.continuity(x, plane, 5, threads=1)
    assert rf.continuity(x, plane, 5, **GPU).value == expected.value


@pytest.mark.gpu
def test_what_has_no_code_for_a_device_is_refused() -> None:
    x, plane = rows("")
    with pytest.raises(rf.RankfoldError, match="has no code for a GPU, which would stand idle"):
        rf.trustworthiness(x, plane, 5, metric="manhattan", **GPU)


@pytest.mark.gpu
def test_no_more_is_taken_than_planned_and_a_panel_waits_once(monkeypatch: pytest.MonkeyPatch) -> None:
    if not missing_device():
        pytest.skip("a device does not count")
    x, plane = rows("", "f8")
    most: list[tuple[int, int]] = []
    waits: list[int] = []
    settle, workspace = gpu.Cuda.settle, neighbor_ranks.CountNearer.workspace

    def note(fold: neighbor_ranks.CountNearer, *args: Any) -> Any:
        waits.clear()
        COUNTS.bytes_most = COUNTS.bytes_now
        most.append((fold.device_bytes, COUNTS.bytes_now))
        return workspace(fold, *args)

    def count(cuda: gpu.Cuda) -> None:
        settle(cuda)
        waits.append(COUNTS.waits)

    monkeypatch.setattr(neighbor_ranks.CountNearer, "workspace", note)
    monkeypatch.setattr(gpu.Cuda, "settle", count)
    rf.trustworthiness(x, plane, 5, **GPU)
    (planned, before), *_ = most
    assert COUNTS.bytes_most - before <= planned
    assert all(b - a <= 1 for a, b in itertools.pairwise(waits))


@pytest.mark.gpu
def test_counting_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    x, plane = rows("")
    expected = rf.trustworthiness(x, plane, 5, threads=1)
    calls = [0]

    def stop(*_: Any) -> None:
        calls[0] += 1
        if calls[0] == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rf.trustworthiness(x, plane, 5, progress=stop, scratch=tmp_path, **GPU)
    assert rf.trustworthiness(x, plane, 5, scratch=tmp_path, **GPU).value == expected.value
