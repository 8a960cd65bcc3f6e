"""The type of products that is asked for: what it does to numbers, and where it is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference import decaying

import rankfold as rf
from rankfold.methods.svd import operator
from rankfold.methods.svd.request import Request

SOLVERS = ["gram", "krylov", "subspace", "sketch", "tsqr"]


@pytest.mark.filterwarnings("ignore::rankfold.RankfoldWarning")
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("shape", [(900, 60), (60, 900)])
def test_a_matrix_is_computed_with_as_if_it_were_stored_so(solver: str, shape: tuple[int, int]) -> None:
    narrow = decaying(*shape).astype("f4")
    wide = narrow.astype("f8")
    for x, stored, precision in ((narrow, wide, "float64"), (wide, narrow, "float32")):
        found = rf.svd(x, 5, solver=solver, precision=precision, passes=12, tol=1e-6)
        expected = rf.svd(stored, 5, solver=solver, passes=12, tol=1e-6)
        for name in ("U", "s", "Vt", "error_estimates"):
            assert found[name].dtype == expected[name].dtype
            np.testing.assert_array_equal(found[name], expected[name])
        assert found.attrs["request"]["precision"] == precision


def test_double_precision_finds_values_that_single_precision_hides() -> None:
    rng = np.random.default_rng(0)
    basis = [np.linalg.qr(rng.standard_normal((n, 3)))[0] for n in (4000, 50)]
    x = ((basis[0] * [1e6, 1.0, 1e-2]) @ basis[1].T).astype("f4")
    values = np.linalg.svd(x.astype("f8"), compute_uv=False)[:3]
    found = rf.svd(x, 3, solver="tsqr", precision="float64")
    np.testing.assert_allclose(found.s, values, rtol=1e-8)


def test_a_precision_is_part_of_the_identity(tmp_path: Path) -> None:
    assert "precision" not in Request("svd", 3).as_dict()
    x = decaying(300, 20).astype("f4")
    rf.svd(x, 3, out=tmp_path / "r.zarr")
    with pytest.raises(rf.RankfoldError, match="precision"):
        rf.svd(x, 3, out=tmp_path / "r.zarr", precision="float64")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "half"}, "precision must be one of float32, float64, tf32, not 'half'"),
        ({"precision": "tf32"}, "say solver='subspace', or leave out precision="),
        ({"precision": "tf32", "solver": "subspace"}, "which a CPU has not: say device='gpu'"),
    ],
)
def test_what_has_no_such_precision_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(rf.RankfoldError, match=message):
        rf.svd(np.ones((30, 20), "f4"), 3, **options)


# On a device ----------------------------------------------------------------------------------------


@pytest.mark.gpu
def test_tf32_of_double_precision_is_refused() -> None:
    with pytest.raises(rf.RankfoldError, match="computed with in float64: leave out precision="):
        rf.svd(np.ones((30, 20)), 3, precision="tf32", solver="subspace", device="gpu")


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:the largest estimated error")
@pytest.mark.parametrize("passes", [2, 5, 30])
@pytest.mark.parametrize("shape", [(3000, 60), (60, 3000)])
def test_passes_in_tf32_leave_no_trace(
    shape: tuple[int, int], passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, rounded = decaying(*shape).astype("f4"), list[bool]()
    make = operator.fused_pass

    def record(*args: Any, tf32: bool, **kwargs: Any) -> Any:
        rounded.append(tf32)
        return make(*args, tf32=tf32, **kwargs)

    monkeypatch.setattr(operator, "fused_pass", record)
    options: dict[str, Any] = {"solver": "subspace", "tol": 1e-5, "passes": passes}
    found = rf.svd(x, 5, precision="tf32", device="gpu", **options)
    assert sum(rounded) == found.attrs["tf32_passes"]
    assert not rounded[-1] and len(rounded) <= passes
    if passes > 2:
        assert any(rounded)
    truth = np.linalg.svd(x.astype("f8"), compute_uv=False)[:5]
    errors = np.abs(found.s / truth - 1)
    assert (errors <= found.error_estimates).all()
    if passes == 30:
        assert errors.max() <= 2e-6 and found.attrs["largest_error_estimate"] <= 1e-4
        assert np.abs(found.U[...].T @ found.U[...] - np.eye(5)).max() <= 1e-5
