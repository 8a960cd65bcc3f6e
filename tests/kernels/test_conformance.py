"""Every body of every kernel gives what its reference gives, on every device, type and memory layout.

A kernel that is added without a case in ``kernel_cases`` fails ``test_every_kernel_has_a_case``.
"""

from __future__ import annotations

import ast
import functools
import importlib
import itertools
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_cases.case import Body, Case, Outputs, apart
from kernel_cases.table import CASES

import rankfold.kernels
from rankfold.kernels._dispatch import device_of, implementation

FOLDER = Path(rankfold.kernels.__file__).parent
CONTRACTS = {"kernel", "light_kernel"}


def functions(path: Path) -> dict[str, ast.FunctionDef]:
    if not path.exists():
        return {}
    tree = ast.parse(path.read_text())
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def tuned_file(module: str, device: str) -> Path:
    family, _, stem = module.partition(".")
    return FOLDER / family / device / f"{stem}.py"


def contracts(path: Path) -> list[str]:
    return [
        name
        for name, node in functions(path).items()
        if any(isinstance(d, ast.Name) and d.id in CONTRACTS for d in node.decorator_list)
    ]


MODULES = sorted(f"{p.parent.name}.{p.stem}" for p in FOLDER.glob("*/*.py") if p.stem != "__init__")
KERNELS = [(m, name) for m in MODULES for name in contracts(FOLDER / f"{m.replace('.', '/')}.py")]
TUNED = [
    (module, name, device)
    for module, name in KERNELS
    for device in ("cpu", "gpu")
    if name in functions(tuned_file(module, device))
]
SHAPES = [(1, 1), (1, 7), (9, 1), (8, 5), (13, 6), (67, 33)]


def contract(module: str, name: str) -> Any:
    return getattr(importlib.import_module(f"rankfold.kernels.{module}"), name)


# Layouts -------------------------------------------------------------------------------------------


def every_second(x: Any, xp: Any) -> Any:
    wide = xp.zeros(tuple(2 * n for n in x.shape), x.dtype)
    view = wide[tuple(slice(None, None, 2) for _ in x.shape)]
    view[...] = x
    return view


def read_only(x: Any, xp: Any) -> Any:
    x = xp.ascontiguousarray(x).view()
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


MIXED_LAYOUTS = "mixed"
"""Each input of a case has another layout: numba compiles one loop for them, where six layouts take six."""


def layouts_of(module: str, name: str, device: str) -> list[str]:
    """Layouts on which a body is tried."""
    if device == "gpu":
        return [layout for layout in LAYOUTS if layout != "read only"]  # no device array can be made that
    if device == "reference" and (module, name, "cpu") in TUNED:
        return ["Fortran order", "backwards"]  # no call runs it; what is expected comes from it, in C order
    return [*LAYOUTS]


def quick_layouts_of(module: str, name: str, device: str) -> list[str]:
    """Layouts on which a body is tried in the quick tests."""
    plain = [] if device == "reference" and (module, name, "cpu") in TUNED else ["C order"]
    return [*plain, MIXED_LAYOUTS]


def laid_out(case: Case, layout: str, xp: Any, turn: int) -> dict[str, Any]:
    """Inputs of a case in a layout; mixed ones begin at another layout for each turn."""
    kinds = [layout]
    if layout == MIXED_LAYOUTS:
        others = [name for name in LAYOUTS if name != "C order" and (xp is np or name != "read only")]
        kinds = others[turn:] + others[:turn]
    inputs = zip(case.inputs.items(), itertools.cycle(kinds), strict=False)
    return {name: LAYOUTS[kind](xp.asarray(array), xp) for (name, array), kind in inputs}


# Conformance ---------------------------------------------------------------------------------------


def bodies() -> Iterator[Any]:
    """Every body that can be called, with every type it takes: the reference and each tuned one."""
    for module, name in KERNELS:
        devices = [d for m, n, d in TUNED if (m, n) == (module, name)]
        if "gpu" not in devices and is_portable(module, name):
            devices.append("gpu")
        for device in ("reference", *devices):
            marks = [pytest.mark.gpu] if device == "gpu" else []
            for dtype in CASES[module, name][1] if (module, name) in CASES else ():
                yield pytest.param(
                    module, name, device, dtype, marks=marks, id=f"{module}.{name}-{device}-{dtype}"
                )


def is_portable(module: str, name: str) -> bool:
    """Whether the reference body takes arrays of any device."""
    return getattr(contract(module, name), "portable", False)


def assert_conforms(case: Case, expected: Outputs, body: Body, layout: str, xp: Any, turn: int) -> None:
    inputs = laid_out(case, layout, xp, turn)
    found, room = case.run(body, inputs, xp), case.error | ({} if xp is np else case.error_of_device)
    for name, value in expected.items():
        host = found[name].get() if hasattr(found[name], "get") else found[name]
        assert np.shape(host) == np.shape(value), f"shape of {name}, {layout}"
        worst = np.abs(np.asarray(host, np.float64) - value) - room.get(name, 0.0)
        assert (worst <= 0).all(), f"{name}, {layout}: beyond the bound by {worst.max()}"
    for name, before in case.inputs.items():
        after = inputs[name].get() if hasattr(inputs[name], "get") else inputs[name]
        np.testing.assert_array_equal(after, before, err_msg=f"{name} is left untouched, {layout}")


@functools.lru_cache(maxsize=64)
def reference_case(module: str, name: str, shape: tuple[int, int], dtype: str) -> tuple[Case, Outputs]:
    """A case, and what the reference body gives of it: made once for the bodies of all devices."""
    case = CASES[module, name][0](shape, dtype)
    return case, case.run(contract(module, name).reference, case.inputs, np)


@pytest.mark.parametrize(("module", "name", "device", "dtype"), list(bodies()))
def test_every_body_gives_what_its_reference_gives(module: str, name: str, device: str, dtype: str) -> None:
    try_layouts(quick_layouts_of(module, name, device), module, name, device, dtype)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("module", "name", "device", "dtype"), list(bodies()))
def test_every_body_takes_every_layout(module: str, name: str, device: str, dtype: str) -> None:
    try_layouts(layouts_of(module, name, device), module, name, device, dtype)


def try_layouts(layouts: list[str], module: str, name: str, device: str, dtype: str) -> None:
    kernel = contract(module, name)
    xp = importlib.import_module("cupy") if device == "gpu" else np
    body = kernel.reference if device == "reference" else kernel
    tuned = implementation(f"rankfold.kernels.{module}", name, device) is not None
    assert device == "reference" or tuned or is_portable(module, name)
    turn = CASES[module, name][1].index(dtype)
    for shape in SHAPES:
        case, expected = reference_case(module, name, shape, dtype)
        for layout in layouts:
            assert_conforms(case, expected, body, layout, xp, turn)


def test_every_kernel_has_a_case() -> None:
    assert set(CASES) == set(KERNELS)


# Files ---------------------------------------------------------------------------------------------


def argument_names(node: ast.FunctionDef) -> list[list[str]]:
    arguments = node.args
    return [[a.arg for a in kind] for kind in (arguments.posonlyargs, arguments.args, arguments.kwonlyargs)]


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_every_tuned_body_has_a_contract(device: str) -> None:
    found = {
        (f"{path.parents[1].name}.{path.stem}", name, device)
        for path in FOLDER.glob(f"*/{device}/*.py")
        if not path.stem.startswith("_")
        for name in functions(path)
        if not name.startswith("_")
    }
    assert found == {each for each in TUNED if each[2] == device}


def test_a_body_is_not_loaded_to_find_out_that_there_is_none() -> None:
    code = (
        "import sys\nfrom rankfold.kernels._dispatch import implementation\n"
        "assert implementation('rankfold.kernels.linear.count_sketch', 'draw_buckets', 'cpu') is None\n"
        "assert implementation('rankfold.kernels.linear.qr', 'panel_r', 'gpu') is None\n"
        "assert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(("module", "name", "device"), TUNED)
def test_a_tuned_body_has_the_arguments_of_its_contract(module: str, name: str, device: str) -> None:
    tuned = functions(tuned_file(module, device))[name]
    reference = functions(FOLDER / f"{module.replace('.', '/')}.py")[name]
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
    "measure": lambda: contract("linear.center_scale", "measure")(HOST, OTHER, 1.0),
    "subtract": lambda: contract("linear.center_scale", "subtract")(HOST, HOST[0], HOST[0], out=OTHER),
    "add_to_buckets": lambda: contract("linear.count_sketch", "add_to_buckets")(
        OTHER, HOST[0], HOST[0], sums=HOST
    ),
    "add_rows": lambda: contract("linear.moments", "add_rows")(
        None, OTHER, HOST[0], 1.0, out=HOST, work=HOST
    ),
    "panel_product": lambda: contract("linear.panel", "panel_product")(
        OTHER, HOST, y=HOST, z=HOST, work=HOST
    ),
    "merge_r": lambda: contract("linear.qr", "merge_r")(HOST, OTHER),
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
