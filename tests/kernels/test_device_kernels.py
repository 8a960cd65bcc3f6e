"""Kernels in CUDA C++: the same bytes whichever threads run first, and planted mistakes are found."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import missing_device
from device_cases import CASES, agrees, on_device
from stand_in.compiler import ORDERS, Choice, missing_compiler

import rankfold.kernels

FOLDER = Path(rankfold.kernels.__file__).parent
HERE = Path(__file__).parent
SOURCES = sorted(path for path in FOLDER.rglob("*.cu"))

in_stand_in = pytest.mark.skipif(not missing_device(), reason="a device runs threads as it likes")


@pytest.fixture(autouse=True)
def _choice() -> Iterator[None]:
    yield
    Choice.order, Choice.seed, Choice.flags = "together", 0, ("-O2",)


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_a_kernel_gives_what_its_reference_gives(name: str) -> None:
    assert agrees(name, on_device(name))


@in_stand_in
@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_the_order_of_threads_and_copies_changes_no_bit(name: str) -> None:
    results = []
    for order, seed in (("together", 0), ("ahead", 0), ("dice", 1), ("dice", 2)):
        Choice.order, Choice.seed = order, seed
        results.append(on_device(name))
    for each in results[1:]:
        np.testing.assert_array_equal(each, results[0])


# Planted mistakes -------------------------------------------------------------------------------------

BARRIER, WARP_BARRIER = "__syncthreads();", "__syncwarp();"


def without(text: str, what: str, number: int) -> str:
    """The text less one occurrence."""
    parts = text.split(what)
    return what.join(parts[: number + 1]) + what.join(["", *parts[number + 1 :]])[len(what) :]


MISTAKES: dict[str, tuple[str, str, str, int | str]] = {
    # case, file, what is replaced, by what or which occurrence is dropped
    "rows are used before they have come": ("descend_rows 30 float32", "nnls.cu", BARRIER, 0),
    "right sides overwrite rows that are read": ("descend_rows 30 float32", "nnls.cu", BARRIER, 1),
    "right sides are used before they have come": ("descend_rows 30 float32", "nnls.cu", BARRIER, 2),
    "rows are stored before they are there": ("descend_rows 64 float32", "nnls.cu", BARRIER, 3),
    "a partial slope is left out": (
        "descend_rows 64 float32", "nnls.cu", "int far = LANES / 2;", "int far = LANES / 4;"),
    "every lane takes a step": (
        "descend_rows 30 float64", "nnls.cu", "lane == owner ? inverse[t] : T(0)", "inverse[t]"),
    "a column is used before it is divided": ("solve_rows 40", "nnls.cu", WARP_BARRIER, 1),
    "a right side is overwritten that is read": ("solve_rows 40", "nnls.cu", WARP_BARRIER, 2),
    "an upper bound is not seen": (
        "solve_rows 40 below a bound", "nnls.cu", "x[c] < 0 || x[c] > upper", "x[c] < 0"),
    "no coordinate leaves its bound": (
        "solve_rows 40 by steps", "nnls.cu", "state[first] = FREE;", ";"),
    "a sum is left as it is": (
        "solve_rows 40 on a simplex", "nnls.cu", "packed[i] -= multiplier * ones[i]", "packed[i] -= 0"),
    "one infeasible coordinate is let pass": (
        "solve_rows 40", "nnls.cu", "solved = infeasible == 0", "solved = infeasible <= 1"),
    "a warp is left out": (
        "quotients float64", "kl_divergence.cu", "i < THREADS / 32", "i < THREADS / 64"),
    "sums of warps are read too early": ("quotients float64", "kl_divergence.cu", BARRIER, 0),
    "the last rows are counted twice": (
        "measure float32", "center_scale.cu", "row + i < end ? (widen", "true ? (widen"),
    "a bucket has two owners": (
        "add_to_buckets", "count_sketch.cu", "== blockIdx.y)", "/ 2 == blockIdx.y / 2)"),
    "a tile is multiplied before it has come": ("meet_rows", "meeting.cu", "STAGES - 2", "STAGES - 1"),
    "a tile is multiplied before all of it has come": ("meet_rows", "meeting.cu", BARRIER, 0),
    "a tile is overwritten that is multiplied": (
        "meet_rows", "meeting.cu", "__syncthreads();  // all have", "ask(step + STAGES); __syncthreads();  //"
    ),
    "numbers of a product are exchanged": (
        "meet_rows", "meeting.cu", "x_pitch + k + h / 2 * 4]", "x_pitch + k + (1 - h / 2) * 4]"),
    "candidates are noted beside other rows": (
        "meet_rows", "meeting.cu", "room, column, row)", "room, column, row / 2)"),
    "a list is moved before it is read": ("meet_rows", "meeting.cu", WARP_BARRIER, 0),
    "what was noted first is not measured": (
        "meet_rows of bytes", "meeting.cu", "start = 0; start < noted", "start = 2; start < noted"),
    "rows are rounded to too few bits": (
        "meet_rows of bytes", "meeting.cu", "& 0xffffe000u", "& 0xfff00000u"),
    "distances are added up in another order": (
        "meet_rows of wide rows", "distances.cuh", "far = 8; far; far /= 2", "far = 1; far < 16; far *= 2"),
    "others are noted as those of another part": (
        "meet_rows in float64", "meeting.cu", "limit) note(counts_x, places_x, room, row, first_y + column);",
        "limit) note(counts_x, places_x, room, row, column);"),
    "an open pair is counted twice": (
        "rank_rows", "ranking.cu", "!unsure && to < k", "to < k"),
    "one of two pairs is not counted": (
        "rank_rows", "ranking.cu", "lane == one || (lane == other && other != one)", "lane == one"),
    "notes are added up before they are there": (
        "rank_rows by many thresholds", "ranking.cu", "if (each < lane)", "if (each <= lane)"),
    "equal pairs come in any order": (
        "rank_rows", "ranking.cu", "first + column, row_keys", "column, row_keys"),
    "a vertex is moved by the edges of another": (
        "move_vertices", "vertices.cu", "first = pointers[place]", "first = pointers[0]"),
    "densities are those of one end": (
        "move_vertices by density", "vertices.cu", "__fadd_rn(one[0], two[0])", "one[0]"),
    "a row begins an epoch with other random numbers": (
        "place_rows", "rows.cu", "STEP * u64(epoch)", "STEP * u64(epoch - 1)"),
    "edges have no order": (
        "measure_radii", "radii.cu", "edge < pointers[place + 1]", "edge + 1 < pointers[place + 1]"),
    "a row counts itself": ("rank_rows of bytes", "ranking.cu", " && column != itself", ""),
}  # fmt: skip


@in_stand_in
@pytest.mark.gpu
@pytest.mark.slow  # a compilation of its own for each mistake
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from rankfold.kernels.gpu import sources

    name, file, what, how = MISTAKES[mistake]
    read = sources.source

    def changed(package: str, stem: str) -> str:
        text = read(package, stem)
        if file not in (f"{stem}.cu", "distances.cuh"):
            return text
        assert what in text
        return without(text, what, how) if isinstance(how, int) else text.replace(what, how)

    monkeypatch.setattr(sources, "source", changed)
    sources._kernel.cache_clear()
    Choice.flags = ("-O2", "-Wno-error")
    results = []
    try:
        for order in ORDERS:
            Choice.order = order
            results.append(on_device(name))
    except RuntimeError:
        return
    finally:
        sources._kernel.cache_clear()
    same = all((each == results[0]).all() for each in results)
    assert not same or not agrees(name, results[0])


# Limits of launches -----------------------------------------------------------------------------------


@pytest.mark.gpu
def test_more_rows_than_a_launch_has_runs_are_added_up() -> None:
    from rankfold.kernels.linear.center_scale import measure

    x = np.ones((65536 * 256 + 3, 1), np.uint8)
    x[-1] = 3
    cupy = importlib.import_module("cupy")
    sums, squares = measure(cupy.asarray(x), cupy.zeros(1), 1.0)
    assert (float(sums[0]), float(squares[0])) == (len(x) + 2, len(x) + 8)


@pytest.mark.gpu
def test_a_kernel_takes_more_shared_memory_after_less() -> None:
    from rankfold.kernels.nonnegative.nnls import solve_rows

    cupy = importlib.import_module("cupy")
    for k in (125, 110, 125):
        gram, b = np.diag(np.arange(1.0, k + 1)), np.ones((2, k))
        w = cupy.empty((2, k))
        solve_rows(cupy.asarray(gram), cupy.asarray(b), w=w)
        np.testing.assert_allclose(cupy.asnumpy(w), b / np.diag(gram), rtol=1e-12)


# Accesses out of bounds -------------------------------------------------------------------------------

SANITIZER = """
import sys
sys.path[:0] = sys.argv[2:4]
from stand_in import installed
from stand_in.compiler import Choice
from device_cases import CASES, agrees, on_device
Choice.flags = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
with installed():
    from rankfold.kernels.gpu import sources
    read, change = sources.source, sys.argv[1].partition(" => ")
    if change[0]:
        sources.source = lambda *place: read(*place).replace(change[0], change[2])
    some = "descend_rows 30 float32", "solve_rows 7", "quotients float32", "measure uint8", "add_to_buckets"
    some += "solve_rows 40 on a simplex by steps", "solve_rows 40 below a bound"
    some += "meet_rows", "rank_rows", "move_vertices by density", "place_rows", "measure_radii"
    for name in some:
        assert agrees(name, on_device(name)), name
print("all of it")
"""


def sanitized(change: str = "") -> subprocess.CompletedProcess[str]:
    library = subprocess.run(
        ["g++", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    options = "detect_leaks=0:detect_stack_use_after_return=0:verify_asan_link_order=0"
    environment = {**os.environ, "LD_PRELOAD": library, "ASAN_OPTIONS": options}
    return subprocess.run(
        [sys.executable, "-c", SANITIZER, change, str(HERE), str(HERE.parent)],
        capture_output=True, text=True, env=environment, check=False, timeout=900,
    )  # fmt: skip


@in_stand_in
@pytest.mark.skipif(missing_compiler() is not None, reason="no g++")
@pytest.mark.slow
def test_no_access_is_out_of_bounds() -> None:
    ran = sanitized()
    assert ran.stdout.strip() == "all of it", ran.stderr[-3000:]
    ran = sanitized("if (c < k && first + row < count) w => if (c < k) w")
    assert "heap-buffer-overflow" in ran.stderr and "descend_rows" in ran.stderr


# Compiled for chips -----------------------------------------------------------------------------------


METERED = ("float", "double", "unsigned char")
"""Types that distances are measured in."""


def instances() -> dict[str, list[str]]:
    """Every instance that bodies ask for, by file."""
    from stand_in import installed

    with installed():
        from rankfold.kernels.gpu.sources import C_TYPES
        from rankfold.kernels.nonnegative.gpu.nnls import TILES

        tiles = [
            f"descend_rows<{C_TYPES[dtype]}, {t.k}, {t.lanes}, {t.rows}, {t.threads}>"
            for dtype, some in TILES.items()
            for t in some
        ]
        kinds = list(C_TYPES.values())
    return {
        "nnls": [*tiles, "solve_rows"],
        "kl_divergence": ["quotients<float, 256>", "quotients<double, 256>"],
        "center_scale": [f"measure<{kind}>" for kind in kinds],
        "meeting": [
            *("choose<true>", "choose<false>", "scan"),
            *(f"{name}<{kind}>" for name in ("refine", "exhaust", "round_rows") for kind in METERED),
        ],
        "ranking": [f"count_nearer<{p}, {kind}>" for p in ("float", "double") for kind in METERED],
        "vertices": [f"move_vertices<{kind}, {d}>" for kind in ("int", "i64") for d in (0, 1, 2, 3)],
        "rows": [f"place_rows<{d}>" for d in (0, 1, 2, 3)],
        "radii": ["measure_radii<int>", "measure_radii<i64>"],
        "count_sketch": ["add_to_buckets<float>", "add_to_buckets<double>"],
    }


def test_every_source_is_compiled_for_chips() -> None:
    assert {path.stem for path in SOURCES} == set(instances())


@pytest.mark.slow
@pytest.mark.parametrize("chip", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("file", [path.stem for path in SOURCES])
def test_a_kernel_fits_into_the_registers_of_a_chip(file: str, chip: str) -> None:
    """A stack frame is numbers that did not fit, or an array that is indexed at run time."""
    nvrtc = pytest.importorskip(
        "cupy_backends.cuda.libs.nvrtc",
        reason="CuPy and NVRTC are not installed: pip install --group cuda",
        exc_type=ImportError,
    )
    (path,) = (each for each in SOURCES if each.stem == file)
    headers = FOLDER / "gpu" / "device.cuh", *sorted(path.parent.glob("*.cuh"))
    code = "".join(each.read_text() for each in (*headers, path))
    names = instances()[file]
    program = nvrtc.createProgram(code, f"{file}.cu", (), ())
    for name in names:
        nvrtc.addNameExpression(program, name)
    options = (f"-arch={chip}", "-std=c++17", "--ptxas-options=-v", "-ftz=true")  # the last one is CuPy's
    try:
        nvrtc.compileProgram(program, options)
    except nvrtc.NVRTCError:
        pytest.fail(nvrtc.getProgramLog(program))
    frames = re.findall(r"(\d+) bytes stack frame", nvrtc.getProgramLog(program))
    assert len(frames) >= len(names) and set(frames) == {"0"}, nvrtc.getProgramLog(program)
    if file in (
        "center_scale",
        "kl_divergence",
        "ranking",
    ):  # elsewhere bounds have room for what is taken for 0
        assert not re.search(rb"cvt\.(rn\.)?ftz\.f", nvrtc.getPTX(program))
