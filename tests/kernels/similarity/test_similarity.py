"""Kernel functions of pairs of rows against their definitions, and products with vectors against matrices."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.metrics.pairwise import pairwise_kernels

from rankfold.kernels.similarity.functions import Kind, Similarity, own_similarities, rows_of
from rankfold.kernels.similarity.tiles import HEIGHT, WIDTH, evaluate, multiply

Float64 = npt.NDArray[np.float64]

EPS = float(np.finfo(np.float64).eps)

NAMED = {
    "rbf": Similarity(Kind.RBF, 0.05),
    "laplacian": Similarity(Kind.LAPLACIAN, 0.05),
    "polynomial": Similarity(Kind.POLYNOMIAL, 0.05, 3.0, 1.0),
    "sigmoid": Similarity(Kind.SIGMOID, 0.05, coef0=1.0),
    "cosine": Similarity(Kind.COSINE),
    "linear": Similarity(Kind.LINEAR),
}


def all_pairs(x: Float64, y: Float64, similarity: Similarity, shift: float = 0.0) -> Float64:
    out = np.empty((len(x), len(y)))
    sides = (rows_of(each, similarity, np.full(x.shape[1], shift)) for each in (x, y))
    evaluate(*sides, similarity=similarity, out=out)
    return out


@pytest.mark.parametrize("name", NAMED)
def test_similarities_are_those_of_scikit_learn(name: str) -> None:
    rng, similarity = np.random.default_rng(0), NAMED[name]
    x, y = rng.standard_normal((40, 7)), rng.standard_normal((30, 7))
    x[3] = 0
    how = {"rbf": ("gamma",), "laplacian": ("gamma",), "sigmoid": ("gamma", "coef0")}
    how["polynomial"] = ("gamma", "degree", "coef0")
    right = pairwise_kernels(x, y, name, **{key: getattr(similarity, key) for key in how.get(name, ())})
    # Products of 7 terms of size 30 at most, under functions with slopes up to 10.
    np.testing.assert_allclose(all_pairs(x, y, similarity), right, rtol=0, atol=1e4 * EPS)
    own = own_similarities(rows_of(x, similarity, np.zeros(7)), similarity)
    own_right = np.array(
        [
            pairwise_kernels(
                x[i : i + 1], None, name, **{key: getattr(similarity, key) for key in how.get(name, ())}
            )[0, 0]
            for i in range(len(x))
        ]
    )
    np.testing.assert_allclose(own, own_right, rtol=0, atol=1e4 * EPS)


def test_rbf_keeps_what_products_lose() -> None:
    # Two far groups whose rows lie a billionth of their distance apart; the truth is summed by fsum.
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.standard_normal((20, 3)), 1e6 + rng.standard_normal((20, 3))])
    for gamma in (1e-3, 0.5, 20.0):
        k = all_pairs(x, x, Similarity(Kind.RBF, gamma), shift=5e5)
        shifted = x - 5e5
        right = [
            [math.exp(-gamma * math.fsum((a - b) ** 2 for a, b in zip(p, q, strict=True))) for q in shifted]
            for p in shifted
        ]
        np.testing.assert_allclose(k, right, rtol=0, atol=1e-12)


def test_exponentials_are_those_of_the_c_library() -> None:
    z = -np.concatenate([np.linspace(0, 745, 20001), [1e5, 1e300, 0.0]])
    k = all_pairs(-z[:, None], np.zeros((1, 1)), Similarity(Kind.LAPLACIAN, 1.0))[:, 0]
    normal = z > -708
    right = np.array([math.exp(each) for each in z])
    np.testing.assert_allclose(k[normal], right[normal], rtol=2 * EPS)
    assert not k[~normal].any()


@pytest.mark.parametrize("name", NAMED)
def test_what_is_no_number_has_no_similarity(name: str) -> None:
    x, y = (np.random.default_rng(seed).standard_normal((20, 3)) for seed in (0, 1))
    x[4, 1] = np.nan
    k = all_pairs(x, y, NAMED[name])
    assert np.isnan(k[4]).all()
    assert np.isfinite(np.delete(k, 4, axis=0)).all()


@pytest.mark.parametrize("name", NAMED)
def test_products_are_those_of_the_matrix(name: str) -> None:
    rng, similarity = np.random.default_rng(2), NAMED[name]
    x = rows_of(rng.standard_normal((HEIGHT + 40, 5)), similarity, np.zeros(5))
    y = rows_of(rng.standard_normal((WIDTH + 30, 5)), similarity, np.zeros(5))
    v, w = rng.standard_normal((len(y.values), 3)), rng.standard_normal((len(x.values), 3))
    k = np.empty((len(w), len(v)))
    evaluate(x, y, similarity=similarity, out=k)
    out, beside = np.ones((len(w), 3)), np.ones((len(v), 3))
    multiply(x, y, similarity=similarity, v=v, out=out, w=w, beside=beside)
    scale = 100 * len(v) * EPS * np.abs(k).max()
    np.testing.assert_allclose(out - 1, k @ v, rtol=0, atol=scale)
    np.testing.assert_allclose(beside - 1, k.T @ w, rtol=0, atol=scale)
    own, square = np.zeros((len(v), 3)), np.empty((len(v), len(v)))
    evaluate(y, y, similarity=similarity, out=square)
    multiply(y, y, similarity=similarity, v=v, out=own)
    np.testing.assert_allclose(own, square @ v, rtol=0, atol=100 * len(v) * EPS * np.abs(square).max())


def test_a_function_may_be_one_that_python_alone_can_call() -> None:
    x = np.arange(6.0).reshape(3, 2)
    numbers = {"two": 2.0}  # which numba does not take

    def of_a_dictionary(a: Float64, b: Float64) -> float:
        return numbers["two"] * float(a @ b)

    k = all_pairs(x, x, Similarity(Kind.FUNCTION, function=of_a_dictionary))
    np.testing.assert_array_equal(k, 2 * x @ x.T)
