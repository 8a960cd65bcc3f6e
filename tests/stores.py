"""The same matrix in every kind of store, and a reader that notices what it must not touch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numcodecs
import numpy as np
import numpy.typing as npt
import zarr
from zarr.codecs import (
    BloscCodec,
    BytesCodec,
    Crc32cCodec,
    GzipCodec,
    ShardingCodec,
    TransposeCodec,
    ZstdCodec,
)

from rankfold.pipeline.data.source import Source

Matrix = npt.NDArray[Any]
ROWS, COLUMNS = 53, 37


def numbers(dtype: str = "<f4") -> Matrix:
    return np.random.default_rng(5).integers(0, 100, (ROWS, COLUMNS)).astype(dtype)


def zarr_store(path: Path, x: Matrix, **options: Any) -> Path:
    options = {"chunks": (10, COLUMNS), "compressors": None, **options}
    if options.get("serializer"):
        options["dtype"] = x.dtype.newbyteorder("<")
    array = zarr.create_array(
        path, **{"shape": x.shape, "dtype": x.dtype, "config": {"write_empty_chunks": True}, **options}
    )
    array[:] = x
    return path


def v3(**options: Any) -> Callable[[Path, Matrix], Any]:
    return lambda folder, x: zarr_store(folder / "x.zarr", x, **options)


def v2(**options: Any) -> Callable[[Path, Matrix], Any]:
    return v3(zarr_format=2, **options)


def npy(
    order: str = "C", dtype: str = "<f4", version: tuple[int, int] = (1, 0)
) -> Callable[[Path, Matrix], Any]:
    def make(folder: Path, x: Matrix) -> Any:
        with open(folder / "x.npy", "wb") as file:
            np.lib.format.write_array(file, np.asarray(x, dtype, order=order), version=version)  # type: ignore[call-overload]
        return folder / "x.npy"

    return make


LZ4 = BloscCodec(cname="lz4", shuffle="shuffle", typesize=4)
PLAIN = ShardingCodec(
    chunk_shape=(5, 10), codecs=[BytesCodec()], index_location="start", index_codecs=[BytesCodec()]
)
KINDS: dict[str, Callable[[Path, Matrix], Any]] = {
    "v3 rows": v3(),
    "v3 columns": v3(chunks=(ROWS, 7)),
    "v3 cells": v3(chunks=(10, 8)),
    "v3 chunk larger than the array": v3(chunks=(100, 100)),
    "v3 keys as in v2": v3(chunks=(10, 8), chunk_key_encoding={"name": "v2", "separator": "."}),
    "v3 keys with dots": v3(chunks=(10, 8), chunk_key_encoding={"name": "default", "separator": "."}),
    "v3 big endian": v3(chunks=(10, 8), serializer=BytesCodec(endian="big")),
    "v3 blosc rows": v3(compressors=LZ4),
    "v3 blosc cells": v3(chunks=(10, 8), compressors=LZ4),
    "v3 zstd big endian": v3(
        chunks=(10, 8), serializer=BytesCodec(endian="big"), compressors=ZstdCodec(level=1)
    ),
    "v3 gzip": v3(chunks=(10, 8), compressors=GzipCodec(level=1)),
    "v3 zstd with checksum": v3(
        chunks=(10, 8), compressors=[ZstdCodec(level=1, checksum=True), Crc32cCodec()]
    ),
    "v3 transposed": v3(chunks=(10, 8), filters=TransposeCodec(order=(1, 0))),
    "v3 shards": v3(chunks=(5, 10), shards=(20, 20)),
    "v3 shards of blosc": v3(chunks=(5, COLUMNS), shards=(20, COLUMNS), compressors=LZ4),
    "v3 shards of gzip": v3(chunks=(5, 10), shards=(20, 20), compressors=GzipCodec(level=1)),
    "v3 shards with the index in front": v3(chunks=(20, 20), serializer=PLAIN),
    "v2 rows": v2(),
    "v2 cells with slashes": v2(chunks=(10, 8), chunk_key_encoding={"name": "v2", "separator": "/"}),
    "v2 blosc": v2(chunks=(10, 8), compressors=numcodecs.Blosc("zstd")),
    "v2 lz4": v2(chunks=(10, 8), compressors=numcodecs.LZ4()),
    "v2 zlib": v2(chunks=(10, 8), compressors=numcodecs.Zlib()),
    "v2 filter": v2(chunks=(10, 8), filters=[numcodecs.Delta("<f4")], compressors=numcodecs.Blosc("lz4")),
    "v2 fortran": v2(chunks=(10, 8), order="F"),
    "v2 big endian": v2(chunks=(10, 8), dtype=">f4"),
    "npy": npy(),
    "npy fortran": npy("F"),
    "npy big endian": npy(dtype=">f4"),
    "npy fortran big endian": npy("F", ">f4"),
    "npy version 2": npy(version=(2, 0)),
    "npy version 3": npy(version=(3, 0)),
    "numpy": lambda folder, x: x,
    "numpy fortran big endian": lambda folder, x: np.asfortranarray(x.astype(">f4")),
    "numpy strided": lambda folder, x: np.repeat(np.repeat(x, 2, 0), 3, 1)[::2, ::3],
    "dask": lambda folder, x: da.from_array(x, chunks=((13, 0, 30, 10), (30, 7))),
    "zarr.Array": lambda folder, x: zarr.open_array(zarr_store(folder / "x.zarr", x), mode="r"),
    "in a group": lambda folder, x: f"{zarr_store(folder / 'g.zarr' / 'a' / 'x', x).parents[1]}::a/x",
}


def read(source: Source, rows: tuple[int, int], columns: tuple[int, int], *, apart: int = 0) -> Matrix:
    """A selection read into rows that lie ``apart`` numbers from each other; the numbers between stay."""
    shape = (rows[1] - rows[0], columns[1] - columns[0])
    buffer = np.full((shape[0], shape[1] + apart), 77, source.dtype)
    source.read_into(buffer[:, : shape[1]], rows, columns)
    assert (buffer[:, shape[1] :] == 77).all()
    return buffer[:, : shape[1]]
