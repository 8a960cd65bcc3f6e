"""Errors against dense float64 answers, and what the estimates said: the tables of ``docs/accuracy.md``.

python benchmarks/accuracy.py            writes the tables between the markers of that page
"""

from __future__ import annotations

import importlib.metadata
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

import dask.array as da
import numpy as np
from sklearn import decomposition
from sklearn.utils import extmath

import rankfold as rf

PAGE = Path(__file__).parents[1] / "docs" / "accuracy.md"
RANK, ROWS, COLUMNS = 20, 3000, 600
INDEX = np.arange(1.0, COLUMNS + 1)
SPECTRA = {
    "1/i": 1 / INDEX,
    "1/√i": INDEX**-0.5,
    "i^-0.1": INDEX**-0.1,
    "20 spikes 3 to 1.2, then 1.1 to 0.6": np.r_[np.linspace(3, 1.2, 20), np.linspace(1.1, 0.6, 580)],
    "flat within 10 %": 1 + 0.1 * np.linspace(1, -1, COLUMNS),
    "10, then 1.01 to 1": np.r_[10, np.linspace(1.01, 1, COLUMNS - 1)],
}
LEAST_RATIO = {"0.8^i": np.maximum(0.8**INDEX, 1e-9), "i^-2": INDEX**-2}


def matrices(spectra: dict[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Name, matrix and singular values."""
    rng = np.random.default_rng(1)
    for name, spectrum in spectra.items():
        left = np.linalg.qr(rng.standard_normal((ROWS, COLUMNS)))[0]
        right = np.linalg.qr(rng.standard_normal((COLUMNS, COLUMNS)))[0]
        x = (left * spectrum) @ right
        yield name, x, np.linalg.svd(x, compute_uv=False)


def spectra_table() -> list[str]:
    """Passes, estimated and true errors of Krylov and subspace iteration, by spectrum and tolerance."""
    head = " | ".join("passes | estimated error | true error" for _ in range(2))
    lines = [f"| spectrum | tol | {head} |", "|---|---|---|---|---|---|---|---|"]
    for name, x, s in matrices(SPECTRA):
        for tol in (1e-2, 1e-4, 1e-8):
            cells = []
            for method in ("krylov", "subspace"):
                result = rf.svd(x, RANK, solver=method, tol=tol, passes=30)
                error = float(np.max(np.abs(result.s - s[:RANK]) / s[:RANK]))
                estimate = result.attrs["largest_error_estimate"]
                cells.append(f"{result.attrs['passes']} | {estimate:.0e} | {error:.0e}")
            lines.append(f"| {name} | {tol:.0e} | " + " | ".join(cells) + " |")
    return lines


def single_pass_table() -> list[str]:
    """What one read gives: errors of the sketch, estimated and true, and of one pass of Krylov."""
    lines = [
        "| spectrum | best | `sketch` | as estimated | its values | one pass of `krylov` | its values |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, x, s in matrices(LEAST_RATIO | SPECTRA):
        norm, cells = np.linalg.norm(s), [f"{np.linalg.norm(s[RANK:]) / np.linalg.norm(s):.1e}"]
        for method in ("sketch", "krylov"):
            result = rf.svd(x, RANK, solver=method, passes=1)
            cells.append(f"{np.linalg.norm(x - (result.U[...] * result.s) @ result.Vt) / norm:.1e}")
            if method == "sketch":
                cells.append(f"{result.attrs['approximation_error']:.1e}")
            cells.append(f"{np.max(np.abs(result.s - s[:RANK]) / s[:RANK]):.0e}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def mean_table() -> list[str]:
    """float32 data far from zero: error of PCA's singular values over the largest."""
    rng = np.random.default_rng(2)
    noise = rng.standard_normal((20_000, 60)) * np.linspace(3, 0.3, 60)
    lines = [
        "| mean / standard deviation | `gram` | `krylov` | `subspace` | E[xx'] - E[x]E[x]' in float32 |",
        "|---|---|---|---|---|",
    ]
    for ratio in (1e2, 1e3, 1e4):
        x = (ratio + noise).astype(np.float32)
        wide = x.astype(np.float64)
        s = np.linalg.svd(wide - wide.mean(axis=0), compute_uv=False)[:RANK]
        errors = []
        for method in ("gram", "krylov", "subspace"):
            found = rf.pca(x, RANK, solver=method, tol=1e-7, passes=20).singular_values
            errors.append(np.max(np.abs(found - s)) / s[0])
        mean = x.mean(axis=0)
        naive = np.linalg.eigvalsh((x.T @ x / np.float32(len(x)) - np.outer(mean, mean)).astype(np.float64))[
            ::-1
        ]
        found = np.sqrt(np.maximum(naive[:RANK], 0) * len(x))
        errors.append(np.max(np.abs(found - s)) / s[0])
        lines.append(f"| {ratio:.0e} | " + " | ".join(f"{error:.0e}" for error in errors) + " |")
    return lines


def low_rank(rows: int, columns: int, values: np.ndarray, dtype: str = "f8") -> np.ndarray:
    """A matrix with these singular values."""
    rng = np.random.default_rng(3)
    left, right = (np.linalg.qr(rng.standard_normal((size, len(values))))[0] for size in (rows, columns))
    return ((left * values) @ right.T).astype(dtype)


def told(compute: Callable[[], np.ndarray], truth: np.ndarray) -> str:
    """Largest error over the largest value, or what was raised."""
    try:
        return f"{np.max(np.abs(compute() - truth)) / truth[0]:.0e}"
    except Exception as error:  # noqa: BLE001
        return type(error).__name__


def compressed(x: np.ndarray, rank: int, chunks: tuple[int, int] = (500, 200), **options: Any) -> np.ndarray:
    """Values by Dask."""
    return da.linalg.svd_compressed(da.from_array(x, chunks=chunks), rank, seed=0, **options)[1].compute()


def components(x: np.ndarray, rank: int) -> np.ndarray:
    """Standard deviations along principal components by scikit-learn, as it would by itself."""
    return decomposition.PCA(rank, random_state=0).fit(x).explained_variance_ ** 0.5


def peers_table() -> list[str]:
    """Cases that have gone wrong elsewhere, all in this run."""
    rows = []
    noise = np.random.default_rng(2).standard_normal((20_000, 20)) * np.logspace(0, -1, 20)
    for ratio in (1e2, 1e3, 1e4):
        x = (ratio + noise).astype("f4")
        truth = np.linalg.eigvalsh(np.cov(x.T.astype("f8")))[::-1][:5] ** 0.5
        lazy, m = da.from_array(x, chunks=(2000, 20)), len(x) - 1
        rows.append(
            (
                f"PCA, float32, mean {ratio:.0e} deviations",
                told(lambda x=x: rf.pca(x, 5, with_rows=False).explained_variance ** 0.5, truth),
                told(lambda y=lazy: da.linalg.svd(y - y.mean(0))[1].compute()[:5] / m**0.5, truth),  # noqa: B023
                told(lambda x=x: components(x, 5), truth),
            )
        )
    values = 0.6 ** np.arange(40)
    for power in (0, 2, 7):
        x = low_rank(2000, 200, values, "f4")
        options = {"n_iter": power, "random_state": 0}
        rows.append(
            (
                f"10 values 0.6^i, float32, {power} power iterations",
                told(lambda x=x, q=power: rf.svd(x, 10, solver="krylov", passes=q + 1).s, values[:10]),
                told(lambda x=x, q=power: compressed(x, 10, n_power_iter=q), values[:10]),
                told(lambda x=x, o=options: extmath.randomized_svd(x, 10, **o)[1], values[:10]),
            )
        )
    values = 1 / np.arange(1, 51.0)
    x = low_rank(400, 100, values * 1e12, "f4")
    rows.append(
        (
            "5 values 1/i, float32, times 1e12, 2 power iterations",
            told(lambda: rf.svd(x, 5, solver="krylov", passes=3).s, 1e12 * values[:5]),
            told(lambda: compressed(x, 5, n_power_iter=2), 1e12 * values[:5]),
            told(lambda: extmath.randomized_svd(x, 5, n_iter=2, random_state=0)[1], 1e12 * values[:5]),
        )
    )
    return [*rows_of(rows), *rows_of(of_cuts())]


def of_cuts() -> list[tuple[str, str, str, str]]:
    """How far the same seed leads apart when chunks differ, and matrices of other kinds."""
    x = low_rank(400, 300, 1 / np.arange(1, 101.0))
    cuts = [(100, 300), (100, 100), (400, 50)]
    ours = [rf.svd(da.from_array(x, chunks=c), 5, solver="krylov", passes=1, tol=0.5).s for c in cuts]
    theirs = [compressed(x, 5, c) for c in cuts]
    apart = [f"{max(np.max(np.abs(s - found[0])) for s in found):.0e}" for found in (ours, theirs)]
    z, values = low_rank(300, 80, 0.8 ** np.arange(40)), 0.8 ** np.arange(40)
    turned = np.exp(1j * np.arange(300))[:, None] * z * np.exp(2j * np.arange(80))
    return [
        ("values of one seed and pass, chunks cut otherwise: apart by", *apart, "takes no chunks"),
        (
            "10 values, complex",
            told(lambda: rf.svd(turned, 10).s, values[:10]),
            told(lambda: compressed(turned, 10, n_power_iter=2), values[:10]),
            told(lambda: extmath.randomized_svd(turned, 10, random_state=0)[1], values[:10]),
        ),
    ]


def rows_of(cells: list[tuple[str, str, str, str]]) -> list[str]:
    """Lines of a table."""
    return ["| " + " | ".join(row) + " |" for row in cells]


def versions() -> str:
    """What was compared."""
    names = ("dask", "scikit-learn", "numpy")
    return "(" + ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names) + ")"


def replaced(page: str, name: str, lines: list[str]) -> str:
    """The page with a new table between its markers."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    head, _, rest = page.partition(begin)
    return head + begin + "\n".join(lines) + "\n" + end + rest.partition(end)[2]


def main() -> None:
    """Run all and rewrite the page."""
    warnings.simplefilter("ignore", rf.RankfoldWarning)
    page = replaced(PAGE.read_text(), "spectra", spectra_table())
    page = replaced(page, "single pass", single_pass_table())
    page = replaced(page, "means", mean_table())
    head = [f"| {versions()} | rankfold | dask | scikit-learn |", "|---|---|---|---|"]
    PAGE.write_text(replaced(page, "peers", [*head, *peers_table()]))


if __name__ == "__main__":
    main()
