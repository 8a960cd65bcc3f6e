"""Neighbors by Hamming distance of packed bits, beside FAISS and scikit-learn, and beside what a core counts.

    python benchmarks/bits.py --peers FOLDER --out benchmarks/results/bits.json

``FOLDER`` has faiss, where it is not installed. One thread; seconds are of the processor, each the median of
runs that take turns. The limit is what the loop of the kernel reaches that counts words, where nothing is
done with the counts. Rows are random, in which nothing can be left out.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

import numpy as np

import rankfold as rf
from rankfold.kernels.bits.bit_meeting import RUN
from rankfold.kernels.bits.cpu.bit_meeting import _count_run, _load

K = 15


def processor() -> str:
    """What the machine says it has."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if sys.platform == "linux" else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def measured(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median processor seconds of calls that take turns, after one of each that is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds + 1):
        for name, call in calls.items():
            began = time.process_time()
            call()
            if turn:
                seconds[name].append(time.process_time() - began)
    return {name: float(np.median(each)) for name, each in seconds.items()}


def count_words(words: np.ndarray, rounds: int) -> float:
    """Words a second that a loop counts and forgets."""
    from numba import njit

    @njit(nogil=True, error_model="numpy")
    def count(x: np.ndarray, run: np.ndarray, shared: np.ndarray) -> int:
        total = 0
        for start in range(0, len(x), RUN):
            _load(x, start, min(RUN, len(x) - start), run)
            for i in range(len(x)):
                _count_run(x, np.uint64(i), run, shared)
                total += shared[i % RUN]
        return total

    rows, width = words.shape
    run, shared = np.empty((width, RUN), np.uint64), np.empty(RUN, np.uint64)
    seconds = measured({"count": lambda: count(words, run, shared)}, rounds)["count"]
    return rows * -(-rows // RUN) * RUN * width / seconds


def faiss_call(packed: np.ndarray, queries: np.ndarray, folder: str) -> Callable[[], Any]:
    """A search of queries in FAISS's flat index of bits."""
    sys.path.insert(0, folder)
    import faiss

    faiss.omp_set_num_threads(1)
    index = faiss.IndexBinaryFlat(8 * packed.shape[1])
    index.add(packed)
    return lambda: index.search(queries, K)


def scikit_call(bits: np.ndarray, queries: np.ndarray) -> Callable[[], Any]:
    """The same by scikit-learn's brute force."""
    from sklearn.neighbors import NearestNeighbors

    found = NearestNeighbors(n_neighbors=K, metric="hamming", algorithm="brute", n_jobs=1).fit(bits)
    return lambda: found.kneighbors(queries)


def main() -> None:
    """Measure, print, and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--bits", type=int, default=1024)
    parser.add_argument("--queries", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", default=".", help="folder that has faiss")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    packed = np.random.default_rng(0).integers(0, 256, (asked.rows, asked.bits // 8), dtype=np.uint8)
    queries, few = packed[: asked.queries], packed[: asked.queries // 10]
    some = np.unpackbits(packed[: asked.rows // 20], axis=1).astype(bool)
    some_queries = np.unpackbits(few, axis=1).astype(bool)

    def ours(x: np.ndarray, **how: Any) -> Callable[[], Any]:
        return lambda: rf.knn(x, K, threads=1, memory="1GiB", **how)

    rows, pairs = asked.rows, asked.rows * asked.queries
    queried = measured(
        {
            "rankfold bit_hamming": ours(packed, metric="bit_hamming", queries=queries),
            "rankfold bit_jaccard": ours(packed, metric="bit_jaccard", queries=queries),
            "faiss IndexBinaryFlat": faiss_call(packed, queries, asked.peers),
        },
        asked.rounds,
    )
    small = measured(
        {
            "rankfold hamming": ours(some, metric="hamming", queries=some_queries),
            "scikit-learn brute": scikit_call(some, some_queries),
        },
        asked.rounds,
    )
    every = measured({name: ours(packed, metric=name) for name in ("bit_hamming", "bit_jaccard")}, 1)
    limit = count_words(packed[:8192].view(np.uint64), asked.rounds)
    words = asked.bits // 64
    facts = {
        "machine": processor(),
        "versions": {name: version(name) for name in ("numpy", "numba", "scikit-learn")}
        | {"faiss-cpu": sys.modules["faiss"].__version__},
        "shape": [rows, asked.bits],
        "k": K,
        "words_per_second_limit": limit,
        "queries": {
            name: {"seconds": s, "pairs_per_second": pairs / s, "of_limit": pairs * words / s / limit}
            for name, s in queried.items()
        },
        "smaller": {
            name: {"seconds": s, "pairs_per_second": len(some) * len(few) / s} for name, s in small.items()
        },
        "all_rows": {
            name: {
                "seconds": s,
                "pairs_per_second": rows * (rows - 1) / 2 / s,
                "of_limit": rows * (rows - 1) / 2 * words / s / limit,
            }
            for name, s in every.items()
        },
    }
    print(json.dumps(facts, indent=1))
    if asked.out:
        asked.out.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
