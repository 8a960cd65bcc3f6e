"""Errors against dense float64 answers, and what the estimates said: the tables of ``docs/accuracy.md``.

python benchmarks/accuracy.py            writes the tables between the markers of that page
"""

from __future__ import annotations

import os
import warnings
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


def spectra_table() -> list[str]:
    """Passes, estimated and true errors of Krylov, by spectrum and tolerance."""
    rng = np.random.default_rng(1)
    lines = ["| spectrum | tol | passes | estimated error | true error |", "|---|---|---|---|---|"]
    for name, spectrum in SPECTRA.items():
        left = np.linalg.qr(rng.standard_normal((ROWS, COLUMNS)))[0]
        right = np.linalg.qr(rng.standard_normal((COLUMNS, COLUMNS)))[0]
        x = (left * spectrum) @ right
        s = np.linalg.svd(x, compute_uv=False)[:RANK]
        for tol in (1e-2, 1e-4, 1e-8):
            result = rf.svd(x, RANK, method="krylov", tol=tol, passes=30)
            error = float(np.max(np.abs(result.s - s) / s))
            estimate = result.attrs["largest_error_estimate"]
            lines.append(f"| {name} | {tol:.0e} | {result.attrs['passes']} | {estimate:.0e} | {error:.0e} |")
    return lines


def mean_table() -> list[str]:
    """float32 data far from zero: error of PCA's singular values over the largest."""
    rng = np.random.default_rng(2)
    noise = rng.standard_normal((20_000, 60)) * np.linspace(3, 0.3, 60)
    lines = [
        "| mean / standard deviation | `gram` | `krylov` | E[xx'] - E[x]E[x]' in float32 |",
        "|---|---|---|---|",
    ]
    for ratio in (1e2, 1e3, 1e4):
        x = (ratio + noise).astype(np.float32)
        wide = x.astype(np.float64)
        s = np.linalg.svd(wide - wide.mean(axis=0), compute_uv=False)[:RANK]
        errors = []
        for method in ("gram", "krylov"):
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
    """Run both and rewrite the page."""
    warnings.simplefilter("ignore", rf.RankfoldWarning)
    page = replaced(PAGE.read_text(), "spectra", spectra_table())
    PAGE.write_text(replaced(page, "means", mean_table()))


if __name__ == "__main__":
    main()
