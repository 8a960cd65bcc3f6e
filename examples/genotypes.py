"""Ancestry from genotypes, with calls that are missing.

600 people of three populations and some of mixed descent, 5000 places of the genome, 0, 1 or 2 copies, a
twentieth of the calls missing as -1. `patterson` brings every place to one scale by its own frequency, as
EIGENSOFT does, and leaves what is missing out.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt

import rankfold as rf


def genotypes(people: int = 600, places: int = 5000) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float64]]:
    """Calls, and the share of each population in each person."""
    rng = np.random.default_rng(0)
    ancestral = rng.uniform(0.05, 0.95, places)
    frequency = rng.beta(*(20 * np.stack([ancestral, 1 - ancestral])[:, None]), (3, places))
    shares = np.eye(3)[rng.integers(0, 3, people)]
    mixed = rng.random(people) < 0.2
    shares[mixed] = rng.dirichlet([1, 1, 1], mixed.sum())
    calls = rng.binomial(2, shares @ frequency).astype(np.int8)
    calls[rng.random(calls.shape) < 0.05] = -1
    return calls, shares


def main(picture: Path) -> None:
    """Draw two components, colored by descent."""
    calls, shares = genotypes()
    result = rf.pca(rf.open(calls, prepare="patterson"), rank=4)
    missing = 1 - result.prepare_1_patterson_calls / len(calls)
    figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    axes[0].scatter(result.scores[:, 0], result.scores[:, 1], c=shares, s=8)
    axes[0].set_title("people, by shares of three populations")
    axes[0].set_xticks([]), axes[0].set_yticks([])
    axes[1].bar(range(1, 5), result.explained_variance_ratio)
    axes[1].set_title(f"share of the variance; {missing.mean():.1%} of the calls are missing")
    axes[1].set_xticks(range(1, 5))
    figure.savefig(picture, dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "genotypes.png"))
