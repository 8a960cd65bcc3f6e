"""What calls cost that others once answered in a fraction of the time: small matrices, sparse ones in memory.

Seconds are of the processor, the least of some calls: what a call takes when nothing disturbs it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import svds

import rankfold as rf


def least_seconds(call: Callable[[], Any], times: int = 5) -> float:
    """Of the processor, after a first call that compiles."""
    call()
    seconds = []
    for _ in range(times):
        began = time.process_time()
        call()
        seconds.append(time.process_time() - began)
    return min(seconds)


def test_a_small_matrix_takes_a_fraction_of_a_second() -> None:
    x = np.random.default_rng(0).standard_normal((100, 20))
    assert least_seconds(lambda: rf.svd(x, rank=5)) < 0.15


def test_a_sparse_graph_takes_what_arpack_takes() -> None:
    rng, nodes = np.random.default_rng(0), 8000
    ends = (rng.random((2, 10 * nodes)) ** 3 * nodes).astype(np.int64)  # some are known to many
    edges = sp.coo_array((np.ones(ends.shape[1], np.float32), tuple(ends)), shape=(nodes, nodes))
    graph = sp.csr_array((edges + edges.T) > 0, dtype=np.float32)
    start = rng.standard_normal(nodes).astype(np.float32)
    found: dict[str, Any] = {}

    def ours() -> None:
        found["ours"] = rf.svd(graph, 20, tol=1e-4, threads=1).s[...]

    def arpack() -> None:
        found["arpack"] = np.sort(svds(graph, k=20, v0=start)[1])[::-1]

    assert least_seconds(ours) < 5 * least_seconds(arpack)
    np.testing.assert_allclose(found["ours"], found["arpack"], rtol=1e-4)
