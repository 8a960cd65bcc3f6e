"""Error estimates against true errors, on spectra from flat to steep: never much too small."""

from __future__ import annotations

import numpy as np
import pytest

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
    "two levels": np.r_[np.full(30, 2.0), np.full(570, 1.0)],
    "a step of 0.1 % after the last": np.r_[np.full(20, 1.0), np.full(580, 0.999)],
    "geometric": 0.8**LONG + 1e-6,
}


@pytest.mark.filterwarnings("ignore:the largest estimated error")
@pytest.mark.parametrize("tol", [1e-2, 1e-4, 1e-8])
@pytest.mark.parametrize("name", SPECTRA)
def test_true_errors_stay_within_their_estimates_and_tol(name: str, tol: float) -> None:
    spectrum = SPECTRA[name]
    rng = np.random.default_rng(5)
    left = np.linalg.qr(rng.standard_normal((2000, len(spectrum))))[0]
    right = np.linalg.qr(rng.standard_normal((len(spectrum), len(spectrum))))[0]
    x = (left * spectrum) @ right
    s = np.linalg.svd(x, compute_uv=False)[:20]
    result = rf.svd(x, 20, method="krylov", tol=tol, passes=20)
    error = np.abs(result.s - s) / s
    # Estimates, not bounds: the rate of a single component is guessed from two differences, that of the
    # worst one is what passes stop on.
    assert np.all(error <= 1.5 * result.error_estimates + 1e-13)
    assert error.max() <= 1.05 * result.attrs["largest_error_estimate"] + 1e-13
    assert error.max() <= tol
    assert result.attrs["converged"]
    assert np.all(result.s <= s * (1 + 1e-12))  # lower bounds, whatever the estimate says
