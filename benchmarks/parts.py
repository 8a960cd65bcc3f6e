"""The parts that nonnegative factors are made of, beside principal components: a figure of images.

    python benchmarks/parts.py --images fashion_mnist.npz --figure docs/figures/parts.png

Takes an .npz file with ``X``, (images, pixels of a square) uint8, such as Fashion-MNIST's training images.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import rankfold as rf

PARTS, COLUMNS = 24, 6


def main() -> None:
    """Factorize, and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--figure", type=Path, required=True)
    arguments = parser.parse_args()
    x = np.load(arguments.images)["X"]
    parts = rf.nmf(x, PARTS)
    components = rf.pca(x, PARTS, with_rows=False)
    print(f"nmf: {parts.attrs['passes']} passes, relative error {parts.attrs['relative_error']:.4f}")
    strongest = np.argsort(-np.linalg.norm(parts.H, axis=1))
    draw(np.asarray(parts.H)[strongest], np.asarray(components.components), arguments.figure)


def draw(parts: np.ndarray, components: np.ndarray, path: Path) -> None:
    """Both side by side: white is nothing; of components, blue is below zero."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(10, 3.9), dpi=110, layout="constrained")
    left, right = figure.subfigures(1, 2, wspace=0.05)
    left.suptitle(f"nmf: {len(parts)} parts, which add up", fontsize=11)
    right.suptitle(f"pca: {len(components)} components, which cancel", fontsize=11)
    for half, images, colors in ((left, parts, "Greys"), (right, components, "RdBu_r")):
        axes: Any = half.subplots(len(images) // COLUMNS, COLUMNS)
        for axis, image in zip(axes.flat, images, strict=True):
            side = int(np.sqrt(image.size))
            most = np.abs(image).max()
            axis.imshow(
                image.reshape(side, side), cmap=colors, vmin=-most if colors != "Greys" else 0, vmax=most
            )
            axis.set_axis_off()
    figure.savefig(path, metadata={"Software": None})


if __name__ == "__main__":
    main()
