"""Parameters of a search for nearest neighbors, checked before anything is read."""

from __future__ import annotations

import hashlib
import pickle
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rankfold.kernels.bits.set_keys import SetMetric
from rankfold.kernels.neighbors.lists import Metric
from rankfold.methods.knn.arguments import (
    ALIASES,
    CORRELATION,
    DEFAULT_RECALL,
    HAVERSINE,
    PRECOMPUTED,
    KnnArguments,
)
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.prepare.centered_rows import center_rows
from rankfold.pipeline.text import suggest_name

METRICS = {
    "euclidean": Metric.EUCLIDEAN,
    "sqeuclidean": Metric.SQEUCLIDEAN,
    "cosine": Metric.COSINE,
    CORRELATION: Metric.COSINE,
    "inner_product": Metric.INNER_PRODUCT,
    "manhattan": Metric.MANHATTAN,
    "chebyshev": Metric.CHEBYSHEV,
}

SET_METRICS = {
    "hamming": SetMetric.HAMMING,
    "jaccard": SetMetric.JACCARD,
    "bit_hamming": SetMetric.HAMMING,
    "bit_jaccard": SetMetric.JACCARD,
}
"""Metrics of sets, for searches of nearest neighbors alone: see ``SET_NAMES``."""


def compared_rows(source: Source, metric: str) -> Source:
    """Rows of a matrix as a metric compares them: correlation is the cosine of centered ones."""
    return center_rows(source) if metric == CORRELATION else source


@dataclass(frozen=True, slots=True)
class NeighborRequest:
    """Parameters of ``knn`` that a result depends on."""

    k: int
    metric: str
    """One of ``METRICS`` or ``SET_METRICS``, or the name and digest of a function."""

    symmetric: str | None
    solver: str
    """One of ``SOLVERS``; exact lists do not depend on it."""

    min_recall: float | None
    """Share of true neighbors that approximate lists are to have, if they may be approximate."""

    partition_rows: int | None
    """Rows of a partition on average, if lists are approximate."""

    seed: int
    """Seed of random numbers for approximate lists."""

    function: Callable[..., float] | None = None
    """The compiled function, if the metric is the caller's own."""

    box: tuple[float, ...] | None = None
    """Lengths after which columns repeat themselves, 0 for never."""

    @classmethod
    def of(cls, arguments: KnnArguments) -> NeighborRequest:
        """Make a request from a caller's arguments; raises ``InputError`` for invalid ones."""
        metric: object = arguments.metric
        function = compile_metric(metric) if callable(metric) else None
        name = identify_metric(metric) if callable(metric) else ALIASES.get(str(metric), str(metric))
        names = (*METRICS, *SET_METRICS, HAVERSINE, PRECOMPUTED)
        if function is None and name not in names:
            raise InputError(
                f"metric {metric!r} is not known"
                f"{suggest_name(metric, names)}: take one of {', '.join(names)}, or a function of two rows "
                "that numba compiles"
            )
        recall, rows = _approximation(arguments)
        return cls(
            arguments.k, name, arguments.symmetric, arguments.solver, recall, rows, arguments.seed, function
        )

    @property
    def is_precomputed(self) -> bool:
        """True if the matrix holds distances."""
        return self.metric == PRECOMPUTED

    @property
    def needs_tree(self) -> bool:
        """True if only a tree can search: asked for, haversine, or periodic columns."""
        return self.solver == "tree" or self.metric == HAVERSINE or self.box is not None

    @property
    def code(self) -> int:
        """Code of the metric in kernels; without meaning if ``function`` is given."""
        return int(METRICS.get(self.metric, SET_METRICS.get(self.metric, Metric.EUCLIDEAN)))

    def check(self, rows: int, name: str, *, itself: bool) -> None:
        """Raise ``InputError`` if fewer than k of ``rows`` rows can be neighbors of a row.

        ``itself`` is True if rows are searched among themselves: a row is not its own neighbor.
        """
        most = rows - itself
        if self.k > most:
            others = f"{most} other{'s' * (most != 1)}" if itself else f"{most} rows"
            raise InputError(
                f"k {self.k} was asked for, but {name} has {rows} row{'s' * (rows != 1)}, so that each has "
                f"{others} to be near to" + (f": ask for 1 to {most}" if most else "")
            )

    def approximate_dict(self) -> dict[str, Any]:
        """Parameters that approximate lists depend on in addition to those of ``as_dict``."""
        return {"min_recall": self.min_recall, "partition_rows": self.partition_rows, "seed": self.seed}

    def as_dict(self) -> dict[str, Any]:
        """Parameters that identify the request, for JSON; also written to the facts of a result."""
        box = {} if self.box is None else {"box": list(self.box)}
        return {"kind": "knn", "k": self.k, "metric": self.metric, "symmetric": self.symmetric, **box}


def _approximation(arguments: KnnArguments) -> tuple[float | None, int | None]:
    """Recall to reach, and rows of a partition, None for the default; both None if lists are exact.

    ``InputError`` for arguments that do not fit each other.
    """
    k, recall, rows = arguments.k, arguments.min_recall, arguments.partition_rows
    if recall is None and arguments.solver == "approximate":
        recall = DEFAULT_RECALL
    if rows is not None and recall is None:
        raise InputError("partition_rows is of approximate neighbors: say min_recall too, or leave it out")
    if rows is not None and rows < 2 * (k + 1):
        raise InputError(
            f"partition_rows must be at least 2 (k + 1) = {2 * (k + 1)}, not {rows}: a partition holds lists"
        )
    return recall, rows


def compile_metric(metric: Callable[..., Any], what: str = "metric") -> Callable[..., float]:
    """Compile a function of two rows with numba; raises ``InputError`` if that fails or it returns no number.

    ``what`` is the name of the argument, for messages.
    """
    import numba

    rows = (numba.types.Array(numba.float64, 1, "C"),) * 2
    try:
        function: Any = metric if hasattr(metric, "py_func") else numba.njit(metric)
        function.compile(rows)
        return_type = function.overloads[rows].signature.return_type
    except (numba.core.errors.NumbaError, TypeError, KeyError) as error:
        # The first line is the step of numba that failed, the second what is wrong.
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        reason = next((line for line in lines if not line.startswith("Failed in ")), lines[0])
        raise InputError(
            f"{what} {_name(metric)} is not a function of two float64 rows that numba compiles: {reason}"
        ) from error
    if not isinstance(return_type, numba.types.Number | numba.types.Boolean):
        raise InputError(f"{what} {_name(metric)} gives {return_type}, which is not a number")
    return function  # type: ignore[no-any-return, unused-ignore]


def _name(metric: Callable[..., Any]) -> str:
    return str(getattr(metric, "__name__", metric))


def identify_metric(metric: Callable[..., Any]) -> str:
    """Name of a function and digest of its code: another function is another request."""
    digest = hashlib.blake2b(digest_size=8)
    _update_digest(getattr(metric, "py_func", metric), digest, set())
    return f"{_name(metric)}-{digest.hexdigest()}"


def _update_digest(value: Any, digest: Any, identities: set[int]) -> None:
    """Add a function to ``digest``, in place: its code, and the values that it reads besides its arguments.

    ``identities`` are the ids of functions that were added before, which are left out; it is updated.
    """
    value = getattr(value, "py_func", value)
    if isinstance(value, types.CodeType):
        digest.update(value.co_code + repr((value.co_names, value.co_varnames)).encode())
        for constant in value.co_consts:
            _update_digest(constant, digest, identities)
    elif isinstance(value, types.FunctionType):
        if id(value) in identities:
            return
        identities.add(id(value))
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        global_values = [value.__globals__.get(name) for name in value.__code__.co_names]
        for part in (value.__code__, value.__defaults__, *cells, *global_values):
            _update_digest(part, digest, identities)
    elif isinstance(value, types.ModuleType):
        digest.update(value.__name__.encode())
    else:
        digest.update(pickle.dumps(value, protocol=5))
