"""Files are opened for reading by way of ``pipeline.regular`` alone, so that no pipe or device is.

A call of a library that opens by path stands in a function that asks ``require_regular`` or ``is_regular``
first, or stands in the list below with the reason. The list may only shrink.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import rankfold

PACKAGE = Path(rankfold.__file__).parent

OPENS = {"open", "io.open", "os.open", "gzip.open", "bz2.open", "lzma.open"}
"""Calls that open whatever has a name."""

READS = {"read_text", "read_bytes"}
"""Methods of paths that do the same."""

BY_PATH = {
    *("np.load", "np.fromfile", "h5py.File", "zipfile.ZipFile", "parquet.ParquetFile", "xarray.open_dataset"),
    *("xarray.open_zarr", "zarr.open", "zarr.open_group", "zarr.open_array", "zarr.consolidate_metadata"),
    "LocalStore",
}
"""Calls of libraries that open a path, after a look at it or by a store of regular files."""

GUARDS = (
    "require_regular",
    "is_regular",
    "require_hdf5",
    "_require_complete",
    "RegularStore",
    "MemoryStore",
    "open_regular",
)
"""What looks at a path, or is a store that does."""

EXCEPTIONS = {
    "kernels/gpu/sources.py source": "files of the package",
    "kernels/_compiled.py _read": "files of the package",
    "workflows/library/__init__.py example_text": "files of the package",
    "workflows/reports/page.py render": "files of the package",
    "cluster/profiles/__init__.py summary": "files of the package",
    "workflows/commands/profile.py profile": "files of the package",
    "cluster/doctor/local.py file_system": "/proc",
    "pipeline/engine/memory.py _content": "/proc and /sys",
    "pipeline/engine/memory.py _field": "/proc",
    "workflows/operations/lock_owner.py command": "/proc",
    "workflows/reporting.py report_errors": "/dev/null",
    "pipeline/durable.py flush": "folders are flushed as well; opened without waiting",
    "pipeline/outputs.py lock_folder": "a folder, and nothing else",
    "pipeline/importing/csr_writer.py _sort_blocks": "made by this process, in a folder of its own",
    "pipeline/importing/csr_writer.py _pieces": "made by this process, in a folder of its own",
    "pipeline/formats/open_files.py open_netcdf": "its callers have looked",
    "pipeline/formats/remote.py open_group": "objects of a store, no files",
    "pipeline/chunks/bounded_store.py open_bounded": "a store is given, of regular files or of objects",
}
"""Functions that open otherwise, and why."""


def calls(function: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(function) if isinstance(node, ast.Call))


def is_unguarded(call: ast.Call, function: ast.AST) -> bool:
    """Whether a call opens a path that nobody has looked at in its function."""
    name = ast.unparse(call.func)
    last = name.rpartition(".")[2]
    # Matrices have a method of one of these names, which takes rows and columns.
    is_read = isinstance(call.func, ast.Attribute) and last in READS and not call.args
    if name in OPENS or is_read:
        modes = [each.value for each in call.args[1:2] if isinstance(each, ast.Constant)]
        return not (modes and isinstance(modes[0], str) and "w" in modes[0])
    return name in BY_PATH and not any(guard in ast.unparse(function) for guard in GUARDS)


def offences() -> dict[str, str]:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        file = path.relative_to(PACKAGE).as_posix()
        if file == "pipeline/regular.py":
            continue
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for call in calls(node):
                if is_unguarded(call, node):
                    found[f"{file} {node.name}"] = ast.unparse(call)
    return found


def test_files_are_opened_by_one_module() -> None:
    found = offences()
    assert not {place: call for place, call in found.items() if place not in EXCEPTIONS}
    assert not EXCEPTIONS.keys() - found.keys(), "an exception that excuses nothing: remove it"
