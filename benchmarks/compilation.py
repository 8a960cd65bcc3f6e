"""What compiling costs the first call after an installation, by kind of request and type of the matrix.

Each is measured in an interpreter of its own that finds no compiled kernel. Processor seconds of one core:
inside numba's compiler, of importing numba, and of the whole first call beside that of the second.

    python benchmarks/compilation.py
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"

CALLS = {
    "svd of 100 x 20": "rf.svd(x[:100, :20], rank=3)",
    "svd": "rf.svd(x, rank=3)",
    "svd of float64": "rf.svd(x.astype(np.float64), rank=3)",
    "pca by krylov": "rf.pca(x, rank=3, solver='krylov')",
    "qr": "rf.qr(x)",
    "knn": "rf.knn(x, 5)",
    "knn of float64": "rf.knn(x.astype(np.float64), 5)",
    "knn of bytes": "rf.knn((9 * x).astype(np.uint8), 5)",
    "knn by inner products": "rf.knn(x, 5, metric='inner_product')",
    "knn by manhattan": "rf.knn(x, 5, metric='manhattan')",
    "trustworthiness": "rf.trustworthiness(x, x[:, :2], k=5)",
    "nmf": "rf.nmf(x, rank=3)",
    "nmf by pivoting": "rf.nmf(x, rank=3, solver='bpp')",
    "nmf of ratios": "rf.nmf(x, rank=3, loss='kullback-leibler')",
}

MEASURE = """\
import json, time, warnings
import numpy as np

began = time.process_time()
import numba
from numba.core import event

numba_seconds = time.process_time() - began
spent, nested, count = 0.0, [], 0


class Compiler(event.Listener):
    def on_start(self, _):
        nested.append(time.thread_time())

    def on_end(self, _):
        global spent, count
        seconds, count = time.thread_time() - nested.pop(), count + 1
        spent += seconds * (not nested)


event.register("numba:compile", Compiler())
import rankfold as rf

warnings.simplefilter("ignore", rf.RankfoldWarning)
x = np.random.default_rng(0).random((2000, 40)).astype(np.float32)
calls = []
for _ in range(2):
    began = time.process_time()
    {call}
    calls.append(time.process_time() - began)
print(json.dumps({{"compile": spent, "loops": count, "numba": numba_seconds, "first": calls[0],
    "second": calls[1]}}))
"""


def measured(call: str) -> dict[str, Any]:
    """Processor seconds of a call, twice, where nothing is compiled yet."""
    with tempfile.TemporaryDirectory(prefix="rankfold-compilation-") as empty:
        one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        environment = {**os.environ, **one, "NUMBA_CACHE_DIR": empty}
        code = MEASURE.format(call=call)
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        )
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def main() -> None:
    """Print a table and keep the numbers."""
    import llvmlite
    import numba

    found = {}
    print(f"{'processor seconds':24}{'compiling':>10}{'loops':>7}{'numba':>7}{'first':>7}{'second':>8}")
    for name, call in CALLS.items():
        found[name] = one = measured(call)
        times = f"{one['compile']:10.2f}{one['loops']:7}{one['numba']:7.2f}"
        print(f"{name:24}{times}{one['first']:7.2f}{one['second']:8.2f}", flush=True)
    machine = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    versions = {
        "python": platform.python_version(),
        "numba": numba.__version__,
        "llvmlite": llvmlite.__version__,
    }
    kept = {"machine": machine, "versions": versions, "seconds": found}
    (RESULTS / "compilation.json").write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
