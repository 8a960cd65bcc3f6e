"""Products of arrays are what their formulas say, summed and rounded in the types that they name."""

from __future__ import annotations

import numpy as np
import pytest

from rankfold.kernels.linear.products import add_gram, add_product, product, weigh

RNG = np.random.default_rng(0)


def matrix(rows: int, columns: int, dtype: str) -> np.ndarray:  # type: ignore[type-arg]
    return RNG.standard_normal((rows, columns)).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (30, 7, 4), (5, 40, 3)])
def test_products_are_those_of_their_formulas(dtype: str, shape: tuple[int, int, int]) -> None:
    (m, n, k), eps = shape, float(np.finfo(dtype).eps)
    x, right, y = matrix(m, n, dtype), matrix(n, k, dtype), matrix(m, k, dtype)
    wide = [each.astype(np.float64) for each in (x, right, y)]

    out = np.empty((m, k), dtype)
    product(x, right, out=out)
    np.testing.assert_allclose(out, wide[0] @ wide[1], atol=20 * n * eps)

    gram = np.full((k, k), 3.0)
    add_gram(y, total=gram)
    np.testing.assert_allclose(gram, 3.0 + wide[2].T @ wide[2], atol=20 * m * eps)

    total = np.full((n, k), -2.0)
    add_product(x, y, total=total, work=np.empty((n, k), dtype))
    np.testing.assert_allclose(total, wide[0].T @ wide[2] - 2.0, atol=20 * m * eps)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_weights_keep_their_signs_and_zeros(dtype: str) -> None:
    x, weights = matrix(6, 4, "float64"), np.array([-2.0, 0.0, 0.5, 1e-3])
    out = np.empty((6, 4), dtype)
    weigh(x, weights, out=out)
    assert np.array_equal(out, (x * weights).astype(dtype))
