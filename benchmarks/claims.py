"""Estimated errors of singular values against true ones, on random adversarial matrices.

Each case draws a spectrum, singular vectors, a shape, a type, a rank, passes and a solver from its seed
alone. The largest estimate of a result, which ``tol`` stops by, is divided by the largest true error, and
every value is compared with its own. What a dense decomposition in float64 and rounding of the type cannot
tell is left out.

    python benchmarks/claims.py --cases 360 --out benchmarks/results/claims.json
    python benchmarks/claims.py --power-law 400000 2000        the matrix of issue 18 as well
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

import numpy as np
import numpy.typing as npt

import rankfold as rf
from rankfold.pipeline.machine import core_type

Array = npt.NDArray[np.float64]

NOTHING = 1e-15
"""A tolerance that no pass meets, so that all passes are made."""


# Spectra ------------------------------------------------------------------------------------------


def spectrum(kind: str, n: int, rank: int, width: int, rng: np.random.Generator) -> Array:
    """``n`` singular values, decreasing."""
    i = np.arange(n)
    size = float(rng.uniform(0.2, 0.95))
    match kind:
        case "power law":
            s = (1.0 + i) ** -rng.uniform(0.1, 2.5)
        case "exponential":
            s = size ** (i / rng.uniform(1, 8)) + 1e-14
        case "flat":
            s = 1 + rng.choice([1e-3, 1e-2, 0.1, 0.3]) * np.linspace(1, -1, n)
        case "clusters":
            centers = np.sort(rng.uniform(0.05, 1, 6))[::-1]
            s = centers[rng.integers(0, 6, n)] * (1 + 1e-7 * rng.standard_normal(n))
        case "multiple":
            s = np.repeat(0.6 ** np.arange(n), rng.integers(2, 12))[:n] + 1e-9
        case "gap":
            s = np.where(i < rank, rng.uniform(0.5, 1, n), size * rng.uniform(0.01, 0.5, n))
        case "huge value":
            s = np.where(i == 0, 10.0 ** rng.uniform(1, 5), (1.0 + i) ** -rng.uniform(0.1, 1.5))
        case "low rank":
            s = np.where(i < max(1, int(rank * rng.uniform(0.3, 2.5))), rng.uniform(0.2, 1, n), 0.0)
        case "noise floor":
            s = np.hypot((1.0 + i) ** -1.5, 10.0 ** -rng.uniform(1, 4))
        case "step beyond rank":
            s = np.where(i < rank + rng.integers(0, 3), 1.0, 1 - 10.0 ** -rng.uniform(0.3, 3))
        case "equal beyond block":
            s = np.where(i < rank - 1, 1.0 + 1.0 / (1 + i), np.where(i < 3 * width, size, size / 3))
        case "stairs":
            s = 0.7 ** (i // max(1, rank // 2)) + 1e-6
        case _:
            raise ValueError(kind)
    return np.sort(s)[::-1]


SPECTRA = (
    "power law",
    "exponential",
    "flat",
    "clusters",
    "multiple",
    "gap",
    "huge value",
    "low rank",
    "noise floor",
    "step beyond rank",
    "equal beyond block",
    "stairs",
)


# Vectors ------------------------------------------------------------------------------------------


def orthonormal(rows: int, columns: int, rng: np.random.Generator) -> Array:
    """Random orthonormal columns."""
    return np.linalg.qr(rng.standard_normal((rows, columns)))[0]


def unit_columns(rows: int, columns: int, rng: np.random.Generator) -> Array:
    """Columns of the identity: each direction in one row or column alone."""
    e = np.zeros((rows, columns))
    e[rng.permutation(rows)[:columns], np.arange(columns)] = 1.0
    return e


def batches(rows: int, columns: int, rng: np.random.Generator) -> Array:
    """Each direction in one run of rows, most of which no sampled row is from."""
    count = max(2, min(40, rows // (columns + 1)))
    edges, u = np.linspace(0, rows, count + 1).astype(int), np.zeros((rows, columns))
    batch_of = rng.permutation(np.searchsorted(edges, np.arange(columns) * rows // columns, "right") - 1)
    for b in range(count):
        chosen = np.flatnonzero(batch_of == b)
        u[edges[b] : edges[b + 1], chosen] = orthonormal(edges[b + 1] - edges[b], len(chosen), rng)
    return u


def hidden_rows(rows: int, columns: int, rng: np.random.Generator) -> Array:
    """Some of the leading directions in a few rows between those that are sampled."""
    u = orthonormal(rows, columns, rng)
    count = min(int(rng.integers(1, 4)), columns)
    first = int(rows * (2 * rng.integers(0, 8) + 1) / 16)
    stretch = slice(first, first + max(count, rows // 200))
    u[stretch] = 0.0
    u = np.linalg.qr(u)[0]
    which = rng.choice(min(columns, 40), count, replace=False)
    u[:, which] = 0.0
    u[stretch, which] = orthonormal(stretch.stop - stretch.start, count, rng)
    return u


def heavy_rows(rows: int, columns: int, rng: np.random.Generator) -> Array:
    """Rows whose lengths differ by orders of magnitude."""
    return np.linalg.qr(rng.standard_normal((rows, columns)) * np.exp(1.5 * rng.standard_normal((rows, 1))))[
        0
    ]


VECTORS = {
    "random": orthonormal,
    "unit": unit_columns,
    "batches": batches,
    "hidden": hidden_rows,
    "heavy": heavy_rows,
}


# Cases --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One matrix, what was asked of it, and what came of it."""

    seed: int
    solver: str
    spectrum: str
    vectors: str
    shape: tuple[int, int]
    dtype: str
    mean: float | None
    """Mean of the columns in norms of the matrix, where they are centered; None where they are not."""

    rank: int
    passes_asked: int
    tol: float


def draw_case(seed: int) -> Case:
    """The case of a seed."""
    rng = np.random.default_rng([18, seed])
    rank = int(rng.choice([1, 2, 3, 5, 8, 12, 20, 30, 50]))
    short = int(rng.integers(max(40, 2 * rank), 320))
    kind = rng.choice(["tall", "square", "wide"], p=[0.6, 0.15, 0.25])
    long = short if kind == "square" else int(short * rng.choice([2, 6, 20, 30]))
    shape = (long, short) if kind != "wide" else (short, long)
    passes, tol = (int(rng.choice([1, 2, 3, 8])), NOTHING)
    if rng.random() < 0.25:
        passes, tol = 8, float(rng.choice([1e-1, 1e-2, 1e-3, 1e-5]))
    return Case(
        seed,
        str(rng.choice(["krylov", "subspace"], p=[0.75, 0.25])),
        SPECTRA[seed % len(SPECTRA)],
        str(rng.choice([*VECTORS, "random"])),
        shape,
        str(rng.choice(["f4", "f8"], p=[0.3, 0.7])),
        [None, None, 0.0, 10.0, 1e3][rng.integers(0, 5)],
        rank,
        passes,
        tol,
    )


def make_matrix(case: Case) -> tuple[Array, Array]:
    """The matrix of a case, and its singular values as it is asked about."""
    rng = np.random.default_rng([81, case.seed])
    short, long = sorted(case.shape)
    width = min(short, case.rank + max(8, case.rank // 4) + 15)
    s = spectrum(case.spectrum, short, case.rank, width, rng)
    left = VECTORS[case.vectors](long, short, rng)
    right = (unit_columns if rng.random() < 0.25 else orthonormal)(short, short, rng)
    x = (left * s) @ right.T
    x = x if case.shape[0] == long else np.ascontiguousarray(x.T)
    x *= 10.0 ** rng.integers(-3, 4)
    if case.mean is not None:
        spread = np.linalg.norm(x) / np.sqrt(x.size)
        x = x - x.mean(axis=0) + case.mean * spread * rng.standard_normal(x.shape[1])
    x = x.astype(case.dtype)
    wide = x.astype("f8")
    if case.mean is not None:
        wide = wide - wide.mean(axis=0)
    return x, np.linalg.svd(wide, compute_uv=False)[: case.rank]


def run_case(case: Case) -> dict:
    """Claims and truth of a case."""
    x, s = make_matrix(case)
    keywords = {"solver": case.solver, "tol": case.tol, "passes": case.passes_asked, "with_rows": False}
    if case.mean is None:
        result = rf.svd(x, case.rank, **keywords)
        values = np.asarray(result.s)
    else:
        result = rf.pca(x, case.rank, **keywords)
        values = np.asarray(result.singular_values)
    return {**asdict(case), "passes": result.attrs["passes"], **comparison(values, s, result, x.dtype)}


def comparison(values: Array, s: Array, result: object, dtype: np.dtype) -> dict:
    """Largest claim and largest error, their ratio, and whether any value is worse than its own claim."""
    claims = np.asarray(result.error_estimates)  # type: ignore[attr-defined]
    known = s > 1e-13 * s[0]
    relative = s[0] / np.where(known, s, s[0])
    # Products are rounded in the working type relative to the largest value, and squares to its square.
    rounding = 20 * float(np.finfo(dtype).eps) * relative + float(np.finfo(dtype).eps) / 2 * relative**2
    rounding += 1e-13 * relative
    errors = np.where(known, np.abs(values - s) / np.where(known, s, 1.0), 0.0)
    excess = errors / np.maximum(claims + rounding, 1e-300)
    worst, claim = float(errors.max()), float(claims.max())
    return {
        "claimed": claim,
        "true": worst,
        "ratio": claim / worst if worst > 5 * rounding.max() else None,
        "below": bool((excess > 1).any()),
        "largest_below": bool(worst > claim + rounding.max()),
        "excess": float(excess.max()),
    }


# The matrix of the issue --------------------------------------------------------------------------


def power_law(rows: int, columns: int, folder: Path | None) -> list[dict]:
    """Rank 50 of values (1 + i)^-0.9: passes, claim and truth at three tolerances."""
    rng = np.random.default_rng(7)
    weights = (1.0 + np.arange(columns)) ** -0.9
    turn = (orthonormal(columns, columns, rng) * weights).T.astype("f4")
    gram = np.zeros((columns, columns))
    if folder is None:
        x = np.empty((rows, columns), "f4")
    else:
        folder.mkdir(parents=True, exist_ok=True)
        x = np.lib.format.open_memmap(folder / f"power-{rows}.npy", "w+", "f4", (rows, columns))
    for start in range(0, rows, 4096):
        part = rng.standard_normal((min(4096, rows - start), columns), dtype=np.float32) @ turn
        x[start : start + len(part)] = part
        wide = part.astype("f8")
        gram += wide.T @ wide
    s = np.sqrt(np.linalg.eigvalsh(gram)[::-1])[:50]
    source = x if folder is None else folder / f"power-{rows}.npy"
    found = []
    for tol in (1e-2, 1e-3, 1e-4):
        result = rf.svd(source, 50, solver="krylov", tol=tol, with_rows=False)
        found.append(
            {
                "shape": [rows, columns],
                "tol": tol,
                "passes": result.attrs["passes"],
                "convergence": result.attrs["convergence"],
                **comparison(np.asarray(result.s), s, result, np.dtype("f4")),
            }
        )
    return found


# Report -------------------------------------------------------------------------------------------


def summary(rows: list[dict]) -> dict:
    """Median and worst ratio, and how many claims were below the truth."""
    ratios = np.array([row["ratio"] for row in rows if row["ratio"] is not None])
    known = np.array([row["ratio"] for row in rows if row["ratio"] is not None and row["claimed"] < 1])
    return {
        "cases": len(rows),
        "below": sum(row["below"] for row in rows),
        "largest_below": sum(row["largest_below"] for row in rows),
        "worst_excess": max(row["excess"] for row in rows),
        "claims_of_1": sum(row["claimed"] >= 1 for row in rows),
        "median_ratio": float(np.median(ratios)) if len(ratios) else None,
        "median_ratio_of_known": float(np.median(known)) if len(known) else None,
        "largest_ratio_of_known": float(known.max()) if len(known) else None,
        "mean_passes": float(np.mean([row["passes"] for row in rows])),
    }


def table(rows: list[dict]) -> list[str]:
    """One line for all, for each number of passes, each solver and each spectrum."""
    groups = {"all": rows}
    for key in ("passes", "solver", "vectors", "spectrum"):
        for value in sorted({row[key] for row in rows}, key=str):
            groups[f"{key} {value}"] = [row for row in rows if row[key] == value]
    lines = [
        "| cases | number | below the truth | largest below | worst excess | claims of 1 | median ratio "
        "| of claims below 1 | worst |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, group in groups.items():
        facts = summary(group)
        numbers = [facts[key] for key in ("median_ratio", "median_ratio_of_known", "largest_ratio_of_known")]
        cells = [f"{number:.1f}" if number is not None else "" for number in numbers]
        lines.append(
            f"| {name} | {facts['cases']} | {facts['below']} | {facts['largest_below']} | "
            f"{facts['worst_excess']:.2f} | {facts['claims_of_1']} | " + " | ".join(cells) + " |"
        )
    return lines


def main() -> None:
    """Run the cases, print a table and keep the raw numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=360)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--power-law", type=int, nargs=2, default=(20_000, 1000), metavar=("ROWS", "COLUMNS"))
    parser.add_argument("--folder", type=Path, help="for the power law, where it is larger than memory")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/claims.json"))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", rf.RankfoldWarning)
    began, rows = time.perf_counter(), []
    for seed in range(arguments.first, arguments.first + arguments.cases):
        try:
            rows.append(run_case(draw_case(seed)))
        except Exception as error:
            raise RuntimeError(f"seed {seed}") from error
        if rows[-1]["below"]:
            print(json.dumps(rows[-1]), flush=True)
    height, width = arguments.power_law
    power = power_law(height, width, arguments.folder)
    machine = {"system": platform.platform(), "python": platform.python_version(), "blas": core_type()}
    results = {
        "machine": machine,
        "seconds": time.perf_counter() - began,
        "summary": summary(rows),
        "power_law": power,
        "cases": rows,
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(results, indent=1) + "\n")
    print("\n".join(table(rows)))
    for row in power:
        print(json.dumps(row))


if __name__ == "__main__":
    main()
