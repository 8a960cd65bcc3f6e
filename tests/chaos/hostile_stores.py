"""Stores and files that are not what their names promise: metadata, headers and chunks, changed at random.

Each function writes one into a folder, and says with which command it is read and what is wrong with it.
"""

from __future__ import annotations

import json
import random
import shutil
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import zarr
from attacks.damage import GARBAGE, edited

ROWS, COLUMNS = 300, 20
DEEP = "[" * 5000 + "]" * 5000
NUMBERS = (-1, 0, 1, 3, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 10**30, 1e30, 1e300, True, "7", None, DEEP)
Drawn = tuple[list[str], str]
"""The words of a command, and what is odd about it."""


def _reading(store: str, draw: random.Random) -> list[str]:
    """A command that reads a matrix."""
    return draw.choice(
        (
            ["info", store],
            ["plan", "svd", store, "--rank", "3"],
            ["svd", store, "--rank", "3", "--memory", "500MiB", "--out", "out.zarr"],
            ["pca", store, "--tol", "0.5", "--memory", "500MiB", "--out", "out.zarr"],
            ["knn", store, "--k", "3", "--memory", "500MiB", "--out", "out.zarr"],
            ["import", store, "out.zarr"],
        )
    )


def matrix() -> np.ndarray:
    """A small matrix, the same every time."""
    return np.random.default_rng(0).random((ROWS, COLUMNS)).astype(np.float32)


def zarr_array(folder: Path, draw: random.Random, version: int) -> Drawn:
    """An array whose metadata or chunks were changed."""
    codec = draw.choice((None, "gzip", "zstd"))
    name = {None: None, "gzip": "GzipCodec", "zstd": "ZstdCodec"}[codec]
    options: dict[str, Any] = {"compressors": None if name is None else getattr(zarr.codecs, name)()}
    if version == 2:
        import numcodecs

        options = {
            "compressors": None
            if codec is None
            else {"gzip": numcodecs.GZip, "zstd": numcodecs.Zstd}[codec]()
        }
    array = zarr.create_array(
        folder / "x.zarr",
        shape=(ROWS, COLUMNS),
        chunks=(100, COLUMNS),
        dtype="f4",
        zarr_format=version,
        **options,
    )
    array[...] = matrix()
    files = [path for path in (folder / "x.zarr").rglob("*") if path.is_file()]
    metadata = [path for path in files if path.name in ("zarr.json", ".zarray")]
    chunks = sorted(path for path in files if path not in metadata and not path.name.startswith(".z"))
    of_metadata = draw.random() < 0.6
    what = _edit_json(metadata[0], draw) if of_metadata else _spoil(draw.choice(chunks), draw, codec)
    return _reading("x.zarr", draw), what


def _edit_json(path: Path, draw: random.Random) -> str:
    how = draw.choice(("edited", "edited", "edited", "number", "garbage", "deep", "UTF-16"))
    value = json.loads(path.read_text())
    if how == "edited":
        value = edited(value, draw)
        path.write_text(json.dumps(value))
    elif how == "number":
        key = draw.choice(("shape", "chunks", "chunk_shape"))
        number = draw.choice(NUMBERS)
        _replace(value, key, draw.choice(([number, COLUMNS], [number], number)))
        path.write_text(json.dumps(value))
        return f"{path.name}: {key} {str(number)[:20]}"
    elif how == "garbage":
        how = draw.choice(sorted(GARBAGE))
        path.write_bytes(GARBAGE[how])
    elif how == "deep":
        path.write_text(json.dumps(value)[:-1] + ', "deep": ' + DEEP + "}")
    else:
        path.write_bytes(json.dumps(value).encode("utf-16"))
    return f"{path.name}: {how}"


def _replace(value: Any, name: str, by: Any) -> None:
    """Put a value in every place of that name."""
    if isinstance(value, dict):
        for key in value:
            if key == name:
                value[key] = by
            else:
                _replace(value[key], name, by)


def _spoil(path: Path, draw: random.Random, codec: str | None) -> str:
    data = path.read_bytes()
    how = draw.choice(("half", "empty", "more", "a folder", "a link to itself", "garbage", "bomb", "removed"))
    if how == "half":
        path.write_bytes(data[: len(data) // 2])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "more":
        path.write_bytes(data + bytes(1000))
    elif how == "garbage":
        path.write_bytes(draw.randbytes(len(data)))
    elif how == "bomb":
        how = f"bomb, {codec}"
        path.write_bytes(_bomb(codec))
    else:
        path.unlink()
        if how == "a folder":
            path.mkdir()
        elif how == "a link to itself":
            path.symlink_to(path.name)
    return f"chunk: {how}"


def _bomb(codec: str | None) -> bytes:
    """Two gigabytes of zeros, compressed."""
    if codec == "gzip":
        packer = zlib.compressobj(9, zlib.DEFLATED, 31)
        return b"".join(packer.compress(bytes(2**24)) for _ in range(128)) + packer.flush()
    if codec == "zstd":
        import numcodecs

        # A frame may follow another: zeros of 16 MiB, many times.
        return bytes(numcodecs.Zstd(1).encode(bytes(2**24))) * 128
    return bytes(2**24)


def csr(folder: Path, draw: random.Random) -> Drawn:
    """A sparse matrix in AnnData's layout, changed."""
    sparse = scipy.sparse.random(ROWS, COLUMNS, 0.2, "csr", np.float32, random_state=0)
    group = zarr.open_group(folder / "x.zarr", mode="w", zarr_format=3)
    group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [ROWS, COLUMNS]})
    parts = {"data": sparse.data, "indices": sparse.indices, "indptr": sparse.indptr}
    how = draw.choice(("metadata", "metadata", "values", "type", "shape", "removed"))
    name = draw.choice(sorted(parts))
    if how == "values":
        parts[name] = parts[name].copy()
        parts[name][draw.randrange(len(parts[name]))] = draw.choice((-1, 2**30, 10**6))
    elif how == "type":
        parts[name] = parts[name].astype(draw.choice(("f8", "i1", "?", "c8")))
    elif how == "shape":
        parts[name] = draw.choice((parts[name][:, None], parts[name][:-1], parts[name][:0]))
    for one, values in parts.items():
        array = zarr.create_array(
            folder / "x.zarr" / one,
            shape=values.shape,
            dtype=values.dtype,
            chunks=tuple(max(1, n) for n in values.shape),
        )
        if values.size:
            array[...] = values
    if how == "removed":
        shutil.rmtree(folder / "x.zarr" / name)
    if how == "metadata":
        return _reading("x.zarr", draw), _edit_json(
            draw.choice(sorted((folder / "x.zarr").rglob("zarr.json"))), draw
        )
    return _reading("x.zarr", draw), f"{name}: {how}"


def npy(folder: Path, draw: random.Random) -> Drawn:
    """A file of NumPy with another header."""
    shape = draw.choice(
        (
            "(-1, 20)",
            "(300, 20, 1)",
            "(10**30, 20)",
            f"({10**18}, 20)",
            "(True, 20)",
            "()",
            "(300,)",
            "None",
            "(300, 20",
            "'x'",
        )
    )
    kind = draw.choice(("<f4", "<f4", "|O", "<U7", "V3", "<m8", ">f4", "nonsense", "<f4\x00"))
    header = f"{{'descr': {kind!r}, 'fortran_order': {draw.choice((True, False, 3))}, 'shape': {shape}, }}"
    text = header.encode() + b"\n"
    length = draw.choice((*[len(text)] * 6, 10, 60_000))
    data = b"\x93NUMPY" + (b"\1\0" if draw.random() < 0.9 else b"\7\7") + struct.pack("<H", length) + text
    (folder / "x.npy").write_bytes(data + matrix().tobytes())
    return _reading("x.npy", draw), f"header: {kind} {shape}"


def other_file(folder: Path, draw: random.Random) -> Drawn:
    """A file of another format, cut, flipped, or not of that format at all."""
    suffix = draw.choice(
        (".csv", ".tsv", ".npz", ".fbin", ".u8bin", ".mtx", ".parquet", ".h5", ".nc", ".npy")
    )
    path = folder / f"x{suffix}"
    how = draw.choice(("garbage", "header", "cut", "flipped", "random", "empty"))
    data = _valid(suffix, folder)
    if how == "garbage":
        how = draw.choice(sorted(GARBAGE))
        data = GARBAGE[how]
    elif how == "header":
        data = (
            draw.choice((struct.pack("<II", 2**32 - 1, 20), struct.pack("<II", 2**32 - 1, 2**32 - 1)))
            + data[8:]
        )
    elif how == "cut":
        data = data[: draw.randrange(len(data))]
    elif how == "flipped":
        at = draw.randrange(min(len(data), 200))
        data = data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]
    elif how == "random":
        data = draw.randbytes(3000)
    else:
        data = b""
    path.write_bytes(data)
    words = ["import", path.name, "out.zarr"] if draw.random() < 0.6 else _reading(path.name, draw)
    return words, f"{suffix}: {how}"


def _valid(suffix: str, folder: Path) -> bytes:
    x, path = matrix(), folder / f"valid{suffix}"
    if suffix in (".csv", ".tsv"):
        np.savetxt(path, x, delimiter="," if suffix == ".csv" else "\t")
    elif suffix == ".npz":
        scipy.sparse.save_npz(path, scipy.sparse.csr_array(x))
    elif suffix in (".fbin", ".u8bin"):
        path.write_bytes(struct.pack("<II", *x.shape) + (x.tobytes() if suffix == ".fbin" else bytes(x.size)))
    elif suffix == ".mtx":
        rows = "\n".join(f"{i + 1} {j + 1} {x[i, j]}" for i in range(30) for j in range(5))
        path.write_text(f"%%MatrixMarket matrix coordinate real general\n30 5 150\n{rows}\n")
    elif suffix == ".h5":
        import h5py

        with h5py.File(path, "w") as file:
            file["X"] = x
    elif suffix == ".parquet":
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.table({f"c{j}": x[:, j] for j in range(5)}), path)
    else:
        np.save(folder / "valid.npy", x)
        return (folder / "valid.npy").read_bytes()
    return path.read_bytes()
