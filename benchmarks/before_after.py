"""Seconds of two trees of sources on the same matrices, one after the other: what a change of the code costs.

Each turn starts a process for either tree, in an order that alternates; a process calls each method once to
compile and warm up, and then is timed. Told is the ratio of the medians, and of the least.

git worktree add /tmp/before REVISION
python benchmarks/before_after.py /tmp/before --turns 7
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

TREE = Path(__file__).resolve().parents[1]

CASES = {
    "svd krylov": "rf.svd(tall, 50, solver='krylov', tol=1e-9, passes=3, **how)",
    "pca gram": "rf.pca(narrow, 20, solver='gram', **how)",
    "svd sketch": "rf.svd(tall, 50, solver='sketch', **how)",
    "pca tsqr": "rf.pca(narrow, 20, solver='tsqr', **how)",
    "qr": "rf.qr(narrow, **how)",
    "nmf": "rf.nmf(counts, 16, passes=3, tol=1e-9, **how)",
    "nmf by divergence": "rf.nmf(counts, 16, loss='kullback-leibler', passes=3, tol=1e-9, **how)",
    "knn": "rf.knn(points, 15, **how)",
    "transform": "rf.transform(fit, tall, **how)",
}

PROGRAM = """\
import json, shutil, sys, time, warnings
import numpy as np
import rankfold as rf
warnings.simplefilter("ignore")
folder, repeats = sys.argv[1], int(sys.argv[2])
tall, narrow, counts, points = (f"{{folder}}/{{name}}.npy" for name in ("tall", "narrow", "counts", "points"))
how = {{"threads": 1, "memory": "1GiB", "out": folder + "/r.zarr"}}
fit = rf.pca(tall, 20, solver="gram", threads=1)
seconds = {{}}
for name, call in {cases!r}.items():
    for turn in range(repeats + 1):
        began = time.perf_counter()
        eval(call)
        seconds.setdefault(name, []).append(time.perf_counter() - began)
        for left in ("/r.zarr", "/r.zarr.run"):
            shutil.rmtree(folder + left, ignore_errors=True)
print(json.dumps({{name: each[1:] for name, each in seconds.items()}}))
"""


def write_matrices(folder: Path) -> None:
    """Of some hundred megabytes, so that a pass takes a second or so, and reading is from memory."""
    import numpy as np

    rng = np.random.default_rng(0)
    noise = rng.standard_normal((100_000, 500), np.float32)
    np.save(folder / "tall.npy", noise * 0.9 ** np.arange(500, dtype=np.float32) + 1)
    np.save(folder / "narrow.npy", rng.standard_normal((200_000, 150), np.float32))
    left, right = rng.random((60_000, 16), np.float32), rng.random((16, 300), np.float32)
    np.save(folder / "counts.npy", left @ right + 0.1 * rng.random((60_000, 300), np.float32))
    np.save(folder / "points.npy", rng.standard_normal((15_000, 128), np.float32))


def seconds_of(tree: Path, folder: Path, cases: dict[str, str], repeats: int) -> dict[str, list[float]]:
    """What one process measures."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    output = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(cases=cases), str(folder), str(repeats)],
        env={**os.environ, **threads, "PYTHONPATH": str(tree / "src")},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    ).stdout
    return json.loads(output.splitlines()[-1])  # type: ignore[no-any-return]


def main() -> None:
    """Time both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("before", type=Path, help="the other tree")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--repeats", type=int, default=2, help="of each call in a process")
    parser.add_argument("--only", nargs="*", default=list(CASES), choices=list(CASES))
    arguments = parser.parse_args()
    cases = {name: CASES[name] for name in arguments.only}
    times: dict[str, dict[str, list[float]]] = {"before": {}, "after": {}}
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        write_matrices(folder)
        for turn in range(arguments.turns):
            for side in ("before", "after")[:: 1 if turn % 2 else -1]:
                tree = arguments.before if side == "before" else TREE
                for name, each in seconds_of(tree, folder, cases, arguments.repeats).items():
                    times[side].setdefault(name, []).extend(each)
    print(f"{'':20}{'before':>9}{'after':>9}{'ratio':>8}{'of the least':>14}")
    for name in cases:
        before, after = times["before"][name], times["after"][name]
        medians = statistics.median(before), statistics.median(after)
        print(
            f"{name:20}{medians[0]:8.3f}s{medians[1]:8.3f}s{medians[1] / medians[0]:8.3f}"
            f"{min(after) / min(before):14.3f}"
        )


if __name__ == "__main__":
    main()
