"""Every body of every kernel gives what its reference gives, on every device, type and memory layout.

A kernel that is added without a case here fails ``test_every_kernel_has_a_case``.
"""

from __future__ import annotations

import ast
import importlib
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import rankfold.kernels
from rankfold.kernels._dispatch import REGISTRY, device_of, implementation
from rankfold.kernels.moments import Moments

Array = npt.NDArray[Any]
Outputs = dict[str, Any]
Body = Callable[..., Any]

FOLDER = Path(rankfold.kernels.__file__).parent
KERNELS = [(module, name) for module, names in REGISTRY.items() for name in names]
TUNED = [
    (module, name, device) for module, names in REGISTRY.items() for name in names for device in names[name]
]
EPS = float(np.finfo(np.float64).eps)
SHAPES = [(1, 1), (1, 7), (9, 1), (8, 5), (13, 6), (67, 33)]
FLOATS = ("float32", "float64")
ALL = ("float32", "float64", "uint8")


def contract(module: str, name: str) -> Any:
    return getattr(importlib.import_module(f"rankfold.kernels.{module}"), name)


# Layouts -------------------------------------------------------------------------------------------


def apart(x: Any, xp: Any) -> Any:
    wide = xp.zeros((*x.shape[:-1], x.shape[-1] + 3), x.dtype)
    wide[..., 2 : 2 + x.shape[-1]] = x
    return wide[..., 2 : 2 + x.shape[-1]]


def every_second(x: Any, xp: Any) -> Any:
    wide = xp.zeros(tuple(2 * n for n in x.shape), x.dtype)
    view = wide[tuple(slice(None, None, 2) for _ in x.shape)]
    view[...] = x
    return view


def read_only(x: Any, xp: Any) -> Any:
    x = xp.ascontiguousarray(x)
    x.flags.writeable = False
    return x


LAYOUTS: dict[str, Callable[[Any, Any], Any]] = {
    "C order": lambda x, xp: xp.ascontiguousarray(x),
    "Fortran order": lambda x, xp: xp.asfortranarray(x),
    "rows apart": apart,
    "every second row and column": every_second,
    "backwards": lambda x, xp: xp.ascontiguousarray(x[::-1])[::-1],
    "read only": read_only,
}


# Cases ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One call of a kernel."""

    inputs: dict[str, Array]
    """Documented as left untouched; handed over in every layout."""

    run: Callable[[Body, dict[str, Any], Any], Outputs]
    """Calls a body with inputs on the device of a library, and gathers what it returned or wrote."""

    error: dict[str, Any] = field(default_factory=dict)
    """Largest difference between two right bodies, by output; exactly equal where there is none."""


def matrix(shape: tuple[int, ...], dtype: str = "float64", seed: int = 3) -> Array:
    rng = np.random.default_rng([*shape, seed])
    if dtype == "uint8":
        return rng.integers(0, 256, shape).astype(np.uint8)
    return (10 * rng.standard_normal(shape) + 3).astype(dtype)


def working(dtype: str) -> str:
    return "float64" if dtype == "float64" else "float32"


def symmetric(p: int) -> Array:
    a = matrix((p, p))
    return a + a.T


def measure_case(shape: tuple[int, int], dtype: str) -> Case:
    x, shift, unit = matrix(shape, dtype), matrix(shape[1:], seed=4), 0.25
    d = np.abs(x.astype(np.float64) - shift) * unit
    # Any order of adding r numbers is within r eps of the sum of their magnitudes; two orders, twice that.
    # A square is rounded once more before it is added.
    rows = len(x)
    return Case(
        {"x": x, "shift": shift},
        lambda body, a, xp: dict(zip(("sums", "squares"), body(a["x"], a["shift"], unit), strict=True)),
        {"sums": 2 * rows * EPS * d.sum(axis=0), "squares": 2 * (rows + 1) * EPS * (d * d).sum(axis=0)},
    )


def subtract_case(shape: tuple[int, int], dtype: str) -> Case:
    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        out = apart(xp.full(shape, np.nan, working(dtype)), xp)  # as a part of a wider panel is
        assert body(a["x"], a["shift"], a["scale"], out=out) is None
        return {"out": out}

    # The contract fixes every rounding, so bodies agree to the last bit.
    inputs = {"x": matrix(shape, dtype), "shift": matrix(shape[1:]), "scale": matrix(shape[1:], seed=5)}
    return Case(inputs, run)


def panel_case(shape: tuple[int, int], dtype: str) -> Case:
    (r, s), b = shape, 4
    d, q, z0 = matrix(shape, dtype), matrix((s, b), dtype, seed=6), matrix((s, b), seed=7)

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        y, work, z = xp.full((r, b), np.nan, dtype), xp.full((s, b), np.nan, dtype), xp.array(z0)
        assert body(a["d"], a["q"], y=y, z=z, work=work) is None
        return {"y": y, "z": z}

    # Inner products of length s, then r, each within that many eps of the product of magnitudes, in
    # either body. The update of z in float64 rounds once.
    eps = float(np.finfo(dtype).eps)
    size_y = np.abs(d).astype(float) @ np.abs(q)
    size_z = np.abs(d.T).astype(float) @ size_y
    error = {"y": 2 * s * eps * size_y, "z": 2 * (r + s) * eps * size_z + 2 * EPS * (size_z + np.abs(z0))}
    return Case({"d": d, "q": q}, run, error)


def sketch_case(shape: tuple[int, int], dtype: str) -> Case:
    (r, s), a, b, c = shape, 3, 4, 5
    d, right, down = matrix(shape, dtype), matrix((s, a), dtype, seed=6), matrix((r, b), dtype, seed=7)
    across, z0, core0 = matrix((r, c), seed=8), matrix((s, b), seed=9), matrix((c, a), seed=10)

    def run(body: Body, inputs: dict[str, Any], xp: Any) -> Outputs:
        y, work = xp.full((r, a), np.nan, dtype), xp.full((s, b), np.nan, dtype)
        z, core = xp.array(z0), xp.array(core0)
        names = ("d", "right", "down", "across")
        assert body(*(inputs[name] for name in names), y=y, z=z, core=core, work=work) is None
        return {"y": y, "z": z, "core": core}

    # As for the fused pass: inner products of length s, or r, each in either body.
    eps = float(np.finfo(dtype).eps)
    size_y = np.abs(d).astype(float) @ np.abs(right)
    size_z, size_core = np.abs(d.T).astype(float) @ np.abs(down), np.abs(across.T) @ size_y
    error = {
        "y": 2 * s * eps * size_y,
        "z": 2 * r * eps * size_z + 2 * EPS * (size_z + np.abs(z0)),
        "core": (2 * s * eps + 2 * (r + 1) * EPS) * size_core + 2 * EPS * np.abs(core0),
    }
    return Case({"d": d, "right": right, "down": down, "across": across}, run, error)


def buckets_case(shape: tuple[int, int], dtype: str) -> Case:
    r, c = shape[0], 3
    d, sums0 = matrix(shape, dtype), matrix((c, shape[1]), dtype, seed=6)
    buckets = np.arange(r) * 7 % c
    factors = (2.0 * (np.arange(r) % 2) - 1).astype(dtype) / 4

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        sums = xp.array(sums0)
        assert body(a["d"], a["buckets"], a["factors"], sums=sums) is None
        return {"sums": sums}

    # At most r numbers are added to each, in either order.
    size = np.abs(sums0).astype(float)
    np.add.at(size, buckets, np.abs(factors)[:, None] * np.abs(d))
    error = {"sums": 2 * (r + 1) * float(np.finfo(dtype).eps) * size}
    return Case({"d": d, "buckets": buckets, "factors": factors}, run, error)


def drawn_case(shape: tuple[int, int], dtype: str) -> Case:
    return Case({}, lambda body, a, xp: dict(zip(("buckets", "signs"), body(*shape, 3, 50), strict=True)))


def add_rows_case(shape: tuple[int, int], dtype: str) -> Case:
    x = matrix(shape, dtype)
    mean = x.mean(axis=0, dtype=np.float64)

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        r, d = shape
        out, work = xp.full((r + 1, d), np.nan, working(dtype)), xp.full((d, d), np.nan, working(dtype))
        total = Moments(5, xp.full(d, 2.0), xp.eye(d))
        assert body(total, a["x"], a["mean"], 0.5, out=out, work=work) is None
        return {"count": total.count, "mean": total.mean, "scatter": total.scatter}

    return Case({"x": x, "mean": mean}, run)


def merge_moments_case(shape: tuple[int, int], dtype: str) -> Case:
    rows, d = shape
    inputs = {"mean": matrix((d,)), "scatter": symmetric(d)}

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        total = Moments(5, xp.full(d, 2.0), xp.eye(d))
        assert body(total, Moments(rows, a["mean"], a["scatter"])) is None
        return {"count": total.count, "mean": total.mean, "scatter": total.scatter}

    return Case(inputs, run)


def orthonormalise_case(shape: tuple[int, int], dtype: str) -> Case:
    n, b = max(shape) + 1, min(shape)
    basis = np.linalg.qr(matrix((n, n)))[0]
    w, block = matrix((n, max(1, b // 2)), seed=8), basis[:, : n - max(1, b // 2)]
    return Case({"w": w}, lambda body, a, xp: {"q": body(a["w"], lambda: [block])})


def gaussian_case(shape: tuple[int, int], dtype: str) -> Case:
    return Case({}, lambda body, a, xp: {"rows": body(7, 1, (1000, 1000 + shape[0]), shape[1])})


def gram_of(n: int) -> Array:
    a = symmetric(n)
    return np.eye(n) + a / (2 * np.abs(a).sum())  # type: ignore[no-any-return]


def eigenpairs_case(shape: tuple[int, int], dtype: str) -> Case:
    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        # The matrix is overwritten, by contract, and in C order: it is no input to be laid out.
        values, vectors = body(xp.array(symmetric(shape[1])), 1)
        return {"values": values, "vectors": vectors}

    return Case({}, run)


def returns(*names: str, **inputs: Array) -> Case:
    """Case of a kernel that takes these inputs alone; LAPACK gets the same copy from every layout."""
    keys = list(inputs)

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        result = body(*(a[key] for key in keys))
        return dict(zip(names, result if len(names) > 1 else (result,), strict=True))

    return Case(inputs, run)


def triplets_case(shape: tuple[int, int], dtype: str) -> Case:
    case = returns("u", "s", "v", a=matrix(shape))
    return Case(case.inputs, lambda body, a, xp: case.run(lambda x: body(x, min(shape)), a, xp))


def nonnegative_case(shape: tuple[int, int], dtype: str, solve: bool) -> Case:
    r, k = shape
    gram, b, w0 = gram_of(k).astype(dtype), matrix((r, k), dtype), np.abs(matrix((r, k), dtype, seed=8))

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        w = xp.array(w0)
        if solve:
            return {"unsolved": body(a["gram"], a["b"], w=w), "w": w}
        gradient, inner = body(a["gram"], a["b"], w=w, sweeps=2)
        return {"gradient": gradient, "inner": inner, "w": w}

    # The Gram matrix is so near the identity that what is wrong in one coordinate is halved in all others:
    # each of k coordinates takes inner products of length k, once a sweep.
    eps = float(np.finfo(dtype).eps)
    size = float(np.abs(b).max() + np.abs(w0).max()) * np.abs(gram).sum(axis=0).max()
    one = 8 * (k + 2) * eps * size
    sums = {"gradient": 2 * r * k * size * one, "inner": 2 * r * k * size * one}
    return Case({"gram": gram, "b": b}, run, {"w": one} if solve else {"w": one, **sums})


def quotients_case(shape: tuple[int, int], dtype: str) -> Case:
    x, model = np.maximum(matrix(shape, dtype), 0), np.abs(matrix(shape, dtype, seed=6)) + 1

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        product = apart(xp.array(model), xp)
        return {"divergence": body(a["x"], product), "product": product}

    # Quotients are rounded once. A logarithm is within two roundings, of a quotient within half of one.
    size = np.abs(x * np.log(np.maximum(x / model, 0.1)).astype(float)) + x + model
    return Case({"x": x}, run, {"divergence": 2 * (8 + sum(shape)) * EPS * size.sum(dtype=float)})


def multiply_case(shape: tuple[int, int], dtype: str) -> Case:
    r, k = shape
    gram, b = np.abs(gram_of(k)).astype(dtype), np.abs(matrix((r, k), dtype))
    w0, linear = np.abs(matrix((r, k), dtype, seed=8)), np.linspace(0, 1, k).astype(dtype)

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        w = xp.array(w0)
        assert body(a["gram"], a["b"], w=w, linear=a["linear"], floor=0.5, sweeps=2) is None
        return {"w": w}

    # Sums of k numbers that are not negative: k + 4 roundings a sweep, and twice those of the sweep before.
    # Diagonals are above 1/2, so that no quotient is above 2 b.
    error = 6 * (k + 4) * float(np.finfo(dtype).eps) * (2 * float(b.max()) + 0.5)
    return Case({"gram": gram, "b": b, "linear": linear}, run, {"w": error})


def split_case(shape: tuple[int, int], dtype: str) -> Case:
    r, k = shape
    gram, b, w0 = gram_of(k).astype(dtype), matrix((r, k), dtype), matrix((r, k), dtype, seed=8)

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        box, simplex = xp.array(w0), xp.array(w0)
        assert body(a["gram"], a["b"], w=box, sweeps=3, upper=7.0, simplex=False) is None
        assert body(a["gram"], a["b"], w=simplex, sweeps=3, upper=7.0, simplex=True) is None
        return {"box": box, "simplex": simplex}

    # The Gram matrix is near the identity, the penalty near 1, the inverse near 1/2: no step makes numbers,
    # or what is wrong with them, more than twice as large. Three sweeps of two sums of k numbers each.
    size = float(np.abs(b).max() + np.abs(w0).max())
    error = 2**3 * 2 * (k + 4) * float(np.finfo(dtype).eps) * size
    return Case({"gram": gram, "b": b}, run, {"box": error, "simplex": error})


def gradient_case(shape: tuple[int, int], dtype: str) -> Case:
    r, k = shape
    gram, b, w = gram_of(k).astype(dtype), matrix((r, k), dtype), np.maximum(matrix((r, k), dtype, seed=8), 0)
    # Slopes are k + 1 roundings off in either body; their squares twice that, relative to the parts.
    size = np.abs(w).astype(float) @ np.abs(gram) + np.abs(b)
    error = 4 * (k + 2) * float(np.finfo(dtype).eps) * (size * size).sum(axis=0) + 2 * r * EPS * (
        size**2
    ).sum(axis=0)
    case = returns("squares", gram=gram, b=b, w=w)
    return Case(case.inputs, case.run, {"squares": error})


def mixing_case(shape: tuple[int, int], dtype: str) -> Case:
    words = matrix(shape).reshape(-1).view(np.uint64)

    def run(body: Body, a: dict[str, Any], xp: Any) -> Outputs:
        lanes = xp.arange(64, dtype=np.uint64)
        body(a["words"], lanes=lanes)
        return {"lanes": lanes}

    return Case({"words": words}, run)


CASES: dict[tuple[str, str], tuple[Callable[[tuple[int, int], str], Case], tuple[str, ...]]] = {
    ("condition", "measure"): (measure_case, ALL),
    ("condition", "subtract"): (subtract_case, ALL),
    ("count_sketch", "draw_buckets"): (drawn_case, ("float64",)),
    ("count_sketch", "add_to_buckets"): (buckets_case, FLOATS),
    ("divergence", "quotients"): (quotients_case, FLOATS),
    ("mixing", "mix_words"): (mixing_case, ("float64",)),
    ("moments", "add_rows"): (add_rows_case, ALL),
    ("moments", "merge_moments"): (merge_moments_case, ("float64",)),
    ("multiplicative", "multiply_rows"): (multiply_case, FLOATS),
    ("nonnegative", "descend_rows"): (lambda *case: nonnegative_case(*case, solve=False), FLOATS),
    ("nonnegative", "solve_rows"): (lambda *case: nonnegative_case(*case, solve=True), ("float64",)),
    ("normal", "gaussian_rows"): (gaussian_case, ("float64",)),
    ("orthonormal", "orthonormalise"): (orthonormalise_case, ("float64",)),
    ("panel", "panel_product"): (panel_case, FLOATS),
    ("qr", "panel_r"): (lambda shape, dtype: returns("r", y=matrix(shape)), ("float64",)),
    ("qr", "merge_r"): (
        lambda shape, dtype: returns("r", a=np.triu(matrix((shape[1],) * 2)), b=np.eye(shape[1])),
        ("float64",),
    ),
    ("qr", "r_of_gram"): (
        lambda shape, dtype: returns("r", product=gram_of(shape[1])),
        ("float64",),
    ),
    ("sketch", "sketch_product"): (sketch_case, FLOATS),
    ("small", "leading_eigenpairs"): (eigenpairs_case, ("float64",)),
    ("small", "leading_singular_triplets"): (triplets_case, ("float64",)),
    ("small", "fix_signs"): (lambda shape, dtype: returns("signs", v=matrix(shape)), ("float64",)),
    ("splitting", "split_rows"): (split_case, FLOATS),
    ("stationarity", "gradient_rows"): (gradient_case, FLOATS),
}


# Conformance ---------------------------------------------------------------------------------------


def bodies() -> Iterator[Any]:
    """Every body that can be called, with every type it takes: the reference and each tuned one."""
    for module, name in KERNELS:
        for device in ("reference", *REGISTRY[module][name]):
            marks = [pytest.mark.gpu] if device == "gpu" else []
            for dtype in CASES[module, name][1] if (module, name) in CASES else ():
                yield pytest.param(
                    module, name, device, dtype, marks=marks, id=f"{module}.{name}-{device}-{dtype}"
                )


def assert_conforms(case: Case, reference: Body, body: Body, layout: str, xp: Any) -> None:
    expected = case.run(reference, case.inputs, np)
    inputs = {name: LAYOUTS[layout](xp.asarray(a), xp) for name, a in case.inputs.items()}
    found = case.run(body, inputs, xp)
    for name, value in expected.items():
        host = found[name].get() if hasattr(found[name], "get") else found[name]
        assert np.shape(host) == np.shape(value), f"shape of {name}, {layout}"
        worst = np.abs(np.asarray(host, np.float64) - value) - case.error.get(name, 0.0)
        assert (worst <= 0).all(), f"{name}, {layout}: beyond the bound by {worst.max()}"
    for name, before in case.inputs.items():
        after = inputs[name].get() if hasattr(inputs[name], "get") else inputs[name]
        np.testing.assert_array_equal(after, before, err_msg=f"{name} is left untouched, {layout}")


@pytest.mark.parametrize(("module", "name", "device", "dtype"), list(bodies()))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_body_gives_what_its_reference_gives(
    module: str, name: str, device: str, dtype: str, layout: str
) -> None:
    if device == "gpu" and layout == "read only":
        pytest.skip("device arrays cannot be made read-only")
    kernel = contract(module, name)
    xp = importlib.import_module("cupy") if device == "gpu" else np
    body = kernel.reference if device == "reference" else kernel
    assert device == "reference" or implementation(module, name, device) is not None
    for shape in SHAPES:
        assert_conforms(CASES[module, name][0](shape, dtype), kernel.reference, body, layout, xp)


def test_every_kernel_has_a_case() -> None:
    assert list(CASES) == sorted(CASES, key=KERNELS.index)
    assert set(CASES) == set(KERNELS)


# The registry --------------------------------------------------------------------------------------


def functions(path: Path) -> dict[str, ast.FunctionDef]:
    tree = ast.parse(path.read_text())
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def modules(folder: Path) -> set[str]:
    return {path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")}


def argument_names(node: ast.FunctionDef) -> list[list[str]]:
    arguments = node.args
    return [[a.arg for a in kind] for kind in (arguments.posonlyargs, arguments.args, arguments.kwonlyargs)]


def test_the_registry_equals_the_contracts() -> None:
    assert set(REGISTRY) == modules(FOLDER)
    for module, kernels in REGISTRY.items():
        decorated = {
            name
            for name, node in functions(FOLDER / f"{module}.py").items()
            if any(isinstance(d, ast.Name) and d.id == "kernel" for d in node.decorator_list)
        }
        assert set(kernels) == decorated, module


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_the_registry_equals_the_tuned_files(device: str) -> None:
    found = {
        (module, name)
        for module in modules(FOLDER / device)
        for name in functions(FOLDER / device / f"{module}.py")
        if not name.startswith("_")
    }
    assert found == {(module, name) for module, name, where in TUNED if where == device}


@pytest.mark.parametrize(("module", "name", "device"), TUNED)
def test_a_tuned_body_has_the_arguments_of_its_contract(module: str, name: str, device: str) -> None:
    tuned, reference = (functions(f / f"{module}.py")[name] for f in (FOLDER / device, FOLDER))
    assert argument_names(tuned) == argument_names(reference)
    assert (ast.get_docstring(tuned) or "").startswith("See the contract")


@pytest.mark.parametrize(("module", "name"), KERNELS)
def test_a_kernel_pickles_as_its_name(module: str, name: str) -> None:
    kernel = contract(module, name)
    message = pickle.dumps(kernel)
    assert pickle.loads(message) is kernel
    assert len(message) < 100


# Devices -------------------------------------------------------------------------------------------


class DeviceArray:
    """What CuPy's arrays look like to the dispatcher: a class whose module is CuPy's."""

    __module__ = "cupy._core.core"


HOST, OTHER = np.ones((2, 2)), DeviceArray()
MIXED: dict[str, Callable[[], Any]] = {
    "measure": lambda: contract("condition", "measure")(HOST, OTHER, 1.0),
    "subtract": lambda: contract("condition", "subtract")(HOST, HOST[0], HOST[0], out=OTHER),
    "add_to_buckets": lambda: contract("count_sketch", "add_to_buckets")(OTHER, HOST[0], HOST[0], sums=HOST),
    "add_rows": lambda: contract("moments", "add_rows")(None, OTHER, HOST[0], 1.0, out=HOST, work=HOST),
    "panel_product": lambda: contract("panel", "panel_product")(OTHER, HOST, y=HOST, z=HOST, work=HOST),
    "merge_r": lambda: contract("qr", "merge_r")(HOST, OTHER),
}


@pytest.mark.parametrize("name", MIXED)
def test_mixed_devices_are_refused(name: str) -> None:
    with pytest.raises(TypeError, match="host and device are mixed in one kernel call"):
        MIXED[name]()


def test_arrays_decide_the_device() -> None:
    assert device_of(HOST, 3, None, "name") == "cpu"
    assert device_of(3, OTHER) == "gpu"
    assert device_of(1.0, (1, 2)) == "cpu"


def test_a_numpy_number_is_no_host_array() -> None:
    assert device_of(OTHER, np.float64(0.5), np.int64(3)) == "gpu"
