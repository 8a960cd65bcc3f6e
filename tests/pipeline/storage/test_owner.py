"""A run that others could have changed is refused; a worker loads only pickles of its driver."""

from __future__ import annotations

import os
import pickle
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import rankfold as rf
from rankfold.pipeline.engine.scheduler import ByReference
from rankfold.pipeline.errors import DamagedStateError, OutputError
from rankfold.pipeline.storage import run_directory
from rankfold.pipeline.storage.run_directory import RunDirectory, make_own_folder, require_own

X = np.random.default_rng(0).random((60, 8))
STRANGER = 54321
"""A number that no user has."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="giving a folder to somebody else takes root")


@pytest.fixture(params=[0o000, 0o002, 0o022, 0o077], ids=["none", "group", "usual", "private"])
def mask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def unfinished(folder: Path, scratch: Path | None = None) -> RunDirectory:
    """A run that was claimed and left."""
    run = RunDirectory.beside(folder / "r.zarr", scratch, "0" * 32)
    with run.claim({"request": 1}, overwrite=False):
        (run.state / "some.part").write_bytes(b"1")
    return run


def go_on(run: RunDirectory, *, overwrite: bool = False) -> None:
    with run.claim({"request": 1}, overwrite=overwrite):
        pass


# Permissions ---------------------------------------------------------------------------------------


def test_no_folder_of_a_run_may_be_written_by_all(tmp_path: Path, mask: int) -> None:
    run = unfinished(tmp_path, tmp_path)
    for folder in (run.folder, run.state, run.scratch, run.result):
        mode = stat.S_IMODE(folder.stat().st_mode)
        assert not mode & stat.S_IWOTH
        # Where the mask lets all write, nobody else sees what lies within: files there may be writable.
        assert mode == (0o777 & ~mask if mask & 0o002 else 0o770 & ~mask)
    go_on(run)
    assert (run.state / "some.part").exists()


def test_files_that_a_run_leaves_are_within_what_the_mask_allows(tmp_path: Path, mask: int) -> None:
    rf.pca(X, 2, out=tmp_path / "r.zarr", scratch=tmp_path / "s")
    paths = [path for path in tmp_path.rglob("*") if not path.is_symlink()]
    assert paths and not any(stat.S_IMODE(path.stat().st_mode) & mask for path in paths)
    assert not (tmp_path / "r.zarr.run").stat().st_mode & stat.S_IWOTH


def test_a_folder_of_a_project_keeps_its_group_and_lets_it_write(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project").chmod(0o2775)
    before = os.umask(0o002)
    try:
        run = unfinished(tmp_path / "project")
    finally:
        os.umask(before)
    assert stat.S_IMODE(run.state.stat().st_mode) == 0o2775
    go_on(run)


@pytest.mark.parametrize("name", ["folder", "state", "scratch", "result"])
def test_a_run_that_all_may_write_is_refused_and_told_how_to_mend(tmp_path: Path, name: str) -> None:
    run = unfinished(tmp_path, tmp_path / "s")
    folder: Path = getattr(run, name)
    folder.chmod(0o777)
    with pytest.raises(
        OutputError, match=rf"{folder} may be written by everybody \(mode 777\).*chmod -R o-w"
    ):
        go_on(run)
    assert (run.state / "some.part").exists()
    subprocess.run(["chmod", "-R", "o-w", folder], check=True)
    go_on(run)
    assert (run.state / "some.part").exists()


# Owners --------------------------------------------------------------------------------------------


@needs_root
@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(("name", "option"), [("folder", "out"), ("state", "out"), ("scratch", "scratch")])
def test_a_run_of_somebody_else_is_refused(tmp_path: Path, name: str, option: str, overwrite: bool) -> None:
    run = unfinished(tmp_path, tmp_path / "s")
    folder: Path = getattr(run, name)
    os.chown(folder, STRANGER, -1)
    with pytest.raises(
        OutputError, match=rf"{folder} belongs to user {STRANGER}, .*choose another --{option}$"
    ):
        go_on(run, overwrite=overwrite)
    assert (run.state / "some.part").exists()
    os.chown(folder, os.geteuid(), -1)
    go_on(run, overwrite=overwrite)


@needs_root
def test_a_user_who_may_write_in_the_folder_of_another_does_not_go_on_with_it(tmp_path: Path) -> None:
    """A member of the group, for whom a file of his own can be made there."""
    tmp_path.chmod(0o777)
    for parent in tmp_path.parents[:3]:
        parent.chmod(parent.stat().st_mode | 0o755)
    run = unfinished(tmp_path)
    run.folder.chmod(0o770)
    os.chown(run.folder, -1, STRANGER)
    code = (
        "import os, tempfile, pwd\nfrom pathlib import Path\n"
        "from rankfold.pipeline.storage.run_directory import require_own\n"
        f"os.setgid({STRANGER}); os.setuid({STRANGER})\nrequire_own(Path({str(run.folder)!r}))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 1 and f"belongs to root (user 0), and you are user {STRANGER}" in ended.stderr


def test_where_all_files_have_one_owner_or_no_permissions_nothing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root over NFS, FAT, folders that containers share: what a new file looks like is what counts."""
    tmp_path.chmod(0o777)
    like_all = os.stat_result((0o100777, 0, 0, 1, tmp_path.stat().st_uid, 0, 0, 0, 0, 0))
    monkeypatch.setattr(run_directory, "_made_now", lambda folder: like_all)
    monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
    require_own(tmp_path)
    monkeypatch.setattr(run_directory, "_made_now", lambda folder: None)
    with pytest.raises(OutputError, match="belongs to"):
        require_own(tmp_path)


def test_a_folder_that_is_there_is_made_no_more_open(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(mode=0o700)
    make_own_folder(tmp_path / "a")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700


# Pickles -------------------------------------------------------------------------------------------


class Marker:
    """What an attacker would put in place of a fold: it runs a command when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


def test_a_pickle_that_was_exchanged_is_not_loaded(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "pass-01"
    folder.mkdir(parents=True)
    task = pickle.dumps(ByReference({"a": 1}, folder / "fold-1.pickle"))
    assert pickle.loads(task).value == {"a": 1}
    (folder / "fold-1.pickle").write_bytes(pickle.dumps(Marker(tmp_path / "ran")))
    fresh = "import pickle, sys; pickle.loads(bytes.fromhex(sys.argv[1]))"
    ended = subprocess.run(
        [sys.executable, "-c", fresh, task.hex()], capture_output=True, text=True, check=False
    )
    assert ended.returncode and "is not what the driver of this run has written" in ended.stderr
    assert not (tmp_path / "ran").exists()


def test_a_pickle_that_was_there_before_is_written_anew(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "pass-01"
    folder.mkdir(parents=True)
    (folder / "fold-1.pickle").write_bytes(pickle.dumps(Marker(tmp_path / "ran")))
    assert pickle.loads(pickle.dumps(ByReference([2], folder / "fold-1.pickle"))).value == [2]
    assert not (tmp_path / "ran").exists()


def test_a_loaded_value_travels_on_with_its_digest(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    first = pickle.dumps(ByReference([3], tmp_path / "state" / "fold-1.pickle"))
    assert pickle.dumps(pickle.loads(first)) == first
    (tmp_path / "state" / "fold-1.pickle").unlink()
    with pytest.raises(DamagedStateError, match="is missing"):
        pickle.loads(first.replace(b"fold-1", b"fold-2"))
