"""Base class of the solvers of svd, pca and qr: each is one object in one file.

A solver gives widths and cuts, the size of every sweep, the memory that it holds between sweeps, and advice
where that does not fit; and it solves. Nothing else distinguishes solvers, except the choice of ``auto``.

Other packages add their solvers under the entry point ``rankfold.svd_solvers``::

    [project.entry-points."rankfold.svd_solvers"]
    power = "their_package.power:POWER"
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from rankfold.methods.registry import Registry

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from rankfold.methods.parts.conditioned import Centering, Statistics
    from rankfold.methods.parts.panels import Panels
    from rankfold.methods.parts.start import Start
    from rankfold.methods.svd.long_factor import LongFactor
    from rankfold.methods.svd.request import Request
    from rankfold.methods.svd.strategy import Strategy
    from rankfold.pipeline.data.view import View
    from rankfold.pipeline.engine.blocks import Cut
    from rankfold.pipeline.engine.run import Run
    from rankfold.pipeline.planning.passes import Pass
    from rankfold.pipeline.storage.checkpoint import State

    Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Dimensions:
    """The part of a strategy that a solver decides."""

    width: int
    """Number of columns of a block, of the range sketch, or of R."""

    cut: Cut
    """Cut of the matrix into panels (rows in memory at a time) for the passes."""

    out_chunk: int
    """Number of rows of the long factor (factor of the side that is swept) in one chunk of the result."""

    block: int = 0
    """Number of columns of the block of vectors that a sample of rows gives; 0 where it gives none."""

    looks_beyond: bool = False
    """True if the first pass sketches all rows, to find what the block of a sample misses."""

    def paired(self) -> Dimensions:
        """The dimensions for a complex matrix: even widths, which hold both parts of each column."""
        return dataclasses.replace(self, width=self.width + self.width % 2, block=self.block + self.block % 2)


@dataclass(frozen=True, slots=True)
class Decomposition:
    """The singular triplets that a solver found, in the units of the data."""

    s: Float64
    """(k,) singular values, decreasing."""

    short: Float64
    """(short, k) vectors of the short side."""

    long: LongFactor | None
    """The long factor, as an object that writes it; None if it was not asked for."""

    statistics: Statistics
    """Means and deviations of the columns."""

    residuals: Float64
    """(k,) norms of residuals of the triplets, relative to the largest of ``s``."""

    errors: Float64
    """(k,) estimated relative errors of ``s``."""

    convergence: list[float]
    """Largest estimated relative error after each pass, where there are several."""

    total: float
    """Sum of squares of the centered, scaled matrix."""

    facts: dict[str, Any] = field(default_factory=dict)
    """Facts of the result that only this solver gives, by name."""


class Solver(ABC):
    """Base class of solvers, which find leading singular triplets of a matrix that is long by short."""

    name: ClassVar[str]
    finds_rank: ClassVar[bool] = False
    """True if it finds how many components a tolerance takes."""

    stops_early: ClassVar[bool] = False
    """True if it makes passes until the tolerance is met."""

    needs_long: ClassVar[bool] = False
    """True if it sweeps only along the longer side."""

    rows_from_matrix: ClassVar[bool] = False
    """True if the long factor is written by a sweep of the matrix, in its panels, and not from scratch."""

    scales_first: ClassVar[bool] = True
    """True if a pass before all others measures the columns of a tall matrix that is scaled."""

    multiplies_stored: ClassVar[bool] = False
    """True if its passes over a sparse matrix multiply the stored numbers alone."""

    keeps_square: ClassVar[bool] = False
    """True if it keeps a (short, short) matrix, for which the short side has to be the shorter one."""

    takes_complex: ClassVar[bool] = False
    """True if it finds complex vectors of a matrix that it sweeps in its real parts."""

    holds_matrix: ClassVar[bool] = False
    """True if the leading process reads all of the matrix and keeps it, in half of the memory."""

    loops: ClassVar[tuple[str, ...]] = ("panels",)
    """Names of compiled loops over columns that its passes use: see ``warm_columns``."""

    narrower: ClassVar[Mapping[str, str]] = {}
    """Reasons, as text, to take other solvers that may fit in a budget where it does not, by their names."""

    remedy: ClassVar[str] = "rounding errors of {dtype} products, as measured, hide whether they are smaller"
    """Text for messages, with ``{dtype}``: why estimated errors stay above the tolerance, or what to ask
    for."""

    # Numbers of a strategy ------------------------------------------------------------------------

    def least_passes(self, request: Request, view: View) -> int:
        """Smallest number of passes over the matrix that gives a result."""
        return 1

    def most_components(self, request: Request, view: View, width: int) -> int:
        """Largest number of components that it may find without a rank, in blocks of ``width`` columns."""
        return view.short

    @abstractmethod
    def arrange(self, request: Request, view: View, width: int) -> Dimensions:
        """Choose widths and cuts; ``width`` is that of a block of the rank and some more columns."""

    # A plan ---------------------------------------------------------------------------------------

    @abstractmethod
    def sweeps(self, request: Request, strategy: Strategy, slots: int) -> list[Pass]:
        """Plan of every sweep that it may make, in order, with ``slots`` buffers for panels."""

    def likely_passes(self, request: Request, strategy: Strategy, most: int) -> int:
        """Likely number of passes over the matrix, at most ``most``."""
        return most

    def basis_columns(self, strategy: Strategy) -> int:
        """Largest number of columns that blocks on scratch can have together."""
        return min(strategy.view.short, strategy.width)

    @abstractmethod
    def resident_bytes(self, request: Request, strategy: Strategy, over: str) -> int:
        """Bytes that the leading process keeps during a sweep ``over`` ``"matrix"`` or ``"scratch"``."""

    @abstractmethod
    def driver_bytes(self, request: Request, strategy: Strategy) -> int:
        """Bytes that the leading process takes for algebra between sweeps, in the step that takes most."""

    def accumulator_bytes(self, request: Request, strategy: Strategy) -> int:
        """Bytes of the sums that one stream of a pass (part of the rows) writes to disk."""
        return 8 * strategy.view.short * strategy.width

    # A way out ------------------------------------------------------------------------------------

    def panels(self, strategy: Strategy) -> Panels:
        """Buffers for panels (rows in memory at a time) of its widest pass, one panel at a time."""
        return strategy.panels(1)

    def way_out(self, request: Request, strategy: Strategy) -> str:
        """Advice if a request does not fit in memory, beginning with ", or"; if empty, others are tried."""
        return ", or say rank= (--rank)" if request.adaptive else ""

    def advice(self, request: Request, strategy: Strategy, passes: int) -> str:
        """Text on what to do if the estimated error is still above the tolerance after ``passes`` passes."""
        if self.stops_early and passes >= request.passes:
            exact = ", take solver='gram' (--solver gram) or tsqr" * request.adaptive
            return f"allow more with passes= (--passes){exact}, or raise tol"
        if request.adaptive:
            return "squares in this precision tell no more; take solver='tsqr' (--solver tsqr), or raise tol"
        return self.remedy.format(dtype=strategy.view.dtype.name)

    # The work -------------------------------------------------------------------------------------

    def make_sample_block(self, request: Request, strategy: Strategy, rows: npt.NDArray[Any]) -> State:
        """Arrays of the first block, computed from sampled ``rows`` (l, short), centered and scaled.

        Only for solvers that start from one; others raise ``TypeError``.
        """
        raise TypeError(f"{self.name} starts without a block of a sample")

    @abstractmethod
    def solve(
        self, run: Run, strategy: Strategy, request: Request, centering: Centering, start: Start
    ) -> Decomposition | None:
        """Find the leading singular triplets by passes over the matrix.

        None if the tolerance is not met and ``strategy.otherwise`` is to be carried out instead.
        """


SOLVERS: Registry[Solver] = Registry(
    "solver",
    "rankfold.svd_solvers",
    {
        "gram": "rankfold.methods.svd.solvers.gram:GRAM",
        "krylov": "rankfold.methods.svd.solvers.krylov:KRYLOV",
        "subspace": "rankfold.methods.svd.solvers.subspace:SUBSPACE",
        "sketch": "rankfold.methods.svd.solvers.sketch:SKETCH",
        "tsqr": "rankfold.methods.svd.solvers.tsqr:TSQR",
        "lanczos": "rankfold.methods.svd.solvers.lanczos:LANCZOS",
    },
)
"""Every solver by its name."""
