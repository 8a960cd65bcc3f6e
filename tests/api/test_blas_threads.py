"""However many threads BLAS has in the process of a caller, results have the same bytes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

RUN = """\
import hashlib
import warnings
import numpy as np
import rankfold as rf
from rankfold.estimators import IncrementalPCA, MiniBatchKMeans

warnings.simplefilter("ignore", rf.RankfoldWarning)
x = np.random.default_rng(0).standard_normal((3000, 400))
small = x[:, :20].astype(np.float32)
batches = IncrementalPCA(30).partial_fit(x[:1500]).partial_fit(x[1500:])
means = MiniBatchKMeans(40, random_state=0).partial_fit(x[:1500]).partial_fit(x[1500:])
found = [
    *(batches.components_, batches.singular_values_, means.cluster_centers_),
    *(rf.svd(x, rank=40, solver="krylov", passes=3).U, rf.svd(x, rank=40, solver="tsqr").s),
    *(rf.pca(x, rank=30, solver="subspace", passes=3).components, rf.nmf(abs(x), rank=30, passes=3).H),
    *(rf.spectral(rf.knn(small, 5), 30).embedding, rf.kernel_pca(small, 40).scores),
]
for one in found:
    print(hashlib.blake2b(np.ascontiguousarray(one[...]).tobytes()).hexdigest())
"""


@pytest.mark.process
def test_threads_of_blas_change_no_byte() -> None:
    printed = set()
    for threads in ("1", "2", "2", "4"):
        env = {**os.environ, "OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}
        words = [sys.executable, "-c", RUN]
        printed.add(subprocess.run(words, capture_output=True, text=True, check=True, env=env).stdout)
    assert len(printed) == 1
