"""What is compiled before a run begins: all that it uses, so that no sweep pays for it in time or memory."""

from __future__ import annotations

import subprocess
import sys

import pytest

RUNS = {
    "pca": "rf.pca(x, rank=3)",
    "pca of integers": "rf.pca((100 * x).astype(np.int16), rank=3)",
    "svd by sketch": "rf.svd(x, rank=3, method='sketch')",
    "qr": "rf.qr(x)",
    "knn": "rf.knn(x, 5)",
    "knn of float64": "rf.knn(x.astype(np.float64), 5, metric='cosine')",
    "knn of bytes": "rf.knn((9 * x).astype(np.uint8), 5, symmetric='union')",
    "knn of short rows": "rf.knn(x[:, :3], 5)",
    "knn of queries": "rf.knn(x, 5, queries=x[:50], metric='manhattan')",
    "nmf": "rf.nmf(x, rank=3)",
    "nmf by pivoting": "rf.nmf(x.astype(np.float64), rank=3, solver='bpp')",
    "nmf within bounds": "rf.nmf(x, rank=3, constraint_W=1.0)",
    "nmf of ratios": "rf.nmf(x, rank=3, loss='kullback-leibler')",
    "trustworthiness": "rf.trustworthiness(x, x[:, :2], k=5)",
}

LATE = """\
import warnings
import numpy as np
from numba.core.dispatcher import Dispatcher
import rankfold as rf
from rankfold.pipeline.warm import Kernels

warnings.simplefilter("ignore", rf.RankfoldWarning)
x = np.random.default_rng(0).random((600, 40)).astype(np.float32)
begun, late = [], []
warm, compiled = Kernels.warm, Dispatcher.compile

def warmed(self):
    begun.clear()
    warm(self)
    begun.append(True)

def noted(self, signature):
    if begun and tuple(signature) not in self.overloads:
        late.append(f"{{self.py_func.__qualname__}}{{signature}}")
    return compiled(self, signature)

Kernels.warm, Dispatcher.compile = warmed, noted
{run}
assert begun and not late, late
"""


@pytest.mark.process
@pytest.mark.parametrize("run", RUNS)
def test_nothing_is_compiled_in_a_sweep(run: str) -> None:
    """In a process of its own, since a kernel is compiled once in each."""
    code = LATE.format(run=RUNS[run])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
