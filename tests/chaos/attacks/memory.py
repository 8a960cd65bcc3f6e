"""Memory of commands on matrices that lie in every way: measured within planned, and planned not far above.

A matrix is drawn: its type, its shape, its chunks and how these are encoded; a method, threads, and memory
between the least that the plan takes and five times that. The command runs in an interpreter of its own, and
says what it planned and measured. Measured must be within planned. Where the matrix is larger than the plan,
and the plan above 64 MiB, planned must be within three times measured: who has the memory is not refused.

The trap: what a process holds varies by some MiB between equal runs.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from command_client import PATIENCE, CommandLine, Outcome
from trials import FAULT, SAME, Bench, Trial, chance, judge

MIB = 2**20

LOWEST_PLAN = 64 * MIB
"""Smaller plans are not too large for anybody."""

LARGEST_RATIO = 3
"""Of planned to measured, where the matrix is larger than the plan."""


class FolderBench(Bench):
    """A folder without inputs, which are drawn, and a server for commands whose memory is not looked at."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.trial = folder, folder / "trial"
        self.line = CommandLine(folder / "server")

    def __exit__(self, *_: object) -> None:
        self.line.close()
        shutil.rmtree(self.trial, ignore_errors=True)

    def clear(self) -> None:
        """An empty folder for the next trial."""
        shutil.rmtree(self.trial, ignore_errors=True)
        self.trial.mkdir()


# What is drawn ------------------------------------------------------------------------------------


REAL = ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1")
ALL = (*REAL, "c8", "c16")
INPUT_MIB = (12, 40, 96)

Shape = Callable[[random.Random, int], tuple[int, int]]
"""Of so many numbers."""


def tall(draw: random.Random, numbers: int) -> tuple[int, int]:
    """Many rows of few columns."""
    columns = draw.choice((20, 77, 300))
    return numbers // columns, columns


def square(draw: random.Random, numbers: int) -> tuple[int, int]:
    """About as many rows as columns."""
    rows = int(numbers**0.5 * draw.choice((0.6, 1, 1.6)))
    return rows, numbers // rows


def wide(draw: random.Random, numbers: int) -> tuple[int, int]:
    """Few rows of many columns."""
    rows = draw.choice((60, 250, 1000))
    return rows, numbers // rows


def few_rows(draw: random.Random, numbers: int) -> tuple[int, int]:
    """So few rows that all of them can meet."""
    rows = draw.choice((200, 600, 1500))
    return rows, numbers // rows


def points(draw: random.Random, numbers: int) -> tuple[int, int]:
    """In three dimensions."""
    return min(numbers // 3, 100_000), 3


@dataclass(frozen=True, slots=True)
class Command:
    """A method with options, and what it takes."""

    words: tuple[str, ...]
    """``{x}`` is the matrix, ``{first}`` the result of ``before``."""

    before: tuple[str, ...] = ()
    """A command on the matrix that comes first, whose memory is not looked at."""

    types: tuple[str, ...] = REAL
    shapes: tuple[Shape, ...] = (tall, square, wide)

    @property
    def name(self) -> str:
        """For tables: the method and its solver."""
        at = self.words.index("--solver") + 1 if "--solver" in self.words else 0
        return f"{self.words[0]} {self.words[at]}" if at else self.words[0]


_FEW = {"shapes": (few_rows,)}
_POINTS: dict[str, Any] = {"shapes": (points,), "types": ("f2", "f4", "f8", "i2")}
_PCA = ("pca", "{x}", "--rank", "6", "--passes", "3")
_LISTS = ("knn", "{x}", "--k", "15")

COMMANDS: tuple[Command, ...] = (
    *(
        Command((kind, "{x}", "--rank", "8", "--passes", "4", "--solver", solver), types=ALL)
        for kind in ("svd", "pca")
        for solver in ("auto", "gram", "krylov", "subspace", "sketch", "tsqr")
    ),
    Command(("svd", "{x}", "--rank", "5", "--passes", "12", "--solver", "lanczos"), types=ALL),
    Command(("pca", "{x}", "--rank", "4", "--passes", "3", "--scale", "--precision", "float64")),
    Command(("qr", "{x}"), types=ALL, shapes=(tall,)),
    Command(("nmf", "{x}", "--rank", "5", "--passes", "4")),
    Command(("nmf", "{x}", "--rank", "5", "--passes", "4", "--loss", "kullback-leibler")),
    Command(("kmeans", "{x}", "--k", "7", "--passes", "4")),
    Command(("kmeans", "{x}", "--k", "40", "--passes", "4", "--n-init", "2")),
    Command(("kmeans", "{x}", "--k", "7", "--passes", "3", "--batch-rows", "400")),
    Command(_LISTS, **_FEW),
    Command((*_LISTS, "--metric", "cosine"), **_FEW),
    Command((*_LISTS, "--min-recall", "0.8", "--partition-rows", "300"), **_FEW),
    Command(("radius-neighbors", "{x}", "--radius", "0.02", "--max-edges", "3000000"), **_POINTS),
    Command(("index", "{x}", "--partition-rows", "300"), **_FEW),
    Command(("density", "{x}", "--bandwidth", "0.2", "--tol", "0.01"), **_POINTS),
    Command(("kernel-pca", "{x}", "--rank", "3", "--tol", "1e-2"), **_FEW),
    Command(("nystroem", "{x}", "--rank", "20")),
    Command(("transform", "{first}", "{x}"), before=_PCA),
    Command(("reconstruct", "{first}"), before=_PCA),
    # Of several thousand rows and columns it would take their cube of work: minutes.
    Command(("pca", "{x}", "--update", "{first}"), before=_PCA, shapes=(tall, wide)),
    Command(("umap", "{first}", "--n-epochs", "10"), before=_LISTS, **_FEW),
    Command(("tsne", "{first}", "--perplexity", "5", "--n-iter", "30"), before=_LISTS, **_FEW),
    Command(("spectral", "{first}"), before=_LISTS, **_FEW),
    Command(("isomap", "{first}", "--n-landmarks", "60"), before=_LISTS, **_FEW),
)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A matrix in numbers and words, and what is done with it."""

    command: Command
    dtype: np.dtype[Any]
    shape: tuple[int, int]
    chunks: tuple[int, int]
    codec: str
    is_noise: bool
    threads: int
    slack: float
    """Memory that is given, by the least there can be."""

    @property
    def matrix(self) -> str:
        """In words."""
        (rows, columns), (down, across) = self.shape, self.chunks
        kind = "noise" if self.is_noise else "few values"
        return f"{rows} x {columns} {self.dtype} of {kind} in {down} x {across}, {self.codec}"

    @property
    def nbytes(self) -> int:
        """Of all numbers."""
        return self.shape[0] * self.shape[1] * self.dtype.itemsize


def drawn(draw: random.Random, command: Command) -> Drawn:
    """A matrix for a command, and how it is run."""
    dtype = np.dtype(draw.choice(command.types))
    size = draw.choice(INPUT_MIB) * MIB
    rows, columns = draw.choice(command.shapes)(draw, size // dtype.itemsize)
    chunks = _chunks(draw, rows, columns, dtype.itemsize)
    # Packed numbers are of few values, and filters of version 2 are of numbers that they fit.
    codecs = [name for name, each in CODECS.items() if dtype.kind in each.kinds]
    codec = draw.choice(codecs)
    threads, slack = draw.choice((1, 2, 4)), draw.choice((1, 1, 1, 1.3, 2, 5))
    return Drawn(command, dtype, (rows, columns), chunks, codec, draw.random() < 0.5, threads, slack)


def _chunks(draw: random.Random, rows: int, columns: int, itemsize: int) -> tuple[int, int]:
    """Tall, wide, even or odd ones, of 16 KiB to 8 MiB."""
    numbers = int(2 ** draw.uniform(14, 23)) // itemsize
    form = draw.choice(("tall", "wide", "even", "odd"))
    if form == "wide":
        across = min(columns, numbers)
    elif form == "tall":
        across = max(1, min(columns, 16, numbers))
    else:
        across = min(columns, max(1, int(numbers**0.5)))
    across = max(across, -(-columns // 100))  # no more than some thousand files
    down = min(rows, max(1, numbers // across, -(-rows // 50)))
    return (down, across) if form != "odd" else (max(1, down * 2 // 3 | 1), max(1, across * 3 // 4 | 1))


@dataclass(frozen=True, slots=True)
class Codec:
    """Options of ``zarr.create_array``, by chunk and type."""

    options: Callable[[tuple[int, int], np.dtype[Any]], dict[str, Any]]
    kinds: str = "fciub"


def _version_3(*codecs: Callable[[], Any], **more: Any) -> Codec:
    return Codec(lambda chunks, dtype: {"compressors": [each() for each in codecs] or None, **more})


def _version_2(compressor: Callable[[], Any] | None, **more: Any) -> Codec:
    return Codec(
        lambda chunks, dtype: {
            "compressors": None if compressor is None else compressor(),
            "zarr_format": 2,
            **more,
        }
    )


def _filtered(kinds: str, make: Callable[[np.dtype[Any]], list[Any]]) -> Codec:
    import numcodecs

    def options(chunks: tuple[int, int], dtype: np.dtype[Any]) -> dict[str, Any]:
        return {"zarr_format": 2, "filters": make(dtype), "compressors": numcodecs.Zstd(1)}

    return Codec(options, kinds)


def _sharded(codec: Callable[[], Any] | None) -> Codec:
    def options(chunks: tuple[int, int], dtype: np.dtype[Any]) -> dict[str, Any]:
        return {"shards": (2 * chunks[0], 3 * chunks[1]), "compressors": [codec()] if codec else None}

    return Codec(options)


def _codecs() -> dict[str, Codec]:
    """By name."""
    import numcodecs
    from zarr.codecs import BloscCodec, Crc32cCodec, GzipCodec, TransposeCodec, ZstdCodec

    return {
        "none": _version_3(),
        "zstd": _version_3(lambda: ZstdCodec(level=1)),
        "gzip": _version_3(lambda: GzipCodec(level=1)),
        "crc32c": _version_3(Crc32cCodec),
        "zstd, crc32c": _version_3(lambda: ZstdCodec(level=1), Crc32cCodec),
        "transpose, zstd": _version_3(lambda: ZstdCodec(level=1), filters=[TransposeCodec(order=(1, 0))]),
        **{
            f"blosc {name} {shuffle}": _version_3(
                lambda name=name, shuffle=shuffle: BloscCodec(cname=name, clevel=1, shuffle=shuffle)
            )
            for name, shuffle in (("lz4", "shuffle"), ("zstd", "bitshuffle"), ("lz4hc", "noshuffle"))
        },
        "shards": _sharded(None),
        "shards of zstd": _sharded(lambda: ZstdCodec(level=1)),
        "shards of gzip": _sharded(lambda: GzipCodec(level=1)),
        "v2": _version_2(None),
        "v2, F": _version_2(None, order="F"),
        "v2 zlib": _version_2(lambda: numcodecs.Zlib(1)),
        "v2 bz2": _version_2(lambda: numcodecs.BZ2(1)),
        "v2 lz4": _version_2(numcodecs.LZ4),
        "v2 zstd": _version_2(lambda: numcodecs.Zstd(1)),
        "v2 lzma": _version_2(lambda: numcodecs.LZMA(preset=0)),
        "v2 blosc, F": _version_2(lambda: numcodecs.Blosc("lz4", 1), order="F"),
        "v2 delta": _filtered("iu", lambda dtype: [numcodecs.Delta(dtype)]),
        "v2 shuffle": _filtered("fciu", lambda dtype: [numcodecs.Shuffle(dtype.itemsize)]),
        "v2 fixed scale": _filtered(
            "f", lambda dtype: [numcodecs.FixedScaleOffset(0, 16, dtype=dtype, astype="i2")]
        ),
    }


CODECS = _codecs()


def write_matrix(path: Path, draw: Drawn, seed: int) -> None:
    """Nonnegative numbers, a band of rows at a time."""
    import zarr

    options = CODECS[draw.codec].options(draw.chunks, draw.dtype)
    array = zarr.create_array(path, shape=draw.shape, chunks=draw.chunks, dtype=draw.dtype, **options)
    rows = array.shards[0] if array.shards else array.chunks[0]
    rows *= max(1, 16 * MIB // (rows * draw.shape[1] * draw.dtype.itemsize))
    rng = np.random.default_rng(seed)
    for start in range(0, draw.shape[0], rows):
        shape = min(rows, draw.shape[0] - start), draw.shape[1]
        array[start : start + rows] = _numbers(rng, shape, draw.dtype, is_noise=draw.is_noise)


def _numbers(
    rng: np.random.Generator, shape: tuple[int, int], dtype: np.dtype[Any], *, is_noise: bool
) -> npt.NDArray[Any]:
    if dtype.kind == "b":
        return rng.random(shape, np.float32) < (0.5 if is_noise else 0.03)
    if dtype.kind in "iu":
        return rng.integers(0, 100 if is_noise else 3, shape, dtype)
    x = rng.random(shape, np.float32)
    x = x if is_noise else np.round(4 * x) / 4
    return (x + 1j * x[::-1] if dtype.kind == "c" else x).astype(dtype)


# Trials -------------------------------------------------------------------------------------------


def memory(bench: Bench, seed: int, number: int) -> Trial:
    """One trial: a matrix and a command, and whether the plan was right."""
    draw, began = chance("memory", seed, number), time.monotonic()
    order = random.Random(seed).sample(COMMANDS, len(COMMANDS))
    case = drawn(draw, order[number % len(order)])
    bench.clear()
    write_matrix(bench.trial / "x.zarr", case, number)
    outcome, given = _command(bench, case)
    verdict, words = judge(outcome, "" if outcome.code == 0 else None)
    if verdict == SAME:
        verdict, words = within(*measured(bench.trial / "r.zarr"), case.nbytes)
    how = f"{case.threads} threads, {given} MiB"
    seconds = time.monotonic() - began
    return Trial(
        "memory", seed, number, case.command.name, how, case.matrix, verdict, outcome.code, words, seconds
    )


def within(planned: int, peak: int, nbytes: int) -> tuple[str, str]:
    """A verdict on a run on a matrix of so many bytes, and the numbers."""
    words = f"planned {planned / MIB:.0f}, measured {peak / MIB:.0f}, matrix {nbytes / MIB:.0f} MiB"
    if peak > planned:
        return FAULT, f"more than planned: {words}"
    if nbytes > planned > max(LOWEST_PLAN, LARGEST_RATIO * peak):
        return FAULT, f"less than a third of what is planned: {words}"
    return SAME, words


def missing_measure() -> str | None:
    """Why memory cannot be compared with the plan here; None if it can."""
    return None if Path("/proc/self/status").exists() else "anonymous memory is told on Linux alone"


def measured(result: Path) -> tuple[int, int]:
    """Planned and measured bytes of the run that made a result."""
    last = json.loads(result.with_name(f"{result.name}.run").joinpath("run.json").read_text())["attempts"][-1]
    return last["planned_bytes"], last["measured_bytes"]


def _command(bench: Bench, case: Drawn) -> tuple[Outcome, int]:
    """Give the command as little memory as it takes, as a refusal says it, or more; and how many MiB."""
    x, first, out = (str(bench.trial / name) for name in ("x.zarr", "first.zarr", "r.zarr"))
    names = {"{x}": x, "{first}": first}
    if case.command.before:
        words = [names.get(word, word) for word in case.command.before]
        words += ["--threads", "2", "--memory", "2GiB", "--out", first]
        outcome = bench.line.run(words, bench.folder)
        if outcome.code:
            return outcome, 0
    words = [names.get(word, word) for word in case.command.words]
    words += ["--threads", str(case.threads), "--out", out]
    outcome = bench.line.run([*words, "--memory", "1MiB"], bench.folder)
    least = re.search(r"Give --memory (\d+)MiB", outcome.err)
    given = int(int(least[1]) * case.slack) if least else 512
    return run([*words, "--memory", f"{given}MiB"]), given


def run(words: Sequence[str]) -> Outcome:
    """A command in an interpreter of its own."""
    began = time.monotonic()
    # Python's warnings are no answer: of a matrix of noise nothing converges.
    env = {**os.environ, "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "rankfold", *words]
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return Outcome(-1, "", "", PATIENCE, expired=True)
    return Outcome(done.returncode, done.stdout, done.stderr, time.monotonic() - began)
