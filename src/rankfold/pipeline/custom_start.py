"""Factors that a caller gives to start from: arrays, or an earlier result."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.errors import InputError
from rankfold.pipeline.result import Result

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class CustomStart:
    """W (m, k) and H (k, n), as they lie; only the one of the short side is ever read."""

    w: Any
    h: Any

    @classmethod
    def of(cls, given: object) -> CustomStart:
        """From a pair of arrays, a result of nmf, or the path of one."""
        if isinstance(given, (str, Path)):
            given = Result(given)
        if isinstance(given, Result):
            if given.attrs.get("kind") != "nmf":
                raise InputError(
                    f"{given.path} is the result of {given.attrs.get('kind')}: nmf starts from one of nmf"
                )
            return cls(given.W, given.H)
        if not (isinstance(given, (tuple, list)) and len(given) == 2):
            raise InputError("init must be a name, a pair of arrays (W, H), or a result of nmf")
        return cls(*(factor if hasattr(factor, "shape") else _array(factor) for factor in given))

    def short(self, shape: tuple[int, int], rank: int, *, by_rows: bool) -> Float64:
        """(k, short) what the first pass solves the long factor from."""
        rows, columns = shape
        for name, factor, wanted in (("W", self.w, (rows, rank)), ("H", self.h, (rank, columns))):
            if tuple(factor.shape) != wanted:
                raise InputError(f"{name} to start from has shape {tuple(factor.shape)}, not {wanted}")
        short = np.array(self.h[...] if by_rows else self.w[...].T, np.float64)
        if not (np.isfinite(short).all() and short.min() >= 0):
            raise InputError("factors to start from must be finite and at least 0")
        if not short.any():
            raise InputError("factors to start from are all zero: from there nothing moves")
        return short


def _array(given: object) -> Any:
    try:
        return np.asarray(given, np.float64)
    except (TypeError, ValueError):
        raise InputError("factors to start from must be arrays of numbers") from None


def digest(short: Float64 | None) -> str:
    """What tells one start from another."""
    if short is None:
        return ""
    return hashlib.blake2b(np.ascontiguousarray(short).data, digest_size=16).hexdigest()
