"""One pass into three sketches and an error sketch: all that a reconstruction needs.

Every row of the test matrices is a function of the seed and of its index in the matrix, so sketches do
not depend on how rows were cut. All sketches are linear, so the difference between the mean and the
provisional shift is corrected afterwards, from the sums of the test matrices' rows.

References
----------
Tropp, Yurtsever, Udell, Cevher, Streaming low-rank matrix approximation with an application to scientific
simulation, SIAM J. Sci. Comput. 41(4), 2019, section 2.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.center_scale import measure, subtract
from rankfold.kernels.linear.gaussian import TILE_ROWS, gaussian_rows
from rankfold.kernels.linear.sketch import sketch_product
from rankfold.methods.parts.conditioned import Centering, OverConditionedPanels
from rankfold.methods.parts.panels import Panels
from rankfold.methods.random_keys import Purpose
from rankfold.pipeline.engine.fold import Buffer, Constant, Sum, Workspace
from rankfold.pipeline.storage.checkpoint import State
from rankfold.pipeline.storage.scratch import ScratchMatrix

Array = npt.NDArray[Any]

ERROR_ROWS = 10
"""Rows of the error sketch."""


@dataclass(frozen=True, slots=True)
class SketchSizes:
    """Numbers of Gaussian test vectors for each sketch."""

    range: int
    """Test vectors of the range sketch, and of the co-range sketch."""

    core: int
    """Test vectors of the core sketch on either side."""

    error: int = ERROR_ROWS
    """Test vectors of the error sketch."""

    @classmethod
    def of(cls, rank: int, short: int) -> SketchSizes:
        """Sizes of Tropp et al. 2019 for a rank: 4 rank + 1, and for the core twice as many and one more.

        >>> SketchSizes.of(10, 1000)
        SketchSizes(range=41, core=83, error=10)
        """
        width = min(4 * rank + 1, short)
        return cls(width, 2 * width + 1)

    @property
    def right(self) -> int:
        """Number of test vectors of the short side, by which A is multiplied from the right."""
        return self.range + self.core

    @property
    def down(self) -> int:
        """Number of test vectors of the long side whose products with A are kept: for co-range and error."""
        return self.range + self.error

    @property
    def across(self) -> int:
        """Number of test vectors of the long side that multiply A times those of the short side."""
        return self.error + self.core

    @property
    def left(self) -> int:
        """Number of test vectors of the long side, by which A is multiplied from the left."""
        return self.range + self.error + self.core

    def row_bytes(self, item: int) -> int:
        """Bytes of buffers for one row of a grain (rows of one product)."""
        return 8 * self.left + item * self.down + (item + 8) * self.right + item * self.range

    def accumulator_bytes(self, short: int) -> int:
        """Bytes of the sketches that one stream sums."""
        return 8 * (short * self.down + self.across * self.right)


@dataclass(frozen=True, slots=True)
class SketchPass(OverConditionedPanels):
    """Fold that writes the range sketch of a matrix to scratch, and sums its other sketches over all rows."""

    panels: Panels
    centering: Centering
    constants: Path
    """Checkpoint file with ``right`` (short, range + core), times unit and column weights, and ``shift``."""

    sizes: SketchSizes
    y: ScratchMatrix
    """The range sketch, (long, range)."""

    columns: ScratchMatrix | None
    measures_columns: bool
    seed: int
    row_seconds: float

    kernels = (measure, subtract, gaussian_rows, sketch_product)

    @property
    def shift_part(self) -> Path:
        """Path of the checkpoint file that holds the shift of the columns."""
        return self.constants

    def buffers(self) -> Mapping[str, Buffer]:
        """Test vectors of the short side and of a grain, and products with them, in the working type.

        ``right`` (short, range + core) and ``down`` (grain rows, range + error) are test vectors; ``y`` is
        the product of a grain with ``right``, ``range`` its leading columns, ``z`` what a grain adds to the
        sum of that name.
        """
        (short, dtype), sizes, rows = self._short_side, self.sizes, self.panels.grain_rows
        return {
            **OverConditionedPanels.buffers(self),
            "right": Constant((short, sizes.right), dtype, self.constants),
            "down": Buffer((rows, sizes.down), dtype),
            "y": Buffer((rows, sizes.right), dtype),
            "range": Buffer((rows, sizes.range), dtype),
            "z": Buffer((short, sizes.down), dtype),
        }

    @property
    def _short_side(self) -> tuple[int, np.dtype[Any]]:
        return self.panels.view.short, self.panels.view.dtype

    @property
    def temporary_bytes(self) -> int:
        """Bytes of test vectors of a grain as they are drawn, and of its products in float64.

        Test vectors of the short side, as they are loaded, are freed before those of a grain and the sums
        are allocated, but may be the larger.
        """
        short, rows, sizes = self.panels.view.short, self.panels.grain_rows, self.sizes
        grain = 8 * sizes.left * (rows + TILE_ROWS) + 8 * sizes.across * sizes.right
        once = max(grain, 8 * short * sizes.right - self.accumulator_bytes)
        return self.vectors_bytes + 8 * rows * sizes.right + once

    def sums(self) -> Mapping[str, Sum]:
        """Sketches ``z`` (short, range + error) of co-range and error, ``core`` (error + core, range + core).

        ``ones`` (range + error + core,) are the sums of the long side's test vectors over all rows.
        """
        sizes = self.sizes
        return {
            "z": Sum((self.panels.view.short, sizes.down)),
            "core": Sum((sizes.across, sizes.right)),
            "ones": Sum((sizes.left,)),
            **OverConditionedPanels.sums(self),
        }

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Add a panel to the sketches, grain by grain."""
        sizes, unit = self.sizes, self.centering.panel_factor(self.panels.view.orientation)
        for first, last, d in self.condition_grains(state, work, start, stop, slot):
            drawn = gaussian_rows(self.seed, Purpose.SKETCH_LONG_SIDE, (first, last), sizes.left)
            left = work.device.place(drawn, drawn.dtype)
            state["ones"] += left.sum(axis=0)
            rows = last - first
            down, y, range_ = work.down[:rows], work.y[:rows], work.range[:rows]
            # The unit is a power of two, and keeps products of a grain in range.
            np.multiply(left[:, : sizes.down], unit, out=down, casting="same_kind")
            across = left[:, sizes.range :]
            sketch_product(d, work.right, down, across, y=y, z=state["z"], core=state["core"], work=work.z)
            np.copyto(range_, y[:, : sizes.range])
            work.device.send(range_, functools.partial(self.y.write, first))
