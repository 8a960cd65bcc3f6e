"""A map of handwritten digits, with the digit that each image shows.

Nearest neighbors of 1797 images among their principal components, and the layout of their graph in a plane.
"""

from __future__ import annotations

import sys
from pathlib import Path

from sklearn.datasets import load_digits

import rankfold as rf


def main(picture: Path) -> None:
    """Lay images out by their neighbors, and draw where they lie."""
    digits = load_digits()
    components = rf.pca(digits.data, rank=30)
    neighbors = rf.knn(components.scores, k=14)
    layout = rf.umap(neighbors, init=components)
    layout.plot(color=digits.target_names[digits.target], out=picture, overwrite=True)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "digits_map.png"))
