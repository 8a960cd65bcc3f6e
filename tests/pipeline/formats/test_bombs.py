"""A few kB that decode to GB are refused at once, in the memory of what they should be."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
from stores import numbers, read, zarr_store
from zarr.codecs import (
    BloscCodec,
    BytesCodec,
    GzipCodec,
    ShardingCodec,
    TransposeCodec,
    ZstdCodec,
)

from rankfold.pipeline.chunks.encoding import decode_into, require_bounded
from rankfold.pipeline.errors import ChunkError
from rankfold.pipeline.formats import open_source

GIBIBYTES = 4 * 2**30
PIECE = bytes(2**24)
REPEATED = GIBIBYTES // len(PIECE)


def zstd_frame(size: int, *, told: bool) -> bytes:
    """A frame of zeros, in blocks of 2^17 equal bytes; 4 bytes for each."""
    blocks = size // 2**17
    head = b"\xe0" + size.to_bytes(8, "little") if told else b"\x00\x78"
    block = (2**17 << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
    last = (2**17 << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"\0"
    return b"\x28\xb5\x2f\xfd" + head + block * (blocks - 1) + last


def zlib_stream() -> bytes:
    stream = zlib.compressobj(9)
    head = stream.compress(b"") + stream.flush(zlib.Z_FULL_FLUSH)
    return head + (stream.compress(PIECE) + stream.flush(zlib.Z_FULL_FLUSH)) * REPEATED + stream.flush()


def blosc_chunk() -> bytes:
    chunk = bytearray(numcodecs.Blosc().encode(np.zeros(100_000, "u1")))
    chunk[4:8] = (2**31 - 100).to_bytes(4, "little")
    return bytes(chunk)


BOMBS: dict[str, Callable[[], bytes]] = {
    "zstd": lambda: zstd_frame(GIBIBYTES, told=False),
    "zstd told": lambda: zstd_frame(GIBIBYTES, told=True),
    "zstd second frame": lambda: numcodecs.Zstd().encode(bytes(400)) + zstd_frame(GIBIBYTES, told=True),
    "gzip": lambda: gzip.compress(PIECE) * REPEATED,
    "zlib": zlib_stream,
    "bz2": lambda: bz2.compress(PIECE) * REPEATED,
    "lzma": lambda: lzma.compress(PIECE, preset=0) * REPEATED,
    "lz4": lambda: (2**31 - 100).to_bytes(4, "little") + bytes(500),
    "blosc": blosc_chunk,
}
V3: dict[str, Any] = {"gzip": GzipCodec(), "zstd": ZstdCodec(), "blosc": BloscCodec(typesize=4)}
V2: dict[str, Any] = {
    "gzip": numcodecs.GZip(),
    "zlib": numcodecs.Zlib(),
    "bz2": numcodecs.BZ2(),
    "lzma": numcodecs.LZMA(),
    "zstd": numcodecs.Zstd(),
    "lz4": numcodecs.LZ4(),
    "blosc": numcodecs.Blosc(),
}


def through_zarr(codec: str) -> dict[str, dict[str, Any]]:
    """Arrays that Zarr decodes, whose outermost codec is the one named."""
    transposed = {"filters": TransposeCodec(order=(1, 0))}
    kinds: dict[str, dict[str, Any]] = {
        "v2 filter": {
            "zarr_format": 2,
            "filters": [numcodecs.Delta("<f4")],
            "compressors": V2[codec],
            "chunks": (10, 10),
        },
        "v2 fortran": {"zarr_format": 2, "order": "F", "compressors": V2[codec], "chunks": (10, 10)},
    }
    if codec in V3:
        kinds["v3 transposed"] = {**transposed, "compressors": V3[codec], "chunks": (10, 10)}
        kinds["v3 twice"] = {"compressors": [ZstdCodec(), V3[codec]], "chunks": (10, 10)}
        inner = [TransposeCodec(order=(1, 0)), BytesCodec(), V3[codec]]
        kinds["v3 shards"] = {
            "serializer": ShardingCodec(chunk_shape=(10, 10), codecs=inner),
            "chunks": (20, 20),
        }
    return kinds


def write(folder: Path, bomb: bytes, options: dict[str, Any]) -> Path:
    """A store of one file, a chunk or a shard, whose first chunk is the bomb."""
    shape = (20, 20) if options["chunks"] == (20, 20) else (10, 10)
    x = np.arange(shape[0] * shape[1], dtype="f4").reshape(shape)
    path = zarr_store(folder, x, **options)
    victim = path / ("c/0/0" if options.get("zarr_format") != 2 else "0.0")
    if shape == (20, 20):
        index = np.frombuffer(victim.read_bytes()[-68:-4], "<u8").copy()
        index[:2] = 0, len(bomb)
        import google_crc32c

        head = index.tobytes()
        bomb += victim.read_bytes()[:-68] + head + google_crc32c.value(head).to_bytes(4, "little")
    victim.write_bytes(bomb)
    return path


CODE = """
import json, resource, sys, time
import zarr, numcodecs, numpy as np
from rankfold.pipeline.errors import ChunkError
from rankfold.pipeline.formats import open_source
data = next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("VmData")) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (data + 2**29,) * 2)
for path in sys.argv[1:]:
    began = time.process_time()
    try:
        source = open_source(path)
        out = np.empty(source.shape, source.dtype)
        source.read_into(out, (0, out.shape[0]), (0, out.shape[1]))
        said = "read without a word"
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    print(json.dumps([path, said, time.process_time() - began]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the memory of a process is limited as on Linux")
def test_chunks_that_hold_too_much_are_refused_in_bounded_memory_and_time(tmp_path: Path) -> None:
    """4 GiB in every codec, read here or by Zarr, in a process that may take 512 MiB more."""
    paths = []
    for name, make in BOMBS.items():
        codec, bomb = name.partition(" ")[0], make()
        if codec not in ("lz4", "blosc", "zlib", "bz2", "lzma"):
            paths.append(write(tmp_path / f"{name} v3", bomb, {"compressors": V3[codec], "chunks": (10, 10)}))
        options = {"zarr_format": 2, "compressors": V2[codec], "chunks": (10, 10)}
        paths.append(write(tmp_path / f"{name} v2", bomb, options))
        for kind, others in through_zarr(codec).items():
            paths.append(write(tmp_path / f"{name} {kind}", bomb, others))
    command = [sys.executable, "-c", CODE, *map(str, paths)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    lines = [json.loads(line) for line in told.stdout.splitlines()]
    assert [line[0] for line in lines] == [str(path) for path in paths], told.stderr
    for path, said, seconds in lines:
        assert said.startswith("ChunkError") and path in said and "Restore the store" in said, (path, said)
        assert seconds < 5, (path, seconds)


def streamed(x: bytes) -> bytes:
    """A frame of zstd that does not say how much it holds, in blocks of 1000 bytes."""
    pa = pytest.importorskip("pyarrow")
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as file:
        for start in range(0, len(x), 1000):
            file.write(x[start : start + 1000])
            file.flush()
    return bytes(sink.getvalue().to_pybytes())


@pytest.mark.parametrize("codec", ["zstd", "zstd streamed", "zstd frames", "gzip", "bz2", "lzma", "zlib"])
def test_chunks_in_pieces_and_without_their_size_fill_their_place_exactly(codec: str) -> None:
    x = np.random.default_rng(1).integers(0, 9, 300_000).astype("u1").tobytes()
    name = codec.partition(" ")[0]
    if codec == "zstd streamed":
        encoded = streamed(x)
    elif codec in ("zlib", "zstd"):
        encoded = V2[name].encode(x)
    else:
        encoded = V2[name].encode(x[:1000]) + V2[name].encode(x[1000:])
    out, data = np.empty(len(x), "u1"), np.frombuffer(encoded, "u1")
    decode_into(name, data, out)
    assert out.tobytes() == x
    require_bounded(name, data, len(x))
    with pytest.raises(
        ValueError, match=r"decodes to 300000 bytes or so|decodes to 299999|decodes to \d+ bytes"
    ):
        require_bounded(name, data, len(x) - 1)
    for size in (len(x) - 1, len(x) + 1, 10):
        with pytest.raises((ValueError, RuntimeError)):
            decode_into(name, data, np.empty(size, "u1"))
    with pytest.raises(Exception):  # noqa: B017  # every codec has its own for a cut
        decode_into(name, data[: len(data) - 9], out)


def test_what_decodes_through_zarr_is_not_refused(tmp_path: Path) -> None:
    """Frames without a size, blocks that could hold more than they do, two codecs, and shards."""
    for codec in ("zstd", "gzip", "blosc", "lz4", "zlib", "bz2", "lzma"):
        for number, options in enumerate(through_zarr(codec).values()):
            path = zarr_store(tmp_path / f"{codec}{number}", numbers(), **options)
            np.testing.assert_array_equal(read(open_source(path), (0, 53), (0, 37)), numbers())
    path = zarr_store(tmp_path / "streamed", numbers(), **through_zarr("zstd")["v3 transposed"])
    part = np.zeros((10, 10), "f4")
    part[:] = numbers()[:10, :10]
    (path / "c/0/0").write_bytes(streamed(part.T.tobytes()))
    np.testing.assert_array_equal(read(open_source(path), (0, 10), (0, 10)), part)
    lzma_raw = numcodecs.LZMA(format=lzma.FORMAT_RAW, filters=[{"id": lzma.FILTER_LZMA2, "preset": 1}])
    path = zarr_store(tmp_path / "raw", numbers(), zarr_format=2, compressors=lzma_raw)
    np.testing.assert_array_equal(read(open_source(path), (0, 53), (0, 37)), numbers())


def test_a_chunk_file_that_is_too_long_for_its_chunk_is_not_read(tmp_path: Path) -> None:
    path = zarr_store(tmp_path / "x", numbers(), compressors=ZstdCodec())
    with open(path / "c/0/0", "r+b") as file:
        file.truncate(2**40)
    with pytest.raises(ChunkError, match=r"chunk c/0/0 cannot be read .* more than any codec makes of 1480"):
        read(open_source(path), (0, 10), (0, 10))
