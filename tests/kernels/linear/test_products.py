"""Products of grains, and their sums: those of the whole matrix, in any memory order."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from rankfold.kernels.linear.products import add_gram, add_product, product, weigh


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_grains_add_up_to_products_of_the_whole(dtype: npt.DTypeLike, order: str) -> None:
    rng = np.random.default_rng(0)
    x, c = (np.asarray(rng.standard_normal(s), dtype, order=order) for s in ((50, 8), (8, 3)))  # type: ignore[call-overload]
    y, gram, cross = np.empty((50, 3), dtype), np.zeros((3, 3)), np.ones((8, 3))
    for grain in (slice(0, 20), slice(20, 50)):
        product(x[grain], c, out=y[grain])
        add_gram(y[grain], total=gram)
        add_product(x[grain], y[grain], total=cross, work=np.empty((8, 3), dtype))
    exact = x.astype(float) @ c.astype(float)
    bound = 200 * float(np.finfo(dtype).eps)
    np.testing.assert_allclose(y, exact, rtol=0, atol=bound * np.abs(exact).max())
    np.testing.assert_allclose(gram, exact.T @ exact, rtol=0, atol=bound * np.abs(gram).max())
    np.testing.assert_allclose(cross - 1, x.T.astype(float) @ exact, rtol=0, atol=bound * np.abs(cross).max())


def test_weights_are_rounded_to_the_type_of_what_is_written() -> None:
    x, weights = np.array([[1 / 3, 2.0], [4.0, 5.0]]), np.array([3.0, 0.5])
    out = np.empty((2, 2), np.float32)
    weigh(x, weights, out=out.T.T)
    np.testing.assert_array_equal(out, (x * weights).astype(np.float32))
