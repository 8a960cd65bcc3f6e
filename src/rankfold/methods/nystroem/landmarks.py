"""Landmarks among the rows: uniform at random, or by randomly pivoted Cholesky.

A row becomes a landmark with a probability in proportion to its residual, the part of its similarity with
itself that earlier landmarks leave. So rows like earlier landmarks are not taken again, and small groups of
rows are not missed. One by one, that takes a pass for each landmark. Here a pass proposes many at once, in
the order in which the residuals at its beginning would draw them. Each is accepted with the share of its
residual that is left after those accepted before.

References
----------
Chen, Epperly, Tropp, Webber, Randomly pivoted Cholesky: practical approximation of a kernel matrix with few
entry evaluations, arXiv:2207.06503. Epperly, Tropp, Webber, Embrace rejection: kernel matrix approximation by
accelerated randomly pivoted Cholesky, arXiv:2410.03969: proposals that are rejected leave the same law.
Unlike there a row is proposed once in a pass, and one that was rejected may come again in the next.

One pass that draws rows for landmarks: uniformly, or in proportion to what earlier ones leave of each.

Pivots are the landmarks of earlier passes. A panel is the rows that are read at once, a grain the rows of one
matrix product.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg

from rankfold.kernels.layout.forces import epoch_key
from rankfold.kernels.similarity.functions import Rows, own_similarities, rows_of
from rankfold.kernels.similarity.tiles import multiply
from rankfold.methods.kmeans.passes import KeptRows, exponentials
from rankfold.methods.nystroem.request import NystroemRequest
from rankfold.methods.parts.panels import BAD, OverPanels, Panels, numbers, refuse_bad
from rankfold.methods.random_keys import Purpose
from rankfold.methods.similarity.blocks import finite_similarities, require_finite
from rankfold.methods.similarity.features import EVALUATION_FLOPS, NOTABLE, OverRows, rows_cut
from rankfold.methods.similarity.request import KernelChoice
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.data.view import Orientation, View
from rankfold.pipeline.engine.device import HOST, Device
from rankfold.pipeline.engine.fold import Buffer, Constant, Sum, Workspace
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.errors import DataError
from rankfold.pipeline.planning.seconds import NOMINAL_FLOPS
from rankfold.pipeline.storage.checkpoint import State, save_once
from rankfold.pipeline.storage.scratch import NOWHERE

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

SHARE = 3
"""Divisor of the number of landmarks wanted, which gives the number of rows proposed in a pass."""

FEWEST = 16
"""Fewest rows proposed in a pass."""

MOST_ROUNDS = 30
"""Largest number of passes that propose landmarks: each accepts the first proposal at least, as long as any
residual is left."""


def proposals(asked: NystroemRequest) -> int:
    """Number of rows that a pass proposes as landmarks."""
    if asked.landmarks == "uniform":
        return asked.rank
    return min(asked.rank, max(FEWEST, -(-asked.rank // SHARE)))


def rounds(asked: NystroemRequest) -> tuple[int, int]:
    """Largest number of passes that draw landmarks, and likely number of them.

    The pass that computes features, after these, is not counted.
    """
    if asked.landmarks != "rpcholesky":
        return (asked.landmarks == "uniform",) * 2
    return MOST_ROUNDS, 2 * SHARE


@dataclass(frozen=True, slots=True)
class Draws:
    """Passes that draw landmarks from the rows of ``source``; ``shift`` (d,) is subtracted from rows."""

    source: Source
    asked: NystroemRequest
    shift: Float64

    @property
    def choice(self) -> KernelChoice:
        """The kernel function."""
        return self.asked.choice

    def fold(self, run: Run | None, number: int, pivots: State, slots: int) -> DrawRows:
        """Fold of pass ``number``, with ``slots`` buffers for panels.

        ``pivots`` are the earlier landmarks, as ``with_inverse`` returns them. They are saved in a file if
        there is a run; it is None for a plan.
        """
        count, columns = pivots["pivots"].shape
        kept = KeptRows(proposals(self.asked), columns, np.dtype(np.float64))
        key = epoch_key(self.asked.seed, Purpose.LANDMARK_ROWS, number)
        part = NOWHERE if run is None else save_once(run.part(f"draw-{number:02d}", "pivots.part"), pivots)
        return DrawRows.of(
            self.source,
            (self.choice, self.shift),
            kept,
            key,
            (part, count),
            slots,
            by_share=self.asked.landmarks == "rpcholesky",
        )

    def choose(self, run: Run) -> tuple[Float64, Int64]:
        """(p, d) landmarks and their (p,) row numbers; fewer than asked for if these leave no residual."""
        pivots: State = no_pivots(self.source.shape[1])
        for number in range(rounds(self.asked)[0]):
            fold = self.fold(run, number, pivots, run.slots)
            state = run.pass_over_data(f"draw-{number:02d}", fold)
            refuse_bad(state, self.source)
            keys, ids, rows = fold.kept.held(state)
            own, residual = float(state["own"][0]), float(state["residual"][0])
            negative = float(state["negative"][0])
            require_finite([own, residual, negative], self.source.name)
            if self.asked.landmarks == "uniform":
                order = np.argsort(ids)
                return rows[order], ids[order]
            if negative > NOTABLE * (abs(own) + negative):
                raise not_positive(self.choice, self.source.name)
            if not number and not residual > 0:
                raise DataError(
                    f"no row of {self.source.name} is similar to itself by {self.choice.kernel}, by which "
                    "landmarks would be drawn: take landmarks='kmeans' or 'uniform', or another kernel"
                )
            if residual <= FAINT * own:
                break
            finite = np.isfinite(keys)
            pivots = self._take(pivots, rows[finite], ids[finite], number)
            if len(pivots["pivots"]) >= self.asked.rank:
                break
        return pivots["pivots"], pivots["ids"]

    def _take(self, pivots: State, candidates: Float64, ids: Int64, number: int) -> State:
        """Pivots extended by those proposed rows that are accepted, in the order of proposals.

        ``candidates`` (c, d) are the rows that pass ``number`` proposes, ``ids`` (c,) their row numbers.
        """
        similarity, before = self.choice.similarity, pivots["pivots"]
        old, new = (rows_of(each, similarity, self.shift) for each in (before, candidates))
        residual = residuals_of(new, own_similarities(new, similarity), old, pivots["inverse"], self.choice)
        gram = finite_similarities(new, new, similarity, self.source.name)
        if len(before):
            across = finite_similarities(new, old, similarity, self.source.name)
            factors = across @ pivots["inverse"]
            gram -= factors @ factors.T
        seed = np.array([self.asked.seed, Purpose.LANDMARK_CHOICE], np.uint64)
        bits = np.random.Philox(key=seed, counter=[0, 0, 0, number])
        chances = np.random.Generator(bits).random(len(candidates))
        own, chosen = own_similarities(new, similarity), list[int]()
        for place in range(len(candidates)):
            rest = float(gram[place, place])
            if len(before) + len(chosen) == self.asked.rank:
                break
            if rest <= FAINT * own[place] or chances[place] * residual[place] >= rest:
                continue
            column = gram[:, place] / np.sqrt(rest)
            gram -= np.outer(column, column)
            chosen.append(place)
        rows = np.vstack([before, candidates[chosen]])
        factored = with_inverse(rows, self.choice, self.shift, self.source.name)
        return {**factored, "ids": np.concatenate([pivots["ids"], ids[chosen]])}


def with_inverse(pivots: Float64, choice: KernelChoice, shift: Float64, name: str) -> State:
    """Arrays of pivots, by name: ``pivots`` (s, d), and ``inverse`` (s, s).

    The latter is the transposed inverse of the Cholesky factor of the similarities of pivots. ``name`` is
    that of the matrix, for messages. Raises ``DataError`` if the kernel is not positive.
    """
    rows = rows_of(pivots, choice.similarity, shift)
    gram = finite_similarities(rows, rows, choice.similarity, name)
    gram = (gram + gram.T) / 2
    try:
        factor = scipy.linalg.cholesky(gram, lower=True, check_finite=False)
    except scipy.linalg.LinAlgError:
        gram[np.diag_indices(len(gram))] *= 1 + FAINT
        try:
            factor = scipy.linalg.cholesky(gram, lower=True, check_finite=False)
        except scipy.linalg.LinAlgError as error:
            raise not_positive(choice, name) from error
    inverse = scipy.linalg.solve_triangular(factor, np.eye(len(gram)), lower=True, check_finite=False)
    return {"pivots": pivots, "inverse": np.ascontiguousarray(inverse.T)}


def not_positive(choice: KernelChoice, name: str) -> DataError:
    """Make the error for a kernel that is not positive for rows of the matrix ``name``."""
    return DataError(
        f"the kernel {choice.kernel} is not positive for rows of {name}: these are drawn by what landmarks "
        "leave of their similarities with themselves, which is less than nothing here. Take "
        "landmarks='kmeans' or 'uniform', or another kernel"
    )


FAINT = 1e-12
"""Residual of a row, relative to the row's similarity with itself, up to which it is taken for rounding."""


@dataclass(frozen=True, slots=True)
class DrawRows(OverRows):
    """Fold that draws rows, with the smallest random keys, and sums residuals.

    Keys are exponential random numbers, divided by residuals if ``by_share``: rows are then drawn in
    proportion to these. With pivots S and their triangular factor L, K_SS = L L', a row has the residual
    ``k(x, x) - |L^-1 k(S, x)|^2``. Similarities with pivots are computed again in each pass, so that nothing
    is stored for rows in between.
    """

    panels: Panels
    choice: KernelChoice
    shift: Float64
    kept: KeptRows
    key: int
    """Key of the random numbers of this pass."""

    constants: Path
    """Path of a file with ``pivots`` (s, d), and ``inverse`` (s, s), the transpose of L^-1."""

    pivots: int
    by_share: bool
    """True if rows are drawn in proportion to their residuals; else uniformly."""

    @classmethod
    def of(
        cls,
        source: Source,
        choice: tuple[KernelChoice, Float64],
        kept: KeptRows,
        key: int,
        pivots: tuple[Path, int],
        slots: int,
        *,
        by_share: bool,
    ) -> DrawRows:
        """Fold over the matrix ``source``.

        Parameters
        ----------
        choice : (KernelChoice, (d,) float64)
            Kernel function, and the shift that is subtracted from rows.
        kept : KeptRows
            Storage for the rows that are drawn.
        key : int
            Key of the random numbers of this pass.
        pivots : (Path, int)
            Path of the file ``constants``, and number of pivots.
        slots : int
            Number of buffers for panels.
        by_share : bool
            True to draw rows in proportion to their residuals; else uniformly.
        """
        view = View(source, Orientation.ROWS)
        panels = Panels(view, rows_cut(source, 1, 8), slots, view.source.dtype, borrows=True)
        return cls(panels, *choice, kept, key, *pivots, by_share)

    @property
    def row_flops(self) -> float:
        """Estimated floating-point operations for each row."""
        return self.pivots * (2.0 * self.kept.columns + EVALUATION_FLOPS + 2 * self.pivots) + 100

    @property
    def row_seconds(self) -> float:
        """Nominal seconds for each row."""
        return self.row_flops / NOMINAL_FLOPS[8]

    def buffers(self) -> Mapping[str, Buffer]:
        """``pivots`` (s, d), and ``inverse`` (s, s), the transpose of L^-1, loaded from ``constants``."""
        count, part = self.pivots, self.constants
        return {
            "pivots": Constant((count, self.kept.columns), part=part),
            "inverse": Constant((count, count), part=part),
        }

    def sums(self) -> Mapping[str, Sum]:
        """Rows that are kept, with keys and row numbers; ``bad`` elements; and three sums, (1,) each.

        ``own`` sums similarities of rows with themselves, ``residual`` residuals above 0, and ``negative``
        magnitudes of residuals below 0.
        """
        traces = {name: Sum((1,)) for name in ("own", "residual", "negative")}
        return {**traces, "bad": BAD, **self.kept.sums()}

    @property
    def temporary_bytes(self) -> int:
        """Additional bytes of a step: prepared pivots, and rows of a grain with their similarities."""
        rows, count = self.panels.grain_rows, self.kept.count
        pivots = 2 * 8 * self.pivots * (self.kept.columns + 1)
        return pivots + self.rows_bytes(self.pivots) + 8 * (8 * rows + 4 * count * (self.kept.columns + 4))

    def workspace(self, device: Device = HOST) -> Workspace:
        """Allocate buffers for panels, load the pivots, and prepare them for comparison, as ``rows``."""
        work = OverPanels.workspace(self, device)
        work.rows = rows_of(work.pivots, self.choice.similarity, self.shift)
        return work

    def merge(self, total: State, other: State) -> None:
        """Add the sums ``other`` of one stream to ``total``, and keep the rows of smallest keys of both."""
        self.kept.join(total, other)
        for name, each in self.sums().items():
            if name not in self.kept.names:
                total[name] = each.combine(total[name], other[name])

    def step(self, state: State, work: Workspace, start: int, stop: int, slot: int) -> None:
        """Add residuals of rows ``start:stop`` to ``state``, and keep the rows of smallest keys there.

        This goes grain by grain (rows of one product).
        """
        for grain, rows, own in self.rows_of_grains(state, work, start, stop, slot):
            residual = residuals_of(rows, own, work.rows, work.inverse, self.choice)
            state["own"] += own.sum()
            weights = np.where(residual < 0, 0.0, residual)
            state["residual"] += weights.sum()
            state["negative"] += np.where(residual < 0, -residual, 0.0).sum()
            weights = weights if self.by_share else np.ones(len(residual))
            keys = exponentials(self.key, Purpose.LANDMARK_ROWS, grain.first, grain.last)
            with np.errstate(divide="ignore"):
                keys = np.where(weights > 0, keys / weights, np.inf)
            self.kept.take(state, keys, grain.first, numbers(grain.raw).astype(np.float64))


def residuals_of(rows: Rows, own: Float64, pivots: Rows, inverse: Float64, choice: KernelChoice) -> Float64:
    """(m,) residuals: similarities ``own`` (m,) of rows with themselves, less what pivots explain.

    ``inverse`` (s, s) is that of ``with_inverse``. A residual is 0 where it is rounding, and negative where
    the kernel function is not positive.
    """
    if not len(pivots.squares):
        return own.copy()
    factors = np.zeros((len(own), len(inverse)))
    multiply(rows, pivots, similarity=choice.similarity, v=inverse, out=factors)
    with np.errstate(over="ignore", invalid="ignore"):
        residual = own - np.einsum("ij,ij->i", factors, factors)
    residual[np.abs(residual) <= FAINT * np.abs(own)] = 0.0
    return np.asarray(residual)


def no_pivots(columns: int) -> dict[str, Any]:
    """Arrays of pivots before the first pass: none, with an empty ``inverse`` and no row numbers ``ids``."""
    return {"pivots": np.zeros((0, columns)), "inverse": np.zeros((0, 0)), "ids": np.zeros(0, np.int64)}
