"""How often the interval of a recall holds the recall of all rows.

    python benchmarks/recall_intervals.py --out benchmarks/results/recall_intervals.json
    python benchmarks/recall_intervals.py --queries --out benchmarks/results/query_intervals.json

Matrices of 4000 rows of five kinds, at different seeds of data and search, partitions of 32 to 120 rows, and
one round or more. Each search reports an interval from 400 rows; the recall of all rows comes from exact
lists. At nominal 95 %, no fewer than 93 of 100 are to hold it. With ``--queries`` three quarters of the rows
are indexed, and the others are looked up.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import rankfold as rf

ROWS, K = 4000, 15


def gaussian(r: np.random.Generator) -> np.ndarray:
    return r.standard_normal((ROWS, 20))


def clusters(r: np.random.Generator) -> np.ndarray:
    label = r.integers(0, 30, ROWS)
    directions = r.standard_normal((30, 6, 32))
    within = np.einsum("ij,ijk->ik", r.standard_normal((ROWS, 6)), directions[label])
    return 4 * r.standard_normal((30, 32))[label] + within


def uneven(r: np.random.Generator) -> np.ndarray:
    """Half of the rows are easy, and half are not."""
    x = 10 + 0.1 * r.standard_normal((ROWS, 24))
    x[::2] = r.standard_normal((ROWS // 2, 24))
    x[1::2, 3:] = 10
    return x


def surface(r: np.random.Generator) -> np.ndarray:
    return np.sin(r.random((ROWS, 3)) @ r.standard_normal((3, 40)) * 3)


def copies(r: np.random.Generator) -> np.ndarray:
    few = r.standard_normal((ROWS // 10, 18))
    return few[r.integers(0, len(few), ROWS)] + 1e-3 * r.standard_normal((ROWS, 18))


KINDS: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
    each.__name__: each for each in (gaussian, clusters, uneven, surface, copies)
}


def trial(kind: str, index: int) -> dict[str, Any]:
    r = np.random.default_rng([index, *kind.encode()])
    x = KINDS[kind](r).astype(np.float32)
    asked = {"partition_rows": int(r.integers(32, 120)), "min_recall": float(r.choice([0.0, 0.9]))}
    found = rf.knn(x, K, solver="approximate", seed=index, threads=2, **asked)
    exact = rf.knn(x, K, threads=2)
    near = np.asarray(found.distances) <= np.asarray(exact.distances)[:, -1:]
    low, high = found.attrs["recall_interval"]
    truth = float(near.mean())
    return {"kind": kind, "index": index, **asked, "truth": truth, "interval": [low, high],
            "reported": found.attrs["recall"], "holds": low <= truth <= high}  # fmt: skip


def trial_of_queries(kind: str, index: int) -> dict[str, Any]:
    r = np.random.default_rng([index, *kind.encode()])
    x = KINDS[kind](r).astype(np.float32)
    chosen = r.random(ROWS) < 0.75
    rows = int(r.integers(20, 80))
    asked = {"min_recall": float(r.choice([0.3, 0.6, 0.8, 0.9]))}
    stored = rf.index(x[chosen], partition_rows=rows, seed=index, threads=2)
    found = rf.knn(x[~chosen], K, index=stored, seed=index, threads=2, **asked)
    exact = rf.knn(x[chosen], K, queries=x[~chosen], threads=2)
    near = np.asarray(found.distances) <= np.asarray(exact.distances)[:, -1:]
    low, high = found.attrs["recall_interval"]
    truth = float(near.mean())
    return {"kind": kind, "index": index, "partition_rows": rows, **asked, "truth": truth,
            "probes": found.attrs["probes"], "interval": [low, high], "reported": found.attrs["recall"],
            "holds": low <= truth <= high}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/recall_intervals.json"))
    parser.add_argument("--trials", type=int, default=40, help="of each kind")
    parser.add_argument("--queries", action="store_true", help="of rows that are looked up in an index")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    make = trial_of_queries if options.queries else trial
    trials = [make(kind, index) for kind in KINDS for index in range(options.trials)]
    share = np.mean([each["holds"] for each in trials])
    by_kind = {kind: float(np.mean([t["holds"] for t in trials if t["kind"] == kind])) for kind in KINDS}
    print(f"{len(trials)} trials, {100 * share:.1f} % of intervals hold the recall of all rows; {by_kind}")
    truths = [each["truth"] for each in trials]
    print(f"recalls from {min(truths):.3f} to {max(truths):.3f}")
    options.out.write_text(json.dumps({"share": float(share), "trials": trials}, indent=1) + "\n")


if __name__ == "__main__":
    main()
