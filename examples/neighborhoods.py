"""How many components keep the neighbors of digits.

`trustworthiness` asks whether neighbors in an embedding are neighbors in the data, `continuity` the other way
round.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

import rankfold as rf


def main(picture: Path) -> None:
    """Draw both measures against the number of components, and the plane of the first two."""
    digits = load_digits()
    x, scores = digits.data, rf.pca(digits.data, rank=24).scores[:]
    ranks = (1, 2, 4, 8, 16, 24)
    kept = {
        measure.__name__: [float(measure(x, scores[:, :k], 10)) for k in ranks]
        for measure in (rf.trustworthiness, rf.continuity)
    }

    figure, (plane, curve) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    dots = plane.scatter(scores[:, 0], scores[:, 1], c=digits.target, cmap="tab10", s=4)
    figure.colorbar(dots, ax=plane, label="digit")
    plane.set_title("two components")
    for name, values in kept.items():
        curve.plot(ranks, values, "o-", label=name)
    curve.set_xlabel("components")
    curve.set_xscale("log", base=2)
    curve.set_title("neighbors that are kept")
    curve.legend()
    figure.savefig(picture, dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "neighborhoods.png"))
