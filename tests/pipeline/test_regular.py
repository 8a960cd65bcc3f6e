"""Files that are no files: opened without waiting, refused by name, and documents of bounded size."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rankfold.pipeline.errors import UnfitFileError
from rankfold.pipeline.regular import (
    METADATA_BYTES,
    bounded_lines,
    is_regular,
    open_regular,
    read_bounded,
    read_last_lines,
    read_text,
    require_regular,
)

SECONDS = 60


@pytest.fixture(autouse=True)
def alarm() -> Iterator[None]:
    """Nothing here may wait."""

    def late(*_: object) -> None:
        raise TimeoutError(f"over {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def pipe(path: Path) -> None:
    os.mkfifo(path)


def unix_socket(path: Path) -> None:
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as end:  # names are short
        end.bind(path.name)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def terminal(path: Path) -> None:
    path.symlink_to("/dev/tty")


def loop(path: Path) -> None:
    path.symlink_to(path)


GUISES: dict[str, Callable[[Path], None]] = {
    "a pipe": pipe,
    "a socket": unix_socket,
    "a device": endless,
    "a device,": terminal,
    "a folder": Path.mkdir,
    "a link that leads to itself": loop,
}


@pytest.mark.parametrize("guise", GUISES)
@pytest.mark.parametrize("look", [open_regular, read_bounded, read_text, require_regular, is_regular])
def test_what_is_no_file_is_refused_by_name_and_kind(
    tmp_path: Path, guise: str, look: Callable[[Path], object]
) -> None:
    path = tmp_path / "x"
    GUISES[guise](path)
    with pytest.raises(UnfitFileError, match=f"{path} is {guise.rstrip(',')}") as caught:
        look(path)
    assert isinstance(caught.value, OSError) and caught.value.exit_code == 2
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize("guise", GUISES)
@pytest.mark.parametrize("mode", ["wb", "ab", "r+b"])
def test_what_is_no_file_is_not_written_either(tmp_path: Path, guise: str, mode: str) -> None:
    path = tmp_path / "x"
    GUISES[guise](path)
    with pytest.raises(UnfitFileError):
        open_regular(path, mode)


def test_nothing_is_not_there(tmp_path: Path) -> None:
    assert not is_regular(tmp_path / "x") and not is_regular(tmp_path / "x" / "y")
    for look in (open_regular, read_bounded, require_regular):
        with pytest.raises(FileNotFoundError):
            look(tmp_path / "x")


def test_a_document_has_a_largest_size(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"a" * 100)
    assert read_bounded(path, 100) == b"a" * 100
    with pytest.raises(UnfitFileError, match=r"100 B large, and at most 0 MiB"):
        read_bounded(path, 99)
    os.truncate(path, 2**31)
    with pytest.raises(UnfitFileError, match=rf"2 GiB large, and at most {METADATA_BYTES >> 20} MiB"):
        read_bounded(path)


def test_lines_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"one\r\ntwo\n")
    assert read_text(path) == "one\ntwo\n" and read_last_lines(path, 6) == ["", "two"]
    os.truncate(path, 2**31)
    with open_regular(path, "r") as file, pytest.raises(UnfitFileError, match="a line of over"):
        list(bounded_lines(file, path))
    assert len("".join(read_last_lines(path))) <= 2**16
