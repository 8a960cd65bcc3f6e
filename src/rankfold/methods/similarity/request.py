"""Choice of a kernel function, checked before anything is read."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rankfold.kernels.similarity.functions import Kind, Similarity
from rankfold.methods.argument import number
from rankfold.methods.knn.request import compile_metric, identify_metric
from rankfold.methods.similarity.arguments import ALIASES, KERNELS
from rankfold.pipeline.data.source import Source, require_rows
from rankfold.pipeline.data.view import working_dtype
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.text import suggest_name

KINDS = dict(
    zip(
        KERNELS,
        (Kind.RBF, Kind.LAPLACIAN, Kind.POLYNOMIAL, Kind.SIGMOID, Kind.COSINE, Kind.LINEAR),
        strict=True,
    )
)

USED = {
    "rbf": ("gamma",),
    "laplacian": ("gamma",),
    "polynomial": ("gamma", "degree", "coef0"),
    "sigmoid": ("gamma", "coef0"),
}
"""Names of the parameters of each kernel function; values of others are not part of the request."""


@dataclass(frozen=True, slots=True)
class KernelChoice:
    """A kernel function with its parameters."""

    kernel: str
    """One of ``KERNELS``, or name and digest of a function of the caller's own."""

    gamma: float
    degree: float
    coef0: float
    function: Callable[..., float] | None = None
    """The compiled function, if the kernel is the caller's own."""

    @classmethod
    def of(cls, columns: int, kernel: object, gamma: object, degree: object, coef0: object) -> KernelChoice:
        """Make a choice from a caller's arguments, for rows of ``columns`` columns; raises ``InputError``."""
        scale = 1 / max(columns, 1) if gamma is None else number("gamma", gamma)
        power, added = number("degree", degree), number("coef0", coef0)
        if not 0 <= scale < math.inf:
            why = ": rows would be like themselves alone, and the matrix of all pairs the identity"
            raise InputError(
                f"gamma must be a finite number of at least 0, not {scale}{why if scale == math.inf else ''}"
            )
        if not (0 <= power < math.inf and math.isfinite(added)):
            raise InputError(
                "degree must be a finite number of at least 0 and coef0 a finite number, not "
                f"{power} and {added}"
            )
        if callable(kernel):
            function = compile_metric(kernel, "kernel")
            return cls(identify_metric(kernel), scale, power, added, function)
        name = ALIASES.get(str(kernel), str(kernel))
        if name not in KINDS:
            raise InputError(
                f"kernel {kernel!r} is not known"
                f"{suggest_name(kernel, KERNELS)}: take one of {', '.join(KERNELS)}, or a function of two "
                "rows that numba compiles"
            )
        return cls(name, scale, power, added)

    @property
    def similarity(self) -> Similarity:
        """The kernel function and its parameters, in the form that compiled kernels take."""
        kind = Kind.FUNCTION if self.function is not None else KINDS[self.kernel]
        return Similarity(int(kind), self.gamma, self.degree, self.coef0, self.function)

    def as_dict(self) -> dict[str, Any]:
        """Parameters that identify the choice, by name, as JSON types: part of the facts of a result."""
        return {"kernel": self.kernel, **{name: getattr(self, name) for name in USED.get(self.kernel, ())}}

    @classmethod
    def from_dict(cls, facts: dict[str, Any], function: Callable[..., Any] | None = None) -> KernelChoice:
        """The choice in the request of a result, ``facts``.

        A ``function`` of the caller's own, which a result does not hold, has to be given again;
        ``InputError`` if it is missing or another one.
        """
        kernel = str(facts["kernel"])
        if kernel not in KINDS and (function is None or identify_metric(function) != kernel):
            given = "nothing" if function is None else identify_metric(function)
            raise InputError(
                f"the result is of a kernel of your own, {kernel}, which it does not hold, and {given} was "
                "given: place rows with the same function, by rankfold.estimators.KernelPCA or Nystroem"
            )
        gamma, degree, coef0 = (float(facts.get(name, 1.0)) for name in ("gamma", "degree", "coef0"))
        own = None if kernel in KINDS or function is None else compile_metric(function, "kernel")
        return cls(kernel, gamma, degree, coef0, own)


def check_matrix(source: Source, kind: str) -> None:
    """Raise ``InputError`` for a matrix that is empty, of complex numbers, or compressed by columns.

    ``kind`` is the name of the method, for the message.
    """
    working_dtype(source.dtype)
    require_rows(source)
    rows, columns = source.shape
    if not rows or not columns:
        raise InputError(f"{source.name} is {rows} x {columns}: {kind} has nothing to compare")
