"""What results and unfinished runs of another version are worth: see ``docs/stability.md``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference import same_bytes

import rankfold as rf
from rankfold.pipeline.errors import OutputError

X = np.random.default_rng(0).standard_normal((3000, 8))
ANOTHER = "0.1.9"


def interrupt(*progress: Any) -> None:
    raise KeyboardInterrupt


def test_a_result_of_another_version_opens_and_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("rankfold.pipeline.engine.run.__version__", ANOTHER)
        made = rf.svd(X, 3, out=tmp_path / "r.zarr")
    before = same_bytes(made)
    again = rf.svd(X, 3, out=tmp_path / "r.zarr")
    assert same_bytes(again) == before
    assert rf.open_result(tmp_path / "r.zarr").attrs["version"] == ANOTHER != rf.__version__


def test_a_result_of_another_edition_is_told_and_made_anew_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("rankfold.api.execute.edition_of", lambda kind: 1)
        rf.svd(X, 3, out=tmp_path / "r.zarr")
    with pytest.raises(OutputError, match=r"edition of svd \(1 there, \d now\)"):
        rf.svd(X, 3, out=tmp_path / "r.zarr")
    assert rf.open_result(tmp_path / "r.zarr").attrs["edition"] == 1
    assert rf.svd(X, 3, out=tmp_path / "r.zarr", overwrite=True).attrs["edition"] > 1


def test_an_unfinished_run_of_another_version_is_refused_with_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("rankfold.pipeline.storage.run_directory.__version__", ANOTHER)
        with pytest.raises(KeyboardInterrupt):
            rf.svd(X, 3, out=tmp_path / "r.zarr", progress=interrupt)
    words = (
        rf"unfinished run that differs in version \({ANOTHER} there, {rf.__version__} now\).*overwrite=True"
    )
    with pytest.raises(OutputError, match=words):
        rf.svd(X, 3, out=tmp_path / "r.zarr")
    assert not (tmp_path / "r.zarr").exists()
    assert rf.svd(X, 3, out=tmp_path / "r.zarr", overwrite=True).s.shape == (3,)


def test_an_unfinished_run_of_another_request_is_told_as_a_result_is(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        rf.svd(X, 3, out=tmp_path / "r.zarr", progress=interrupt)
    with pytest.raises(OutputError, match=r"unfinished run that differs in rank \(3 there, 4 now\)\. Give "):
        rf.svd(X, 4, out=tmp_path / "r.zarr")
    with pytest.raises(
        OutputError, match=r"differs in data that has changed since, or another matrix\. Give "
    ):
        rf.svd(X + 1, 3, out=tmp_path / "r.zarr")


def test_a_result_without_a_manifest_is_read_and_its_chunks_are_counted(tmp_path: Path) -> None:
    made = rf.svd(X, 3, out=tmp_path / "r.zarr")
    values = np.asarray(made.Vt)
    (tmp_path / "r.zarr" / "manifest.json").unlink()
    np.testing.assert_array_equal(rf.open_result(tmp_path / "r.zarr").Vt, values)
    (tmp_path / "r.zarr" / "Vt" / "c" / "0" / "0").unlink()
    with pytest.raises(rf.RankfoldError, match="1 of 1 chunks of Vt have gone"):
        _ = rf.open_result(tmp_path / "r.zarr").Vt
