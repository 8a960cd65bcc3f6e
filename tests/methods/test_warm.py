"""What is compiled before a run begins: all that it uses, so that no sweep pays for it in time or memory."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from rankfold.methods import warm

RUNS = {
    "tsne": (
        "near, how = rf.knn(x, 5), {'perplexity': 1.5, 'n_iter': 2, 'init': 'random'}; rf.tsne(near, **how)"
    ),
    "tsne by a grid": (
        "x = np.random.default_rng(0).random((3100, 4)).astype(np.float32); "
        "rf.tsne(rf.knn(x, 5), perplexity=1.5, n_iter=2, init='random')"
    ),
    "pca": "rf.pca(x, rank=3)",
    "pca of integers": "rf.pca((100 * x).astype(np.int16), rank=3)",
    "pca of what is completed": "rf.pca(np.where(x > 0.9, np.nan, x), rank=3, missing='em')",
    "transform of what is completed": (
        "y = np.where(x > 0.9, np.nan, x); rf.transform(rf.pca(y, rank=3, missing='em'), y)"
    ),
    "svd by sketch": "rf.svd(x, rank=3, solver='sketch')",
    "qr": "rf.qr(x)",
    "knn": "rf.knn(x, 5)",
    "knn of float64": "rf.knn(x.astype(np.float64), 5, metric='cosine')",
    "knn of bytes": "rf.knn((9 * x).astype(np.uint8), 5, symmetric='union')",
    "knn of short rows": "rf.knn(x[:, :3], 5)",
    "knn of points": "rf.knn(x[:, :2], 5, solver='tree', box=1.0, queries=x[:50, :2])",
    "radius_neighbors": "rf.radius_neighbors(x[:, :3], 0.1, metric='chebyshev')",
    "radius_neighbors in a box": "rf.radius_neighbors(x[:, :3], 0.1, box=1.0)",
    "kernel_sum": "rf.kernel_sum(x[:, :3], x[:, 4])",
    "kernel_sum at others": "rf.kernel_sum(x[:, :2], targets=x[:90, 4:6], kernel='cauchy', forces=False)",
    "kernel_sum of columns": "rf.kernel_sum(x, kernel='gaussian', tol=0.0)",
    "density": "rf.density(x[:, :2], x[:99, 2:4], bandwidth='scott')",
    "density of columns": "rf.density(x, kernel='tophat')",
    "knn of sparse rows": "rf.knn(sparse, 5, metric='cosine')",
    "knn of sparse bytes": "rf.knn((9 * sparse).astype(np.uint8), 5, queries=sparse[:50].astype(np.uint8))",
    "knn of queries": "rf.knn(x, 5, queries=x[:50], metric='manhattan')",
    "index": "rf.index(x)",
    "knn in an index": "rf.knn(x[:900], 5, index=rf.index(x, partition_rows=60), min_recall=0.5)",
    "knn of bytes in an index": "rf.knn((9 * x[:50]).astype(np.uint8), 5, index=rf.index(x))",
    "knn of bits": "rf.knn(x > 0.5, 5, metric='hamming')",
    "knn of bits by jaccard": "rf.knn((x > 0.5).view(np.uint8), 5, metric='bit_jaccard', symmetric='union')",
    "knn of queries that are bits": "rf.knn(x, 5, metric='jaccard', queries=sparse[:50])",
    "knn of sets": "rf.knn(scipy.sparse.hstack([sparse] * 300, 'csr'), 5, metric='jaccard')",
    "knn of what differs": "rf.knn((9 * x).astype(np.uint8), 5, metric='hamming')",
    "kmeans": "rf.kmeans(x, 5)",
    "kmeans of halves": "rf.kmeans(x.astype(np.float16), 5)",
    "kmeans of bytes from centers": "rf.kmeans((9 * x).astype(np.uint8), init=x[:5])",
    "kmeans of sparse rows": "rf.kmeans(sparse, 25)",
    "nmf": "rf.nmf(x, rank=3)",
    "nmf by pivoting": "rf.nmf(x.astype(np.float64), rank=3, solver='bpp')",
    "nmf within bounds": "rf.nmf(x, rank=3, constraint_W=1.0)",
    "nmf of ratios": "rf.nmf(x, rank=3, loss='kullback-leibler')",
    "nmf of weighted rows": "rf.nmf(x, rank=3, weights=x)",
    "nmf of rows of bytes": "rf.nmf((9 * x).astype(np.uint8), rank=3, row_weights=x[:, 0])",
    "nmf of gaps in columns": "rf.nmf(x.T.copy(), rank=3, missing='ignore', loss='kullback-leibler')",
    "spectral": "rf.spectral(rf.fuzzy_graph(rf.knn(x, 5)), 3)",
    "spectral of lists": "rf.spectral(rf.knn(x, 5), 30)",
    "diffusion_map": "rf.diffusion_map(scipy.sparse.csr_array(sparse[:60].T @ sparse[:60]), 2)",
    "rows in a graph": "rf.transform(rf.spectral(rf.knn(x, 5), 3), rf.knn(x, 5, queries=x[:50]))",
    "umap": "rf.umap(rf.knn(x, 5), n_epochs=2, density=2.0)",
    "rows in a layout": "rf.transform(rf.umap(x, n_epochs=2, n_neighbors=5), rf.knn(x, 5, queries=x[:50]))",
    "rows in an embedding by tsne": (
        "rf.transform(rf.tsne(rf.knn(x, 5), perplexity=1.5, n_iter=2), rf.knn(x, 5, queries=x[:50]))"
    ),
    "rows in a space by tsne": (
        "near, how = rf.knn(x, 5), {'perplexity': 1.5, 'n_iter': 2, 'init': 'random'}; "
        "rf.transform(rf.tsne(near, n_components=3, **how), rf.knn(x, 5, queries=x[:50]))"
    ),
    "rows along paths": "rf.transform(rf.isomap(x, n_neighbors=15), rf.knn(x, 5, queries=x[:50]))",
    "rows in factors": "rf.transform(rf.nmf(x, rank=3), x[:50])",
    "rows by similarity": "rf.transform(rf.kernel_pca(x[:300], 3), x)",
    "nystroem": "rf.nystroem(x, 3, kernel='laplacian')",
    "trustworthiness": "rf.trustworthiness(x, x[:, :2], k=5)",
}

LATE = """\
import warnings
import numpy as np
import scipy.sparse
from numba.core.dispatcher import Dispatcher
import rankfold as rf
from rankfold.methods.warm import MethodWarmup

warnings.simplefilter("ignore", rf.RankfoldWarning)
x = np.random.default_rng(0).random((2000, 40)).astype(np.float32)
sparse = scipy.sparse.csr_array(x * (x > 0.9))
begun, late = [], []
warm, compiled = MethodWarmup.warm, Dispatcher.compile

def warmed(self):
    begun.clear()
    warm(self)
    begun.append(True)

def noted(self, signature):
    if begun and tuple(signature) not in self.overloads:
        late.append(f"{{self.py_func.__qualname__}}{{signature}}")
    return compiled(self, signature)

MethodWarmup.warm, Dispatcher.compile = warmed, noted
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


TWICE = """\
import hashlib
import warnings
import numpy as np
import scipy.sparse
import rankfold as rf

warnings.simplefilter("ignore", rf.RankfoldWarning)
x = np.random.default_rng(0).random((2000, 40)).astype(np.float32)
sparse = scipy.sparse.csr_array(x * (x > 0.9))
result = {run}
for name in {names}:
    print(hashlib.blake2b(np.ascontiguousarray(getattr(result, name)[...]).tobytes()).hexdigest())
"""


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize(
    ("run", "names"),
    [
        ("rf.tsne(rf.knn(x, 5), perplexity=1.5, n_iter=2, init='random')", ("embedding", "history")),
        ("rf.kmeans(x, 25)", ("centers", "labels")),
        ("rf.nmf(x, rank=5, loss='kullback-leibler')", ("W", "H")),
        ("rf.pca(np.where(x > 0.9, np.nan, x), rank=3, missing='em')", ("singular_values", "scores")),
        ("rf.kernel_sum(x[:, :3], x[:, 4])", ("sums", "forces")),
    ],
)
def test_a_process_that_compiles_leaves_the_bytes_of_those_that_do_not(
    tmp_path: Path, run: str, names: tuple[str, ...]
) -> None:
    code, env = TWICE.format(run=run, names=names), {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    outputs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
        for _ in range(2)
    ]
    assert outputs[0].stdout == outputs[1].stdout != ""
    assert any(tmp_path.rglob("*.nbc"))


TIMES = """\
import json, os, sys, time
import numpy as np
import rankfold as rf
from rankfold.workflows.results import took

x = np.random.default_rng(0).random((1500, 30)).astype(np.float32)
out = os.path.join(os.environ["NUMBA_CACHE_DIR"], sys.argv[1])
start = time.perf_counter()
(attempt,) = rf.knn(x, 5, out=out).run["attempts"]
whole = time.perf_counter() - start
parts = [attempt[name] for name in ("compile_seconds", "load_seconds", "seconds")]
print(json.dumps([*parts, whole, *took(rf.open_result(out))]))
"""


def test_only_what_is_compiled_counts_as_compiling(tmp_path: Path) -> None:
    """Importing numba, and reading loops that were kept, take seconds in every process."""
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    told = [
        json.loads(
            subprocess.run(
                [sys.executable, "-c", TIMES, name], capture_output=True, text=True, check=True, env=env
            ).stdout
        )
        for name in ("first.zarr", "second.zarr")
    ]
    for compiling, loading, seconds, whole, _ in told:
        assert loading > 0 and compiling + loading + seconds < whole
    assert told[0][0] > 1 and " of it compiling" in told[0][4]
    assert told[1][0] == 0 and "compiling" not in told[1][4]
    assert ("loading kernels" in told[1][4]) == (told[1][1] >= 1)


SIGNATURES = """\
import sys
import numpy as np
from numba.core import types
from rankfold.methods.warm import MethodWarmup

request = {{"kind": "knn", "k": 5, "metric": {metric!r}}}
MethodWarmup(np.dtype({dtype!r}), request, (10**6, {columns})).warm()
loops = vars(sys.modules["rankfold.kernels.neighbors.cpu.lists"])
for name in {names}:
    for arguments in loops[name].overloads:
        print(name, *(a.dtype.name for a in arguments if isinstance(a, types.Array)))
"""


@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8"])
def test_rows_of_one_type_are_measured_by_loops_of_that_type_alone(dtype: str) -> None:
    code = SIGNATURES.format(metric="euclidean", dtype=dtype, columns=40, names=("_refine", "_exhaust"))
    lines = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    refine, exhaust = (line.split() for line in lines.stdout.splitlines())
    assert refine[:3] == ["_refine", dtype, dtype]
    assert exhaust[0] == "_exhaust" and exhaust[4:6] == [dtype, dtype]


@pytest.mark.parametrize(
    ("metric", "columns", "bounded"),
    [("euclidean", 40, True), ("euclidean", 3, False), ("manhattan", 40, False)],
)
def test_pairs_are_measured_or_bounded_and_one_of_these_is_compiled(
    metric: str, columns: int, bounded: bool
) -> None:
    names = ("_scan", "measure")
    code = SIGNATURES.format(metric=metric, dtype="float32", columns=columns, names=names)
    lines = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    assert {line.split()[0] for line in lines.stdout.splitlines()} == {names[not bounded]}


@pytest.mark.parametrize("run", ["rf.svd(x, rank=3)", "rf.pca(x.T, rank=3, scale=True)", "rf.qr(x)"])
def test_a_small_matrix_does_not_load_numba(run: str) -> None:
    code = f"""\
import sys
import numpy as np
import rankfold as rf
x = np.random.default_rng(0).random((100, 20))
{run}
assert "numba" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


# What is said ----------------------------------------------------------------------------------------


def test_compiling_is_said_on_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    warm.announce(warm.NEWS)
    assert not capsys.readouterr().err
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    warm.announce(warm.NEWS)
    assert capsys.readouterr().err == f"rankfold: {warm.NEWS}\n"


def test_compiling_is_said_in_a_notebook(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    warm.announce(warm.NEWS)
    assert warm.NEWS in capsys.readouterr().err


def test_compiling_is_said_in_the_log_where_there_is_one(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.INFO, "rankfold"):
        warm.announce(warm.NEWS)
    assert caplog.messages == [warm.NEWS] and not capsys.readouterr().err


@pytest.mark.parametrize("compiled", [True, False])
def test_what_is_slow_for_another_reason_is_not_said_to_be_compiling(
    compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    loops, news = types.SimpleNamespace(SIGNATURES=["before"]), list[str]()
    monkeypatch.setitem(sys.modules, "rankfold.kernels._compiled", loops)
    monkeypatch.setattr(warm, "announce", news.append)
    monkeypatch.setattr(warm, "TELL_SECONDS", 0.05)
    monkeypatch.setattr(warm, "TICK_SECONDS", 0.01)
    warm._announce_compiling.cache_clear()
    for _link in range(2):
        with warm._Announcement() as announcement:
            loops.SIGNATURES += ["now"] * compiled
            announcement.join(1.0 if compiled else 0.2)
    assert news == [warm.NEWS] * compiled
