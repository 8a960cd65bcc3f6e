"""How commands end that are asked to: in good order, and with nothing left behind."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from drivers import HERE

import rankfold as rf
from rankfold.pipeline.errors import DataError
from rankfold.workflows.reporting import DRAINS, report_errors


@pytest.fixture
def own_handlers() -> Iterator[None]:
    """Signals mean to later tests what they meant before."""
    kept = {number: signal.getsignal(number) for number in DRAINS}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("own_handlers")
def test_a_second_signal_does_not_disturb_the_end() -> None:
    done = []
    with pytest.raises(SystemExit) as ended, report_errors(False):
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGUSR1)
            done.append("cleaned up")
    assert ended.value.code == 75 and done == ["cleaned up"]


def forget() -> None:
    """A file is read that its server has forgotten."""
    raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))


def read_chunk() -> None:
    """The same in the midst of a matrix."""
    try:
        forget()
    except OSError as error:
        raise DataError("a chunk cannot be read") from error


@pytest.mark.usefixtures("own_handlers")
@pytest.mark.parametrize("read", [forget, read_chunk])
def test_a_file_that_its_server_has_forgotten_is_more_to_do(
    read: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended, report_errors(False):
        read()
    said = capsys.readouterr().err
    assert ended.value.code == 75 and "stale file handle" in said and "the same command goes on" in said


@pytest.mark.usefixtures("own_handlers")
def test_an_error_that_is_its_own_cause_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    error = DataError("a chunk is missing")
    with pytest.raises(SystemExit) as ended, report_errors(False):
        raise error from error
    assert ended.value.code == 4 and capsys.readouterr().err == "rankfold: a chunk is missing\n"


@pytest.mark.usefixtures("own_handlers")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_a_signal_that_comes_in_a_callback_is_not_lost(
    number: signal.Signals, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    class Held:
        def __del__(self) -> None:
            signal.raise_signal(number)

    with pytest.raises(SystemExit) as ended, report_errors(False):
        held = Held()
        del held  # Python prints what is raised here, and goes on
        time.sleep(30)
    said = capsys.readouterr().err
    assert ended.value.code == code and "the same command goes on" in said and "Exception ignored" not in said


@pytest.mark.usefixtures("own_handlers")
def test_a_library_that_handles_all_errors_does_not_handle_a_signal() -> None:
    with pytest.raises(SystemExit) as ended, report_errors(False):
        try:
            signal.raise_signal(signal.SIGTERM)
        except Exception:  # noqa: BLE001
            time.sleep(0)
    assert ended.value.code == 75


SIGNALED_AT_THE_END = """
import os, signal, sys
from rankfold.__main__ import main

class Late:
    def __del__(self, kill=os.kill, number=int(sys.argv.pop(1))):
        kill(os.getpid(), number)

late = Late()  # falls with its module, when the interpreter has taken its handlers away
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, *DRAINS])
@pytest.mark.parametrize(("argument", "code"), [("--version", 0), ("--nothing", 2)])
def test_a_signal_to_a_command_that_is_done_leaves_its_exit_code(
    number: signal.Signals, argument: str, code: int
) -> None:
    command = [sys.executable, "-c", SIGNALED_AT_THE_END, str(int(number)), argument]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == code
    assert "Exception ignored" not in ended.stderr


def test_a_command_without_output_leaves_no_folder(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((300, 20)))
    rf.svd(tmp_path / "x.npy", 3, memory="256MiB", out=tmp_path / "r.zarr")
    held = [sys.executable, str(HERE / "held_command.py"), "check"]
    with subprocess.Popen(
        [*held, "check", "r.zarr", "x.npy", "--threads", "1"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(temporary)},
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stderr is not None
        assert any("held" in line for line in child.stderr)
        assert [*temporary.iterdir()]
        child.send_signal(signal.SIGTERM)
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=60)
    assert child.returncode == 75
    assert not [*temporary.iterdir()]
