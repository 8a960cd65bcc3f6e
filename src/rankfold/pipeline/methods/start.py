"""What a first pass must know before it starts: a shift near the mean, and the size of the numbers.

Both come from a few rows at eight places along the matrix, so that a matrix sorted by time or batch is
centred about its middle and not about its beginning. They need not be accurate: the shift only has to
be close enough that what is left does not drown the variance, and passes correct for it exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.blocks import Cut
from rankfold.pipeline.checkpoint import load_arrays, save_arrays
from rankfold.pipeline.view import Orientation, View

PLACES = 8
ROWS_PER_PLACE = 64
PLACE_BYTES = 2**20

_EXPONENTS = {4: (-100, 100), 8: (-900, 900)}
"""Units that the working type holds, with room for the basis that they multiply, by item size."""

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Start:
    """Provisional centring."""

    shift: Float64
    """(short,) provisional column means of a tall matrix; zeros where nothing is centred this way."""

    unit: float
    """Power of two that brings the largest sampled element near 1."""


def sample_start(view: View, cut: Cut, *, centre: bool, path: Path) -> Start:
    """Read the sample, or take what an earlier attempt found."""
    if not path.exists():
        shift, largest = _sample(view, cut, centre)
        exponent = -int(np.frexp(largest)[1]) if largest > 0 else 0
        save_arrays(
            path,
            {"shift": shift, "unit": np.ldexp(1.0, int(np.clip(exponent, *_EXPONENTS[view.dtype.itemsize])))},
        )
    stored = load_arrays(path)
    return Start(stored["shift"], float(stored["unit"]))


def sample_rows(view: View) -> int:
    """Rows read at each place."""
    row_bytes = view.short * view.source.dtype.itemsize
    return max(1, min(ROWS_PER_PLACE, PLACE_BYTES // row_bytes))


def _sample(view: View, cut: Cut, centre: bool) -> tuple[Float64, float]:
    panels = len(cut.panels) - 1
    places = sorted({int(cut.panels[panels * i // PLACES]) for i in range(PLACES)})
    rows = sample_rows(view)
    buffer = view.panel_buffer(rows, view.source.dtype)
    parts = []
    for start in places:
        stop = min(start + rows, view.long)
        view.read(buffer, start, stop)
        part = view.as_rows(view.part(buffer, 0, stop - start)).astype(np.float64)
        parts.append(np.where(np.isfinite(part), part, 0.0))
    sample = np.vstack(parts)
    shift = np.zeros(view.short)
    if centre and view.orientation is Orientation.ROWS:
        shift = sample.mean(axis=0)
        sample -= shift
    elif centre:
        sample -= sample.mean(axis=1, keepdims=True)
    return shift, float(np.abs(sample).max())
