"""What a basis tells of its errors, compared with errors that are known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from rankfold.methods.svd.operator import Block
from rankfold.methods.svd.ritz import Basis

Float64 = npt.NDArray[np.float64]
RANK, WIDTH = 3, 6


@dataclass
class KnownBlock:
    """Q and A'A Q of a matrix that is known."""

    q: Float64
    z: Float64

    @property
    def width(self) -> int:
        return self.q.shape[1]

    def load(self, name: str) -> Any:
        return getattr(self, name)


def basis_of(values: Float64, *, mix: float) -> Basis:
    """A basis whose directions are mixed with those outside it."""
    rng = np.random.default_rng(0)
    n = len(values)
    q = np.linalg.qr(np.eye(n)[:, :WIDTH] + mix * rng.standard_normal((n, WIDTH)))[0]
    basis = Basis()
    basis.add(cast("Block", KnownBlock(q, (values**2)[:, None] * q)))
    return basis


def test_directions_that_are_new_may_yet_rise_and_the_estimate_says_so() -> None:
    """The last ones kept then bound the part outside by what they may become."""
    values = np.append(np.linspace(10.0, 8.0, WIDTH), np.full(30, 7.9))
    basis = basis_of(values, mix=0.05)
    settled, settling = (basis.ritz(RANK, WIDTH, settling=each) for each in (False, True))
    assert np.array_equal(settled.values, settling.values)
    assert (settling.second_order >= settled.second_order).all()
    assert (settling.second_order > settled.second_order).any()


def test_a_basis_of_singular_vectors_has_no_error() -> None:
    values = np.linspace(10.0, 1.0, 20)
    found = basis_of(values, mix=0.0).ritz(RANK, WIDTH)
    np.testing.assert_allclose(found.values, values[:RANK], rtol=1e-14)
    assert (found.second_order < 1e-25).all()


def test_errors_of_a_settled_basis_are_below_their_estimate() -> None:
    values = 10.0 * 0.7 ** np.arange(20)
    for mix in (1e-6, 1e-4, 1e-2):
        found = basis_of(values, mix=mix).ritz(RANK, WIDTH)
        errors = (values[:RANK] - found.values) / values[:RANK]
        assert (errors <= 2 * found.second_order + 1e-14).all()
