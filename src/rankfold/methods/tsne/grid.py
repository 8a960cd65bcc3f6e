"""Repulsive forces on all vertices in a plane at once, by a grid of nodes and Fourier transforms.

Charges of vertices are spread to the nodes around them, potentials of nodes are a convolution, and those at
vertices are interpolated from the nodes around them: work grows with the vertices and with the nodes, not
with pairs. With cubic B-splines both ways, a potential interpolates if its Fourier transform is divided by
that of the spline, twice. Two things are needed of a kernel ``q = 1 / (1 + d^2)``: the forces ``q^2 d`` along
both axes, each of which is a kernel of its own, so that one charge is spread and two potentials are
interpolated; and the sum of q over all pairs, which is a sum over frequencies (Parseval) and takes no further
transform.

Nodes lie ``SPACING`` apart whatever the span is, so that kernels are transformed anew only when the grid
grows. They lie closer where the span is small, and farther apart where there would be more nodes than memory
is planned for; the result then has a warning.

References
----------
Linderman, Rachh, Hoskins, Steinerberger, Kluger, Nature Methods 16, 2019: polynomials of degree 2 within
boxes of width 1, and four charges. At the same nodes splines leave a tenth of the error.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.grid.nodes import Lattice, potentials_at, spread_charges

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Complex64 = npt.NDArray[np.complex64]

SPACING = 0.4
"""Distance between neighboring nodes, in units of the embedding. Forces are off by some 1 % then, and by a
fifth of that at half the distance."""

FEWEST_NODES = 64
"""Fewest nodes along the longer axis of a grid: with fewer, nodes are moved closer."""

LEAST_NODES, MOST_NODES, NODES_OF_ROW = 2**19, 2**22, 8
"""Upper bound on the number of nodes of a grid: ``NODES_OF_ROW`` for each row, but at least the first and at
most the second of these numbers."""

MARGIN = 12
"""Nodes by which each axis of a grid is lengthened for transforms. Division by the transform of the spline
spreads values over nearby nodes; what reaches across the margin is 0.27 to this power."""

LINES, LINE_NODES = 16, 2**17
"""Largest number of lines (rows or columns of nodes) that a thread transforms together, and largest number of
nodes in these."""

NODE_BYTES = 96
"""Bytes planned for each node of a grid."""

WAVE_BYTES = 80
"""Bytes of each node, margin included, while kernels are transformed: 40 for each of its two waves. Of these,
kernels and their factors take 16, splines 4, transforms in progress 8, and the three kept 12."""

BORDER = 2
"""Nodes along each axis before the first vertex, and after the last."""


def most_nodes(rows: int) -> int:
    """Upper bound on the number of nodes of a grid for ``rows`` vertices, margin not included."""
    return min(MOST_NODES, max(LEAST_NODES, NODES_OF_ROW * rows))


def lattice_of(positions: Float32, most: int) -> tuple[Lattice, tuple[int, int]]:
    """Lattice of at most ``most`` nodes around all ``positions`` (n, 2), and its shape (rows, columns)."""
    low, high = positions.min(axis=0).astype(np.float64), positions.max(axis=0).astype(np.float64)
    span, spacing = high - low, SPACING
    widest = float(span.max())
    while widest > 0 and widest / spacing < FEWEST_NODES:
        spacing /= 2
    while not _fits(shape := _shape(span, spacing), most):
        spacing *= 2
    first = low - BORDER * spacing
    return Lattice(float(first[0]), float(first[1]), spacing), shape


def _fits(shape: tuple[int, int], most: int) -> bool:
    """True if a grid has at most ``most`` nodes, and its waves fit in the memory planned for these.

    Narrow grids are mostly margin.
    """
    padded = math.prod(nodes + MARGIN for nodes in shape)
    return math.prod(shape) <= most and padded * WAVE_BYTES <= most * NODE_BYTES


def _shape(span: Float64, spacing: float) -> tuple[int, int]:
    """Numbers of nodes along both axes, rounded up so that transformed kernels serve while the span grows."""
    rows, columns = (int(length / spacing) + 2 * BORDER + 2 for length in span)
    return _rounded(rows), _rounded(columns)


def _rounded(nodes: int) -> int:
    step: int = max(8, 1 << max(0, nodes.bit_length() - 5))
    return -(-nodes // step) * step


@dataclass(frozen=True, slots=True)
class Waves:
    """Fourier transforms of kernels, on a grid doubled along both axes to avoid periodic images.

    ``shape`` are the nodes of the grid along both axes, ``size`` those of the doubled grid, margin included.
    """

    spacing: float
    shape: tuple[int, int]
    size: tuple[int, int]
    near: Float32
    """(size[0], size[1] // 2 + 1) real FFT of the kernel ``q = 1 / (1 + d^2)``, divided by the squared
    transform of the spline. The sums of q that it gives are called ``near`` in all kernels of repulsion."""

    forces: tuple[Float32, Float32]
    """Transforms of the same shape of the forces ``q^2 d`` along both axes, divided likewise: imaginary
    parts, as the real ones are 0."""

    @classmethod
    def of(cls, spacing: float, shape: tuple[int, int]) -> Waves:
        """Transforms of the kernels for a grid of ``shape`` nodes that lie ``spacing`` apart."""
        from scipy.fft import next_fast_len, rfft2

        rows, columns = (int(next_fast_len(2 * (nodes + MARGIN), real=True)) for nodes in shape)
        x, y = _offsets(rows, spacing)[:, None], _offsets(columns, spacing)[None]
        kernel = np.float32(1) / (np.float32(1) + x * x + y * y)
        spline = np.outer(_splines(rows, rows), _splines(columns, columns // 2 + 1)).astype(np.float32)
        near = rfft2(kernel, workers=1).real / spline
        kernel *= kernel
        forces = rfft2(kernel * x, workers=1).imag / spline, rfft2(kernel * y, workers=1).imag / spline
        return cls(spacing, shape, (rows, columns), near, forces)


def _offsets(nodes: int, spacing: float) -> Float32:
    """(nodes,) periodic offsets from the first node: negative in the second half, 0 at the middle."""
    steps = np.arange(nodes)
    steps[steps > nodes // 2] -= nodes
    steps[2 * steps == nodes] = 0
    return (steps * spacing).astype(np.float32)


def _splines(nodes: int, waves: int) -> Float64:
    """Squared Fourier transform of a cubic B-spline at ``nodes`` nodes: the first ``waves`` frequencies."""
    factor: Float64 = (4 + 2 * np.cos(2 * np.pi * np.arange(waves) / nodes)) / 6
    return factor**2


class GridRepulsion:
    """Repulsion by a grid in a plane, see ``Repulsion``; for one dimension, the second coordinate is 0."""

    def __init__(self, rows: int, pool: ThreadPoolExecutor, threads: int) -> None:
        self.most, self.pool, self.threads = most_nodes(rows), pool, threads
        self.waves: Waves | None = None
        self.lattice = Lattice(0.0, 0.0, SPACING)
        self.positions = np.empty((0, 2), np.float32)
        self.nodes = np.empty((0, 0, 2), np.float32)

    def prepare(self, positions: Float32, *, with_near: bool = False) -> float | None:
        """Compute potentials of nodes from ``positions`` (n, 1 or 2) of all vertices.

        Returns the sum of q over all ordered pairs of different vertices. ``with_near`` adds potentials of q
        to those of the forces, as third values in ``nodes``.
        """
        self.positions = positions
        if positions.shape[1] == 1:
            self.positions = np.concatenate([positions, np.zeros_like(positions)], axis=1)
        self.lattice, shape = lattice_of(self.positions, self.most)
        waves = self.waves
        if waves is None or (waves.spacing, waves.shape) != (self.lattice.spacing, shape):
            self.waves = waves = None  # frees the old transforms before new ones are made
            self.waves = waves = Waves.of(self.lattice.spacing, shape)
        self.nodes, total = self._convolve(self._charges(shape), waves, 2 + with_near)
        return total - len(positions)

    def push(self, first: int, out: Float32, near: Float64) -> None:
        """Write the forces on vertices from ``first`` on to ``out`` (m, d), interpolated from nodes.

        ``near`` is not used, since ``prepare`` has returned the sum of q.
        """
        width, some = out.shape[1], self.positions[first : first + len(out)]
        pushes = out if width == 2 else np.empty((len(out), 2), np.float32)
        potentials_at(some, self.lattice, self.nodes, out=pushes)
        if width == 1:
            out[:] = pushes[:, :1]

    def _charges(self, shape: tuple[int, int]) -> Float64:
        charges = np.zeros(shape)
        pieces = 1 if self.threads == 1 else 4 * self.threads

        def spread(ends: tuple[int, int]) -> None:
            spread_charges(self.positions, self.lattice, ends[0], out=charges[slice(*ends)])

        self._each(spread, [shape[0] * i // pieces for i in range(pieces + 1)])
        return charges

    def _convolve(self, charges: Float64, waves: Waves, kinds: int) -> tuple[Float32, float]:
        """Potentials (rows, columns, kinds) of nodes, from their charges; and a sum over pairs of charges.

        The first two kinds are forces along both axes, the third is q if ``kinds`` is 3. The sum is that of
        q, each charge with itself included.
        """
        from scipy.fft import fft, ifft, irfft, rfft

        (rows, columns), (size, width) = charges.shape, waves.size
        half = width // 2 + 1
        along = np.empty((rows, half), np.complex64)
        across = np.empty((kinds, rows, half), np.complex64)
        twice = np.full(half, 2.0)
        twice[0] = 1
        if width % 2 == 0:
            twice[-1] = 1
        nodes, sums = np.empty((rows, columns, kinds), np.float32), np.empty(half)

        def forth(ends: tuple[int, int]) -> None:
            some = slice(*ends)
            along[some] = rfft(charges[some].astype(np.float32), width, axis=1)

        def through(ends: tuple[int, int]) -> None:
            some = slice(*ends)
            own = fft(along[:, some], size, axis=0)
            power = np.square(own.real, dtype=np.float64) + np.square(own.imag, dtype=np.float64)
            sums[some] = (power * waves.near[:, some]).sum(axis=0) * twice[some]
            for kind in range(kinds):
                wave = (waves.near if kind == 2 else waves.forces[kind])[:, some]
                factor = np.complex64(1 if kind == 2 else 1j)
                across[kind, :, some] = ifft(factor * own * wave, axis=0)[:rows]

        def back(ends: tuple[int, int]) -> None:
            some = slice(*ends)
            for kind in range(kinds):
                nodes[some, :, kind] = irfft(across[kind, some], width, axis=1)[:, :columns]

        for step, lines, length in ((forth, rows, width), (through, half, size), (back, rows, width)):
            together = max(1, min(LINES, LINE_NODES // length))
            self._each(step, [*range(0, lines, together), lines])
        return nodes, math.fsum(sums) / (size * width)

    def _each(self, step: Callable[[tuple[int, int]], None], cuts: list[int]) -> None:
        """Call ``step`` with (start, stop) between each two consecutive ``cuts``, in all threads."""
        pairs: Any = itertools.pairwise(cuts)
        for _ in self.pool.map(step, pairs) if self.threads > 1 else map(step, pairs):
            pass


@functools.cache
def warm_grid() -> None:
    """Run the compiled loops of ``GridRepulsion`` once."""
    points, lattice = np.zeros((2, 2), np.float32), Lattice(-2.0, -2.0, 1.0)
    spread_charges(points, lattice, 0, out=np.zeros((5, 5)))
    potentials_at(points, lattice, np.zeros((5, 5, 2), np.float32), out=points)
