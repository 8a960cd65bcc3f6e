"""Whole methods on a device: the numbers of the host, one wait a panel, and no more memory than was planned.

On a machine without one the device is a stand-in, which also counts: see ``tests/stand_in``.
"""

from __future__ import annotations

import ast
import itertools
import re
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from conftest import missing_device
from covers import cover, spread
from stand_in import COUNTS, installed

import rankfold as rf
from rankfold.methods.parts.panels import Panels
from rankfold.pipeline import gpu
from rankfold.pipeline.data.view import View
from rankfold.pipeline.engine import blocks, device, sweep
from rankfold.pipeline.engine.fold import DeclaredFold
from rankfold.pipeline.errors import NonFiniteError
from rankfold.pipeline.gpu import require_device

Array = npt.NDArray[Any]
PACKAGE = Path(rf.__file__).parent


def matrix(m: int, n: int, dtype: str = "f4", seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    x = (
        np.abs(rng.standard_normal((m, 8)) @ rng.standard_normal((8, n)) + rng.standard_normal((m, n)) / 9)
        + 0.5
    )
    return (20 * x).clip(0, 255).astype(dtype) if dtype == "u1" else x.astype(dtype)


def pca(solver: str, scale: bool = False) -> Callable[..., rf.Result]:
    return lambda x, **where: rf.pca(x, 5, solver=solver, scale=scale, **where)


def after_pca(call: Callable[..., Any]) -> Callable[..., rf.Result]:
    def run(x: Array, **where: Any) -> rf.Result:
        fitted = rf.pca(x[: len(x) // 2], 5, solver="gram", threads=1)
        return call(fitted, x, **where)  # type: ignore[no-any-return]

    return run


def nmf(**others: Any) -> Callable[..., rf.Result]:
    return lambda x, **where: rf.nmf(x, 4, **others, **where)


def update(x: Array, **where: Any) -> rf.Result:
    x = x if x.shape[0] > x.shape[1] else x.T  # fewer rows than columns are kept, and not summed up
    fitted = rf.pca(x[: len(x) // 2], 5, solver="gram", threads=1)
    return rf.update(fitted, x[len(x) // 2 :], **where)


CALLS: dict[str, Callable[..., rf.Result]] = {
    **{f"pca {solver}": pca(solver) for solver in ("gram", "krylov", "subspace", "sketch", "tsqr")},
    **{f"scaled pca {solver}": pca(solver, scale=True) for solver in ("gram", "krylov", "tsqr")},
    "svd all": lambda x, **where: rf.svd(x, **where),
    "qr": lambda x, **where: rf.qr(x if x.shape[0] > x.shape[1] else x.T, **where),
    "transform": after_pca(rf.transform),
    "check": after_pca(lambda fitted, x, **where: rf.check(fitted, x[: len(x) // 2], **where)),
    "reconstruct": after_pca(lambda fitted, x, **where: rf.reconstruct(fitted, **where)),
    "update": update,
    "nmf": nmf(),
    "nmf exact rows": nmf(solver="bpp"),
    "nmf constrained": nmf(solver="admm"),
    "nmf by divergence": nmf(loss="kullback-leibler"),
}


@pytest.fixture(autouse=True)
def _short_grains(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several panels of little data."""
    monkeypatch.setitem(blocks.GRAIN_BYTES, "gpu", 2**21)


SHAPES = [pytest.param((3000, 60), id="tall"), pytest.param((60, 3000), id="wide")]


def arrays(result: rf.Result | rf.Matrix) -> dict[str, Array]:
    if not isinstance(result, rf.Result):
        return {"X": np.asarray(result)}
    return {name: np.asarray(result[name]) for name in result}


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore::rankfold.RankfoldWarning")
@pytest.mark.parametrize("name, dtype, shape", cover(CALLS, ["f4", "f8", "u1"], SHAPES))
def test_a_device_gives_the_numbers_of_the_host(name: str, dtype: str, shape: tuple[int, int]) -> None:
    x = matrix(*shape, dtype)
    host, found = CALLS[name](x, threads=1), CALLS[name](x, device="gpu", memory="1GiB")
    if isinstance(found, rf.Result):
        assert found.attrs["device"] == "gpu" and "device" not in host.attrs
    for key, expected in arrays(host).items():
        error = 1e-4 if dtype != "f8" else 1e-9
        if key in ("ritz", "range"):  # of the noise, where rounding decides
            continue
        if "estimate" in key or "residual" in key:
            error = 1e-1
        room = error * np.abs(expected).max()
        if error == 1e-1:
            # What is left of exact factors is rounding, in units of the largest singular value: of the type
            # that is multiplied, and of sums over all rows.
            room += max(1e-14, 2 * float(np.finfo("f8" if dtype == "f8" else "f4").eps))
        np.testing.assert_allclose(arrays(found)[key], expected, atol=room, err_msg=key)


@pytest.mark.gpu
@pytest.mark.parametrize("name", spread(6, CALLS))
def test_copies_that_come_at_once_change_nothing(name: str) -> None:
    if not missing_device():
        pytest.skip("a device makes copies when it makes them")
    found = []
    for late in (True, False):
        with installed(late=late):
            device.cuda.cache_clear()
            found.append(arrays(CALLS[name](matrix(3000, 60), device="gpu", memory="1GiB")))
    for key, expected in found[0].items():
        np.testing.assert_array_equal(found[1][key], expected)


# What is counted ------------------------------------------------------------------------------------


class Watch:
    """Counts of the sweeps of a run, by name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: dict[str, list[int]] = {}
        self.most: dict[str, tuple[int, int]] = {}
        settle, step_of = gpu.Cuda.settle, sweep._advance

        def counted(cuda: gpu.Cuda) -> None:
            settle(cuda)
            self.steps.setdefault(self.name, []).append(COUNTS.waits)

        def advance(reference: Any, *args: Any, **kwargs: Any) -> Any:
            self.name, self.fold = reference.value.name, reference.value.fold
            COUNTS.bytes_most, COUNTS.waits = COUNTS.bytes_now, 0
            if reference.value.place != "gpu":
                return step_of(reference, *args, **kwargs)
            cuda, before = device.cuda(), COUNTS.bytes_now - device.cuda().kept_bytes
            report = step_of(reference, *args, **kwargs)
            self.most[self.name] = (COUNTS.bytes_most - cuda.kept_bytes - before, self.fold.device_bytes)
            return report

        monkeypatch.setattr(gpu.Cuda, "settle", counted)
        monkeypatch.setattr(sweep, "_advance", advance)
        # A checkpoint waits as well, and is due by time on a machine with much other work.
        monkeypatch.setattr(sweep, "SEGMENT_SECONDS", 1e6)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore::rankfold.RankfoldWarning")
@pytest.mark.parametrize(
    "name, shape",
    cover(CALLS, [pytest.param((9000, 300), id="tall"), pytest.param((300, 9000), id="wide")], strength=1),
)
def test_a_panel_waits_once_and_memory_is_as_planned(
    name: str, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not missing_device():
        pytest.skip("a device does not count")
    watch = Watch(monkeypatch)
    CALLS[name](matrix(*shape), device="gpu", memory="1GiB")
    assert watch.steps and watch.most
    for name_, waits in watch.steps.items():
        # Before the first panel the workspace is made.
        assert all(after - before <= 1 for before, after in itertools.pairwise(waits)), name_
    for name_, (most, planned) in watch.most.items():
        assert most <= planned, name_


@pytest.mark.gpu
@pytest.mark.parametrize("solver", ["gram", "krylov", "tsqr"])
def test_the_matrix_is_read_once_where_there_is_room(
    solver: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not missing_device():
        pytest.skip("a device does not count")
    x, results, rows, read = matrix(20_000, 100), [], [0], View.read
    np.save(tmp_path / "x.npy", x)

    def count(view: View, out: Array, start: int, stop: int) -> None:
        rows[0] += stop - start
        read(view, out, start, stop)

    monkeypatch.setattr(View, "read", count)
    for share in (0.9, 0.0, 1.2e-4):  # room for all of it, for nothing, and for some
        monkeypatch.setattr(gpu, "KEPT_SHARE", share)
        rows[0] = 0
        results.append(rf.pca(tmp_path / "x.npy", 5, solver=solver, device="gpu", memory="1GiB"))
        times = {0.9: 1, 0.0: results[0].attrs["passes"]}.get(share)
        if times:  # and a sample of some rows
            assert times <= rows[0] / len(x) <= times + 0.1
    for name, expected in arrays(results[0]).items():
        for other in results[1:]:
            np.testing.assert_array_equal(other[name], expected)


@pytest.mark.gpu
def test_panels_of_an_earlier_run_are_not_taken_for_others(tmp_path: Path) -> None:
    for seed in (0, 1):
        x = matrix(5000, 100, seed=seed)
        np.save(tmp_path / "x.npy", x)
        found = rf.pca(tmp_path / "x.npy", 3, out=tmp_path / "r.zarr", overwrite=True, **{"device": "gpu"})
        expected = rf.pca(x, 3, threads=1)
        np.testing.assert_allclose(found.singular_values, expected.singular_values, rtol=1e-5)


# Planted mistakes -------------------------------------------------------------------------------------


def use_too_early(slot: gpu.CudaSlot) -> Any:
    return slot._twin


def receive_too_early(cuda: gpu.Cuda, array: Any, receive: Callable[[Array], None]) -> None:
    room = cuda._take(array)
    array.get(stream=cuda.stream(), out=room, blocking=False)
    receive(room)


def go_on_without_waiting(cuda: gpu.Cuda) -> None:
    sent, cuda._sent = cuda._sent, []
    for room, receive in sent:
        receive(room)


def look_at_once(cuda: gpu.Cuda, flag: Any, otherwise: Callable[[], None]) -> bool:
    return bool(flag)  # one wait a grain


SLOT, CUDA = gpu.CudaSlot, gpu.Cuda
MISTAKES: dict[str, tuple[Any, str, Any]] = {
    "a panel is used before it has come": (SLOT, "array", use_too_early),
    "rows are written before they have come": (CUDA, "send", receive_too_early),
    "a panel does not wait": (CUDA, "settle", go_on_without_waiting),
    "a number is looked at in each grain": (CUDA, "holds", look_at_once),
    "sums stay on the host": (CUDA, "load", lambda cuda, state, resident: state),
    "constants stay on the host": (CUDA, "place", lambda cuda, array, dtype: np.asarray(array, dtype)),
    "sums are not brought back": (CUDA, "unload", lambda cuda, state: state),
    "panels are left out of the plan": (Panels, "device_bytes", property(lambda panels: 0)),
}


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not missing_device():
        pytest.skip("a device does not show them at once")
    x = np.random.default_rng(0).standard_normal((30_000, 300)).astype("f4")
    expected = rf.pca(x, 5, solver="krylov", threads=1)
    monkeypatch.setattr(gpu, "LIBRARY_BYTES", 0)
    monkeypatch.setattr(gpu, "KEPT_SHARE", 0.0)  # memory for panels that stay would hide what a plan lacks
    watch = Watch(monkeypatch)
    monkeypatch.setattr(*MISTAKES[mistake])
    try:
        found = rf.pca(x, 5, solver="krylov", device="gpu", memory="1GiB")
    except (rf.RankfoldError, TypeError, ValueError, MemoryError):
        return
    same = all(
        np.abs(arrays(found)[key] - expected[key]).max() <= 1e-3 * np.abs(expected[key]).max()
        for key in ("singular_values", "components", "mean", "scores")
    )
    once = all(b - a <= 1 for waits in watch.steps.values() for a, b in itertools.pairwise(waits))
    assert not (same and once)


@pytest.mark.gpu
def test_a_panel_is_not_read_into_while_it_is_copied() -> None:
    slot = device.device_of("gpu").slot((4,), np.float64)
    for number in (1.0, 2.0):
        slot.room((4,))[...] = number
        if number == 1.0:
            slot.send()
    assert float(slot.array()[0]) == 1.0


@pytest.mark.gpu
def test_what_a_broken_segment_has_sent_reaches_no_other() -> None:
    cuda, received = device.device_of("gpu"), list[Array]()
    cuda.send(cuda.place(np.ones(3), np.float64), received.append)
    cuda.limit(2**20, "another segment")
    cuda.settle()
    assert not received


# Interruptions ----------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore::rankfold.RankfoldWarning")
def test_a_run_on_a_device_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    x = matrix(20_000, 100)
    np.save(tmp_path / "x.npy", x)
    where: dict[str, Any] = {"device": "gpu", "memory": "1GiB"}
    whole = rf.pca(tmp_path / "x.npy", 5, solver="krylov", out=tmp_path / "whole.zarr", **where)
    seen: list[int] = []

    def stop(name: str, done: int, total: int) -> None:
        seen.append(done)
        if len(seen) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rf.pca(tmp_path / "x.npy", 5, solver="krylov", out=tmp_path / "r.zarr", progress=stop, **where)
    again = rf.pca(tmp_path / "x.npy", 5, solver="krylov", out=tmp_path / "r.zarr", **where)
    for name, expected in arrays(whole).items():
        np.testing.assert_array_equal(arrays(again)[name], expected)
    with pytest.raises(rf.RankfoldError, match=r"device \(gpu there, cpu now\)"):
        rf.pca(tmp_path / "x.npy", 5, solver="krylov", out=tmp_path / "r.zarr")


@pytest.mark.gpu
def test_a_checkpoint_of_another_device_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("engine.sweep", "planning.passes"):  # many checkpoints of little data
        monkeypatch.setattr(f"rankfold.pipeline.{module}.SEGMENT_SECONDS", 1e-5)
    np.save(tmp_path / "x.npy", matrix(60_000, 100))
    save = sweep.save_arrays

    def save_and_stop(path: Path, *args: Any, **kwargs: Any) -> None:
        save(path, *args, **kwargs)
        if path.name.startswith("stream"):
            raise KeyboardInterrupt

    where: dict[str, Any] = {"solver": "gram", "out": tmp_path / "r.zarr", "device": "gpu"}
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(sweep, "save_arrays", save_and_stop)
        rf.pca(tmp_path / "x.npy", 5, **where)
    kinds = "; ".join(sorted(["another GPU", device.device_of("gpu").core_type()]))
    monkeypatch.setattr(gpu.Cuda, "core_type", lambda cuda: "another GPU")
    with pytest.raises(rf.RankfoldError, match=re.escape(f"different BLAS kernels ({kinds})")):
        rf.pca(tmp_path / "x.npy", 5, **where)


# What is refused --------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", ["pca gram", "pca krylov", "pca sketch", "pca tsqr", "transform"])
def test_bad_numbers_are_found_and_counted_on_a_device(name: str, dtype: str) -> None:
    for shape in ((3000, 60), (60, 3000)):
        x = matrix(*shape, dtype)
        x[-1, -2], x[-1, -1] = np.nan, np.inf
        with pytest.raises(NonFiniteError, match=f"2 NaN or Inf, the first at row {len(x) - 1}, "):
            CALLS[name](x, device="gpu", memory="1GiB")


def test_a_device_that_is_asked_for_is_never_left_out_silently(tmp_path: Path) -> None:
    x = matrix(500, 20)
    if missing_device():
        with pytest.raises(rf.RankfoldError, match=r"CuPy.*leave out device='gpu'"):
            rf.pca(x, 3, device="gpu", out=tmp_path / "r.zarr")
        assert not list(tmp_path.iterdir())
    with pytest.raises(rf.RankfoldError, match=r"this knn by exact has no code for a GPU, which would"):
        rf.knn(x, k=3, metric="manhattan", device="gpu")
    with pytest.raises(rf.RankfoldError, match="device must be 'cpu' or 'gpu', not 'tpu'"):
        rf.pca(x, 3, device="tpu")
    plan = rf.plan("pca", x, 3, device="gpu", solver="gram")  # a plan needs none
    assert plan.device == "gpu" and plan.as_dict()["upload_bytes"] >= plan.reads_bytes == 2 * x.nbytes
    assert "of its memory" in str(plan) and "GPU" not in str(rf.plan("pca", x, 3))


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "no device": ({"getDeviceCount": lambda: 0}, "CuPy finds no NVIDIA GPU"),
    "no driver": ({"getDeviceCount": lambda: 1 / 0}, "CuPy finds no NVIDIA GPU: division by zero. Look at"),
    "an old one": (
        {"compute_capability": "75"},
        r"compute capability 7.5, and kernels need 8.0 \(A100 or newer",
    ),
    "no cuBLAS": (
        {"ones": None},
        r"cannot multiply on the GPU: no libcublas.*neither cuBLAS nor NVRTC: pip",
    ),
    "wrong numbers": ({"ones": lambda shape: np.zeros(shape)}, "multiplies wrong"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_a_device_lacks_is_said_with_what_to_do(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    changes, message = BROKEN[name]

    def no_library(shape: Any) -> Any:
        raise ImportError("no libcublas.so.13")

    facts = {"getDeviceCount": lambda: 1, "compute_capability": "90", "ones": np.ones, **changes}
    cupy = types.ModuleType("cupy")
    runtime = types.SimpleNamespace(getDeviceCount=facts["getDeviceCount"])
    capability = types.SimpleNamespace(compute_capability=facts["compute_capability"])
    cuda = types.SimpleNamespace(runtime=runtime, Device=lambda device: capability)
    vars(cupy).update(ones=facts["ones"] or no_library, cuda=cuda)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    with pytest.raises(rf.RankfoldError, match=message):
        require_device()


@pytest.mark.gpu
def test_a_plan_that_a_device_has_no_room_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    if not missing_device():
        pytest.skip("a device has the memory that it has")
    import cupy

    monkeypatch.setattr(cupy.cuda.Device, "mem_info", (2**20, 2**30))
    with pytest.raises(
        rf.RankfoldError, match=r"takes .* of the GPU, which has 0 B free: see with nvidia-smi"
    ):
        rf.pca(matrix(3000, 60), 3, device="gpu", memory="1GiB")


# One place ----------------------------------------------------------------------------------------------


def test_nobody_else_knows_of_devices() -> None:
    allowed = {"pipeline/gpu.py"}
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        if name in allowed or "/gpu/" in name:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not [m for m in modules if m.split(".")[0] in ("cupy", "cupyx", "cupy_backends")], name
        if name.startswith("methods/"):
            assert '"gpu"' not in path.read_text(), name


def test_folds_move_nothing_by_themselves() -> None:
    """``np.zeros`` and the like make arrays of the host, which a device cannot compute with."""
    makers = {
        "ascontiguousarray",
        "zeros",
        "ones",
        "full",
        "empty",
        "eye",
        "arange",
        "asarray",
        "array",
        "linspace",
        "identity",
    }

    def subclasses(kind: type[Any]) -> set[type[Any]]:
        return {kind} | {below for each in kind.__subclasses__() for below in subclasses(each)}

    for fold in subclasses(DeclaredFold):
        module = sys.modules[fold.__module__]
        if not fold.__module__.startswith("rankfold.methods.") or not getattr(fold, "step", None):
            continue
        kernels = getattr(fold, "kernels", ())
        if isinstance(kernels, tuple) and not device.runs_on_device(kernels):
            continue  # what has no code for a device never meets one
        tree = ast.parse(Path(str(module.__file__)).read_text())
        classes = [
            node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == fold.__name__
        ]
        steps = [
            f for node in classes for f in node.body if isinstance(f, ast.FunctionDef) and f.name == "step"
        ]
        for call in (each for step in steps for each in ast.walk(step) if isinstance(each, ast.Call)):
            if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
                assert (call.func.value.id, call.func.attr) not in {("np", maker) for maker in makers}, fold
