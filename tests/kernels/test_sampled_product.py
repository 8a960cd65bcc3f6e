"""Products at stored places: right for any width and type, and the same bits for any ranges."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_sparse_products import sparse

from rankfold.kernels.sparse.sampled import sample_product


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("width", [1, 2, 3, 7, 8, 16, 31, 33, 64, 65, 100, 128, 130])
def test_products_of_any_width(dtype: str, width: int) -> None:
    m, n = 37, 23
    indptr, indices, _ = sparse((m, n), dtype, "int64" if width % 2 else "int32")
    rng = np.random.default_rng(width)
    left, right = (rng.standard_normal((rows, width)).astype(dtype) for rows in (m, n))
    out = np.empty(len(indices), dtype)
    sample_product(indptr, indices, left, right, out=out)
    places = np.repeat(np.arange(m), np.diff(indptr)), indices
    exact = (left.astype(float) @ right.T.astype(float))[places]
    size = (np.abs(left).astype(float) @ np.abs(right).T)[places]
    # A product is rounded once, and added as often as a slab is halved, then once for each part of the row.
    assert (np.abs(out - exact) <= 20 * float(np.finfo(dtype).eps) * size).all()


@given(cuts=st.lists(st.integers(0, 60), max_size=6).map(sorted), width=st.sampled_from([1, 5, 16, 33, 130]))
def test_any_ranges_give_the_same_bits(cuts: list[int], width: int) -> None:
    m = n = 60
    indptr, indices, _ = sparse((m, n), fill=0.8)
    left, right = np.random.default_rng(0).standard_normal((2, m, width))
    whole, pieces = np.empty((2, len(indices)))
    sample_product(indptr, indices, left, right, out=whole)
    for start, stop in pairwise([0, *cuts, m]):
        sample_product(indptr[start : stop + 1], indices, left[start:stop], right, out=pieces)
    assert pieces.tobytes() == whole.tobytes()
