"""Error estimates against true errors, on spectra from flat to steep and spiked: never too small."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from covers import cover, spread

import rankfold as rf

LONG = np.arange(1.0, 601)
SPECTRA = {
    "flat within 1 %": 1 + 0.0125 * np.linspace(1, -1, 200),
    "flat within 10 %": 1 + 0.1 * np.linspace(1, -1, 200),
    "i^-0.1": LONG**-0.1,
    "i^-0.3": LONG**-0.3,
    "i^-0.5": LONG**-0.5,
    "i^-1": 1 / LONG,
    "20 values above a plateau": np.r_[np.linspace(3, 1.2, 20), np.linspace(1.1, 0.6, 580)],
    "one value above all others alike": np.r_[10, np.linspace(1.01, 1, 599)],
    "a spike of 1e3 above slow decay": np.r_[8000.0, LONG[:299] ** -0.1],
    "a spike of 1e5 above a plateau": np.r_[1e5, np.linspace(2, 1, 299)],
    "two levels": np.r_[np.full(30, 2.0), np.full(570, 1.0)],
    "a step of 0.1 % after the last": np.r_[np.full(20, 1.0), np.full(580, 0.999)],
    "geometric": 0.8**LONG + 1e-6,
    "three alike, ten almost alike, slow decay": np.r_[np.full(3, 10), 5 + 1e-6 * LONG[9::-1], LONG**-0.4],
    "steps": np.r_[np.full(10, 4.0), np.full(15, 2.0), np.full(40, 1.5), np.full(535, 1.0)],
    "steep, then noise": np.maximum(0.7**LONG, 1e-3 * np.linspace(1.2, 0.8, 600)),
    "rank 25": np.r_[np.linspace(2, 1, 25), np.zeros(575)],
}


@functools.cache
def matrix(name: str, dtype: str = "f8") -> tuple[np.ndarray, np.ndarray]:
    """A matrix of that spectrum, and the leading singular values of what rounding made of it."""
    spectrum = SPECTRA[name]
    rng = np.random.default_rng(5)
    left = np.linalg.qr(rng.standard_normal((2000, len(spectrum))))[0]
    right = np.linalg.qr(rng.standard_normal((len(spectrum), len(spectrum))))[0]
    x = ((left * spectrum) @ right).astype(dtype)
    return x, np.linalg.svd(x.astype("f8"), compute_uv=False)[:20]


@pytest.mark.filterwarnings("ignore:the largest estimated error")
@pytest.mark.parametrize(("tol", "name"), cover([1e-2, 1e-4, 1e-8], spread(9, SPECTRA), strength=1))
def test_true_errors_stay_within_their_estimates_and_tol(name: str, tol: float) -> None:
    x, s = matrix(name)
    result = rf.svd(x, 20, solver="krylov", tol=tol, passes=20)
    error = np.abs(result.s - s) / s
    # Estimates, not bounds: a twentieth more is allowed, and rounding of the reference.
    assert np.all(error <= 1.05 * result.error_estimates + 1e-13 * s[0] / s)
    assert error.max() <= tol + 1e-13 * s[0] / s[-1]
    assert result.attrs["converged"] or "spike" in name  # rounding of the spike may hide the others
    assert np.all(result.s <= s + 1e-12 * s[0])  # lower bounds, whatever the estimate says


@pytest.mark.filterwarnings("ignore:the largest estimated error")
@pytest.mark.parametrize(
    ("dtype", "wide", "name"),
    cover([pytest.param("f8", False), pytest.param("f4", True)], spread(5, SPECTRA), strength=1),
)
def test_subspace_iteration_knows_how_far_it_is(name: str, dtype: str, wide: bool) -> None:
    """Whether stopped by its tolerance or by passes: where the spectrum is flat, only the latter ends it."""
    x, s = matrix(name, dtype)
    eps = float(np.finfo(dtype).eps)
    # The images that errors are measured by are rounded relative to s_1 squared, the half step less.
    rounding = 20 * eps * s[0] / s + (eps / 2) * (s[0] / s) ** 2
    for tol, passes in ((1e-3, 12), (1e-6, 5), (1e-8, 20)):
        result = rf.svd(x.T if wide else x, 20, solver="subspace", tol=tol, passes=passes)
        error = np.abs(result.s - s) / s
        assert np.all(error <= 1.05 * result.error_estimates + rounding)
        assert error.max() <= tol or not result.attrs["converged"]
        assert np.all(result.s <= s + 20 * eps * s[0])
        assert result.attrs["passes"] <= passes


@pytest.mark.parametrize("method", ["gram", "krylov", "subspace"])
def test_what_squares_cannot_hold_is_not_claimed(method: str) -> None:
    rng, values = np.random.default_rng(0), 0.7 ** np.arange(1.0, 118)
    left, right = (np.linalg.qr(rng.standard_normal((rows, 117)))[0] for rows in (138, 117))
    found = rf.svd((left * values) @ right.T, 88, solver=method, tol=1e-10, passes=30)
    wrong, held = np.abs(found.s - values[:88]), found.s > 0
    assert (wrong <= 1.5 * found.error_estimates * values[:88] + 1e-15)[held].all() and held.sum() > 80
