"""What runs do on a file system whose locks keep nobody out, as those of Lustre with ``localflock``."""

from __future__ import annotations

import contextlib
import fcntl
from pathlib import Path

import pytest

from rankfold.pipeline import outputs
from rankfold.pipeline.errors import DataError, LockedError, OutputError
from rankfold.pipeline.storage.checkpoint import atomic_file
from rankfold.pipeline.storage.run_directory import RunDirectory, digest

IDENTITY = {"seed": 0}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    monkeypatch.setattr(fcntl, "flock", lambda file, operation: None)
    return RunDirectory.beside(tmp_path / "r.zarr", None, digest(IDENTITY))


def test_who_came_first_publishes_nothing(run: RunDirectory) -> None:
    gives_way = pytest.raises(
        LockedError, match=r"another run \(process \d+ on .*\) has begun to write .*r\.zarr"
    )
    with gives_way, run.claim(IDENTITY, overwrite=False) as first:
        with run.claim(IDENTITY, overwrite=False) as second:
            (run.result / "data").write_text("whole")
            second.publish()
        first.publish()
    assert (run.output / "data").read_text() == "whole"


def test_what_the_other_was_writing_is_not_published(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other loses its folder in the midst of a file, which it then cannot remove."""
    rename = outputs.rename_new

    def rename_beside_a_writer(source: Path, target: Path) -> None:
        with contextlib.suppress(OutputError), atomic_file(source / "zarr.json") as file:
            file.write(b"half")
            rename(source, target)

    monkeypatch.setattr(outputs, "rename_new", rename_beside_a_writer)
    with run.claim(IDENTITY, overwrite=False) as held:
        (run.result / "data").write_text("whole")
        held.publish()
    assert [path.name for path in run.output.iterdir()] == ["data"]


def test_what_the_other_needs_is_not_removed(run: RunDirectory) -> None:
    with run.claim(IDENTITY, overwrite=False) as second:
        with pytest.raises(LockedError), run.claim(IDENTITY, overwrite=False):
            (run.folder / "lock").write_text("process 1 on another\n")
            raise KeyError("what two runs in one folder end with")
        with pytest.raises(LockedError, match="process 1 on another"):
            second.discard()
        assert run.state.is_dir() and run.result.is_dir()


def test_an_error_of_a_run_alone_stays_what_it_is(run: RunDirectory) -> None:
    with pytest.raises(DataError, match="of its own"), run.claim(IDENTITY, overwrite=False) as held:
        held.discard()
        raise DataError("of its own")
    assert not run.folder.exists()
