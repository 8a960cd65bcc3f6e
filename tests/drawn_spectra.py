"""Matrices of drawn spectra, what a solver claims of their values, and how far it is from the truth.

A draw is made from its number alone: values repeated up to a hundred times at any place, clusters, gaps of
1e-3 to 0.5 below the values that are wanted, sparse and dense, both float types, every solver. The truth is
LAPACK's of the same matrix in float64.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

import rankfold as rf

Array = npt.NDArray[Any]

SOLVERS = ("lanczos", "lanczos", "lanczos", "krylov", "krylov", "subspace", "gram", "tsqr", "sketch")
"""Each as often as it has ways to miss a value."""

KINDS = ("repeated", "repeated", "edge", "clusters", "gap", "flat", "law")

ROUNDING = 8.0
"""Rounding of products in float32, of the largest value, that a claim is not about."""

WORST = 10.0
"""Times its claim that a value of a result which has converged may be off, at most."""


@dataclass(frozen=True, slots=True)
class Draw:
    """One matrix, and what is asked of it."""

    number: int
    solver: str
    kind: str
    is_sparse: bool
    dtype: str
    shape: tuple[int, int]
    rank: int
    tol: float
    copies: int
    """How often the most frequent value comes."""

    values: Array
    """(short,) singular values, decreasing."""

    def matrix(self) -> Any:
        """The matrix: sparse ones are diagonal with shuffled rows, some with turns in pairs of columns."""
        rng = np.random.default_rng([54, self.number, 1])
        rows, columns = self.shape
        short = min(self.shape)
        if self.is_sparse:
            places = rng.permutation(rows)[:short], rng.permutation(columns)[:short]
            x = scipy.sparse.csr_array((self.values, places), shape=self.shape)
            if rng.random() < 0.5:
                x = scipy.sparse.csr_array(_turns(rows, rng) @ x @ _turns(columns, rng))
            return x.astype(self.dtype)
        left, right = (np.linalg.qr(rng.standard_normal((n, short)))[0] for n in self.shape)
        return np.asarray((left * self.values) @ right.T).astype(self.dtype)

    def __str__(self) -> str:
        sort = "sparse" if self.is_sparse else "dense"
        return (
            f"{self.kind}, {self.copies} copies, {sort} {self.dtype} {self.shape[0]} x {self.shape[1]}, "
            f"rank {self.rank}, tol {self.tol:.1e}"
        )


def _turns(size: int, rng: np.random.Generator) -> Any:
    """An orthogonal matrix of turns by a random angle in pairs of coordinates."""
    pairs = rng.permutation(size)[: size - size % 2].reshape(2, -1)
    angle = rng.uniform(0, 2 * np.pi, pairs.shape[1])
    turn = scipy.sparse.eye_array(size, format="lil")
    turn[pairs[0], pairs[0]] = turn[pairs[1], pairs[1]] = np.cos(angle)
    turn[pairs[0], pairs[1]], turn[pairs[1], pairs[0]] = np.sin(angle), -np.sin(angle)
    return scipy.sparse.csr_array(turn)


def draw(number: int) -> Draw:
    """The draw of a number."""
    rng = np.random.default_rng([54, number])
    solver, kind = str(rng.choice(SOLVERS)), KINDS[number % len(KINDS)]
    short = int(rng.integers(70, 600))
    long = short if rng.random() < 0.5 else int(short * rng.uniform(1, 3))
    rank = int(min(rng.choice([1, 2, 3, 5, 8, 10, 15, 20, 30, 50]), short // 3))
    values = spectrum(kind, short, rank, rng)
    copies = int(np.unique(values, return_counts=True)[1].max())
    shape = (long, short) if rng.random() < 0.6 or solver == "tsqr" else (short, long)
    tol = float(10 ** rng.uniform(-8, -1.2))
    dtype = str(rng.choice(["float64", "float64", "float32"]))
    is_sparse = bool(rng.random() < 0.5) and solver != "tsqr"
    return Draw(number, solver, kind, is_sparse, dtype, shape, rank, tol, copies, values)


def spectrum(kind: str, n: int, rank: int, rng: np.random.Generator) -> Array:
    """``n`` values, decreasing, the largest about 1."""
    gap = float(10 ** rng.uniform(-3, np.log10(0.5)))
    copies = int(10 ** rng.uniform(np.log10(2), 2))
    match kind:
        case "repeated":  # at any place, of the wanted or across the last of them
            before = int(rng.integers(0, rank + 1))
            top = np.sort(rng.uniform(1, 2, before))[::-1]
            rest = np.linspace(1 - gap, 0.01, n)
            values = np.r_[top, np.full(copies, 1.0), rest]
        case "edge":  # several repeated values, close below one another
            levels = 2.0 * (1 - gap) ** np.arange(int(rng.integers(2, 8)))
            values = np.r_[np.repeat(levels, rng.integers(1, copies + 1, len(levels)))]
            values = np.r_[values, values[-1] * np.linspace(1 - gap, 0.01, n)]
        case "clusters":
            centers = 1.5 * (1 - gap) ** np.arange(int(rng.integers(2, 7)))
            width = 10.0 ** rng.uniform(-12, -3)
            values = np.repeat(centers, copies) * (1 + width * rng.standard_normal(len(centers) * copies))
            values = np.r_[values, centers[-1] * np.linspace(1 - gap, 0.01, n)]
        case "gap":
            values = np.r_[rng.uniform(1, 2, rank), np.linspace(1 - gap, 0.01, n)]
        case "flat":
            values = 1 + gap * np.linspace(1, -1, n)
        case "law":
            values = (1.0 + np.arange(n)) ** -rng.uniform(0.2, 1.5)
            values = np.repeat(values, rng.integers(1, 12, n))
        case _:
            raise ValueError(kind)
    return np.sort(values[:n])[::-1]


@dataclass(frozen=True, slots=True)
class Found:
    """What a solver said of a draw, and the truth."""

    converged: bool
    claim: float
    """The largest estimate."""

    error: float
    """The largest relative error of a value, beyond rounding of the type."""

    ratio: float
    """The largest error of a single value over its own claim."""

    passes: int
    products: int
    error_message: str = ""

    @property
    def over(self) -> float:
        """The error over the claim; 0 where nothing is claimed."""
        return self.error / self.claim if self.claim > 0 else float(self.error > 0) * 1e9


def decompose(asked: Draw, x: Any) -> rf.Result:
    """The result of one draw, without a word of warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rf.RankfoldWarning)
        how: dict[str, Any] = {"with_rows": False} if asked.number % 3 == 0 else {}
        passes = 30 if asked.solver in ("krylov", "subspace") else None
        return rf.svd(
            x,
            asked.rank,
            tol=asked.tol,
            solver=asked.solver,
            passes=passes,
            seed=asked.number,
            memory="1GiB",
            threads=1,
            **how,
        )


def compare(asked: Draw) -> Found:
    """Decompose a draw, and compare claims with LAPACK."""
    x = asked.matrix()
    result = decompose(asked, x)
    wide = (x.toarray() if asked.is_sparse else x).astype(np.float64)
    true = np.linalg.svd(wide, compute_uv=False)
    s, claims = np.asarray(result.s, np.float64), np.asarray(result.error_estimates, np.float64)
    # What LAPACK's values may be off by themselves, as NumPy has it for the rank of a matrix.
    floor = max(asked.shape) * float(np.finfo(np.float64).eps) * true[0]
    if asked.dtype == "float32":
        floor += ROUNDING * float(np.finfo(np.float32).eps) * true[0]
    errors = np.maximum(np.abs(s - true[: len(s)]) - floor, 0.0) / true[: len(s)]
    ratio = float(np.max(np.where(errors > 0, errors / np.maximum(claims, 1e-300), 0.0)))
    attrs = result.attrs
    return Found(
        bool(attrs["converged"]),
        float(attrs["largest_error_estimate"]),
        float(errors.max()),
        ratio,
        int(attrs["passes"]),
        int(attrs.get("products", 0)),
    )
