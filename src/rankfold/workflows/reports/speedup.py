"""Scaling of a run with the number of segments (units of work) that run at once: Amdahl's and Gustafson's
laws, fitted.

Both have one parameter, the serial share s of the work: Amdahl's at a fixed size, T(p) = T(1) (s + (1 - s) /
p); Gustafson's for work that grows with p, where the speedup over p = 1 is p - s (p - 1). Here p is the
number of segments that run at once.

References
----------
Amdahl, Validity of the single processor approach to achieving large scale computing capabilities, AFIPS 1967.
Gustafson, Reevaluating Amdahl's law, Communications of the ACM 31(5), 1988.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Timing:
    """Work, time and parallelism of a run that finished in one attempt."""

    parallelism: int
    """Number p of segments that ran at once."""

    work: float
    """Amount of work, in any unit proportional to it."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Scaling:
    """A law of scaling fitted to runs."""

    law: str
    """``amdahl`` or ``gustafson``."""

    serial: float
    """Serial share of the work, in [0, 1]."""

    single_seconds: float
    """Fitted time in seconds of a unit of work, if one segment runs at a time."""

    timings: tuple[Timing, ...]

    def speedup(self, parallelism: npt.ArrayLike) -> Float64:
        """Predicted speedup for p = ``parallelism``, over one segment at a time."""
        p = np.asarray(parallelism, np.float64)
        if self.law == "amdahl":
            return np.asarray(1 / (self.serial + (1 - self.serial) / p))
        return np.asarray(p - self.serial * (p - 1))

    @property
    def points(self) -> list[tuple[int, float, float]]:
        """For each timing: number p of segments at once, speedup over p = 1, and efficiency (speedup / p)."""
        points = []
        for one in self.timings:
            speedup = self.single_seconds * one.work / one.seconds
            points.append((one.parallelism, speedup, speedup / one.parallelism))
        return points


def fit_amdahl(timings: Sequence[Timing]) -> Scaling | None:
    """Fit Amdahl's law to runs of equal work; None unless they have at least two different p.

    Least squares of T = a + b / p with a, b >= 0, weighted so that relative errors count alike.
    """
    from scipy.optimize import nnls

    if len({one.parallelism for one in timings}) < 2 or not _all_equal([one.work for one in timings]):
        return None
    p, seconds = (
        np.array([getattr(one, key) for one in timings], float) for key in ("parallelism", "seconds")
    )
    (a, b), _ = nnls(np.stack([np.ones_like(p), 1 / p], axis=1) / seconds[:, None], np.ones_like(p))
    return Scaling("amdahl", float(a / (a + b)), float(a + b) / timings[0].work, tuple(timings))


def fit_gustafson(timings: Sequence[Timing]) -> Scaling | None:
    """Fit Gustafson's law to runs whose work is proportional to their p, which must differ; else None.

    The rate of a run, work / seconds, is r (p - s (p - 1)) = r (1 - s) p + r s: least squares of a line.
    """
    from scipy.optimize import nnls

    if len({one.parallelism for one in timings}) < 2 or not _all_equal(
        [one.work / one.parallelism for one in timings]
    ):
        return None
    p = np.array([one.parallelism for one in timings], float)
    rate = np.array([one.work / one.seconds for one in timings])
    (slope, offset), _ = nnls(np.stack([p, np.ones_like(p)], axis=1) / rate[:, None], np.ones_like(p))
    single = slope + offset
    return Scaling("gustafson", float(offset / single), float(1 / single), tuple(timings))


def fit(timings: Sequence[Timing]) -> Scaling | None:
    """Fit Amdahl's law to runs of equal work, or Gustafson's to work proportional to p;
    None if neither applies.
    """
    return fit_amdahl(timings) or fit_gustafson(timings)


def _all_equal(values: Sequence[float]) -> bool:
    return max(values) <= 1.05 * min(values)
