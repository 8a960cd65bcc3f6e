"""Principal components of handwritten digits, and how many of them an image needs.

The mean and the leading components of 1797 images of 8 x 8 pixels, then one image from 2 to 32 of them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import rankfold as rf


def main(picture: Path) -> None:
    """Draw components and approximations into one picture."""
    x = load_digits().data
    result = rf.pca(x, rank=32)
    mean, components, scores = result.mean, result.components, result.scores[:]

    figure, axes = plt.subplots(2, 6, figsize=(9, 3.4), layout="constrained")
    axes[0, 0].imshow(mean.reshape(8, 8), cmap="gray_r")
    axes[0, 0].set_title("mean")
    for i, share in enumerate(result.explained_variance_ratio[:5]):
        axes[0, i + 1].imshow(components[i].reshape(8, 8), cmap="RdBu")
        axes[0, i + 1].set_title(f"{share:.0%}")

    number = 5
    axes[1, 0].imshow(x[number].reshape(8, 8), cmap="gray_r")
    axes[1, 0].set_title("an image")
    for ax, k in zip(axes[1, 1:], (2, 4, 8, 16, 32), strict=True):
        ax.imshow((mean + scores[number, :k] @ components[:k]).reshape(8, 8), cmap="gray_r")
        ax.set_title(f"{k} components")
    for ax in np.ravel(axes):
        ax.set_axis_off()
    figure.savefig(picture, dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "digits.png"))
