"""Dense factorizations agree with NumPy, and signs do not depend on rounding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankfold.kernels.linear.dense import fix_signs, leading_eigenpairs, leading_singular_triplets

Array = npt.NDArray[Any]
EPS = float(np.finfo(np.float64).eps)

SPECTRA: dict[str, Callable[[int], Array]] = {
    "distinct": lambda p: np.arange(p, 0.0, -1.0),
    "repeated": lambda p: np.repeat([3.0, -1.0], [p - p // 2, p // 2]),
    "graded": lambda p: 10.0 ** -np.linspace(0, 20, p),
    "zero": np.zeros,
    "negative": lambda p: -np.arange(1.0, p + 1),
    "large": lambda p: 1e200 * np.arange(1.0, p + 1),
}


def orthogonal(p: int, seed: int) -> Array:
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((p, p)))[0]


@given(
    p=st.integers(1, 25), k=st.integers(1, 25), seed=st.integers(0, 99), kind=st.sampled_from(sorted(SPECTRA))
)
def test_eigenpairs_are_those_of_numpy(p: int, k: int, seed: int, kind: str) -> None:
    k, q = min(k, p), orthogonal(p, seed)
    a = (q * SPECTRA[kind](p)) @ q.T
    a = np.ascontiguousarray((a + a.T) / 2)
    norm = np.linalg.norm(a, 2)
    values, vectors = leading_eigenpairs(a.copy(), k)
    # LAPACK is backward stable: values and residuals are off by a small multiple of p eps of the norm.
    bound = 20 * p * EPS * norm
    assert np.abs(values - np.linalg.eigvalsh(a)[::-1][:k]).max() <= bound
    assert (np.diff(values) <= 0).all()
    assert np.abs(a @ vectors - vectors * values).max() <= bound
    assert np.abs(vectors.T @ vectors - np.eye(k)).max() <= 20 * p * EPS


@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("width", [1e-13, 1e-12, 1e-11, 1e-10])
def test_eigenvectors_of_a_cluster_are_orthonormal_to_rounding(width: float, is_complex: bool) -> None:
    # As LAPACK leaves them they are so to some 1e-13 of a matrix of 64, and to 1e-12 of one of 184.
    p = 64
    for seed in range(30):
        rng = np.random.default_rng(seed)
        random = rng.standard_normal((p, p)) + is_complex * 1j * rng.standard_normal((p, p))
        q = np.linalg.qr(random if is_complex else random.real)[0]
        a = (q * np.r_[1 + width * rng.standard_normal(8), np.linspace(0.01, 0.9, p - 8)]) @ q.conj().T
        a = np.ascontiguousarray((a + a.conj().T) / 2)
        values, vectors = leading_eigenpairs(a.copy(), p)
        assert np.abs(vectors.conj().T @ vectors - np.eye(p)).max() <= 130 * EPS
        assert np.abs(a @ vectors - vectors * values).max() <= p * EPS


@given(p=st.integers(1, 30), columns=st.integers(1, 30), k=st.integers(1, 30), seed=st.integers(0, 99))
def test_singular_triplets_rebuild_the_matrix(p: int, columns: int, k: int, seed: int) -> None:
    k = min(k, p, columns)
    a = np.random.default_rng(seed).standard_normal((p, columns))
    before = a.copy()
    u, s, v = leading_singular_triplets(a, k)
    np.testing.assert_array_equal(a, before)
    every = np.linalg.svd(a, compute_uv=False)
    bound = 20 * max(p, columns) * EPS * every[0]
    assert (np.diff(s) <= 0).all() and (s >= 0).all()
    assert np.abs(s - every[:k]).max() <= bound
    # The best approximation of rank k misses exactly the next singular value (Eckart, Young).
    missed = np.linalg.norm(a - (u * s) @ v.T, 2)
    assert abs(missed - (every[k] if k < len(every) else 0.0)) <= bound
    for factor in (u, v):
        assert np.abs(factor.T @ factor - np.eye(k)).max() <= 20 * max(p, columns) * EPS


@given(n=st.integers(1, 30), k=st.integers(1, 6), flips=st.integers(0, 63), seed=st.integers(0, 99))
def test_signs_undo_any_flip(n: int, k: int, flips: int, seed: int) -> None:
    v = np.random.default_rng(seed).standard_normal((n, k))
    flip = np.where((flips >> np.arange(k)) & 1, -1.0, 1.0)
    np.testing.assert_array_equal((v * flip) * fix_signs(v * flip), v * fix_signs(v))
    assert set(fix_signs(v)) <= {-1.0, 1.0}


@given(half=st.integers(1, 20), middle=st.booleans(), seed=st.integers(0, 99), noise=st.integers(0, 99))
def test_signs_of_antisymmetric_vectors_survive_rounding(
    half: int, middle: bool, seed: int, noise: int
) -> None:
    # Their largest entries come in pairs of opposite sign: whichever rounding made larger must not decide.
    a = np.random.default_rng(seed).standard_normal(half)
    relative = np.abs(a) / np.abs(a).max()
    a[np.abs(relative - 0.99) < 1e-6] *= 0.5  # beside the threshold itself any rule would waver
    v = np.concatenate([a, np.zeros(int(middle)), -a[::-1]])[:, None]
    disturbed = v + 1e-9 * np.abs(a).max() * np.random.default_rng(noise).uniform(-1, 1, v.shape)
    np.testing.assert_array_equal(fix_signs(v), fix_signs(disturbed))
    assert (v * fix_signs(v))[np.argmax(np.abs(v) >= 0.99 * np.abs(v).max())] > 0


@pytest.mark.parametrize("v", [np.zeros((4, 2)), np.full((1, 1), -0.0)])
def test_a_column_of_zeros_keeps_its_sign(v: Array) -> None:
    np.testing.assert_array_equal(fix_signs(v), np.ones(v.shape[1]))
