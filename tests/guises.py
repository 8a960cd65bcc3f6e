"""What may have the name of a file and is none, or is one without end; and which files a command opens."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import rankfold.pipeline.regular as regular


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def unix_socket(path: Path) -> None:
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as end:  # names of sockets are short
        end.bind("socket")
    (path.parent / "socket").rename(path)


def loop(path: Path) -> None:
    path.symlink_to(path)


def zeros(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**31)


GUISES: dict[str, Callable[[Path], None]] = {
    "pipe": pipe,
    "device": device,
    "socket": unix_socket,
    "folder": Path.mkdir,
    "loop": loop,
    "empty": Path.touch,
    "zeros": zeros,
}
"""What takes the place of any file."""


def many_codecs(document: dict[str, object]) -> None:
    codecs = document["codecs"]
    assert isinstance(codecs, list)
    document["codecs"] = codecs + [{"name": "crc32c"}] * 10**5


def many_rows(document: dict[str, object]) -> None:
    shape = document["shape"]
    assert isinstance(shape, list)
    document["shape"] = [10**12, *shape[1:]]


def many_axes(document: dict[str, object]) -> None:
    document["shape"] = [1] * 10**5


def many_names(document: dict[str, object]) -> None:
    document["attributes"] = {str(i): i for i in range(10**5)}


CLAIMS: dict[str, Callable[[dict[str, object]], None]] = {
    "codecs": many_codecs,
    "rows": many_rows,
    "axes": many_axes,
    "attributes": many_names,
}
"""What the metadata of an array may say."""


def put(path: Path, guise: str) -> bool:
    """Put a guise in place of a file; False where the file cannot make that claim."""
    if guise in CLAIMS:
        document = json.loads(path.read_bytes()) if path.name == "zarr.json" else {}
        if "codecs" not in document:
            return False
        CLAIMS[guise](document)
        path.write_text(json.dumps(document))
        return True
    path.unlink()
    GUISES[guise](path)
    return True


# What is opened -------------------------------------------------------------------------------------

_OPENED: list[str] | None = None
"""Where paths go while somebody asks."""


def _hear(event: str, arguments: tuple[object, ...]) -> None:
    if _OPENED is not None and event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
        _OPENED.append(os.path.abspath(os.fsdecode(arguments[0])))


sys.addaudithook(_hear)


@contextlib.contextmanager
def opened_below(folder: Path) -> Iterator[set[Path]]:
    """The files that lie in a folder already and are opened within the block, by Python or by a library."""
    global _OPENED
    before = {path for path in folder.rglob("*") if path.is_file()}
    found: set[Path] = set()
    state, _OPENED = os.stat, []

    def looks(path: object, *arguments: object, **options: object) -> os.stat_result:
        # Libraries open what ``require_regular`` has looked at.
        if _OPENED is not None and isinstance(path, str | os.PathLike):
            caller = sys._getframe(1)
            if caller.f_code is regular.require_regular.__code__:
                _OPENED.append(os.path.abspath(path))
        return state(path, *arguments, **options)  # type: ignore[arg-type]

    os.stat = looks  # type: ignore[assignment]
    try:
        yield found
    finally:
        os.stat = state
        found |= before & set(map(Path, _OPENED))
        _OPENED = None
