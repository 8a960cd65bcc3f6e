"""Every parser of bytes that somebody else may have written, as what a user does with such a file."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import corpus
import numpy as np
from mutations import Files

import rankfold as rf
from rankfold.pipeline.errors import RankfoldError

READ_ROWS = 64
READ_BYTES = 2**22
"""Of a matrix that opens: what its header promises may be as large as it likes."""

MANY_ROWS = re.compile(rb"^\s*[1-9]\d{8,}\s+\d+\s+\d+\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Parser:
    """What is read, from which files on, and how; ``words`` are those that the format knows."""

    valid: Callable[[], list[Files]]
    read: Callable[[Path], object]
    words: Sequence[bytes] = ()
    is_of_library: bool = False
    """Whether a library parses all bytes: it is tried where it is named."""

    library: str = ""
    """In C, that parses bytes first. Where it ends the process, or does not come back, that is counted beside
    the faults, since nothing can be done about it from Python."""


def read_matrix(path: Path) -> None:
    """Open a matrix, look at all of it that can be seen without reading, and read some rows."""
    source = rf.open(path)
    repr(source)
    source.fingerprint()
    source.check()
    rows, columns = source.shape
    few = min(rows, READ_ROWS, READ_BYTES // max(1, columns * source.dtype.itemsize))
    if few and source.read_bytes(few, columns) < 64 * READ_BYTES:
        source.read_into(np.empty((few, columns), source.dtype), (0, few), (0, columns))


def import_matrix(path: Path) -> None:
    """Make a store of a file, within little memory."""
    rf.import_array(path, path.parent / "imported.zarr", memory_bytes=2**24, overwrite=True)


def import_market(folder: Path) -> None:
    """As above, but for more rows than take a moment to write, which is no fault: 8 bytes each."""
    path = only_file(folder)
    if not MANY_ROWS.search(path.read_bytes()):
        import_matrix(path)


def both(path: Path) -> None:
    """Read, and import, whatever the first of them says: some can be imported only."""
    with contextlib.suppress(RankfoldError):
        read_matrix(path)
    import_matrix(path)


def only_file(folder: Path) -> Path:
    """The one file of an input, or its store."""
    return next((path for path in sorted(folder.iterdir()) if path.name.startswith("x.")), folder / "x.none")


def _streams(folder: Path) -> None:
    from rankfold.pipeline.chunks.encoding import decode_into, require_bounded

    (path,) = folder.iterdir()
    data, out = np.frombuffer(path.read_bytes(), np.uint8), np.empty(corpus.matrix().nbytes, np.uint8)
    try:
        with contextlib.suppress(ValueError):
            require_bounded(path.name, data, len(out))
        decode_into(path.name, data, out)
    except MemoryError:
        raise
    except Exception as error:  # whatever a decoder raises, its caller makes a ChunkError of it
        raise rf.RankfoldError("a chunk does not decode") from error


def _workflow(folder: Path) -> None:
    from rankfold.workflows.flows.plan import Workflow, survey
    from rankfold.workflows.flows.record import Record

    workflow = Workflow.read(folder / "flow.yaml")
    survey(workflow, Record.of(workflow.outputs).stages)


def _profile(folder: Path) -> None:
    from rankfold.cluster.slurm.profile import read_profile
    from rankfold.cluster.slurm.submission import job_script

    job_script(["true"], read_profile(folder / "p.yaml"), name="fuzz")


def _parts(folder: Path) -> None:
    from rankfold.pipeline.storage.checkpoint import load_if_whole

    for path in sorted(folder.rglob("*.part")):
        load_if_whole(path)


def _records(folder: Path) -> None:
    from rankfold.workflows.operations.logs import find_logs
    from rankfold.workflows.operations.running import find_work
    from rankfold.workflows.operations.status import (
        job_facts,
        job_lines,
        output_lines,
        standings,
        status_table,
    )
    from rankfold.workflows.reports import tables
    from rankfold.workflows.reports.measures import report_facts
    from rankfold.workflows.reports.run_page import subject

    for target in (folder / "r.zarr", folder / "out"):
        with contextlib.suppress(RankfoldError):
            work = find_work(target)
            status_table(standings(work)) if work.workflow else output_lines(work)
            job_facts(work), job_lines(work), find_logs(work, None), work.worker_jobs([]), work.job_number
            about = subject(target)
            stages = report_facts(about.title, about.stages)["stages"]
            for table in (
                tables.request_table,
                tables.workers,
                tables.plan_table,
                tables.sweeps,
                tables.provenance,
            ):
                table(stages)


def _results(folder: Path) -> None:
    from rankfold.pipeline.storage.manifest import damage_of

    path = folder / "r.zarr"
    damage_of(path, sums=True)
    result = rf.open_result(path)
    repr(result), result._repr_html_()
    for name in result:
        result[name]  # what is left to Zarr to read is Zarr's to refuse
    if not rf.verify(path):
        with contextlib.suppress(RankfoldError):
            rf.transform(result, corpus.matrix("f8"))


ZARR_WORDS = (
    b"zstd",
    b"blosc",
    b"pickle",
    b"|O",
    b"<M8[s]",
    b"sharding_indexed",
    b"bytes",
    b"crc32c",
    b"NaN",
)

PARSERS: dict[str, Parser] = {
    "zarr 2": Parser(corpus.zarr_2, lambda folder: read_matrix(folder / "x.zarr"), ZARR_WORDS),
    "zarr 3": Parser(corpus.zarr_3, lambda folder: read_matrix(folder / "x.zarr"), ZARR_WORDS),
    "streams": Parser(corpus.streams, _streams, (b"\x28\xb5\x2f\xfd", b"\x1f\x8b", b"\xfd7zXZ\x00", b"BZh9")),
    "csr": Parser(corpus.csr_groups, lambda folder: both(folder / "x.zarr"), ZARR_WORDS),
    "npy": Parser(
        corpus.npy, lambda folder: both(only_file(folder)), (b"'|O'", b"'<c16'", b"(10**9,", b"True")
    ),
    "npz": Parser(corpus.npz, lambda folder: both(only_file(folder)), (b"PK\x01\x02", b"indptr.npy", b"csr")),
    "mtx": Parser(
        corpus.mtx,
        import_market,
        (
            b"%%MatrixMarket",
            b"array",
            b"coordinate",
            b"skew-symmetric",
            b"hermitian",
            b"complex",
            b"pattern",
            b"\r",
        ),
    ),
    "csv": Parser(
        corpus.tables,
        lambda folder: import_matrix(only_file(folder)),
        (b'"', b'""', b",,", b"\r", b"\xef\xbb\xbf"),
    ),
    "bin": Parser(corpus.big_ann, lambda folder: both(only_file(folder))),
    "netcdf": Parser(
        corpus.netcdf,
        lambda folder: both(only_file(folder)),
        (b"CDF\x01", b"CDF\x05", b"\x89HDF"),
        library="HDF5",
    ),
    "hdf5": Parser(
        corpus.hdf5, lambda folder: both(only_file(folder)), (b"\x89HDF\r\n\x1a\n",), library="HDF5"
    ),
    "parquet": Parser(
        corpus.parquet, lambda folder: import_matrix(only_file(folder)), (b"PAR1",), is_of_library=True
    ),
    "workflow": Parser(
        corpus.workflows,
        _workflow,
        (
            b"!!python/object/apply:os.system [x]",
            b"&a ",
            b"*a",
            b"<<: ",
            b"? ",
            b"- ",
            b"{",
            b"[",
            b"svd",
            b"check",
        ),
    ),
    "profile": Parser(
        corpus.profiles, _profile, (b"!!python/name:os", b"|\n", b">\n", b"&a ", b"\t", b"'", b"\\n")
    ),
    "parts": Parser(corpus.parts, _parts, (b"rankfold", b'"bytes"', b'"|O"', b'"<U9"')),
    "records": Parser(corpus.records, _records),
    "results": Parser(corpus.results, _results, ZARR_WORDS),
}
