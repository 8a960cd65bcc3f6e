"""A true single pass: linear sketches of the matrix, and a reconstruction from them.

For data that can be read only once. It is far less accurate than a solver that reads them twice: its error is
of the size of the part of the matrix beyond the rank, and is estimated by a separate sketch.

The pass makes three sketches and an error sketch: all that a reconstruction needs. Every row of the test
matrices is a function of the seed and of its index in the matrix, so sketches do not depend on how rows were
cut. All sketches are linear, so the difference between the mean and the provisional shift is corrected
afterwards, from the sums of the test matrices' rows.

References
----------
Tropp, Yurtsever, Udell, Cevher, Streaming low-rank matrix approximation with an application to scientific
simulation, SIAM J. Sci. Comput. 41(4), 2019, section 2.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from rankfold.kernels.linear.center_scale import measure, subtract
from rankfold.kernels.linear.dense import fix_signs, leading_singular_triplets
from rankfold.kernels.linear.gaussian import TILE_ROWS, gaussian_rows
from rankfold.kernels.linear.orthonormal import orthonormalize
from rankfold.kernels.linear.sketch import sketch_product
from rankfold.methods.parts.conditioned import Centering, OverConditionedPanels, Statistics, statistics
from rankfold.methods.parts.panels import Panels
from rankfold.methods.parts.start import Start
from rankfold.methods.random_keys import Purpose
from rankfold.methods.svd.error_estimates import rounding
from rankfold.methods.svd.long_factor import ZERO, OnScratch, Triplets
from rankfold.methods.svd.operator import conditions, refuse_overflow, statistics_pass
from rankfold.methods.svd.request import Request
from rankfold.methods.svd.solvers.blocks import narrow_sweeps, of_triplets, statistics_sweep
from rankfold.methods.svd.solvers.solver import Decomposition, Dimensions, Solver
from rankfold.methods.svd.strategy import Strategy, chunk_rows
from rankfold.pipeline.data.view import Orientation, View
from rankfold.pipeline.engine.blocks import cut
from rankfold.pipeline.engine.fold import Buffer, Constant, Sum, Workspace
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.planning.passes import Pass, numbers_of
from rankfold.pipeline.storage.checkpoint import State, load_arrays, load_if_whole, save_arrays
from rankfold.pipeline.storage.scratch import NOWHERE, ScratchMatrix

Float64 = npt.NDArray[np.float64]

SKETCH_SAFETY = 3.0
"""Factor on the estimated Frobenius error where it bounds other errors.

The estimate squared is |E|^2 times a mean of ``q`` chi-square variables with one degree of freedom for
each singular value of E, weighted by their squares w. Its Laplace transform at l, the product of
(1 + 2 l w / q)^(-q/2), is at most that of a single value, (1 + 2 l / q)^(-q/2), so by Markov's inequality
the estimate squared is below |E|^2 / f^2 with a probability of at most (e^(1 - t) t)^(q/2), t = 1 / f^2.
For q = 10 and f = 3 that is 0.0015, whatever the matrix.
"""


@dataclass(frozen=True, slots=True)
class Sketches:
    """Sketches of A (times its factor), centered and scaled.

    Omega, Upsilon, Theta, Phi and Psi are Gaussian test matrices, as of Tropp et al.: see ``sketch``.
    """

    y: ScratchMatrix
    """Range sketch on scratch, shifted before the true mean was known: A Omega = Y - 1 offset'."""

    offset: Float64
    """(range,) vector in the formula of ``y``."""

    corange: Float64
    """(short, range): A'Upsilon', the co-range sketch."""

    error: Float64
    """(short, error): A'Theta', the sketch that estimates the error."""

    across: Float64
    """(error + core, range + core): [Theta; Phi] A [Omega, Psi']."""


@dataclass(frozen=True, slots=True)
class SketchReconstruction:
    """Triplets from sketches, and the error of their approximation."""

    triplets: Triplets
    approximation_error: float
    """Estimated Frobenius norm of A less its approximation of the rank asked for, over that of A.

    Its square is unbiased. Above 1 where the spectrum decays too slowly for sketches to be of use.
    """


def sketch(
    run: Run, layout: Strategy, centering: Centering, start: Start, *, rank: int, seed: int
) -> tuple[SketchReconstruction, Statistics]:
    """Sketch the matrix by one pass, and reconstruct its ``rank`` leading singular triplets from that.

    Returns these, and the statistics of the columns.

    Notes
    -----
    One pass, and one for statistics where a tall matrix is scaled. Work about 32 m n rank flops and
    12 rank random numbers for each long row; scratch m (4 rank + 1) elements.

    References
    ----------
    Tropp, Yurtsever, Udell, Cevher, Streaming low-rank matrix approximation with an application to
    scientific simulation, SIAM J. Sci. Comput. 41(4), 2019: sketches of section 2, reconstruction by
    algorithm 4.1 and truncation, a posteriori error of section 6. The range sketch stays on disk, so its
    orthonormal basis is never formed: R comes from a sweep over scratch, and the products of test
    matrices with the basis from those with the sketch, which the pass accumulates as well. Test
    matrices are Gaussian by rows, keyed by the index of the row.
    """
    sizes = SketchSizes.of(rank, layout.view.short)
    columns = statistics_pass(run, layout, centering, start) if layout.statistics_passes else None
    sketches, columns = _pass(run, layout, centering, start, sizes, seed, columns)
    return _reconstruct(run, layout, sketches, sizes, columns.total, rank, seed), columns


def _pass(
    run: Run,
    layout: Strategy,
    centering: Centering,
    start: Start,
    sizes: SketchSizes,
    seed: int,
    columns: Statistics | None,
) -> tuple[Sketches, Statistics]:
    """Make sketches about the provisional shift, and correct them to the true mean.

    ``columns`` are statistics of the columns if a pass has measured them, else None; they are returned. With
    D the shifted matrix and d = unit (mean - shift), A = unit D - 1 d', so the product of the sums of test
    vectors with d is subtracted from each sketch.
    """
    view = layout.view
    shift, weights = conditions(layout, centering, start, columns)
    constants = run.part("sketch", "constants.part")
    if load_if_whole(constants) is None:
        right = gaussian_rows(seed, Purpose.SKETCH_SHORT_SIDE, (0, view.short), sizes.right)
        right *= weights[:, None]
        save_arrays(constants, {"right": right, "shift": shift})
    fold = SketchPass(
        panels=layout.panels(run.slots),
        centering=centering,
        constants=constants,
        sizes=sizes,
        y=layout.y(run.scratch, 1, sizes.range),
        columns=layout.column_file(run.scratch, centering),
        measures_columns=columns is None,
        seed=seed,
        row_seconds=layout.row_seconds(2 * (sizes.right + sizes.down)),
    )
    state = run.pass_over_data("sketch", fold)
    refuse_overflow(state, view)
    z, core, offset = state["z"], state["core"], np.zeros(sizes.right)
    if columns is not None:
        z *= (weights / centering.pow2_scale)[:, None]
    else:
        columns = statistics(state, layout.view, start.shift, centering)
        if centering.center and view.orientation is Orientation.ROWS:
            d = columns.mean - start.shift
            offset = load_arrays(constants)["right"].T @ d
            z -= np.outer(d * centering.pow2_scale, state["ones"][: sizes.down])
            core -= np.outer(state["ones"][sizes.range :], offset)
    sketches = Sketches(fold.y, offset[: sizes.range], z[:, : sizes.range], z[:, sizes.range :], core)
    return sketches, columns


def _reconstruct(
    run: Run, layout: Strategy, sketches: Sketches, sizes: SketchSizes, total: float, rank: int, seed: int
) -> SketchReconstruction:
    """Triplets of the approximation Q C P' of A, truncated to ``rank``, and the estimated error of that.

    Q and P are orthonormal bases of the range and co-range sketches, C a small core matrix; ``total`` is the
    sum of squares of A.
    """
    scratch = OnScratch(run, layout, [sketches.y], sketches.offset, rank, seed)
    r = scratch.r_factor(scratch.combination(np.eye(sizes.range), "range"), "range")
    _, length, turn = leading_singular_triplets(r, sizes.range)
    lasting = length > ZERO * length[0]
    basis = turn[:, lasting] / length[lasting]
    p = leading_singular_triplets(sketches.corange, sizes.range)[0]
    core = _core(sketches, sizes, basis, p, seed)
    left, s, right = leading_singular_triplets(core, min(core.shape))
    positive = int((s[:rank] > ZERO * s[:1]).sum())
    theta = sketches.across[: sizes.error, : sizes.range] @ basis @ left
    whole = _squared_error(sketches.error.T, theta * s, right, p)
    rank_error = _squared_error(sketches.error.T, theta[:, :positive] * s[:positive], right[:, :positive], p)
    short = p @ right[:, :positive]
    coefficients = basis @ left[:, :positive]
    if positive < rank:
        combination, rotation = scratch.complete(coefficients)
        missing = gaussian_rows(seed, Purpose.COMPLETION, (0, len(p)), rank - positive)
        short = np.hstack([short, orthonormalize(missing, lambda: [short])])
    else:
        combination, rotation = scratch.combination(coefficients, "sketched"), np.eye(rank)
    values = np.concatenate([s[:positive], np.zeros(rank - positive)])
    bound, signs = SKETCH_SAFETY * np.sqrt(whole), fix_signs(short)
    residuals = np.full(rank, bound / values[0] if values[0] > 0 else 0.0)
    errors = np.minimum(_relative(bound, values) + rounding(values, layout.view.dtype), 1.0)
    triplets = Triplets(values, short * signs, combination, rotation * signs, residuals, errors)
    return SketchReconstruction(triplets, float(np.sqrt(rank_error / total)) if total > 0 else 0.0)


def _core(sketches: Sketches, sizes: SketchSizes, basis: Float64, p: Float64, seed: int) -> Float64:
    """Core matrix C that solves (Phi Q) C (Psi P)' = Phi A Psi' in the least-squares sense.

    Q is the range sketch times ``basis``, ``p`` (short, range) is P.
    """
    phi = sketches.across[sizes.error :]
    half = np.linalg.lstsq(phi[:, : sizes.range] @ basis, phi[:, sizes.range :])[0]
    psi = gaussian_rows(seed, Purpose.SKETCH_SHORT_SIDE, (0, len(p)), sizes.right)[:, sizes.range :]
    return np.asarray(np.linalg.lstsq(psi.T @ p, half.T)[0].T)


def _squared_error(theta_a: Float64, theta_u: Float64, right: Float64, p: Float64) -> float:
    """Unbiased estimate of the squared Frobenius norm of A - U V', with V = P right.

    ``theta_a`` is Theta A (error, short), ``theta_u`` Theta U (error, k), ``right`` (range, k) and ``p`` P
    (short, range).
    """
    rest = theta_a - theta_u @ (p @ right).T
    return float((rest**2).sum() / len(rest))


def _relative(bound: float, s: Float64) -> Float64:
    """Relative errors (k,) of values ``s`` that differ from the true ones by ``bound`` at most (Weyl)."""
    errors = np.where(s > 0, 1.0, 0.0)
    certain = s > bound
    errors[certain] = bound / (s[certain] - bound)
    return np.minimum(errors, 1.0)


# The solver ---------------------------------------------------------------------------------------


class Sketch(Solver):
    """Solver by a single pass, whatever accuracy it reaches."""

    name = "sketch"
    narrower: ClassVar[Mapping[str, str]] = {
        "krylov": "keeps narrower blocks, and is more accurate with more passes",
        "subspace": "keeps one narrower block, and is more accurate with more passes",
    }
    remedy = "a single pass does no better; solver='krylov' (--solver krylov) takes several, or raise tol"

    def least_passes(self, request: Request, view: View) -> int:
        """Smallest number of passes: one, and one before it that measures columns where these are scaled."""
        return 2 if request.scale and view.orientation is Orientation.ROWS else 1

    def arrange(self, request: Request, view: View, width: int) -> Dimensions:
        """Choose the width of the range sketch, and grains (rows of one product) that fit in cache.

        A grain shares the cache with its test vectors and products.
        """
        item, sizes = view.dtype.itemsize, SketchSizes.of(request.rank, view.short)
        row_bytes = view.short * item + sizes.row_bytes(item)
        # A byte takes about four times as long as in a fused pass, so streams may be that much shorter.
        grains = cut(
            view.grid, row_bytes, sizes.accumulator_bytes(view.short), reads_per_byte=16, device=view.device
        )
        return Dimensions(sizes.range, grains, chunk_rows(view.long, request.rank * item))

    def sweeps(self, request: Request, strategy: Strategy, slots: int) -> list[Pass]:
        """Planned sweeps: a statistics pass where columns are scaled, the sketch, and sweeps over scratch."""
        view, sizes = strategy.view, SketchSizes.of(request.rank, strategy.view.short)
        centering = Centering(request.center, request.scale, 1.0, 0.0, 1.0)
        y, products = strategy.y(NOWHERE, 1, sizes.range), 2 * (sizes.right + sizes.down)
        panels, seconds = strategy.panels(slots), strategy.row_seconds(products)
        fold = SketchPass(panels, centering, NOWHERE, sizes, y, None, True, 0, seconds)
        elements = view.long * view.short
        flops = float(elements) * products + 2.0 * view.long * sizes.right * sizes.across
        sweep = numbers_of("sketch", fold, elements * view.source.dtype.itemsize, y.nbytes, flops)
        before = [statistics_sweep(strategy, slots)] * strategy.statistics_passes
        return [*before, sweep, *narrow_sweeps(request, strategy, (y,), "range")]

    def resident_bytes(self, request: Request, strategy: Strategy, over: str) -> int:
        """Bytes of test vectors during the pass, and of the other sketches during sweeps over scratch."""
        short, sizes = strategy.view.short, SketchSizes.of(request.rank, strategy.view.short)
        sums = 8 * (short * sizes.down + sizes.across * sizes.right)
        return 8 * short * sizes.right if over == "matrix" else sums

    def driver_bytes(self, request: Request, strategy: Strategy) -> int:
        """Bytes of test vectors, sums and their centering, or of a basis of the sums, whichever take more."""
        short, sizes = strategy.view.short, SketchSizes.of(request.rank, strategy.view.short)
        centering_size = 2 * short * (sizes.right + sizes.down)
        basis = short * (sizes.down + 5 * sizes.range)
        small = 3 * sizes.across * sizes.right + 14 * sizes.range**2
        return (
            max(strategy.sample_bytes, 8 * (max(centering_size, basis) + small)) + strategy.long_vectors_bytes
        )

    def accumulator_bytes(self, request: Request, strategy: Strategy) -> int:
        """Bytes of the sums of a stream: all sketches but the one on scratch."""
        return SketchSizes.of(request.rank, strategy.view.short).accumulator_bytes(strategy.view.short)

    def solve(
        self, run: Run, strategy: Strategy, request: Request, centering: Centering, start: Start
    ) -> Decomposition:
        """Reconstruct triplets from sketches, and estimate the error of the approximation."""
        reconstruction, columns = sketch(
            run, strategy, centering, start, rank=request.rank, seed=request.seed
        )
        errors = [float(reconstruction.triplets.errors.max())]
        decomposition = of_triplets(strategy, centering, reconstruction.triplets, columns, errors)
        return dataclasses.replace(
            decomposition, facts={"approximation_error": reconstruction.approximation_error}
        )


SKETCH = Sketch()


Array = npt.NDArray[Any]

ERROR_ROWS = 10
"""Number of rows of the error sketch."""


@dataclass(frozen=True, slots=True)
class SketchSizes:
    """Numbers of Gaussian test vectors for each sketch."""

    range: int
    """Number of test vectors of the range sketch, and of the co-range sketch."""

    core: int
    """Number of test vectors of the core sketch on either side."""

    error: int = ERROR_ROWS
    """Number of test vectors of the error sketch."""

    @classmethod
    def of(cls, rank: int, short: int) -> SketchSizes:
        """Sizes of Tropp et al. 2019 for a rank: 4 rank + 1, and for the core twice as many and one more.

        The first is at most ``short``.

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
        """Bytes of buffers for one row of a grain (rows of one product), with ``item`` bytes for a number."""
        return 8 * self.left + item * self.down + (item + 8) * self.right + item * self.range

    def accumulator_bytes(self, short: int) -> int:
        """Bytes of the sketches that one stream sums, for a matrix whose short side has length ``short``."""
        return 8 * (short * self.down + self.across * self.right)


@dataclass(frozen=True, slots=True)
class SketchPass(OverConditionedPanels):
    """Fold that writes the range sketch of a matrix to scratch, and sums its other sketches over all rows."""

    panels: Panels
    centering: Centering
    constants: Path
    """Checkpoint file with ``right`` (short, range + core), times weights of columns and the factor of A, and
    ``shift`` (short,)."""

    sizes: SketchSizes
    """Numbers of test vectors."""

    y: ScratchMatrix
    """Scratch matrix (long, range) to write the range sketch to."""

    columns: ScratchMatrix | None
    """Scratch matrix (long, 2) for mean and deviation of columns in a sweep along these; None for no such
    file."""

    measures_columns: bool
    seed: int
    row_seconds: float

    kernels = (measure, subtract, gaussian_rows, sketch_product)

    @property
    def shift_part(self) -> Path:
        """Path of the checkpoint file that holds the shift of the columns."""
        return self.constants

    def buffers(self) -> Mapping[str, Buffer]:
        """Working arrays of a segment by name, besides those of ``OverConditionedPanels``.

        All are in the working type. ``right`` (short, range + core) and ``down`` (grain rows, range + error)
        are test vectors of the short side and of the long side; ``y`` (grain rows, range + core) is the
        product of a grain with ``right``, ``range`` its leading columns, ``z`` (short, range + error) what a
        grain adds to the sum of that name.
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
        """Bytes of a step besides buffers and sums.

        They are those of test vectors of a grain as they are drawn, and of its products in float64. Test
        vectors of the short side, as they are loaded, are freed before those of a grain and the sums are
        allocated, but may be the larger.
        """
        short, rows, sizes = self.panels.view.short, self.panels.grain_rows, self.sizes
        grain = 8 * sizes.left * (rows + TILE_ROWS) + 8 * sizes.across * sizes.right
        once = max(grain, 8 * short * sizes.right - self.accumulator_bytes)
        return self.vectors_bytes + 8 * rows * sizes.right + once

    def sums(self) -> Mapping[str, Sum]:
        """Sums over all long rows by name, besides those of ``OverConditionedPanels``.

        ``z`` (short, range + error) are the co-range and error sketches, ``core`` (error + core, range +
        core) products of A with test vectors on both sides, ``ones`` (range + error + core,) the sums of the
        long side's test vectors over all rows.
        """
        sizes = self.sizes
        return {
            "z": Sum((self.panels.view.short, sizes.down)),
            "core": Sum((sizes.across, sizes.right)),
            "ones": Sum((sizes.left,)),
            **OverConditionedPanels.sums(self),
        }

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Write the range sketch of long rows ``start:stop``, read into panel ``slot``; add to the others."""
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
