"""The stand-in for CuPy refuses what CuPy refuses, counts what crosses, and shows copies not waited for."""

from __future__ import annotations

import ctypes
import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from stand_in import COUNTS, cublas, installed
from stand_in.library import NAMES

Array = npt.NDArray[Any]


@pytest.fixture
def cp() -> Iterator[Any]:
    with installed():
        yield importlib.import_module("cupy")


REFUSED: dict[str, Callable[[Any, Any], Any]] = {
    "np.asarray of a device array": lambda cp, d: np.asarray(d),
    "a sum with a host array": lambda cp, d: d + np.ones(3),
    "a host array into it": lambda cp, d: d.__setitem__(..., np.ones(3)),
    "it into a host array": lambda cp, d: np.ones(3).__setitem__(slice(None), d),
    "a result on the host": lambda cp, d: np.add(d, d, out=np.ones(3)),
    "a host mask": lambda cp, d: d[np.array([True, False, True])],
    "ufuncs with where": lambda cp, d: np.add(d, d, where=d > 0),
    "einsum with out": lambda cp, d: np.einsum("i,i->i", d, d, out=d),
    "functions that it lacks": lambda cp, d: np.spacing(d),
    "arguments that it lacks": lambda cp, d: np.linalg.svd(cp.eye(3), hermitian=True),
    "a buffer": lambda cp, d: memoryview(d),
    "bodies of LAPACK": lambda cp, d: importlib.import_module("scipy.linalg").eigh(cp.eye(3)),
    "copies of another type": lambda cp, d: d.set(np.ones(3, np.float32)),
    "copies into a part that has gaps": lambda cp, d: cp.zeros((3, 3))[:, :2].set(np.ones((3, 2))),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cupy_refuses_is_refused(cp: Any, name: str) -> None:
    with pytest.raises((TypeError, ValueError, RuntimeError, AttributeError)):
        REFUSED[name](cp, cp.ones(3))


def test_functions_of_numpy_answer_with_arrays_of_the_device(cp: Any) -> None:
    a, b = np.arange(6.0).reshape(2, 3), np.arange(3.0)
    d, e = cp.asarray(a), cp.asarray(b)
    out = cp.empty((2,))
    assert np.matmul(d, e, out=out) is out
    found = {
        "product": d @ e,
        "out": out,
        "sum": d.sum(axis=0),
        "largest": np.maximum(d, 2),
        "where": np.where(d > 2, d, 0),
        "stack": np.vstack([d, np.zeros_like(d, shape=(1, 3))]),
        "turned": d.T[1],
        "qr": np.linalg.qr(d, mode="r"),
    }
    d += e
    expected = {
        "product": a @ b,
        "out": a @ b,
        "sum": a.sum(axis=0),
        "largest": np.maximum(a, 2),
        "where": np.where(a > 2, a, 0),
        "stack": np.vstack([a, np.zeros((1, 3))]),
        "turned": a.T[1] + b[1],  # a part of what was added to
        "qr": np.linalg.qr(a, mode="r"),
    }
    for name, array in found.items():
        np.testing.assert_array_equal(cp.asnumpy(array), expected[name], err_msg=name)


def test_looks_and_copies_are_counted(cp: Any) -> None:
    d = cp.asarray(np.ones((4, 2)))
    assert (COUNTS.up, COUNTS.down, COUNTS.waits, COUNTS.bytes_now) == (64, 0, 0, 64)
    assert float(d.sum()) == 8.0 and bool((d > 0).all())
    assert (COUNTS.down, COUNTS.waits) == (9, 2)
    d.get()
    d[d > 0]
    assert (COUNTS.down, COUNTS.waits) == (73, 4)
    part = d[1:]
    del d
    assert COUNTS.bytes_now == 64 and COUNTS.bytes_most > 64
    del part
    assert COUNTS.bytes_now == 0


def test_the_limit_of_the_pool_holds(cp: Any) -> None:
    cp.get_default_memory_pool().set_limit(size=100)
    held = cp.zeros(10)
    with pytest.raises(MemoryError, match=r"Out of memory allocating 80 bytes \(allocated so far: 80 bytes"):
        cp.zeros(10)
    assert held.nbytes == 80


def test_rooms_are_rubbish_until_they_are_written(cp: Any) -> None:
    assert np.isnan(cp.empty(3).get()).all() and np.isnan(np.empty_like(cp.ones(3)).get()).all()
    assert np.isnan(importlib.import_module("cupyx").empty_pinned(3)).all()


# Copies ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("late", [True, False])
def test_a_copy_that_is_waited_for_has_come(late: bool) -> None:
    with installed(late=late):
        cp = importlib.import_module("cupy")
        copies, host, room = cp.cuda.Stream(non_blocking=True), np.arange(3.0), cp.empty(3)
        room.set(host, stream=copies)
        event = copies.record()
        assert np.isnan((room + 1).get()).all() == late
        cp.cuda.get_current_stream().wait_event(event)
        np.testing.assert_array_equal((room + 1).get(), host + 1)


def test_what_is_overwritten_too_early_is_wrong(cp: Any) -> None:
    copies, host, room = cp.cuda.Stream(), np.ones(3), cp.empty(3)
    room.set(host, stream=copies)
    host[:] = 2
    copies.synchronize()
    assert (room.get() == 2).all()


def test_copies_to_the_host_show_when_it_has_waited(cp: Any) -> None:
    stream, host, d = cp.cuda.get_current_stream(), np.zeros(3), cp.ones(3)
    d.get(stream=stream, out=host, blocking=False)
    d += 1  # comes after the copy
    assert np.isnan(host).all()
    stream.synchronize()
    assert (host == 1).all()


# Products by pointers -------------------------------------------------------------------------------


def pointer(value: float, dtype: Any) -> tuple[Any, int]:
    held = np.array([value], dtype)
    return held, held.ctypes.data


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("turned", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_products_by_pointers_are_those_of_numpy(turned: tuple[int, int], dtype: Any) -> None:
    rng, (m, n, k) = np.random.default_rng(0), (4, 3, 5)
    a, b, c = (rng.standard_normal(shape).astype(dtype) for shape in ((9, 9), (9, 9), (9, 9)))
    kind, code = (68, 0) if dtype == np.float32 else (70, 1)
    shapes = [(k, m) if turned[0] else (m, k), (n, k) if turned[1] else (k, n)]
    # By columns, what NumPy holds by rows is turned over.
    left, right = a.T[: shapes[0][0], : shapes[0][1]], b.T[: shapes[1][0], : shapes[1][1]]
    expected = 2 * (left.T if turned[0] else left) @ (right.T if turned[1] else right) + 3 * c.T[:m, :n]
    (one, alpha), (two, beta) = pointer(2, dtype), pointer(3, dtype)
    operands = (a.ctypes.data, code, 9, b.ctypes.data, code, 9, beta, c.ctypes.data, code, 9)
    cublas.gemmEx(1, *turned, m, n, k, alpha, *operands, kind, -1)
    np.testing.assert_allclose(c.T[:m, :n], expected, rtol=1e-5)
    assert (one[0], two[0]) == (2, 3) and ctypes.sizeof(ctypes.c_float) == 4


def test_a_leading_dimension_below_the_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="leading dimension"):
        cublas.matrix(0, 4, 2, 3, np.float32)


def test_the_names_are_those_of_cupy() -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed, whose names these are")
    for line in NAMES.read_text().splitlines():
        name, _, arguments = line.partition(":")
        found: Any = cupy
        for part in name.split("."):
            found = getattr(found, part)
        if not isinstance(found, cupy.ufunc) and "kwargs" not in arguments.split():
            assert list(inspect.signature(found).parameters) == arguments.split(), name
