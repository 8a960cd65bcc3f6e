"""Valid files of every format that is read, a few hundred bytes each: where mutations begin."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from mutations import Files

ROWS, COLUMNS = 12, 5


def matrix(dtype: str = "f4") -> np.ndarray[Any, Any]:
    """A small matrix, the same every time; a third of it is zero."""
    values = np.random.default_rng(0).integers(0, 9, (ROWS, COLUMNS))
    return np.where(values < 3, 0, values).astype(dtype)


def written(write: Callable[[Path], object]) -> Files:
    """The files that a function writes into a folder."""
    with tempfile.TemporaryDirectory(prefix="rankfold-fuzz-") as name:
        folder = Path(name)
        write(folder)
        paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


# Zarr ----------------------------------------------------------------------------------------------


def zarr_2() -> list[Files]:
    """Arrays of version 2 under every codec that is decoded here, and under some that Zarr decodes."""
    import numcodecs

    codecs: list[dict[str, Any]] = [
        {"compressors": codec}
        for codec in (None, numcodecs.Zlib(), numcodecs.GZip(), numcodecs.BZ2(), numcodecs.LZMA(),
                      numcodecs.Zstd(), numcodecs.LZ4(), numcodecs.Blosc("zstd"),
                      numcodecs.Blosc("lz4", shuffle=2))
    ]  # fmt: skip
    codecs += [
        {"compressors": numcodecs.Zstd(), "filters": [numcodecs.Delta("<i4")], "dtype": "i4"},
        {"compressors": numcodecs.Zlib(), "filters": [numcodecs.Shuffle(4)]},
        {"compressors": None, "order": "F"},
        {"compressors": numcodecs.Blosc(), "dtype": ">f8"},
    ]
    return [written(lambda folder, options=options: _zarr(folder, 2, **options)) for options in codecs]


def zarr_3() -> list[Files]:
    """Arrays of version 3: every codec, shards, checksums, an exchange of axes."""
    from zarr.codecs import BloscCodec, Crc32cCodec, GzipCodec, TransposeCodec, ZstdCodec

    options: list[dict[str, Any]] = [
        {"compressors": codec} for codec in (None, GzipCodec(), ZstdCodec(), BloscCodec(), Crc32cCodec())
    ]
    options += [
        {"compressors": [ZstdCodec(), Crc32cCodec()]},
        {"compressors": ZstdCodec(), "shards": (8, COLUMNS), "chunks": (4, COLUMNS)},
        {"compressors": None, "shards": (8, COLUMNS), "chunks": (4, COLUMNS)},
        {"compressors": None, "filters": [TransposeCodec(order=(1, 0))]},
        {"compressors": GzipCodec(), "dtype": "i2"},
    ]
    return [written(lambda folder, each=each: _zarr(folder, 3, **each)) for each in options]


def _zarr(folder: Path, version: int, *, dtype: str = "f4", **options: Any) -> None:
    import zarr

    options = {"chunks": (5, COLUMNS), **options}
    array = zarr.create_array(
        folder / "x.zarr", shape=(ROWS, COLUMNS), dtype=dtype, zarr_format=version, **options
    )
    array[...] = matrix(dtype)


def csr_groups() -> list[Files]:
    """A sparse matrix in AnnData's layout, in both versions."""
    return [written(lambda folder, version=version: _csr(folder, version)) for version in (2, 3)]


def _csr(folder: Path, version: int) -> None:
    import zarr

    sparse = scipy.sparse.csr_array(matrix())
    group = zarr.open_group(folder / "x.zarr", mode="w", zarr_format=version)
    group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [ROWS, COLUMNS]})
    for name in ("data", "indices", "indptr"):
        values = getattr(sparse, name)
        group.create_array(name, shape=values.shape, dtype=values.dtype, chunks=(16,))[...] = values


# Files ---------------------------------------------------------------------------------------------


def npy() -> list[Files]:
    """Both orders, three versions of the format, several types."""
    arrays = [matrix("f4"), matrix("f8").T.copy().T, matrix("i2"), matrix("c8"), matrix(">f4")]
    found = [{"x.npy": _saved(lambda file, one=one: np.save(file, one))} for one in arrays]
    for version in ((2, 0), (3, 0)):
        found.append(
            {"x.npy": _saved(lambda file, v=version: np.lib.format.write_array(file, matrix(), version=v))}
        )
    return found


def npz() -> list[Files]:
    """Plain arrays, and SciPy's sparse matrices of three layouts, compressed and not."""
    found = [{"x.npz": _saved(lambda file: np.savez(file, a=matrix()))}]
    for kind in ("csr", "csc", "coo"):
        for compressed in (True, False):
            sparse = scipy.sparse.coo_matrix(matrix()).asformat(kind)
            found.append(
                {"x.npz": _saved(lambda f, s=sparse, c=compressed: scipy.sparse.save_npz(f, s, compressed=c))}
            )
    return found


def mtx() -> list[Files]:
    """MatrixMarket: coordinates and arrays, symmetric, complex, of patterns, compressed."""
    lines = "\n".join(f"{i + 1} {j + 1} {i + j}.5" for i in range(4) for j in range(4) if (i + j) % 2 == 0)
    head = "%%MatrixMarket matrix "
    texts = [
        f"{head}coordinate real general\n% a remark\n4 4 8\n{lines}\n",
        f"{head}coordinate integer symmetric\n3 3 3\n1 1 1\n2 1 4\n3 3 2\n",
        f"{head}coordinate pattern general\n3 3 2\n1 2\n3 1\n",
        f"{head}coordinate complex hermitian\n2 2 2\n1 1 1 0\n2 1 0 1\n",
        f"{head}array real general\n2 3\n1\n2\n3\n4\n5\n6\n",
    ]
    found: list[Files] = [{"x.mtx": text.encode()} for text in texts]
    return [*found, {"x.mtx.gz": gzip.compress(texts[0].encode())}]


def tables() -> list[Files]:
    """Delimited text: with and without names, quoted, compressed."""
    rows = "\n".join(",".join(map(str, row)) for row in matrix("f8").tolist())
    names = ",".join(f"c{j}" for j in range(COLUMNS))
    texts = [f"{names}\n{rows}\n", rows, f'"a b",b,"c,""d",e,f\n{rows}\r\n']
    found: list[Files] = [{"x.csv": text.encode()} for text in texts]
    found.append({"x.tsv": texts[0].replace(",", "\t").encode()})
    return [*found, {"x.csv.gz": gzip.compress(texts[0].encode())}]


def big_ann() -> list[Files]:
    """The formats of the benchmarks of neighbors: two numbers, then rows."""
    head = struct.pack("<II", ROWS, COLUMNS)
    kinds = {"x.fbin": "f4", "x.u8bin": "u1", "x.i8bin": "i1"}
    return [{name: head + matrix(kind).tobytes()} for name, kind in kinds.items()]


def netcdf() -> list[Files]:
    """Classic files of all three versions, with and without records."""
    import netCDF4

    def write(folder: Path, kind: str, rows: int | None, dtype: str) -> None:
        with netCDF4.Dataset(folder / "x.nc", "w", format=kind) as file:
            file.createDimension("time", rows)
            file.createDimension("x", COLUMNS)
            file.title = "small"
            file.createVariable("t", dtype, ("time", "x"))[:] = matrix(dtype)

    versions = ("NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA")
    kinds = [(kind, rows, "f4" if rows else "i2") for kind in versions for rows in (ROWS, None)]
    return [written(lambda folder, each=each: write(folder, *each)) for each in kinds]


def hdf5() -> list[Files]:
    """Datasets of HDF5, and cells of AnnData."""
    import h5py

    def dataset(folder: Path, **options: Any) -> None:
        with h5py.File(folder / "x.h5", "w") as file:
            file.create_dataset("X", data=matrix(), **options)

    def cells(folder: Path, sparse: bool) -> None:
        import anndata

        x = scipy.sparse.csr_matrix(matrix()) if sparse else matrix()
        anndata.AnnData(x).write_h5ad(folder / "x.h5ad")

    packed = {"chunks": (5, COLUMNS), "compression": "gzip"}
    found = [written(dataset), written(lambda folder: dataset(folder, **packed))]
    return [
        *found,
        *(written(lambda folder, sparse=sparse: cells(folder, sparse)) for sparse in (True, False)),
    ]


def parquet() -> list[Files]:
    """Columns of Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({f"c{j}": matrix("f8")[:, j] for j in range(3)})
    return [{"x.parquet": _saved(lambda file: pq.write_table(table, file))}]


def _saved(write: Callable[[io.BytesIO], object]) -> bytes:
    file = io.BytesIO()
    write(file)
    return file.getvalue()


def streams() -> list[Files]:
    """Compressed streams as chunks are, by the name of their codec."""
    import numcodecs

    data = matrix().tobytes()
    codecs = {
        "zstd": numcodecs.Zstd(),
        "blosc": numcodecs.Blosc(),
        "lz4": numcodecs.LZ4(),
        "lzma": numcodecs.LZMA(),
    }
    found: list[Files] = [{name: bytes(codec.encode(data))} for name, codec in codecs.items()]
    return [
        *found,
        {"gzip": gzip.compress(data)},
        {"bz2": bz2.compress(data)},
        {"zlib": numcodecs.Zlib().encode(data)},
    ]


# Settings ------------------------------------------------------------------------------------------

WORKFLOW = """\
workflow: cells
inputs:
  counts: x.npy
  part: {store: x.npy, select_rows: "0:9", prepare: "log1p"}
outputs: out
profile: local
resources: {memory: 500MiB, threads: 1}
stages:
  components:
    method: pca
    input: counts
    rank: 3
    seed: 7
  near:
    method: knn
    input: components.scores
    k: 2
sweep: {stage: components, rank: [2, 3]}
schedule: {cron: "0 3 * * 1"}
"""

PROFILE = """\
partition: main
account: physics
walltime: "02:00:00"
memory: 16GiB
cores: 8
interface: lo
scratch: $TMPDIR
prologue: [module load python]
directives: ["--qos=regular"]
drain: "0:10:00"
nodes: 2
"""


def workflows() -> list[Files]:
    """A workflow with every part that one may have."""
    x = _saved(lambda file: np.save(file, matrix()))
    again = WORKFLOW.replace("sweep: {stage: components, rank: [2, 3]}\n", "").replace(
        'cron: "0 3 * * 1"', "every: 1d, begin: 2026-12-01T03:00"
    )
    return [{"flow.yaml": text.encode(), "x.npy": x} for text in (WORKFLOW, again)]


def profiles() -> list[Files]:
    """A profile with most of its keys."""
    return [{"p.yaml": PROFILE.encode()}, {"p.yaml": b"prologue:\n  - module load a\n  - |\n    x\n"}]


# Runs ----------------------------------------------------------------------------------------------


def parts() -> list[Files]:
    """Checkpoints: arrays of several types and orders."""
    from rankfold.pipeline.storage.checkpoint import save_arrays

    name = f"state-{'0' * 32}/pass-01/a.part"

    def write(folder: Path, arrays: dict[str, Any]) -> None:
        (folder / name).parent.mkdir(parents=True)
        save_arrays(folder / name, arrays)

    numbers = {"g": matrix("f8"), "f": matrix("f4").T, "at": np.int64(7), "name": np.array(["a", "b"])}
    return [written(lambda f: write(f, numbers)), written(lambda f: write(f, {"only": np.zeros(3)}))]


def records() -> list[Files]:
    """What a run keeps in JSON beside its arrays."""
    attempt = {"started": "2026-11-26T03:00:00Z", "place": {"kind": "threads", "job": "7"}, "run": "0" * 32}
    attempt |= {"finished": True, "host": "n1", "pid": 3, "command": "rankfold svd x", "folder": "/data"}
    sweep = {"name": "sketch", "over": "matrix", "reads_bytes": 400, "writes_bytes": 0, "flops": 100.0}
    plan = {"kind": "svd", "orientation": "rows", "dtype": "<f4", "working_dtype": "float32"}
    plan |= {
        "likely_passes": 1,
        "most_passes": 2,
        "reads_bytes": 400,
        "peak_bytes": 20,
        "budget_bytes": 99,
        "scratch_bytes": 0,
    }
    plan |= {"tasks": 3, "concurrency": 2, "shape": [5, 20], "passes": [sweep], "seconds": 1.0}
    end_facts = {"seconds": 3.0, "measured_bytes": 10, "planned_bytes": 20, "baseline_bytes": 5, "passes": 1}
    end_facts |= {"plan": plan, "sweep_seconds": {"sketch": 2.0}}
    line = {"at": 1.79e9, "what": "segment", "id": 1, "sweep": "sketch", "part": "0", "process": "n1-3.ab"}
    end = {"at": 1.79e9, "what": "end", "id": 1, "rows": 5, "read_bytes": 100, "process": "n1-3.ab"}
    submission = {"workflow": "", "job": "12", "log": "l.log", "profile": "p", "host": "h", "submitted": "t"}
    files = {
        "r.zarr.run/run.json": {"attempts": [attempt, attempt | end_facts], "steps": {"knn": [attempt]}},
        "r.zarr.run/request.json": {"kind": "svd", "version": "0.1.0", "state_version": 4, "blas": "Haswell"},
        "r.zarr.run/jobs.json": {"names": ["rankfold-00112233"]},
        "r.zarr.run/submitted.json": submission,
        "out/flow.json": {
            "workflow": "cells", "steps": ["a"], "text": "workflow: cells", "command": "rankfold run f.yaml",
            "stages": {"a": {"method": "pca", "state": "done", "why": ["new"], "attempts": 1, "seconds": 2.0,
                             "started": "2026-11-26T03:00:00Z",
                             "where": {"host": "n1", "pid": 3, "job": "4"}}},
        },
        "out/submitted.json": {**submission, "workflow": "cells"},
    }  # fmt: skip
    found = {name: json.dumps(value).encode() for name, value in files.items()}
    found["r.zarr.run/journal.jsonl"] = b"".join(json.dumps(one).encode() + b"\n" for one in (line, end))
    return [found]


def results() -> list[Files]:
    """A result with its list of files."""
    import rankfold as rf

    def write(folder: Path) -> None:
        rf.svd(matrix("f8"), 2, out=folder / "r.zarr")

    files = written(write)
    return [{name: data for name, data in files.items() if not name.startswith("r.zarr.run")}]
