"""Densities are those of all samples, and logarithms are right where every kernel underflows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import logsumexp
from sklearn.neighbors._ball_tree import kernel_norm

import rankfold as rf
from rankfold.methods.sums import accuracy
from rankfold.methods.sums.arguments import DENSITY_KERNELS
from rankfold.methods.sums.kernels import log_integral
from rankfold.pipeline.errors import DataError, InputError

Array = npt.NDArray[Any]


def brute(x: Array, t: Array, kernel: str, h: float, w: Array) -> Array:
    """Logarithms, kernel by kernel."""
    d = np.sqrt(((t[:, None] - x) ** 2).sum(axis=2)) / h
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = {
            "gaussian": -0.5 * d**2,
            "exponential": -d,
            "tophat": np.where(d < 1, 0.0, -np.inf),
            "epanechnikov": np.where(d < 1, np.log(1 - np.minimum(d, 1) ** 2), -np.inf),
            "linear": np.where(d < 1, np.log(1 - np.minimum(d, 1)), -np.inf),
            "cosine": np.where(d < 1, np.log(np.cos(0.5 * np.pi * np.minimum(d, 1))), -np.inf),
        }[kernel]
        total: Array = logsumexp(logs, b=w, axis=1)
    return total - log_integral(kernel, h, x.shape[1]) - np.log(w.sum())


@pytest.mark.parametrize("kernel", DENSITY_KERNELS)
@pytest.mark.parametrize("columns", [1, 2, 3, 6])
def test_densities_are_those_of_all_samples(kernel: str, columns: int) -> None:
    r = np.random.default_rng(columns)
    x, t, w = r.standard_normal((700, columns)), 2 * r.standard_normal((200, columns)), r.random(700)
    t[:5] = 100.0  # far from all
    for others in (None, t):
        at = x if others is None else others
        result = rf.density(x, others, bandwidth=0.6, kernel=kernel, weights=w, tol=0.0)
        # Rounding of exponents, which are as large as the logarithms themselves.
        expected = brute(x, at, kernel, 0.6, w)
        np.testing.assert_allclose(result.log_density[...], expected, rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("kernel", DENSITY_KERNELS)
@pytest.mark.parametrize("columns", [1, 2, 3, 7])
def test_integrals_are_those_of_scikit_learn(kernel: str, columns: int) -> None:
    if (kernel, columns) == ("cosine", 2):
        # Of cosine in an even number of columns scikit-learn leaves out the last term: the integral over a
        # disk of radius h is 2 pi h^2 (2 / pi - 4 / pi^2).
        exact = np.log(2 * np.pi * 0.7**2 * (2 / np.pi - 4 / np.pi**2))
        assert log_integral(kernel, 0.7, columns) == pytest.approx(exact, rel=1e-12)
        return
    expected = -np.log(kernel_norm(0.7, columns, kernel))
    assert log_integral(kernel, 0.7, columns) == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("columns", [1, 2, 30, 500, 2000, 10**6])
def test_the_integral_of_cosine_is_right_in_any_number_of_columns(columns: int) -> None:
    # With t = d (1 - r) the integrand is (1 - t / d)^(d - 1) sin(pi t / 2 d), on a scale of 1 for any d.
    x, weights = np.polynomial.legendre.leggauss(200)
    end = min(columns, 60.0)  # beyond which it is below exp(-59)
    t = 0.5 * end * (x + 1)
    f = np.exp((columns - 1) * np.log1p(-t / columns)) * np.sin(0.5 * np.pi * t / columns)
    expected = np.log(0.5 * end * weights @ f)
    ball = log_integral("tophat", 2.0, columns)
    # The logarithm of the volume is large, and so is its rounding.
    error = 1e-13 + 4 * np.finfo(float).eps * abs(ball)
    assert log_integral("cosine", 2.0, columns) - ball == pytest.approx(expected, abs=error)


@pytest.mark.parametrize("few", [0, 2**18])
def test_densities_are_within_tol_at_99_of_100_targets(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accuracy, "FEW_TARGETS", few)
    r = np.random.default_rng(0)
    x, t = r.standard_normal((20_000, 3)), 1.5 * r.standard_normal((3000, 3))
    result, exact = (rf.density(x, t, bandwidth="scott", tol=tol) for tol in (1e-2, 0.0))
    errors = np.abs(np.expm1(result.log_density[...] - exact.log_density[...]))
    assert result.attrs["method"] == "tree"
    assert np.quantile(errors, 0.99) <= 1e-2
    assert result.attrs["error"] <= result.attrs["error_bound"] <= 1e-2


def test_rules_for_bandwidths() -> None:
    x = np.random.default_rng(0).standard_normal((300, 2))
    for rule, h in (("scott", 300 ** (-1 / 6)), ("silverman", (300 * 4 / 4) ** (-1 / 6))):
        one, other = (rf.density(x, bandwidth=each).log_density[...] for each in (rule, h))
        np.testing.assert_array_equal(one, other)


def test_few_and_equal_samples_are_defined() -> None:
    one = rf.density(np.zeros((1, 1)), bandwidth=1.0)
    assert one.log_density[0] == pytest.approx(-0.5 * np.log(2 * np.pi))
    equal = rf.density(np.ones((500, 2)), bandwidth=2.0, kernel="tophat")
    np.testing.assert_allclose(equal.log_density[...], -np.log(4 * np.pi))
    far = rf.density(np.zeros((3, 2)), np.full((1, 2), 1e3), bandwidth=0.01)
    assert far.log_density[0] == pytest.approx(-1e10 - np.log(2 * np.pi * 1e-4), rel=1e-14)


@pytest.mark.parametrize("kernel", ["gaussian", "exponential"])
@pytest.mark.parametrize("columns", [1, 3, 5])
def test_samples_that_weigh_nothing_change_nothing(kernel: str, columns: int) -> None:
    one = rf.density(np.array([[0.0], [100.0]]), [[0.1]], weights=[0.0, 1.0], kernel=kernel, tol=0.0)
    far = 0.5 * 99.9**2 + 0.5 * np.log(2 * np.pi) if kernel == "gaussian" else 99.9 + np.log(2)
    assert one.log_density[0] == pytest.approx(-far, rel=1e-14)
    r = np.random.default_rng(columns)
    x, w = r.standard_normal((900, columns)), r.random(900)
    nothing = r.random(900) < 0.4
    x[nothing] += 300.0
    w[nothing] = 0.0
    for tol in (0.0, 1e-2):
        how: dict[str, Any] = {"bandwidth": 0.4, "kernel": kernel, "tol": tol}
        result = rf.density(x, weights=w, **how).log_density[...]
        alone = rf.density(x[~nothing], x, weights=w[~nothing], **how).log_density[...]
        np.testing.assert_allclose(result, alone, rtol=1e-12, atol=max(2 * tol, 1e-11))
        expected = brute(x[~nothing], x, kernel, 0.4, w[~nothing])
        np.testing.assert_allclose(result, expected, rtol=1e-12, atol=max(tol, 1e-11))


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"bandwidth": 0}, "bandwidth must be a number above 0"),
        ({"bandwidth": np.inf}, "bandwidth must be a number above 0"),
        ({"bandwidth": "rough"}, "one of scott, silverman"),
        ({"bandwidth": 1e-90}, "scale the coordinates"),
        ({"kernel": "gravity"}, "kernel must be one of gaussian"),
    ],
)
def test_what_cannot_be_is_refused(how: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        rf.density(np.ones((9, 3)), **how)


def test_targets_without_powers_are_refused() -> None:
    with pytest.raises(DataError, match=r"a coordinate of targets .* is 1e.200 in magnitude"):
        rf.density(np.random.default_rng(0).random((9, 2)), [[1e200, 0.1]])


def test_weights_below_zero_are_refused() -> None:
    for w in (-np.ones(9), np.zeros(9)):
        with pytest.raises(DataError, match="weights of a density"):
            rf.density(np.ones((9, 3)), weights=w)
