"""No command waits, or takes memory without end, whatever has the name of a file that it opens.

Which files these are is found out: each command is given once as it is, and what it opens is written down.
"""

from __future__ import annotations

import functools
import os
import shutil
import signal
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import zarr
from command_line import rankfold
from forked_commands import ForkedCommands
from guises import CLAIMS, GUISES, opened_below, put

SECONDS, MEBIBYTES = 10, 300
"""Most of a command: processor time without imports, and memory with interpreter and imports."""

PATIENCE = 120
"""Seconds on the clock of a machine that does other things as well: what waits, waits for ever."""

CODES = (0, 2, 3, 4, 75)

RUN = ("--memory", "256MiB", "--threads", "1")

FLOW = """\
workflow: small
inputs: {x: x.zarr}
outputs: results
resources: {memory: 256MiB, threads: 1}
stages:
  components: {method: pca, input: x, rank: 2}
  near: {method: knn, input: components.scores, k: 3}
"""

INPUTS = ("x.zarr", "v2.zarr", "sparse.zarr", "x.npy", "x.npz", "x.fbin", "x.bed", "x.h5", "x.h5ad", "x.nc")
TABLES = ("x.csv", "x.csv.gz", "x.parquet", "x.mtx", "packed.npz")

COMMANDS: dict[str, tuple[str, ...]] = {
    **{f"svd {name}": ("svd", name, "--rank", "2", *RUN, "--out", "out.zarr") for name in INPUTS},
    **{f"info {name}": ("info", name) for name in (*INPUTS, "pca.zarr")},
    **{f"import {name}": ("import", name, "out.zarr") for name in (*TABLES, "x.h5", "x.zarr")},
    "plan": ("plan", "svd", "x.zarr", "--rank", "2"),
    "done": ("pca", "x.zarr", "--rank", "2", *RUN, "--out", "pca.zarr"),
    "transform": ("transform", "pca.zarr", "x.zarr", *RUN, "--out", "out.zarr"),
    "reconstruct": ("reconstruct", "pca.zarr", *RUN, "--out", "out.zarr"),
    "check": ("check", "pca.zarr", "x.zarr", *RUN),
    "update": ("pca", "v2.zarr", "--update", "pca.zarr", *RUN, "--out", "out.zarr"),
    "knn": ("knn", "x.zarr", "--k", "3", *RUN, "--out", "out.zarr"),
    "graph": ("fuzzy-graph", "near.zarr", "--k", "3", *RUN, "--out", "out.zarr"),
    "density": ("density", "x.zarr", "--bandwidth", "1", "--weights", "w.npy", *RUN, "--out", "out.zarr"),
    "verify": ("verify", "pca.zarr"),
    "report": ("report", "pca.zarr", "--json"),
    "plot": ("plot", "pca.zarr", "--color", "labels.csv", "--out", "out.png"),
    "plot npy": ("plot", "pca.zarr", "--color", "labels.npy", "--out", "out.png"),
    "export": ("export", "pca.zarr", "--into", "x.h5ad"),
    "export store": ("export", "pca.zarr", "--into", "cells.zarr"),
    "run": ("run", "flow.yaml"),
    "plan flow": ("plan", "flow.yaml"),
    "status": ("status", "flow.yaml"),
    "status result": ("status", "pca.zarr"),
    "logs": ("logs", "flow.yaml"),
    "report flow": ("report", "flow.yaml", "--json"),
    "profile": ("doctor", "--profile", "site.yaml"),
}


def placed(folder: Path, words: tuple[str, ...]) -> list[str]:
    """The words of a command, with names of files in a folder."""
    names = {path.name for path in folder.iterdir()} | {"out.zarr", "out.png"}
    return [str(folder / word) if word in names else word for word in words]


def write_all(folder: Path) -> None:
    """Small files of every kind, and what commands make of them."""
    h5py, anndata, xarray = (pytest.importorskip(name) for name in ("h5py", "anndata", "xarray"))
    pandas, _ = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    import scipy.io

    x = np.random.default_rng(0).standard_normal((60, 6)).astype(np.float32)
    few = scipy.sparse.random(60, 6, density=0.3, random_state=0, format="csr", dtype=np.float32)
    for name, version in (("x.zarr", 3), ("v2.zarr", 2)):
        zarr.create_array(
            folder / name, shape=x.shape, chunks=(20, 6), dtype="f4", zarr_format=version
        )[...] = x  # fmt: skip
    anndata.AnnData(few).write_zarr(folder / "cells.zarr")
    group = zarr.open_group(folder / "sparse.zarr", mode="w")
    group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [60, 6]})
    for name in ("data", "indices", "indptr"):
        group.create_array(name, data=getattr(few, name))
    np.save(folder / "x.npy", x)
    np.savez(folder / "x.npz", x=x)
    np.savez_compressed(folder / "packed.npz", x=x)
    (folder / "x.fbin").write_bytes(np.array(x.shape, "<u4").tobytes() + x.tobytes())
    (folder / "x.bed").write_bytes(b"\x6c\x1b\x01" + bytes(6 * 15))
    (folder / "x.fam").write_text("".join(f"0 P{i} 0 0 0 -9\n" for i in range(60)))
    (folder / "x.bim").write_text("".join(f"1 rs{i} 0 {i} A G\n" for i in range(6)))
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("x", data=x, chunks=(20, 6), compression="gzip")
    anndata.AnnData(x).write_h5ad(folder / "x.h5ad")
    xarray.DataArray(x, dims=("time", "place"), name="x").to_dataset().to_netcdf(folder / "x.nc")
    frame = pandas.DataFrame(x, columns=list("abcdef"))
    frame.to_csv(folder / "x.csv", index=False)
    frame.to_csv(folder / "x.csv.gz", index=False)
    frame.to_parquet(folder / "x.parquet")
    scipy.io.mmwrite(folder / "x.mtx", few)
    np.save(folder / "w.npy", np.abs(x[:, 0]) + 1)
    np.save(folder / "labels.npy", np.arange(60) % 3)
    frame[["a"]].to_csv(folder / "labels.csv", index=False)
    (folder / "flow.yaml").write_text(FLOW)
    (folder / "site.yaml").write_text("cores: 2\nmemory: 4GiB\nwalltime: 01:00:00\n")
    for words in (
        ("pca", "x.zarr", "--rank", "2", *RUN, "--out", "pca.zarr"),
        ("knn", "x.zarr", "--k", "5", *RUN, "--out", "near.zarr"),
        ("run", "flow.yaml"),
    ):
        names = {*os.listdir(folder), "pca.zarr", "near.zarr"}
        made = rankfold(*(folder / word if word in names else word for word in words))
        assert made.exit_code == 0, made.output


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """A folder of files, kept, and the place where they are copied to, where results were made."""
    kept, folder = tmp_path_factory.mktemp("kept") / "files", tmp_path_factory.mktemp("used") / "files"
    folder.mkdir()
    write_all(folder)
    shutil.copytree(folder, kept)
    yield kept, folder
    shutil.rmtree(folder, ignore_errors=True)


def fresh(pristine: tuple[Path, Path]) -> Path:
    """The folder as it was."""
    kept, folder = pristine
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(kept, folder)
    return folder


def opened(pristine: tuple[Path, Path], name: str) -> list[str]:
    """Files that a command opens, by their paths in the folder."""
    folder = fresh(pristine)
    with opened_below(folder) as found:
        run = rankfold(*placed(folder, COMMANDS[name]))
    # A site may have a SLURM that does not answer, which is what ``doctor`` is for.
    assert run.exit_code == 0 or COMMANDS[name][0] == "doctor", run.output
    assert found, "nothing is opened"
    return sorted(path.relative_to(folder).as_posix() for path in found)


def of_each_kind(paths: list[str]) -> list[str]:
    """One file of each name, and one chunk, of every store: the others are opened by the same lines."""
    kinds = {(*path.split(".zarr")[:-1], path.rpartition("/")[2].strip("0123456789")): path for path in paths}
    return sorted(kinds.values())


def late(*_: object) -> None:
    raise TimeoutError(f"over {PATIENCE} s")


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_waits_for_what_is_no_file(pristine: tuple[Path, Path], name: str) -> None:
    """Each file in turn is a pipe, and something else that is no file."""
    before = signal.signal(signal.SIGALRM, late)
    try:
        for number, path in enumerate(of_each_kind(opened(pristine, name))):
            for guise in ("pipe", list(GUISES)[1 + number % (len(GUISES) - 1)]):
                folder = fresh(pristine)
                put(folder / path, guise)
                signal.alarm(PATIENCE)
                run = rankfold(*placed(folder, COMMANDS[name]))
                signal.alarm(0)
                said = f"{name}, {path}: {guise}: {run.exit_code} {run.output} {run.exception!r}"
                assert run.exit_code in CODES and isinstance(run.exception, SystemExit | None), said
                assert run.exit_code == 0 or run.stderr.count("rankfold: ") == 1, said
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@functools.lru_cache(maxsize=1)
def forks(words: tuple[str, ...]) -> ForkedCommands:
    """Of one command at a time, which is ended when it is forgotten."""
    commands = ForkedCommands(words)
    weakref.finalize(commands, commands.close)
    return commands


@pytest.mark.exhaustive
@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("guise", [*GUISES, *CLAIMS])
@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_ends_in_little_time_and_memory(
    pristine: tuple[Path, Path], name: str, guise: str
) -> None:
    paths = opened(pristine, name)
    words = tuple(placed(fresh(pristine), COMMANDS[name]))
    commands = forks(words)
    for path in paths:
        folder = fresh(pristine)
        if not put(folder / path, guise):
            continue
        ended = commands.run(words, PATIENCE)
        said = f"{name}, {path}: {guise}: {ended.code} after {ended.seconds:.1f} s: {ended.err}"
        assert ended.code in CODES and "Traceback" not in ended.err, said
        assert ended.seconds <= SECONDS, said
        assert ended.peak <= MEBIBYTES * 1024, f"{ended.peak / 1024:.0f} MiB: {said}"
