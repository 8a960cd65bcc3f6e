"""Parameters of a clustering, checked before anything is read; starting centers from the caller."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.methods.kmeans.arguments import INITS, KMeansArguments
from rankfold.pipeline.data.named_objects import names_along
from rankfold.pipeline.data.names import names_of_result
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.prepare.alike import column_names, columns_among
from rankfold.pipeline.storage.result import Result
from rankfold.pipeline.text import suggest_name

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ClusterRequest:
    """Parameters of ``kmeans`` that a result depends on."""

    k: int
    init: str
    n_init: int
    tol: float
    passes: int
    seed: int
    batch_rows: int
    """Number of rows after which centers move; 0 to move after all rows."""

    @classmethod
    def of(cls, k: int, init: str, arguments: KMeansArguments) -> ClusterRequest:
        """Make a request of k clusters from a caller's arguments; ``init`` is "custom" for given centers."""
        return cls(
            k,
            init,
            arguments.n_init,
            arguments.tol,
            arguments.passes,
            arguments.seed,
            arguments.batch_rows or 0,
        )

    @property
    def solver(self) -> str:
        """``"batches"`` or ``"lloyd"``: centers move after each batch, or after all rows."""
        return "batches" if self.batch_rows else "lloyd"

    @property
    def start_passes(self) -> int:
        """Number of passes before the first step: 1 for ``"k-means||"``, else 0."""
        return int(self.init == "k-means||")

    def check(self, shape: tuple[int, int], name: str) -> None:
        """Raise ``InputError`` for parameters that do not fit a matrix of this shape, called ``name``."""
        rows, columns = shape
        if not columns:
            raise InputError(f"{name} is {rows} x {columns}: there are no columns to tell rows by")
        if self.init not in INITS:
            raise InputError(
                f"init {self.init!r} is not known"
                f"{suggest_name(self.init, INITS)}: "
                f"take one of {', '.join(INITS[:-1])}, an array of centers, "
                "or a result of kmeans"
            )
        # With given centers there may be fewer rows than centers.
        if self.k > rows and self.init != "custom":
            raise InputError(
                f"{self.k} clusters were asked for, but {name} has {rows} rows: ask for 1 to {rows}"
            )
        least = self.start_passes + 1 + (self.batch_rows > 0)
        if self.passes < least:
            by = " by batches, and one that labels rows," if self.batch_rows else ""
            raise InputError(
                f"kmeans from init={self.init}{by} takes {least} passes at least, but passes={self.passes}"
            )

    def as_dict(self) -> dict[str, Any]:
        """Parameters, for JSON, that identify the request; also written to the facts of a result."""
        return {"kind": "kmeans", **dataclasses.asdict(self)}


def given_centers(init: object) -> Float64:
    """(k, n) centers from an array, a result of kmeans, or the path of one."""
    if isinstance(init, (str, Path)):
        init = Result(init)
    if isinstance(init, Result):
        if init.attrs.get("kind") != "kmeans":
            raise InputError(
                f"{init.path} is the result of {init.attrs.get('kind')}: kmeans starts from one of kmeans"
            )
        init.require_whole()
        init = init.centers[...]
    try:
        centers = np.array(init, np.float64, order="C")
    except (TypeError, ValueError):
        raise InputError("init must be a name, an array of centers (k, n), or a result of kmeans") from None
    if centers.ndim != 2 or not centers.size:
        raise InputError(f"init must be centers in rows, (k, n); this array has shape {centers.shape}")
    if not np.isfinite(centers).all():
        raise InputError("centers to start from must be finite numbers")
    return centers


def centers_among(centers: Float64, init: object, source: Source) -> Float64:
    """Reorder the columns of named centers (result, frame or DataArray) to those of the source."""
    if isinstance(init, str | Path | Result):
        result = init if isinstance(init, Result) else Result(init)
        own, name = names_of_result(result.path, result.attrs, 1), f"centers of {result.path}"
    else:
        own, name = names_along(init, 1), "the centers of init"
    places = columns_among(own, column_names(source), name, source.name)
    return centers if places is None else np.ascontiguousarray(centers[:, places])


def digest(centers: Float64 | None) -> str:
    """Hash that identifies starting centers; empty for None."""
    if centers is None:
        return ""
    return hashlib.blake2b(centers.data, digest_size=16).hexdigest()
