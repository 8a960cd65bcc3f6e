"""Means and deviations of whole columns are those of their numbers, however far from zero these are."""

from __future__ import annotations

import numpy as np
import pytest

from rankfold.methods.parts.conditioned import Centering, local_columns


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize(("mean", "pow2_scale"), [(0.0, 1.0), (1e8, 1.0), (1e14, 0.5)])
def test_columns_far_from_zero_keep_their_digits(mean: float, pow2_scale: float, scale: bool) -> None:
    x = np.random.default_rng(0).standard_normal((6000, 3)) * [1, 3, 10] + mean
    apart = (x - mean).astype(np.longdouble)  # exactly
    squares = ((apart - apart.mean(axis=0)) ** 2).sum(axis=0)
    center = mean + apart.mean(axis=0)
    found = local_columns(x, Centering(True, scale, pow2_scale, 1e-18, pow2_scale))
    deviation = np.sqrt(squares / (len(x) - 1)) if scale else np.ones(3)
    eps = np.finfo(float).eps
    assert (np.abs(found.mean - center) <= 2 * eps * np.abs(center) + 1e-15).all()
    np.testing.assert_allclose(found.deviation, deviation.astype(float), rtol=1e-11)
    np.testing.assert_allclose(
        found.squares, (squares * pow2_scale**2 / deviation**2).astype(float), rtol=1e-11
    )
