"""Parts of images: nonnegative factors beside principal components.

Components of `pca` add and subtract; those of `nmf` only add, so that they are parts: strokes of digits.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import rankfold as rf


def main(picture: Path) -> None:
    """Draw ten components of each."""
    x = load_digits().data
    parts = rf.nmf(x, rank=10, seed=1)
    components = rf.pca(x, rank=10, with_rows=False)

    figure, axes = plt.subplots(2, 10, figsize=(9, 2.2), layout="constrained")
    for i in range(10):
        axes[0, i].imshow(parts.H[i].reshape(8, 8), cmap="gray_r")
        axes[1, i].imshow(components.components[i].reshape(8, 8), cmap="RdBu")
    axes[0, 0].set_title(f"nmf: relative error {parts.attrs['relative_error']:.2f}", loc="left")
    axes[1, 0].set_title("pca", loc="left")
    for ax in np.ravel(axes):
        ax.set_axis_off()
    figure.savefig(picture, dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "parts.png"))
