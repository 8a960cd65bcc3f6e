"""Subspace iteration: what it takes, and who names it where Krylov does not fit."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from reference import decaying

import rankfold as rf
from rankfold.pipeline.errors import DiskSpaceError, MemoryBudgetError
from rankfold.pipeline.planning.plan import check_disk

LARGE = np.broadcast_to(np.float32(0), (2_000_000, 4000))


@pytest.mark.parametrize("passes", [3, 8, 30])
def test_scratch_is_one_block_however_many_passes(passes: int) -> None:
    plan = rf.plan("svd", LARGE, 20, solver="subspace", passes=passes, memory="1GiB", threads=2)
    assert plan.scratch_bytes == 2_000_000 * (32 * 4 + 16)
    assert plan.most_passes == passes
    assert plan.likely_passes == min(passes, 7)
    assert (
        plan.peak_bytes == rf.plan("svd", LARGE, 20, solver="subspace", memory="1GiB", threads=2).peak_bytes
    )


def test_a_refusal_of_krylov_names_it_where_it_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MemoryBudgetError, match=r"by krylov .* or solver='subspace', .* or rank=\d+"):
        rf.plan("svd", LARGE, 300, solver="krylov", memory="1GiB", threads=2)
    rf.plan("svd", LARGE, 300, solver="subspace", memory="1GiB", threads=2)
    plan = rf.plan("svd", LARGE, 20, solver="krylov", memory="2GiB", threads=2)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=3 * 2**29))
    with pytest.raises(DiskSpaceError, match=r"or take solver='subspace', whose scratch is 275 MiB"):
        check_disk(plan, tmp_path, tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=2**20))
    with pytest.raises(DiskSpaceError, match=r"out=\.$"):
        check_disk(plan, tmp_path, tmp_path)


def test_auto_takes_neither_of_those_on_request() -> None:
    for rank, passes in ((1, 1), (50, 1), (300, 8)):
        for x in (LARGE, LARGE.T):
            assert rf.plan("svd", x, rank, passes=passes, memory="64GiB").method in ("gram", "krylov")


def test_a_block_as_wide_as_the_matrix_is_exact_after_one_pass() -> None:
    x = decaying(400, 30)
    result = rf.svd(x, 25, solver="subspace", tol=1e-9)
    assert result.attrs["passes"] == 1 and result.attrs["converged"]
    np.testing.assert_allclose(result.s, np.linalg.svd(x, compute_uv=False)[:25], rtol=1e-12)


def test_it_says_when_passes_end_before_the_tolerance_is_met() -> None:
    x = decaying(2000, 300, power=0.3)
    with pytest.warns(rf.RankfoldWarning, match=r"above tol.*after 3 passes.*passes="):
        result = rf.svd(x, rank=10, solver="subspace", tol=1e-9, passes=3)
    assert len(result.attrs["convergence"]) == 3
    assert result.attrs["convergence"] == sorted(result.attrs["convergence"], reverse=True)
