"""Errors against dense float64 answers, and what the estimates said: the tables of ``docs/accuracy.md``.

python benchmarks/accuracy.py            writes the tables between the markers of that page
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

import numpy as np

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
STEEP = {"0.8^i": np.maximum(0.8**INDEX, 1e-9), "i^-2": INDEX**-2}


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
                result = rf.svd(x, RANK, method=method, tol=tol, passes=30)
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
    for name, x, s in matrices(STEEP | SPECTRA):
        norm, cells = np.linalg.norm(s), [f"{np.linalg.norm(s[RANK:]) / np.linalg.norm(s):.1e}"]
        for method in ("sketch", "krylov"):
            result = rf.svd(x, RANK, method=method, passes=1)
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
            found = rf.pca(x, RANK, method=method, tol=1e-7, passes=20).singular_values
            errors.append(np.max(np.abs(found - s)) / s[0])
        mean = x.mean(axis=0)
        naive = np.linalg.eigvalsh((x.T @ x / np.float32(len(x)) - np.outer(mean, mean)).astype(np.float64))[
            ::-1
        ]
        found = np.sqrt(np.maximum(naive[:RANK], 0) * len(x))
        errors.append(np.max(np.abs(found - s)) / s[0])
        lines.append(f"| {ratio:.0e} | " + " | ".join(f"{error:.0e}" for error in errors) + " |")
    return lines


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
    PAGE.write_text(replaced(page, "means", mean_table()))


if __name__ == "__main__":
    main()
