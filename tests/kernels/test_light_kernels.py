"""Light kernels: bodies that agree to the last bit, and few numbers for which nothing is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from rankfold.kernels import _dispatch
from rankfold.kernels._dispatch import FEW, implementation
from rankfold.kernels.hashing.digest import mix_words
from rankfold.kernels.linear.center_scale import measure, subtract
from rankfold.kernels.linear.count_sketch import add_to_buckets

Array = npt.NDArray[Any]
SHAPES = [(1, 1), (3, 5), (64, 1), (101, 7)]
LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "whole": lambda x: x,
    "a part": lambda x: np.pad(x, ((0, 0), (2, 3)))[:, 2:-3],
    "turned over": lambda x: np.asfortranarray(x),
}


def rows(shape: tuple[int, int], dtype: str) -> Array:
    """Numbers whose sums round, of both signs where there are any."""
    x = 100 * np.random.default_rng(0).standard_normal(shape) + 50
    return x.clip(0, 250).astype(dtype) if dtype == "uint8" else x.astype(dtype)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8"])
@pytest.mark.parametrize("shape", SHAPES)
def test_columns_are_measured_and_subtracted_alike(shape: tuple[int, int], dtype: str, layout: str) -> None:
    x, shift, scale = (
        LAYOUTS[layout](rows(shape, dtype)),
        np.linspace(40, 60, shape[1]),
        np.ones(shape[1]) / 3,
    )
    of_loop, of_reference = implementation(measure.__module__, "measure", "cpu"), measure.reference  # type: ignore[attr-defined]
    assert of_loop is not None
    for one, two in zip(of_loop(x, shift, 0.25), of_reference(x, shift, 0.25), strict=True):
        assert one.tobytes() == two.tobytes()
    loop = implementation(measure.__module__, "subtract", "cpu")
    assert loop is not None
    for kind in ("float32", "float64"):
        first, second = np.full(shape, np.nan, kind), np.full(shape, np.nan, kind)
        loop(x, shift, scale, out=first)
        subtract.reference(x, shift, scale, out=second)  # type: ignore[attr-defined]
        assert first.tobytes() == second.tobytes()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_rows_are_added_to_buckets_alike(shape: tuple[int, int], dtype: str, layout: str) -> None:
    d, buckets = LAYOUTS[layout](rows(shape, dtype)), np.arange(shape[0]) * 7 % 3
    factors = ((-1.0) ** np.arange(shape[0]) / 3).astype(dtype)
    first = rows((3, shape[1]), dtype)
    second, loop = first.copy(), implementation(add_to_buckets.__module__, "add_to_buckets", "cpu")
    assert loop is not None
    loop(d, buckets, factors, sums=first)
    add_to_buckets.reference(d, buckets, factors, sums=second)  # type: ignore[attr-defined]
    assert first.tobytes() == second.tobytes()


@pytest.mark.parametrize(("count", "loops"), [(FEW, 0), (FEW + 1, 1)])
def test_few_numbers_take_the_reference_body(count: int, loops: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(_dispatch, "implementation", lambda module, name, device: asked.append(name))
    mix_words(np.zeros(count, np.uint64), lanes=np.arange(64, dtype=np.uint64))
    assert len(asked) == loops
