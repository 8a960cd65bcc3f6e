"""Krylov and subspace iteration of whatever can be applied to a block: the graph of a ring, and a product."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse

from rankfold.methods.parts.start import random_block
from rankfold.methods.svd.operator import Application, Block
from rankfold.methods.svd.ritz import Basis
from rankfold.methods.svd.solvers.krylov import capture, krylov
from rankfold.methods.svd.solvers.subspace import subspace
from rankfold.pipeline.storage.checkpoint import save_arrays
from rankfold.pipeline.storage.scratch import ScratchMatrix

Float64 = npt.NDArray[np.float64]


@dataclass
class InMemory:
    """Whatever SciPy or NumPy can multiply by."""

    a: Any
    folder: Path
    most: int = 40
    kept: list[Path] = field(default_factory=list)
    applied: int = 0

    dtype = np.dtype(np.float64)

    @property
    def short(self) -> int:
        return int(self.a.shape[1])

    @property
    def squared_norm(self) -> float:
        return float(scipy.sparse.linalg.norm(self.a) ** 2)

    @property
    def is_exhausted(self) -> bool:
        return self.applied >= self.most

    def first(self, width: int) -> Float64:
        return self.random(width)

    def random(self, width: int) -> Float64:
        return random_block(self.short, width, 0)

    def apply(self, q: Float64) -> Application:
        self.applied += 1
        y = self.a @ q
        scratch = ScratchMatrix(self.folder / f"Y-{self.applied}.bin", *y.shape, self.dtype)
        scratch.write(0, y)
        self.kept.append(scratch.path)
        path = self.folder / f"block-{self.applied}.part"
        save_arrays(path, {"q": q, "z": self.a.T @ y, "offset": np.zeros(q.shape[1])})
        return Application(Block(path, q.shape[1], scratch))

    def refine(self) -> None:
        raise AssertionError("no application was coarse")

    def drop(self, block: Block) -> None:
        self.kept.remove(block.y.path)


def ring(length: int) -> Any:
    """5 - Laplacian of a ring: eigenvalues 3 + 2 cos(2 pi j / length), each twice, but for the ends."""
    one = np.ones(length)
    a = scipy.sparse.diags_array([one[1:], one[1:]], offsets=[1, -1], shape=(length, length)).tolil()
    a[0, -1] = a[-1, 0] = 1
    return (a + 3 * scipy.sparse.eye_array(length)).tocsr()


def product() -> Any:
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((300, 80)), rng.standard_normal((80, 120)) * 0.8 ** np.arange(120)
    return scipy.sparse.csr_array(a @ b)


def half_step(basis: Basis) -> Float64:
    """Singular values of A'U, with U an orthonormal basis of the images: as results have them."""
    z = np.hstack(list(basis.each("z")))
    r = np.linalg.cholesky((basis.products + basis.products.T) / 2).T
    return np.asarray(np.linalg.svd(np.linalg.solve(r.T, z.T), compute_uv=False))


@pytest.mark.parametrize("matrix", [lambda: ring(60), product])
@pytest.mark.parametrize("method", [krylov, subspace])
def test_leading_values_are_those_of_the_operator(
    matrix: Callable[[], Any], method: Callable[..., Any], tmp_path: Path
) -> None:
    operator = InMemory(matrix(), tmp_path, most=40)
    basis, seen = method(operator, width=12, rank=4, tol=1e-6)
    exact = np.linalg.svd(operator.a.toarray(), compute_uv=False)[:4]
    found = half_step(basis)[:4]
    assert not operator.is_exhausted
    assert (np.abs(found - exact) <= np.maximum(seen.estimate, 1e-12) * exact).all()
    np.testing.assert_allclose(found, exact, rtol=1e-6)
    assert len(operator.kept) == (operator.applied if method is krylov else 1)


def test_a_share_of_the_norm_is_captured(tmp_path: Path) -> None:
    operator = InMemory(product(), tmp_path)
    held = capture(operator, width=16, tol=1e-2)
    s = np.linalg.svd(operator.a.toarray(), compute_uv=False)
    left_out = np.sqrt((s[held.cut.rank :] ** 2).sum() / (s**2).sum())
    assert left_out <= held.cut.error <= 1e-2
