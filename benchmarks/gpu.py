"""Device kernels and methods on a GPU: what they take, beside the limits of the chip and beside peers.

    pip install '.[gpu]' torch
    python benchmarks/gpu.py --out benchmarks/results/gpu.json      eight minutes at most
    python benchmarks/gpu.py --tiny                                 anywhere: all checks, on a stand-in

Limits are measured first, in the same run. Every kernel is checked against float64 on fresh numbers, then
timed by events of the device: the median over inputs that are larger than its cache. Methods read from a file
in the page cache, twice, and their bytes are compared. What there was no time for is printed as left out.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

TESTS = Path(__file__).parents[1] / "tests"
KERNELS = Path(__file__).parents[1] / "src" / "rankfold" / "kernels"
SECONDS = 460.0
Call = Callable[[int], Any]


@dataclass
class Bench:
    """Rows of a table, and what there was no time for."""

    tiny: bool
    until: float
    facts: dict[str, Any] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    @property
    def xp(self) -> Any:
        """CuPy, or what stands in for it."""
        import cupy

        return cupy

    def rng(self) -> np.random.Generator:
        """Numbers that no run before has seen."""
        return np.random.default_rng(0 if self.tiny else int.from_bytes(os.urandom(4)))

    def normal(self, *shape: int, dtype: Any = np.float32) -> Any:
        """On the device, made there if it is one."""
        if self.tiny:
            return self.xp.asarray(self.rng().standard_normal(shape).astype(dtype))
        seed = int(self.rng().integers(1 << 30))
        return self.xp.random.default_rng(seed).standard_normal(shape, dtype=dtype)

    def seconds(self, call: Call, repeats: int = 7) -> float:
        """Median of a call, by events; ``call`` is told how often it was called before."""
        if self.tiny:
            began = time.perf_counter()
            call(0)
            return time.perf_counter() - began
        for warm in range(2):
            call(warm)
        times, cuda = [], self.xp.cuda
        for repeat in range(repeats):
            start, end = cuda.Event(), cuda.Event()
            start.record()
            call(repeat)
            end.record()
            end.synchronize()
            times.append(cuda.get_elapsed_time(start, end) / 1e3)
        return statistics.median(times)

    def note(
        self, name: str, seconds: float, limit: float | None = None, error: float | None = None, **more: Any
    ) -> None:
        """A row of the table: seconds, those that the limits of the chip allow, and the relative error."""
        row = {"name": name, "seconds": seconds, "limit": limit, "error": error, **more}
        share = "" if limit is None else f"{limit / seconds:5.0%} of the limit"
        wrong = "" if error is None else f"error {error:.0e}"
        words = ", ".join(f"{key} {value}" for key, value in more.items())
        print(f"{name:52s} {seconds * 1e3:10.3f} ms  {share:18s} {wrong:12s} {words}", flush=True)
        self.rows.append(row)

    def part(self, name: str, seconds: float, work: Callable[[Bench], None]) -> None:
        """Do a part if there is time for it; what fails is told, and the rest goes on."""
        if time.monotonic() + seconds > self.until:
            self.left_out.append(f"{name}: no time")
            return
        try:
            work(self)
        except Exception as error:
            if self.tiny:
                raise
            self.left_out.append(f"{name}: {type(error).__name__}: {error}")
        finally:
            self.xp.get_default_memory_pool().free_all_blocks()

    def compute_limit(self, flops: float, nbytes: float, kind: str = "f32") -> float:
        """Seconds that arithmetic or memory takes at least."""
        return max(flops / self.facts[kind], nbytes / self.facts["copy"])


def relative(found: Any, expected: np.ndarray, most: float) -> float:
    """Largest error beside the largest number; no more than ``most``."""
    host = np.asarray(found.get() if hasattr(found, "get") else found, np.float64)
    error = float(np.abs(host - expected).max() / np.abs(expected).max())
    if not error <= most:
        raise ValueError(f"the error is {error:.1e}, at most {most:.0e} is right")
    return error


# Limits -------------------------------------------------------------------------------------------------


def limits(bench: Bench) -> None:
    """Copies, products in each precision, uploads."""
    xp = bench.xp
    from rankfold.kernels.linear.gpu._gemm import multiply

    n, side = (1 << 10, 64) if bench.tiny else (1 << 29, 8192)
    a, b = xp.zeros(n, np.float32), xp.zeros(n, np.float32)
    bench.facts["copy"] = 2 * a.nbytes / bench.seconds(lambda i: xp.copyto(b, a))
    for kind, dtype, tf32 in (("f32", "f4", False), ("tf32", "f4", True), ("f64", "f8", False)):
        x, y = bench.normal(side, side, dtype=dtype), bench.normal(side, side, dtype=dtype)
        out = xp.empty((side, side), dtype)
        seconds = bench.seconds(lambda i, x=x, y=y, out=out, tf32=tf32: multiply(x, y, out=out, tf32=tf32))
        bench.facts[kind] = 2.0 * side**3 / seconds
    import cupyx

    pinned = cupyx.empty_pinned((n,), np.float32)
    pinned[...] = 1
    bench.facts["upload"] = pinned.nbytes / bench.seconds(lambda i: a.set(pinned))
    device = xp.cuda.runtime.getDeviceProperties(0)
    bench.facts |= {"device": device["name"].decode(), "multiprocessors": device["multiProcessorCount"]}
    bench.facts |= {"cupy": xp.__version__, "driver": xp.cuda.runtime.driverGetVersion()}
    print(json.dumps(bench.facts, default=str))


# Kernels ------------------------------------------------------------------------------------------------


def column_sums(bench: Bench) -> None:
    from rankfold.kernels.linear.center_scale import measure

    rows, columns = (300, 40) if bench.tiny else (1 << 17, 2048)
    for dtype in ("float32", "float64", "uint8"):
        sets = [(bench.normal(rows, columns) * 30 + 120).astype(dtype) for _ in range(2)]
        shift = bench.xp.full(columns, 90.0)
        some = sets[0][: min(rows, 1000)]
        exact = ((some.get().astype(np.float64) - 90) ** 2).sum(axis=0)
        error = relative(measure(some, shift, 1.0)[1], exact, 1e-12)
        seconds = bench.seconds(lambda i, sets=sets, shift=shift: measure(sets[i % 2], shift, 1.0))
        bench.note(f"column sums {dtype}", seconds, sets[0].nbytes / bench.facts["copy"], error)


def fused_pass(bench: Bench) -> None:
    from rankfold.kernels.linear.panel import panel_product

    rows, columns, width = (400, 60, 8) if bench.tiny else (1 << 17, 2048, 80)
    grain = 128 if bench.tiny else 8192
    for kind, dtype in (("f32", np.float32), ("f64", np.float64)):
        xp, d, q = (
            bench.xp,
            bench.normal(rows, columns, dtype=dtype),
            bench.normal(columns, width, dtype=dtype),
        )
        y, work, z = (
            xp.empty((grain, width), dtype),
            xp.empty((columns, width), dtype),
            xp.zeros((columns, width)),
        )

        def one(i: int, d: Any = d, q: Any = q, y: Any = y, work: Any = work, z: Any = z) -> None:
            z[...] = 0
            for first in range(0, rows, grain):
                part = d[first : first + grain]
                panel_product(part, q, y=y[: len(part)], z=z, work=work)

        one(0)
        x, right = d.get().astype(np.float64), q.get().astype(np.float64)
        error = relative(z, x.T @ (x @ right), 1e-5 if kind == "f32" else 1e-12)
        limit = bench.compute_limit(4.0 * rows * columns * width, 2.0 * d.nbytes, kind)
        bench.note(
            f"fused pass {kind}, {rows} x {columns}, {width} columns", bench.seconds(one), limit, error
        )


def moments(bench: Bench) -> None:
    from rankfold.kernels.linear.moments import Moments, add_rows

    rows, columns = (100, 30) if bench.tiny else (8192, 2048)
    xp, x = bench.xp, bench.normal(rows, columns)
    zero = xp.zeros(columns)
    out, work = xp.empty((rows + 1, columns)), xp.empty((columns, columns))

    def one(i: int) -> Any:
        total = Moments(0, xp.zeros(columns), xp.zeros((columns, columns)))
        add_rows(total, x, zero, 1.0, out=out, work=work)
        return total.scatter

    host = x.get().astype(np.float64)
    error = relative(one(0), host.T @ host, 1e-10)
    limit = bench.compute_limit(1.0 * rows * columns**2, 8.0 * rows * columns, "f64")
    bench.note(f"moments f64 of a grain of {rows} x {columns}", bench.seconds(one), limit, error)


def coordinate_descent(bench: Bench) -> None:
    from rankfold.kernels.nonnegative.nnls import descend_rows

    sweeps, xp = 10, bench.xp
    for dtype, k in ((np.float32, 32), (np.float32, 64), (np.float32, 128), (np.float64, 64)):
        factor = bench.rng().random((3 * k, k))
        gram, few = xp.asarray((factor.T @ factor / k).astype(dtype)), 100 if bench.tiny else 3000
        b = bench.normal(few, k, dtype=dtype) * 4
        w = xp.zeros((few, k), dtype)
        descend_rows(gram, b, w=w, sweeps=sweeps)
        exact = np.zeros((few, k))
        descend_rows.reference(  # type: ignore[attr-defined]
            gram.get().astype(float), b.get().astype(float), w=exact, sweeps=sweeps
        )
        error = relative(w, exact, 1e-4 if dtype == np.float32 else 1e-10)
        n = few if bench.tiny else 1_000_000
        b, w = bench.normal(n, k, dtype=dtype) * 4, xp.zeros((n, k), dtype)
        limit = bench.compute_limit(
            2.0 * k * k * sweeps * n, 3.0 * w.nbytes, "f32" if dtype == np.float32 else "f64"
        )
        name = f"{np.dtype(dtype).name} k = {k}, {sweeps} sweeps of {n} rows"
        ours = bench.seconds(lambda i, g=gram, b=b, w=w: descend_rows(g, b, w=w, sweeps=sweeps))
        bench.note(f"HALS {name}", ours, limit, error)
        plain = bench.seconds(lambda i, g=gram, b=b, w=w: plain_descent(xp, g, b, w, sweeps), 3)
        bench.note(f"HALS {name}, plain CuPy", plain, limit, times_ours=round(plain / ours, 2))


def plain_descent(xp: Any, gram: Any, b: Any, w: Any, sweeps: int) -> None:
    """What one would write: k products with a column a sweep."""
    for _ in range(sweeps):
        for t in range(len(gram)):
            w[:, t] = xp.maximum(w[:, t] - (w @ gram[:, t] - b[:, t]) / gram[t, t], 0)


def tensor_sums(bench: Bench) -> None:
    """How far sums by tensor cores are from float64, beside the room that bounds of neighbors give them.

    Rows that are hard to add up: of one sign, of numbers that cancel, of a large number first or last, of
    sizes over six orders of magnitude, nearly parallel.
    """
    xp, d = bench.xp, 128
    n, m = (64, 32) if bench.tiny else (8192, 1024)
    texts = (
        (KERNELS / "gpu" / "device.cuh").read_text(),
        Path(__file__).with_name("tf32_sums.cu").read_text(),
    )
    module = xp.RawModule(code="".join(texts), options=("-std=c++17",), name_expressions=("tf32_sums",))
    kernel, out, worst = module.get_function("tf32_sums"), xp.empty((n, m), np.float32), {}
    signs, first = (-1.0) ** np.arange(d), np.ones(d)
    first[0] = 1e6
    kinds: dict[str, tuple[Any, Any]] = {
        "normal": (1.0, 0.0),
        "one sign": (0.1, 1.0),
        "cancel": (1e-4, signs),
        "large first": (first, 0.0),
        "large last": (first[::-1].copy(), 0.0),
        "six orders": (10.0 ** np.linspace(-3, 3, d), 0.0),
        "parallel": (1e-3, np.linspace(1, 2, d)),
    }
    for name, (scale, mean) in kinds.items():
        pair = []
        for rows in (n, m):
            values = bench.normal(rows, d).get() * scale + mean
            bits = values.astype(np.float32).view(np.uint32)
            pair.append(((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32))
        x, y = (xp.asarray(each) for each in pair)
        kernel((n // 16, m // 8), (32,), (x, y, np.int32(d), np.int64(m), out))
        wide = [xp.asarray(each.astype(np.float64)) for each in pair]
        lengths = [xp.sqrt((each * each).sum(axis=1)) for each in wide]
        room = (d + 24) * 2.0**-22 * lengths[0][:, None] * lengths[1]
        worst[name] = float((xp.abs(out.astype(np.float64) - wide[0] @ wide[1].T) / room).max())
    bench.facts["tensor_sums"] = worst
    words = ", ".join(f"{name} {share:.2f}" for name, share in worst.items())
    print(f"sums by tensor cores, {len(kinds) * n * m} pairs: largest share of their bound: {words}")
    if not max(worst.values()) <= 0.5:
        raise ValueError(f"bounds leave no margin: {words}")


def neighbors(bench: Bench) -> None:
    xp, d, k = bench.xp, 128, 15
    small = 400 if bench.tiny else 20_000
    x = bench.normal(small, d)
    keys, ids = search(bench, x, k, small // 3)  # of a block with itself, and of two: both are compiled
    some = bench.rng().choice(small, 50, replace=False)
    host = x.get().astype(np.float64)
    exact = ((host[some, None, :] - host[None]) ** 2).sum(axis=2) if bench.tiny else squares(host, some)
    exact[np.arange(50), some] = np.inf
    order = np.argsort(exact, axis=1, kind="stable")[:, :k]
    if not (np.sort(ids.get()[some], axis=1) == np.sort(order, axis=1)).all():
        raise ValueError("other neighbors than float64 finds")
    error = relative(np.sort(keys.get()[some], axis=1), np.sqrt(np.take_along_axis(exact, order, 1)), 1e-12)
    for n in (small,) if bench.tiny else (262_144, 1_000_000):
        if time.monotonic() + 25 > bench.until:
            bench.left_out.append(f"neighbors of {n} rows: no time")
            continue
        x = bench.normal(n, d)
        began = time.perf_counter()
        search(bench, x, k)
        xp.cuda.Device().synchronize()
        limit = float(n) * n * d / bench.facts["tf32"]
        bench.note(f"neighbors, {n} x {d}, k = {k}", time.perf_counter() - began, limit, error)


def squares(host: np.ndarray, some: np.ndarray) -> np.ndarray:
    return np.stack([((host[row] - host) ** 2).sum(axis=1) for row in some])


def search(bench: Bench, x: Any, k: int, block: int = 65_536) -> tuple[Any, Any]:
    """Lists of rows on the device: every block with itself, then with all that follow."""
    from rankfold.kernels.neighbors.lists import EMPTY
    from rankfold.kernels.neighbors.meeting import Lists, Rows, meet_rows

    xp, n = bench.xp, len(x)
    keys, ids = xp.full((n, k), np.inf), xp.full((n, k), EMPTY, np.int64)
    edges = [*range(0, n, block), n]
    blocks = []
    for first, last in itertools.pairwise(edges):
        raw = x[first:last]
        wide = raw.astype(np.float64)
        rows = Rows(first, raw, None, (wide * wide).sum(axis=1), xp.ones(last - first))
        blocks.append((rows, Lists(keys[first:last], ids[first:last], xp.zeros(1, np.int64))))
    how: dict[str, Any] = {"metric": 0, "shift": None, "precise": False, "room": None}
    for one, lists in blocks:
        meet_rows(one, one, lists_i=lists, lists_j=None, same=True, **how)
    for a, (one, lists) in enumerate(blocks):
        for two, others in blocks[a + 1 :]:
            meet_rows(one, two, lists_i=lists, lists_j=others, same=False, **how)
    return keys, ids


def ranks(bench: Bench) -> None:
    """How many rows are nearer than the k nearest of some: 0, 1, ..., k - 1."""
    from rankfold.kernels.neighbors.meeting import Rows
    from rankfold.kernels.neighbors.ranking import Thresholds, rank_rows

    xp, d, k = bench.xp, 128, 15
    n, some = (400, 90) if bench.tiny else (65_536, 8192)
    x = bench.normal(n, d)
    keys, ids = (each[:some].get() for each in search(bench, x, k))
    order = np.lexsort((ids, keys), axis=1)
    keys, ids = (xp.asarray(np.take_along_axis(each, order, 1)) for each in (keys, ids))
    wide = x.astype(np.float64)
    rows = Rows(0, x, x, (wide * wide).sum(axis=1), xp.ones(n))
    limits = Thresholds(keys, ids, xp.arange(some))
    how: dict[str, Any] = {"metric": 0, "shift": None, "precise": False, "room": None}
    counts, measured = xp.zeros((some, k), np.int64), xp.zeros(1, np.int64)

    def count(i: int) -> None:
        rank_rows(rows.part(0, some), rows, thresholds=limits, counts=counts, measured=measured, **how)

    count(0)
    if not (counts.get() == np.arange(k)).all():
        raise ValueError("other ranks than those of neighbors")
    seconds, pairs = bench.seconds(count), float(some) * n
    limit = bench.compute_limit(2 * pairs * d, 8 * pairs)
    bench.note(f"ranks of {some} rows among {n}, {d} columns, k = {k}", seconds, limit, 0.0)


# Peers --------------------------------------------------------------------------------------------------


def peers(bench: Bench) -> None:
    """PyTorch: distances in tiles and their smallest, a low-rank factorization, plain coordinate descent."""
    if bench.tiny:
        return
    import torch

    n, d, k = 262_144, 128, 15
    x = torch.randn(n, d, device="cuda")

    def nearest(i: int) -> None:
        for first in range(0, n, 8192):
            torch.topk(torch.cdist(x[first : first + 8192], x), k + 1, largest=False)

    def by_clock(call: Call) -> float:
        call(0)
        torch.cuda.synchronize()
        began = time.perf_counter()
        call(1)
        torch.cuda.synchronize()
        return time.perf_counter() - began

    bench.note(f"torch.cdist + topk, {n} x {d}, k = {k}", by_clock(nearest))
    a = torch.randn(1 << 19, 2048, device="cuda")
    seconds = by_clock(lambda i: torch.svd_lowrank(a, q=80, niter=2))
    bench.note("torch.svd_lowrank, 524288 x 2048, q = 80, 5 products", seconds)


# Methods ------------------------------------------------------------------------------------------------


def methods(bench: Bench) -> None:
    """From a file in the page cache: seconds, the same bytes twice, and this machine's host beside it."""
    import rankfold as rf

    rows, columns = (3000, 60) if bench.tiny else (1_000_000, 1024)
    with tempfile.TemporaryDirectory() as folder:
        path, rng = Path(folder) / "x.npy", bench.rng()
        data = np.lib.format.open_memmap(path, "w+", np.float32, (rows, columns))
        right = rng.standard_normal((32, columns)).astype(np.float32)
        for first in range(0, rows, 50_000):
            part = data[first : first + 50_000]
            part[...] = np.abs(rng.standard_normal((len(part), 32), np.float32) @ right + 1)
        del data
        memory = "1GiB" if bench.tiny else "32GiB"
        calls: dict[str, Callable[..., Any]] = {
            "svd rank 64": lambda **where: rf.svd(path, 8 if bench.tiny else 64, solver="krylov", **where),
            "pca rank 64 by moments": lambda **where: rf.pca(
                path, 8 if bench.tiny else 64, solver="gram", **where
            ),
            "nmf rank 32": lambda **where: rf.nmf(path, 4 if bench.tiny else 32, **where),
        }
        for name, call in calls.items():
            if not bench.tiny and time.monotonic() + 80 > bench.until:
                bench.left_out.append(f"{name}: no time")
                continue
            for place, where in (
                ("", {"device": "gpu"}),
                (f", host of {len(os.sched_getaffinity(0))} cores", {}),
            ):
                digests, seconds = set(), []
                for _ in range(2):
                    began = time.perf_counter()
                    result = call(memory=memory, **where)
                    seconds.append(time.perf_counter() - began)
                    digests.add(digest(result))
                if len(digests) != 1:
                    raise ValueError(f"{name}{place} gives other bytes the second time")
                passes, size = result.attrs["passes"], path.stat().st_size
                rate = f"{passes * size / min(seconds) / 1e9:.2f} GB/s"
                words = f"{name}, {rows} x {columns}, {passes} passes{place}"
                bench.note(words, min(seconds), passed=rate)


def digest(result: Any) -> str:
    mark = blake2b(digest_size=8)
    for name in result:
        mark.update(np.ascontiguousarray(np.asarray(result[name])).tobytes())
    return mark.hexdigest()


# The command ----------------------------------------------------------------------------------------------

PARTS: tuple[tuple[str, float, Callable[[Bench], None]], ...] = (
    ("limits", 20, limits),
    ("column sums", 15, column_sums),
    ("fused pass", 25, fused_pass),
    ("moments", 10, moments),
    ("coordinate descent", 50, coordinate_descent),
    ("sums by tensor cores", 15, tensor_sums),
    ("neighbors", 60, neighbors),
    ("ranks", 15, ranks),
    ("peers", 60, peers),
    ("methods", 150, methods),
)


@contextlib.contextmanager
def device(tiny: bool) -> Iterator[None]:
    """The device of this machine, or a stand-in."""
    if not tiny:
        yield
        return
    sys.path.insert(0, str(TESTS))
    from stand_in import installed

    with installed():
        yield


def main() -> int:
    """Run all parts that there is time for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="every check, on a stand-in and on few numbers")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    bench = Bench(options.tiny, time.monotonic() + options.seconds)
    with device(options.tiny):
        for name, seconds, work in PARTS:
            bench.part(name, 0 if options.tiny else seconds, work)
    for each in bench.left_out:
        print(f"left out: {each}")
    if options.out:
        told = {"facts": bench.facts, "rows": bench.rows, "left_out": bench.left_out}
        options.out.write_text(json.dumps(told, indent=1, default=str) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
