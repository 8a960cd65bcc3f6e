"""The fused pass: both products, whichever way the panel lies."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankfold.kernels.linear.panel import panel_product

Array = npt.NDArray[Any]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(
    rows=st.lists(st.integers(1, 30), min_size=1, max_size=4),
    short=st.integers(1, 20),
    width=st.integers(1, 6),
    transposed=st.booleans(),
)
def test_grains_add_up_to_both_products(
    dtype: npt.DTypeLike, rows: list[int], short: int, width: int, transposed: bool
) -> None:
    rng = np.random.default_rng(sum(rows))
    a, q = (rng.standard_normal(s).astype(dtype) for s in ((sum(rows), short), (short, width)))
    z, parts = np.zeros((short, width)), []
    for grain in np.split(a, np.cumsum(rows)[:-1]):
        d = np.asfortranarray(grain) if transposed else grain
        y, work = np.empty((len(d), width), dtype), np.empty((short, width), dtype)
        panel_product(d, q, y=y, z=z, work=work)
        np.testing.assert_array_equal(d, grain)
        parts.append(y)
    # Inner products of length s, then r, in the type of the grain: s, then s + r, eps of the magnitudes.
    # Here the other side is float64, whose own error is nothing for float32 and the same again for float64.
    eps = 2 * float(np.finfo(dtype).eps)
    exact, size = a.astype(float) @ q.astype(float), np.abs(a).astype(float) @ np.abs(q).astype(float)
    assert (np.abs(np.vstack(parts) - exact) <= short * eps * size).all()
    bound = (short + max(rows) + len(rows)) * eps * (np.abs(a.T).astype(float) @ size)
    assert (np.abs(z - a.T.astype(float) @ exact) <= bound).all()


def test_the_accumulator_keeps_what_single_precision_would_lose() -> None:
    d, q = np.ones((1, 1), np.float32), np.ones((1, 1), np.float32)
    z = np.full((1, 1), 2.0**30)
    for _ in range(10):
        panel_product(d, q, y=np.empty_like(d), z=z, work=np.empty_like(d))
    assert z[0, 0] == 2.0**30 + 10
