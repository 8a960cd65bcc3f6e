"""Parts are written whole or not at all, and a run folder has one owner at a time."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rankfold as rf
from rankfold.pipeline.errors import DataError, DiskSpaceError, OutputError
from rankfold.pipeline.planning import plan
from rankfold.pipeline.planning.plan import check_disk
from rankfold.pipeline.storage.checkpoint import (
    State,
    atomic_file,
    load_arrays,
    load_if_whole,
    load_json,
    save_arrays,
    save_json,
)
from rankfold.pipeline.storage.manifest import damage_of, write_manifest
from rankfold.pipeline.storage.run_directory import RunDirectory, digest

STATE: State = {"sum": np.arange(3000.0).reshape(30, 100), "next_panel": np.array(7)}


def assert_state(state: State | None) -> None:
    assert state is not None and list(state) == list(STATE)
    for name, value in STATE.items():
        np.testing.assert_array_equal(state[name], value)


# Parts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durable", [True, False])
def test_a_part_reads_as_it_was_written_and_leaves_nothing_beside(tmp_path: Path, durable: bool) -> None:
    for _ in range(2):
        save_arrays(tmp_path / "part.part", STATE, durable=durable)
        assert_state(load_arrays(tmp_path / "part.part"))
    assert_state(load_if_whole(tmp_path / "part.part"))
    assert list(load_if_whole(tmp_path / "part.part", "next_panel") or ()) == ["next_panel"]
    assert os.listdir(tmp_path) == ["part.part"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("before", [None, b"earlier"])
def test_an_error_while_writing_leaves_what_was_there(
    tmp_path: Path, error: type[BaseException], before: bytes | None
) -> None:
    path = tmp_path / "part"
    if before:
        path.write_bytes(before)
    with pytest.raises(error), atomic_file(path) as file:
        file.write(b"half of")
        assert path.exists() is bool(before)
        raise error
    assert os.listdir(tmp_path) == (["part"] if before else [])
    assert not before or path.read_bytes() == before


def test_json_reads_as_it_was_written(tmp_path: Path) -> None:
    assert load_json(tmp_path / "none.json") is None
    value = {"b": [1, 2.5, None], "a": "ä"}
    save_json(tmp_path / "some.json", value)
    assert load_json(tmp_path / "some.json") == value
    assert (tmp_path / "some.json").read_text().index('"a"') < (tmp_path / "some.json").read_text().index(
        '"b"'
    )


def test_what_is_not_there_is_absent(tmp_path: Path) -> None:
    assert load_if_whole(tmp_path / "none.part") is None
    save_arrays(tmp_path / "part.part", STATE)
    assert load_if_whole(tmp_path / "part.part", "another") is None


# Damage --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("damage") / "part.part"
    save_arrays(path, STATE)
    return path


def read_damaged(whole: Path, content: bytes) -> State | None:
    path = whole.with_name("damaged.part")
    path.write_bytes(content)
    return load_if_whole(path)


@settings(max_examples=50)
@given(length=st.integers(0, 25_000) | st.integers(0, 400), zeros=st.booleans())
def test_a_part_cut_short_is_absent(whole: Path, length: int, zeros: bool) -> None:
    content = whole.read_bytes()
    kept = content[: min(length, len(content) - 1)]
    # A file system that allocates late leaves the length right and the rest zero.
    assert read_damaged(whole, kept + bytes(len(content) - len(kept)) * zeros) is None


def test_a_part_with_a_lost_block_is_absent(whole: Path) -> None:
    content = whole.read_bytes()
    for start in range(0, len(content), 512):
        lost = content[start : start + 512]
        if any(lost):
            assert read_damaged(whole, content[:start] + bytes(len(lost)) + content[start + 512 :]) is None


def test_a_part_with_a_wrong_byte_is_absent_or_right(whole: Path) -> None:
    content, data = whole.read_bytes(), STATE["sum"].tobytes()
    bulk = range(content.index(data) + 16, content.index(data) + len(data) - 16)
    for place in (i for i in range(len(content)) if i not in bulk):
        for mask in (0x01, 0x04, 0x1D, 0xFF):
            wrong = bytearray(content)
            wrong[place] ^= mask
            state = read_damaged(whole, bytes(wrong))
            # Some bytes of a zip file mean nothing, and its last record may hide a name.
            for name, value in (state or {}).items():
                np.testing.assert_array_equal(value, STATE[name])


# Full disk -----------------------------------------------------------------------------------------


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB, where this process may make one."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("making a small file system needs root and Linux")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("durable", [True, False])
def test_a_full_disk_is_named_and_loses_nothing(full_disk: Path, durable: bool) -> None:
    path = full_disk / "part.part"
    save_arrays(path, STATE)
    with pytest.raises(DiskSpaceError, match=rf"disk is full: writing {path}.*same command.*scratch="):
        save_arrays(path, {"sum": np.ones(100_000)}, durable=durable)
    assert os.listdir(full_disk) == ["part.part"]
    assert_state(load_if_whole(path))


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.ENOSPC, DiskSpaceError),
        (errno.EDQUOT, DiskSpaceError),
        (errno.EROFS, OutputError),
        (errno.EACCES, OutputError),
        (errno.EFBIG, OutputError),
        (errno.EIO, OSError),
    ],
)
def test_errors_of_the_disk_say_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, expected: type[Exception]
) -> None:
    def failing(descriptor: int) -> NoReturn:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(expected) as caught:
        save_arrays(tmp_path / "part.part", STATE, durable=True)
    assert type(caught.value) is expected and "part.part" in str(caught.value)
    assert os.listdir(tmp_path) == []


# The run folder ------------------------------------------------------------------------------------

HOLD = """
import sys, time
from pathlib import Path
from rankfold.pipeline.planning.plan import check_disk
from rankfold.pipeline.storage.run_directory import RunDirectory
with RunDirectory.beside(Path(sys.argv[1]), None, "0").claim({"seed": 0}, overwrite=False):
    print("held", flush=True)
    time.sleep(60)
"""


def claim(
    output: Path, *, overwrite: bool = False, **identity: Any
) -> contextlib.AbstractContextManager[None]:
    return RunDirectory.beside(output, None, digest(identity)).claim(identity, overwrite=overwrite)


@contextlib.contextmanager
def holder(output: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that works on the output."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(output)], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def test_a_file_system_that_keeps_no_locks_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(file: object, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with (
        pytest.raises(OutputError, match=r"r\.zarr keeps no locks \(No locks available\)"),
        claim(tmp_path / "r.zarr", seed=0),
    ):
        pass


def test_a_second_run_of_this_process_is_refused(tmp_path: Path) -> None:
    output = tmp_path / "r.zarr"
    holder_ = rf"another run is writing {output} \(process {os.getpid()} on {socket.gethostname()}\)"
    with claim(output, seed=0):
        with pytest.raises(OutputError, match=holder_), claim(output, seed=0):
            pass
        with claim(tmp_path / "other.zarr", seed=0):
            pass
    with claim(output, seed=0):
        pass


def test_a_second_process_is_refused_until_the_first_is_killed(tmp_path: Path) -> None:
    output = tmp_path / "r.zarr"
    with holder(output) as process:
        refused = pytest.raises(OutputError, match=rf"process {process.pid} on .*choose another out=")
        with refused, claim(output, seed=0, overwrite=True):
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
        with claim(output, seed=0):
            pass


def test_another_request_is_refused_with_what_differs(tmp_path: Path) -> None:
    output = tmp_path / "r.zarr"
    with claim(output, seed=0, rank=5, input="x"):
        pass
    with claim(output, seed=0, rank=5, input="x"):
        pass
    with (
        pytest.raises(OutputError, match="unfinished run") as caught,
        claim(output, seed=1, rank=5, input="x"),
    ):
        pass
    assert "differs in seed (0 there, 1 now)." in str(caught.value)
    assert "overwrite=True" in str(caught.value)


def test_overwriting_discards_what_another_request_left(tmp_path: Path) -> None:
    output = tmp_path / "r.zarr"
    run = RunDirectory.beside(output, None, digest({"seed": 0}))
    with claim(output, seed=0):
        save_arrays(run.state / "part.part", STATE)
        (run.result / "data").write_text("first")
    with claim(output, seed=1, overwrite=True):
        assert not list(run.folder.rglob("part.part")) and not run.result.exists()
    with claim(output, seed=1):
        pass


def test_the_same_request_keeps_its_state_even_where_overwriting_is_allowed(tmp_path: Path) -> None:
    run = RunDirectory.beside(tmp_path / "r.zarr", None, digest({"seed": 0}))
    with run.claim({"seed": 0}, overwrite=False):
        save_arrays(run.state / "part.part", STATE)
    with run.claim({"seed": 0}, overwrite=True):
        assert_state(load_if_whole(run.state / "part.part"))


@pytest.mark.parametrize("lost", ["result", "scratch"])
def test_state_without_what_it_tells_of_is_not_gone_on_from(tmp_path: Path, lost: str) -> None:
    run = RunDirectory.beside(tmp_path / "r.zarr", None, digest({"seed": 0}))
    with run.claim({"seed": 0}, overwrite=False):
        save_arrays(run.state / "part.part", STATE)
    shutil.rmtree(getattr(run, lost))
    with run.claim({"seed": 0}, overwrite=False):
        assert not (run.state / "part.part").exists()
        assert run.result.is_dir() and run.scratch.is_dir()


def test_an_output_appears_when_it_is_published(tmp_path: Path) -> None:
    run = RunDirectory.beside(tmp_path / "r.zarr", None, digest({"seed": 0}))
    moments = {"first": "2026-11-26T03:00:00.5Z", "second": "2026-11-27T03:00:00Z"}
    for content, moment in moments.items():
        with run.claim({"seed": 0}, overwrite=False) as held:
            (run.result / "data").write_text(content)
            write_manifest(run.result, run.request, {})
            run.log_attempt({"started": moment})
            held.publish()
        assert (run.output / "data").read_text() == content
        assert not run.state.exists() and not run.scratch.exists() and not run.result.exists()
    assert [a["started"] for a in load_json(run.record)["attempts"]] == [*moments.values()]


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOSPC])
def test_an_error_of_the_work_is_not_blamed_on_the_lock(tmp_path: Path, number: int) -> None:
    error = OSError(number, os.strerror(number), "/data/x.npy")
    with pytest.raises((OSError, OutputError)) as caught, claim(tmp_path / "r.zarr", seed=0):
        raise error
    assert str(tmp_path / "r.zarr.run" / "lock") not in str(caught.value)
    assert caught.value is error or number == errno.ENOSPC


def test_an_output_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused = pytest.raises(OutputError, match=r"cannot write .*Choose another out=")
    with refused, claim(tmp_path / "file" / "r.zarr", seed=0):
        pass


def test_what_an_earlier_attempt_has_left_counts_as_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = rf.plan("pca", np.ones((500, 20)), rank=3, solver="krylov")
    need = made.scratch_bytes + made.result_bytes + made.checkpoint_bytes
    for scratch in (None, tmp_path / "elsewhere"):
        run = RunDirectory.beside(tmp_path / f"{scratch is None}.zarr", scratch, "hash")
        for folder in (run.state, run.scratch, run.result):
            folder.mkdir(parents=True)
            (folder / "part").write_bytes(bytes(7))
        with_room(monkeypatch, {tmp_path: need - 22})
        with pytest.raises(DiskSpaceError, match=r"scratch and result take .* scratch=.* result, out="):
            check_disk(made, run.scratch, run.folder)
        with_room(monkeypatch, {tmp_path: need - 21})
        check_disk(made, run.scratch, run.folder)


def with_room(monkeypatch: pytest.MonkeyPatch, free: dict[Path, int]) -> None:
    """Have each of these folders be a file system with so many bytes free."""

    def place(folder: Path) -> Path:
        return next(each for each in (folder, *folder.parents) if each in free)

    monkeypatch.setattr(plan, "device_of", place)
    monkeypatch.setattr(plan, "free_bytes", lambda folder: free[place(folder)])


def test_scratch_and_the_result_take_room_where_they_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, local, shared = np.random.default_rng(0).random((500, 20)), tmp_path / "local", tmp_path / "shared"
    for folder in (local, shared):
        folder.mkdir()
    made = rf.plan("pca", x, rank=3, solver="krylov")
    scratch, kept = made.scratch_bytes, made.result_bytes + made.checkpoint_bytes
    where: Any = {"rank": 3, "solver": "krylov", "out": shared / "r.zarr", "scratch": local}
    with_room(monkeypatch, {local: 10 * (scratch + kept), shared: kept - 1})
    with pytest.raises(DiskSpaceError) as refused:
        rf.pca(x, **where)
    said = str(refused.value)
    assert re.match(r"the result and its checkpoints take .*, but \S+/shared has .* free\. .* out=\.$", said)
    assert "scratch=" not in said and not any(shared.iterdir())
    with_room(monkeypatch, {local: scratch - 1, shared: 10 * (scratch + kept)})
    with pytest.raises(DiskSpaceError, match=r"^scratch takes .*, but \S+/local has .* scratch="):
        rf.pca(x, **where)
    with_room(monkeypatch, {local: 0, shared: 0})
    with pytest.raises(DiskSpaceError, match=r"^scratch takes .*local.* the result and .*shared.* out="):
        rf.pca(x, **where)
    with_room(monkeypatch, {local: scratch, shared: kept})
    assert rf.pca(x, **where).path == shared / "r.zarr"


def test_a_result_that_lost_chunks_is_made_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    x, out = np.random.default_rng(0).random((500, 12)), tmp_path / "r.zarr"
    whole = np.asarray(rf.pca(x, rank=3, out=out).components)
    assert damage_of(out, sums=True) == []
    shutil.rmtree(out / "components")
    with pytest.raises(DataError, match=r"components/c/0/0 is missing"):
        _ = rf.open_result(out).components
    shutil.rmtree(out / "scores" / "c")
    with pytest.raises(DataError, match=r"is damaged: scores/c/0/0 is missing\. Give the command"):
        _ = rf.open_result(out).scores
    again = rf.pca(x, rank=3, out=out)
    assert "is damaged: components/c/0/0 is missing" in caplog.text and "made again" in caplog.text
    np.testing.assert_array_equal(again.components, whole)
    assert damage_of(out, sums=True) == []


def test_results_of_zeros_are_whole(tmp_path: Path) -> None:
    x = np.zeros((300, 12), np.float32)
    x[:, 0] = np.linspace(0, 1, 300)
    rf.svd(x, rank=2, out=tmp_path / "svd.zarr")
    rf.pca(x, rank=2, center=False, out=tmp_path / "pca.zarr")
    rf.qr(x[:, :4], out=tmp_path / "qr.zarr")
    rf.qr(np.ascontiguousarray(x[:9]), out=tmp_path / "wide.zarr")
    rf.nmf(x, rank=2, out=tmp_path / "nmf.zarr")
    for symmetric in (None, "union"):
        same = np.ones((60, 3))  # all distances are 0
        rf.knn(same, k=3, symmetric=symmetric, out=tmp_path / f"knn-{symmetric}.zarr")
    for path in tmp_path.glob("*.zarr"):
        assert damage_of(path, sums=True) == [], path
