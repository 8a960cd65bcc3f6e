"""A call of a kernel, and matrices and lists that several kernels are called with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.kernels.neighbors import lists as neighbors

Array = npt.NDArray[Any]
Outputs = dict[str, Any]
Body = Callable[..., Any]
EPS = float(np.finfo(np.float64).eps)
FLOATS = ("float32", "float64")
ALL = ("float32", "float64", "uint8")


@dataclass(frozen=True)
class Case:
    """One call of a kernel."""

    inputs: dict[str, Array]
    """Documented as left untouched; handed over in every layout."""

    run: Callable[[Body, dict[str, Any], Any], Outputs]
    """Calls a body with inputs on the device of a library, and gathers what it returned or wrote."""

    error: dict[str, Any] = field(default_factory=dict)
    """Largest difference between two right bodies, by output; exactly equal where there is none."""

    error_of_device: dict[str, Any] = field(default_factory=dict)
    """The same, where only a body on a device may differ."""


MakeCase = Callable[[tuple[int, int], str], Case]


def apart(x: Any, xp: Any) -> Any:
    wide = xp.zeros((*x.shape[:-1], x.shape[-1] + 3), x.dtype)
    wide[..., 2 : 2 + x.shape[-1]] = x
    return wide[..., 2 : 2 + x.shape[-1]]


def matrix(shape: tuple[int, ...], dtype: str = "float64", seed: int = 3) -> Array:
    rng = np.random.default_rng([*shape, seed])
    if dtype == "uint8":
        return rng.integers(0, 256, shape).astype(np.uint8)
    return (10 * rng.standard_normal(shape) + 3).astype(dtype)


def working(dtype: str) -> str:
    return "float64" if dtype == "float64" else "float32"


def symmetric(p: int) -> Array:
    a = matrix((p, p))
    return a + a.T


def gram_of(n: int) -> Array:
    a = symmetric(n)
    return np.eye(n) + a / (2 * np.abs(a).sum())  # type: ignore[no-any-return]


def returns(*names: str, **inputs: Array) -> Case:
    """Case of a kernel that takes these inputs alone; LAPACK gets the same copy from every layout."""
    keys = list(inputs)

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        result = body(*(a[key] for key in keys))
        return dict(zip(names, result if len(names) > 1 else (result,), strict=True))

    return Case(inputs, run)


def fill(
    rows: int, k: int, key: float, name: int, dtype: Any = np.float64, of: Any = np.int64
) -> list[Array]:
    """Lists or shortlists where nothing is yet, as a part of wider arrays is."""
    return [apart(np.full((rows, k), key, dtype), np), apart(np.full((rows, k), name, of), np)]


def listed(name: str, keys: Array, ids: Array) -> Outputs:
    """What lists hold, in order and without infinities, and what they have in front."""
    order = np.lexsort((ids, keys), axis=-1)
    held = np.take_along_axis(keys, order, -1), np.take_along_axis(ids, order, -1)
    finite = np.isfinite(held[0])
    empty = np.where(finite, 0, held[1] == neighbors.EMPTY) if ids.dtype == np.int64 else held[1] == -1
    return {
        f"{name} keys": np.where(finite, held[0], 0),
        f"{name} ids": np.where(finite, held[1], -1),
        f"{name} empty": empty,
        f"{name} front": np.array_equal(keys[:, 0], held[0][:, -1]),
    }


def near(dtype: str, *of: Array) -> list[Array]:
    return [(np.square(x.astype(float)).sum(axis=1) / 2).astype(dtype) for x in of]


def nonzeros(shape: tuple[int, int], dtype: str) -> dict[str, Array]:
    """Sparse rows in the midst of longer arrays: some are empty, some have a column twice, in no order."""
    r, s = shape
    rng = np.random.default_rng([*shape, 11])
    counts = np.where(np.arange(r) % 3 == 1, 0, np.arange(r) % (s + 3))
    indptr = 2 + np.concatenate([[0], np.cumsum(counts)])
    indices = rng.integers(0, s, indptr[-1] + 4)
    indices[[0, 1, -1]] = 10 * s, -1, 2**40
    return {"indptr": indptr, "indices": indices, "data": matrix(indices.shape, dtype)}


def dense(a: dict[str, Array], s: int) -> Array:
    """The same rows, absolutely: duplicates add up."""
    x = np.zeros((len(a["indptr"]) - 1, s))
    part = slice(a["indptr"][0], a["indptr"][-1])
    rows = np.repeat(np.arange(len(x)), np.diff(a["indptr"]))
    np.add.at(x, (rows, a["indices"][part]), np.abs(a["data"][part]).astype(float))
    return x


def increasing(shape: tuple[int, int], dtype: str, seed: int) -> dict[str, Array]:
    """Sparse rows with columns that increase; whole numbers, among them zeros, and equal rows."""
    rng = np.random.default_rng([*shape, seed])
    x = rng.integers(0, 4, shape) * (rng.random(shape) < 0.4)
    x[: len(x) // 3] = x[0]
    stored = (x != 0) | (rng.random(shape) < 0.1)
    indptr = np.concatenate([[0], np.cumsum(stored.sum(axis=1))])
    return {
        "indptr": indptr,
        "indices": np.nonzero(stored)[1].astype(np.int32),
        "data": x[stored].astype(dtype),
    }
