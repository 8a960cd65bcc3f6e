"""Nothing is used that is not whole: parts, scratch, the growing result, and results."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from covers import cover
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import decaying, same_bytes, to_zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import LocalStore

import rankfold as rf
from rankfold.pipeline import durable
from rankfold.pipeline.engine.durability import Background, FilePolicy
from rankfold.pipeline.errors import OutputError
from rankfold.pipeline.storage.checkpoint import (
    Ledger,
    checksum,
    damaged_block,
    load_if_whole,
    note_written,
    record_writes,
    save_arrays,
)
from rankfold.pipeline.storage.manifest import NAME, damage_of
from rankfold.pipeline.storage.run_directory import RunDirectory
from rankfold.pipeline.storage.temporary import TemporaryFolder

X = decaying(4000, 30, np.float64, power=0.4)
POSITIVE = np.abs(X)


class Killed(BaseException):
    """Stands for SIGKILL: nothing tidies up after it that a kill would not leave."""


def krylov(out: Path, **options: Any) -> rf.Result:
    return rf.pca(X, rank=4, solver="krylov", tol=1e-9, passes=3, out=out, **options)


def subspace(out: Path, **options: Any) -> rf.Result:
    return rf.svd(X, rank=4, solver="subspace", tol=1e-12, passes=3, out=out, **options)


def sketch(out: Path, **options: Any) -> rf.Result:
    return rf.svd(X, rank=4, solver="sketch", out=out, **options)


def tsqr(out: Path, **options: Any) -> rf.Result:
    return rf.svd(X, rank=4, solver="tsqr", out=out, **options)


def qr(out: Path, **options: Any) -> rf.Result:
    return rf.qr(X, out=out, **options)


def nmf(out: Path, **options: Any) -> rf.Result:
    return rf.nmf(POSITIVE, rank=3, passes=4, tol=1e-12, out=out, **options)


def knn(out: Path, **options: Any) -> rf.Result:
    return rf.knn(X[:, :4], k=3, out=out, **options)


CALLS: dict[str, Callable[..., rf.Result]] = {
    call.__name__: call for call in (krylov, subspace, sketch, tsqr, qr, nmf, knn)
}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rf.RankfoldWarning)
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Hashes of what undisturbed calls give."""
    import warnings

    folder = tmp_path_factory.mktemp("whole")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rf.RankfoldWarning)
        return {name: same_bytes(call(folder / f"{name}.zarr")) for name, call in CALLS.items()}


def killed_before_publishing(call: Callable[..., rf.Result], out: Path) -> Path:
    """The folder of a run that was killed when its result was complete and had no name."""

    def kill(self: RunDirectory) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunDirectory, "publish", kill)
        with pytest.raises(Killed):
            call(out)
    return out.with_name(out.name + ".run")


def names(folder: Path) -> set[str]:
    """Of all files and folders below."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def flip(path: Path, at: float = 0.5) -> None:
    data = bytearray(path.read_bytes())
    data[int(at * (len(data) - 1))] ^= 4
    path.write_bytes(data)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def say(path: Path) -> None:
    path.write_text('["what", {"nobody": [wrote]}]')


def turn_into_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES = (flip, empty, cut_short, zero, say, turn_into_folder, Path.unlink)


# Parts ---------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(place=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_every_bit_of_a_part_counts(place: int, bit: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("part") / "total.part"
    save_arrays(path, {"z": np.arange(7.0), "name": np.asarray("core"), "none": np.empty((0, 3))})
    data = bytearray(path.read_bytes())
    where = place % len(data)
    data[where] ^= 1 << bit
    path.write_bytes(data)
    state = load_if_whole(path)
    if state is not None:  # between header and arrays there are zeros that nobody reads
        np.testing.assert_array_equal(state["z"], np.arange(7.0))
        assert data[where] in (1 << bit for bit in range(8))


def test_a_part_counts_only_where_it_was_put(tmp_path: Path) -> None:
    state = tmp_path / f"r.zarr.run/state-{'0' * 32}"
    for name in ("pass-01", "pass-02"):
        (state / name).mkdir(parents=True)
        save_arrays(state / name / "total.part", {"z": np.ones(3)})
    shutil.copy(state / "pass-01/total.part", state / "pass-02/total.part")
    assert load_if_whole(state / "pass-01/total.part") is not None
    assert load_if_whole(state / "pass-02/total.part") is None
    moved = tmp_path / "moved.zarr.run"
    state.parent.rename(moved)
    assert load_if_whole(moved / state.name / "pass-01/total.part") is not None


def test_memory_order_survives(tmp_path: Path) -> None:
    x = np.asfortranarray(np.arange(12.0).reshape(3, 4))
    save_arrays(tmp_path / "x.part", {"f": x, "c": x.copy("C"), "half": x[:, ::2]})
    state = load_if_whole(tmp_path / "x.part") or {}
    assert state["f"].flags.f_contiguous and state["c"].flags.c_contiguous
    for name, values in (("f", x), ("c", x), ("half", x[:, ::2])):
        np.testing.assert_array_equal(state[name], values)
        assert state[name].flags.writeable


# Ledgers -------------------------------------------------------------------------------------------


def test_a_ledger_knows_what_this_thread_wrote(tmp_path: Path) -> None:
    path, ledger, block = tmp_path / "y.bin", Ledger(), np.arange(100.0)
    path.write_bytes(block.tobytes())
    with record_writes(ledger):
        note_written(path, 0, block[:60])
        note_written(path, 480, block[60:])
    note_written(path, 0, block[:1])  # nobody asks
    again = Ledger.taken_from({**ledger.as_arrays(), "z": np.zeros(1)})
    assert (
        again.blocks
        == ledger.blocks
        == {str(path): {0: (480, checksum(block[:60])), 480: (320, checksum(block[60:]))}}
    )
    file_policy = FilePolicy()
    assert file_policy.damage(again) is None
    flip(path)
    damage = file_policy.damage(again)
    assert damage is not None and "is not what was written" in str(damage)


@pytest.mark.parametrize(
    ("damage", "words"), [(cut_short, "has lost its end"), (Path.unlink, "is missing"), (flip, "is not what")]
)
def test_damaged_blocks_are_told(tmp_path: Path, damage: Callable[[Path], None], words: str) -> None:
    path, block = tmp_path / "y.bin", np.arange(100.0)
    path.write_bytes(block.tobytes())
    assert damaged_block(path, [(0, (800, checksum(block)))]) is None
    damage(path)
    assert words in str(damaged_block(path, [(0, (800, checksum(block)))]))


def test_ledgers_add_up_to_all_blocks_of_a_file(tmp_path: Path) -> None:
    """Streams write into one file: what is damaged of any of them is known from the ledger of all."""
    path, block = tmp_path / "y.bin", np.arange(100.0)
    one, other = Ledger(), Ledger()
    one.note(path, 0, block[:60])
    other.note(path, 480, block[60:])
    one.add(other)
    path.write_bytes(block.tobytes())
    assert FilePolicy().damage(one) is None
    flip(path, at=0.9)
    assert "is not what was written" in str(FilePolicy().damage(one))


def test_what_fails_in_the_background_fails_the_run() -> None:
    background, done = Background(), list[int]()
    background.put(lambda: done.append(1))
    background.put(lambda: (_ for _ in ()).throw(OSError("disk")))
    background.put(lambda: done.append(2))
    with pytest.raises(OSError, match="disk"):
        background.finish()
    assert done == [1]
    background.put(lambda: done.append(3))
    background.finish()
    assert done == [1, 3]


def test_an_interrupt_while_the_background_begins_is_no_other_error(monkeypatch: pytest.MonkeyPatch) -> None:
    background = Background()
    monkeypatch.setattr(threading.Thread, "start", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        background.put(lambda: None)
    background.stop()


def test_the_disk_begins_with_large_blocks_where_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, begun = tmp_path / "y.bin", list[tuple[int, int]]()
    block = np.zeros(2**18)
    path.write_bytes(block.tobytes())
    durable.begin_flush(path, 0, block.nbytes)
    durable.begin_flush(tmp_path / "nothing.bin", 0, block.nbytes)
    monkeypatch.setattr(
        durable, "_sync_file_range", lambda: lambda _, start, length, __: begun.append((start, length))
    )
    with record_writes(Ledger()):
        note_written(path, 0, block[:100])
        note_written(path, 800, block[100:])
    note_written(path, 0, block)  # of a run that nobody can come back to
    assert begun == [(800, block.nbytes - 800)]
    monkeypatch.setattr(durable, "_sync_file_range", lambda: None)
    durable.begin_flush(path, 0, block.nbytes)


# Runs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CALLS)
def test_files_of_a_killed_run_are_made_again_where_they_are_damaged(
    tmp_path: Path, name: str, whole: dict[str, str]
) -> None:
    """Each file in turn, each time by another damage: the same command ends with the same bytes."""
    killed = killed_before_publishing(CALLS[name], tmp_path / "killed.zarr")
    files = sorted(p.relative_to(killed) for p in killed.rglob("*") if p.is_file() and p.name != "lock")
    assert files
    for index, file in enumerate(files[:: max(1, len(files) // 12)]):
        out = tmp_path / "r.zarr"
        shutil.copytree(killed, tmp_path / "r.zarr.run")
        DAMAGES[index % len(DAMAGES)](tmp_path / "r.zarr.run" / file)
        assert same_bytes(CALLS[name](out)) == whole[name], file
        assert damage_of(out, sums=True) == []
        shutil.rmtree(out)
        shutil.rmtree(tmp_path / "r.zarr.run")


@pytest.mark.parametrize("damage", DAMAGES)
def test_scratch_is_compared_before_it_is_used(
    tmp_path: Path, damage: Callable[[Path], None], whole: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    run = killed_before_publishing(krylov, tmp_path / "r.zarr")
    for path in run.glob("state-*/rows/*"):
        path.unlink()  # the sweep over scratch has not been made yet
    shutil.rmtree(next(run.glob("result-*")) / "scores")
    damage(next(run.glob("scratch-*/Y-01.bin")))
    assert same_bytes(krylov(tmp_path / "r.zarr")) == whole["krylov"]
    assert "Y-01.bin" in caplog.text and "made again" in caplog.text


def test_scratch_that_became_a_link_to_itself_is_made_again(tmp_path: Path, whole: dict[str, str]) -> None:
    run = killed_before_publishing(krylov, tmp_path / "r.zarr")
    shutil.rmtree(next(run.glob("result-*")) / "scores")
    scratch = next(run.glob("scratch-*/Y-01.bin"))
    scratch.unlink()
    scratch.symlink_to(scratch.name)
    assert same_bytes(krylov(tmp_path / "r.zarr")) == whole["krylov"]


def test_parts_of_another_run_are_no_parts(tmp_path: Path, whole: dict[str, str]) -> None:
    run = killed_before_publishing(krylov, tmp_path / "r.zarr")
    other = killed_before_publishing(
        lambda out: rf.pca(X + 1, rank=4, solver="krylov", tol=1e-9, passes=3, out=out), tmp_path / "o.zarr"
    )
    state, theirs = next(run.glob("state-*")), next(other.glob("state-*"))
    for file in theirs.rglob("*.part"):
        shutil.copy(file, state / file.relative_to(theirs))
    scratch = next(run.glob("scratch-*"))
    for file in next(other.glob("scratch-*")).glob("*.bin"):
        shutil.copy(file, scratch / file.name)
    assert same_bytes(krylov(tmp_path / "r.zarr")) == whole["krylov"]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(
    "file", ["request.json", "run.json", "state-*/mark.json", "state-*/journal", "state-*"]
)
def test_garbage_in_a_run_directory_leaves_a_way_out(
    tmp_path: Path, file: str, damage: Callable[[Path], None], whole: dict[str, str]
) -> None:
    run = killed_before_publishing(krylov, tmp_path / "r.zarr")
    path = next(run.glob(file))
    if path.is_dir():
        shutil.rmtree(path)
        path.write_text("nothing")
    damage(path)
    assert same_bytes(krylov(tmp_path / "r.zarr")) == whole["krylov"]


@pytest.mark.parametrize("name", CALLS)
def test_files_in_place_of_the_folders_of_a_killed_run_give_way(
    tmp_path: Path, name: str, whole: dict[str, str]
) -> None:
    killed = killed_before_publishing(CALLS[name], tmp_path / "killed.zarr")
    folders = sorted(path.relative_to(killed) for path in killed.rglob("*") if path.is_dir())
    for folder in folders[:: max(1, len(folders) // 12)]:
        out = tmp_path / "r.zarr"
        shutil.copytree(killed, tmp_path / "r.zarr.run")
        shutil.rmtree(tmp_path / "r.zarr.run" / folder)
        (tmp_path / "r.zarr.run" / folder).write_text("in the way")
        assert same_bytes(CALLS[name](out)) == whole[name], folder
        shutil.rmtree(out)
        shutil.rmtree(tmp_path / "r.zarr.run")


def test_a_file_in_place_of_a_run_is_renamed_where_that_is_asked_for(
    tmp_path: Path, whole: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "r.zarr.run").write_text("of somebody else")
    with pytest.raises(OutputError, match="is a file where the run has to be"):
        krylov(tmp_path / "r.zarr")
    assert same_bytes(krylov(tmp_path / "r.zarr", overwrite=True)) == whole["krylov"]
    (kept,) = tmp_path.glob("r.zarr.run.*")
    assert kept.read_text() == "of somebody else" and kept.name in caplog.text


def test_what_a_run_left_that_was_killed_after_publishing_goes_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: dict[str, str]
) -> None:
    out, run = tmp_path / "r.zarr", tmp_path / "r.zarr.run"
    stray = ".run.json.0123456789abcdef0123456789abcdef"

    def kill(self: RunDirectory) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(RunDirectory, "clear", kill)
        with pytest.raises(Killed):
            krylov(out)
    (run / stray).write_text("half")
    (run / "replaced.zarr").mkdir()
    assert {"request.json", stray} < {path.name for path in run.iterdir()}
    assert same_bytes(krylov(out)) == whole["krylov"]
    assert {path.name for path in run.iterdir()} == {"run.json", "journal.jsonl", "lock"}
    # What another request has begun is not of this result.
    theirs = killed_before_publishing(lambda out: subspace(out, overwrite=True), out)
    begun = {path.name for path in theirs.iterdir()}
    krylov(out)
    assert {path.name for path in theirs.iterdir()} == begun


def test_a_stray_file_goes_when_the_run_ends(tmp_path: Path) -> None:
    run = killed_before_publishing(krylov, tmp_path / "r.zarr")
    (run / ".request.json.0123456789abcdef0123456789abcdef").write_text("half")
    krylov(tmp_path / "r.zarr")
    assert {path.name for path in run.iterdir()} == {"run.json", "journal.jsonl", "lock"}


@pytest.mark.process
def test_temporary_folders_of_programs_that_were_killed_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left, kept = (
        "from rankfold.pipeline.storage.temporary import TemporaryFolder as T; t = T();",
        TemporaryFolder(),
    )
    (tmp_path / "rankfold-0123456789abcdef01234567").mkdir()  # of another machine
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    killed = subprocess.run(
        [sys.executable, "-c", left + "import os; os.kill(os.getpid(), 9)"], env=environment
    )
    assert killed.returncode == -9 and len(list(tmp_path.iterdir())) == 3
    subprocess.run([sys.executable, "-c", left], env=environment, check=True)
    assert {path.name for path in tmp_path.iterdir()} == {kept.path.name, "rankfold-0123456789abcdef01234567"}


# Results -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("damage", "third"), cover(DAMAGES, range(3), strength=1))
def test_a_damaged_result_is_known_and_made_again(
    tmp_path: Path,
    damage: Callable[[Path], None],
    third: int,
    whole: dict[str, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    pristine = tmp_path / "pristine.zarr"
    krylov(pristine)
    files = sorted(path.relative_to(pristine) for path in pristine.rglob("*") if path.is_file())
    for file in files[third::3]:
        out, caplog_before = tmp_path / "r.zarr", len(caplog.records)
        shutil.copytree(pristine, out)
        shutil.copytree(tmp_path / "pristine.zarr.run", tmp_path / "r.zarr.run")
        damage(out / file)
        told = rf.verify(out)
        # Of a result without its manifest nothing but its chunks is known.
        assert told or file.name == NAME, file
        sizes = damage_of(out)
        if sizes:
            assert same_bytes(krylov(out)) == whole["krylov"], file
            assert len(caplog.records) > caplog_before
            assert rf.verify(out) == []
        else:
            assert damage in (flip, zero) or file.name == NAME, file
            assert same_bytes(krylov(out, overwrite=True)) or True
        shutil.rmtree(out)
        shutil.rmtree(tmp_path / "r.zarr.run")


@pytest.mark.parametrize("sums", [False, True])
def test_a_file_that_has_grown_is_damaged(tmp_path: Path, sums: bool) -> None:
    krylov(tmp_path / "r.zarr")
    chunk = tmp_path / "r.zarr/components/c/0/0"
    size = chunk.stat().st_size
    chunk.write_bytes(chunk.read_bytes() + b"\0")
    told = f"components/c/0/0 has {size + 1} bytes of {size}"
    assert damage_of(tmp_path / "r.zarr", sums=sums) == [told]


def test_a_damaged_result_is_not_transformed_by(tmp_path: Path) -> None:
    krylov(tmp_path / "r.zarr")
    cut_short(tmp_path / "r.zarr/components/c/0/0")
    for use in (
        lambda: rf.transform(tmp_path / "r.zarr", X),
        lambda: rf.update(tmp_path / "r.zarr", X),
        lambda: rf.check(tmp_path / "r.zarr", X),
        lambda: rf.reconstruct(tmp_path / "r.zarr"),
        lambda: rf.open_result(tmp_path / "r.zarr").components,
    ):
        with pytest.raises(rf.RankfoldError, match=r"is damaged: components/c/0/0 has .* bytes of"):
            use()


def test_drafts_of_a_killed_writer_are_not_published(tmp_path: Path) -> None:
    qr(tmp_path / "whole.zarr")
    run = killed_before_publishing(qr, tmp_path / "r.zarr")
    (next(run.glob("result-*")) / "Q/c/0/.0.deadbeef").write_bytes(b"half")
    qr(tmp_path / "r.zarr")
    assert not [path for path in (tmp_path / "r.zarr").rglob("*") if path.name.startswith(".")]
    assert names(tmp_path / "r.zarr") == names(tmp_path / "whole.zarr")


@pytest.mark.parametrize("name", ["zarr.json", "Q/zarr.json", "Q/c/0/0"])
def test_drafts_of_zarr_are_not_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Under the names that Zarr gives them, whose process ends before it renames one."""

    def end(*_: Any) -> None:
        raise Killed

    qr(tmp_path / "whole.zarr")
    result = next(killed_before_publishing(qr, tmp_path / "r.zarr").glob("result-*"))
    before = set(result.rglob("*"))
    value = default_buffer_prototype().buffer.from_bytes(b"{")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", end)
        with pytest.raises(Killed):
            asyncio.run(LocalStore(result).set(name, value))
    assert len(set(result.rglob("*")) - before) == 1
    qr(tmp_path / "r.zarr")
    assert names(tmp_path / "r.zarr") == names(tmp_path / "whole.zarr")


def test_a_temporary_run_flushes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(file: int) -> None:
        raise AssertionError("nobody can come back to this run")

    monkeypatch.setattr(os, "fsync", refuse)
    rf.pca(X, rank=4)


def test_a_manifest_is_plain(tmp_path: Path) -> None:
    krylov(tmp_path / "r.zarr")
    stored = json.loads((tmp_path / "r.zarr" / NAME).read_text())
    size, told = stored["files"]["components/c/0/0"]
    data = (tmp_path / "r.zarr/components/c/0/0").read_bytes()
    assert (size, told) == (len(data), checksum(data))
    logging.getLogger("rankfold").debug("%s", stored["request"])


@pytest.mark.parametrize("option", ["out", "run", "scratch"])
def test_nothing_is_written_into_the_input(tmp_path: Path, option: str) -> None:
    store = to_zarr(tmp_path / "x.zarr.run", X, (500, 30))
    out = {"out": tmp_path / "x.zarr.run/r.zarr", "run": tmp_path / "x.zarr", "scratch": tmp_path / "r.zarr"}
    scratch = tmp_path / "x.zarr.run/scratch" if option == "scratch" else None
    named = "scratch=" if option == "scratch" else "out="
    with pytest.raises(rf.RankfoldError, match=f"in, on or around its own input .*Choose another {named}"):
        rf.pca(store, rank=4, out=out[option], scratch=scratch)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.zarr.run"]


@pytest.mark.parametrize(
    "text", ["7", "[]", '{"at": "noon"}', '{"at": 1, "what": {}}', "\x00\x00", "[" * 9999]
)
def test_lines_of_a_journal_that_say_nothing_are_left_out(tmp_path: Path, text: str) -> None:
    run = killed_before_publishing(qr, tmp_path / "r.zarr")
    for path in (run / "journal.jsonl", next(run.glob("state-*/journal/*"))):
        path.write_text(text + "\n")
    qr(tmp_path / "r.zarr")
    assert rf.verify(tmp_path / "r.zarr") == []


def test_a_file_in_place_of_a_folder_of_chunks_gives_way(tmp_path: Path, whole: dict[str, str]) -> None:
    run = killed_before_publishing(qr, tmp_path / "r.zarr")
    chunks = next(run.glob("result-*/Q/c"))
    shutil.rmtree(chunks)
    chunks.write_text("no folder")
    assert same_bytes(qr(tmp_path / "r.zarr")) == whole["qr"]


def test_checksums_of_large_results_are_compared_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: dict[str, str]
) -> None:
    from typer.testing import CliRunner

    from rankfold.workflows.cli import app

    monkeypatch.setattr("rankfold.pipeline.storage.manifest.SMALL_BYTES", 0)  # as if it were large
    store = to_zarr(tmp_path / "x.zarr", X, (500, 30))
    command = ["qr", store, "--out", str(tmp_path / "r.zarr")]
    run = CliRunner().invoke
    assert "r.zarr: done" in run(app, command).output
    flip(tmp_path / "r.zarr/Q/c/0/0")
    assert "already done" in run(app, command).output
    told = run(app, ["verify", str(tmp_path / "r.zarr")])
    assert told.exit_code == 4 and "Q/c/0/0 is not what was written" in told.output
    assert "r.zarr: done" in run(app, [*command, "--verify"]).output
    assert run(app, ["verify", str(tmp_path / "r.zarr")]).output.strip().endswith("r.zarr: whole")


def test_a_damaged_result_is_not_reported_on(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from rankfold.workflows.cli import app

    krylov(tmp_path / "r.zarr")
    (tmp_path / "r.zarr/scores/zarr.json").write_text("null")
    for command in ("report", "verify"):
        told = CliRunner().invoke(app, [command, str(tmp_path / "r.zarr")])
        assert told.exit_code == 4 and "damaged" in told.stderr, command
        assert told.stderr.count("\n") == 1


def test_a_lock_that_leads_nowhere_gives_way(tmp_path: Path, whole: dict[str, str]) -> None:
    run = killed_before_publishing(krylov, tmp_path / "r.zarr")
    (run / "lock").unlink()
    (run / "lock").symlink_to("lock")
    assert same_bytes(krylov(tmp_path / "r.zarr")) == whole["krylov"]


def test_a_file_in_place_of_a_folder_of_a_result_is_replaced_and_a_link_is_not(tmp_path: Path) -> None:
    x, out = decaying(60, 6), tmp_path / "r.zarr"
    whole = same_bytes(rf.svd(x, 2, out=out))
    shutil.rmtree(out / "U")
    (out / "U").write_text("not what was written\n")
    assert same_bytes(rf.svd(x, 2, out=out, overwrite=True)) == whole
    shutil.move(out / "U", tmp_path / "elsewhere")
    (out / "U").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputError, match="holds U, which was not made by rankfold"):
        rf.svd(x, 3, out=out, overwrite=True)
    assert (tmp_path / "elsewhere" / "zarr.json").exists()
