"""Colors of many categories: each looks as different as possible from those before it.

The first are chosen by hand, so that color-blind eyes can distinguish them too. The others are found
among colors of sRGB on a lattice, by the distance in Oklab, in which equal distances look about equal.

References
----------
[Ott20] Ottosson, A perceptual color space for image processing, https://bottosson.github.io/posts/oklab,
2020: Oklab, with its two matrices.
"""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

HUES = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#999933")
"""Colors of the first categories (Okabe, Ito and one more): color-blind safe, on light and on dark."""

MORE_HUES = ("#5b4fc4", "#a3324f", "#5f7f1f", "#c9b458", "#aa4499")
"""Colors of further categories, after Tol's palettes; with more colors, some are closer to each other."""

NO_LABEL = "#b9bfc6"
"""Color of rows without a label, or of labels that are too many to have a color of their own."""

MOST_HUES = 100
"""Most colors of categories: up to here, the closest two differ as much as in ``HUES`` and ``MORE_HUES``."""

LATTICE = range(0, 256, 15)
"""Values of red, green and blue among which further colors are searched."""

LIGHTNESS = (0.4, 0.82)
"""Range of lightness in Oklab, from 0 to 1, that is visible on light and on dark paper."""

LEAST_CHROMA = 0.05
"""Least chroma in Oklab; paler colors look like rows without a label."""

TO_CONES = (
    (0.4122214708, 0.5363325363, 0.0514459929),
    (0.2119034982, 0.6806995451, 0.1073969566),
    (0.0883024619, 0.2817188376, 0.6299787005),
)
FROM_CONES = (
    (0.2104542553, 0.7936177850, -0.0040720468),
    (1.9779984951, -2.4285922050, 0.4505937099),
    (0.0259040371, 0.7827717662, -0.8086757660),
)


@functools.cache
def hues(count: int) -> tuple[str, ...]:
    """The first ``count`` colors of categories, of ``MOST_HUES`` at most.

    >>> hues(2), len(set(hues(100)))
    (('#0072b2', '#e69f00'), 100)
    """
    chosen = [*HUES, *MORE_HUES]
    if count <= len(chosen):
        return tuple(chosen[:count])
    lattice = np.stack(np.meshgrid(*[np.array(LATTICE)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    seen = oklab(lattice)
    is_seen = (seen[:, 0] > LIGHTNESS[0]) & (seen[:, 0] < LIGHTNESS[1])
    is_seen &= np.hypot(seen[:, 1], seen[:, 2]) > LEAST_CHROMA
    lattice, seen = lattice[is_seen], seen[is_seen]
    distance = np.full(len(seen), np.inf)
    for other in oklab(np.array([rgb(color) for color in (*chosen, NO_LABEL)])):
        distance = np.minimum(distance, _squares(seen, other))
    while len(chosen) < min(count, MOST_HUES):
        # Rounded, so that the choice does not depend on the last digits of a machine's cube root.
        farthest = int(np.argmax(np.round(distance, 9)))
        chosen.append("#" + "".join(f"{value:02x}" for value in lattice[farthest].tolist()))
        distance = np.minimum(distance, _squares(seen, seen[farthest]))
    return tuple(chosen)


def rgb(color: str) -> npt.NDArray[np.int64]:
    """Red, green and blue of ``#rrggbb``, 0 to 255."""
    return np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)], np.int64)


def oklab(colors: npt.NDArray[np.int64]) -> Array:
    """Convert sRGB colors (n, 3), 0 to 255, to Oklab: lightness and two opponent colors, (n, 3).

    >>> np.abs(np.round(oklab(np.array([[255, 255, 255]])), 6)).tolist()
    [[1.0, 0.0, 0.0]]
    """
    share = colors / 255
    linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    lab: Array = np.cbrt(linear @ np.array(TO_CONES).T) @ np.array(FROM_CONES).T
    return lab


def _squares(colors: Array, other: Array) -> Array:
    squares: Array = ((colors - other) ** 2).sum(axis=1)
    return squares
