"""Blocks come out orthonormal, orthogonal to what was given, and span what they should."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankfold.kernels.linear.orthonormal import orthonormalize

Array = npt.NDArray[Any]
EPS = float(np.finfo(np.float64).eps)


def assert_orthonormal(q: Array, w: Array, basis: Array) -> None:
    assert q.shape == w.shape
    n = len(w)
    # Householder QR and two sweeps of block Gram-Schmidt: a small multiple of n eps each.
    tolerance = 20 * n * EPS
    assert np.abs(q.T @ q - np.eye(q.shape[1])).max() <= tolerance
    assert np.abs(basis.T @ q).max(initial=0.0) <= tolerance
    # Whatever is left of w beside the basis lies in the span of q, to rounding of w itself.
    left = w - basis @ (basis.T @ w)
    assert np.linalg.norm(left - q @ (q.T @ left)) <= tolerance * (np.linalg.norm(w) + EPS)


def blocks(basis: Array, width: int) -> Iterator[Array]:
    return (basis[:, i : i + width] for i in range(0, basis.shape[1], width))


@st.composite
def shapes(draw: st.DrawFn) -> tuple[int, int, int]:
    """Rows, columns of the block, and columns of the basis."""
    n = draw(st.integers(2, 40))
    b = draw(st.integers(1, n - 1))
    return n, b, draw(st.integers(0, n - b))


def make(shape: tuple[int, int, int], kind: str, seed: int) -> tuple[Array, Array]:
    """A block of columns of some kind, and a basis in general position."""
    n, b, p = shape
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((n, n)))[0][:, :p]
    w = rng.standard_normal((n, b))
    if kind == "graded":
        w *= 10.0 ** np.linspace(100, -100, b)
    elif kind == "dependent":
        w = w[:, : b // 2 + 1] @ rng.standard_normal((b // 2 + 1, b))
    elif kind == "zero":
        w[:, ::2] = 0.0
    elif kind == "nearly inside":
        w = basis @ rng.standard_normal((p, b)) + 1e-9 * w
    elif kind == "inside":
        w = basis @ rng.standard_normal((p, b))
    return w, basis


@given(
    shape=shapes(),
    seed=st.integers(0, 99),
    width=st.integers(1, 5),
    kind=st.sampled_from(["general", "graded", "dependent", "zero", "nearly inside", "inside"]),
)
def test_any_block_against_any_basis(shape: tuple[int, int, int], seed: int, width: int, kind: str) -> None:
    w, basis = make(shape, kind, seed)
    before = w.copy()
    assert_orthonormal(orthonormalize(w, lambda: blocks(basis, width)), w, basis)
    np.testing.assert_array_equal(w, before)


@given(shape=shapes(), zero=st.booleans())
def test_a_block_inside_the_span_of_unit_vectors(shape: tuple[int, int, int], zero: bool) -> None:
    # Projection leaves exact zeros here, not rounding noise in every direction.
    n, b, p = shape
    basis = np.eye(n)[:, :p]
    w = np.eye(n)[:, :b] if not zero else np.zeros((n, b))
    assert_orthonormal(orthonormalize(w, lambda: blocks(basis, 3)), w, basis)


def test_without_a_basis() -> None:
    w = np.random.default_rng(1).standard_normal((30, 6))
    assert_orthonormal(orthonormalize(w), w, np.zeros((30, 0)))


@pytest.mark.parametrize("n", [1, 5])
def test_a_block_as_wide_as_high(n: int) -> None:
    w = np.random.default_rng(1).standard_normal((n, n))
    assert_orthonormal(orthonormalize(w), w, np.zeros((n, 0)))


def test_blocks_are_asked_for_once_a_sweep() -> None:
    w, basis = make((20, 3, 10), "general", 1)
    asked = []

    def against() -> Iterator[Array]:
        asked.append(1)
        return blocks(basis, 4)

    orthonormalize(w, against)
    # A block in general position needs the projection and the sweep that confirms it.
    assert len(asked) == 2
