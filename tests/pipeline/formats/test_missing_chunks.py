"""Chunks, and inner chunks of shards, that a store does not hold: one rule in every guise and every door."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp
import zarr
from command_line import rankfold
from stores import read
from zarr.codecs import BytesCodec, GzipCodec, ShardingCodec, ZstdCodec

import rankfold as rf
from rankfold.estimators import PCA
from rankfold.pipeline.chunks import files as chunk_files
from rankfold.pipeline.chunks.absence import Absence
from rankfold.pipeline.data.source import absence_of
from rankfold.pipeline.errors import ChunkError, DataError, InputError
from rankfold.pipeline.formats import open_source

SHAPE = (43, 22)
FILL = 3.0


def matrix() -> npt.NDArray[np.float64]:
    """Random, but for blocks of the fill value."""
    x = np.random.default_rng(2).standard_normal(SHAPE)
    x[16:32] = FILL
    x[:8, 8:16] = FILL
    x[40:, 20:] = FILL
    return x


def array(folder: Path, **options: Any) -> Path:
    """The matrix as zarr writes it, which leaves out what is all fill value."""
    path = folder / "x.zarr"
    options = {"chunks": (4, 4), "fill_value": FILL, **options}
    zarr.create_array(path, shape=SHAPE, dtype="f8", **options)[...] = matrix()
    return path


def at_start(folder: Path) -> Path:
    """Shards whose index stands at their beginning."""
    codec = ShardingCodec(chunk_shape=(4, 4), codecs=[BytesCodec(), ZstdCodec()], index_location="start")
    return array(folder, chunks=(8, 8), serializer=codec, compressors=None, filters=None)


GUISES: dict[str, Callable[[Path], Path]] = {
    "v3": array,
    "v3 plain": lambda folder: array(folder, compressors=None),
    "v3 two codecs": lambda folder: array(folder, compressors=[GzipCodec(), ZstdCodec()]),
    "v2": lambda folder: array(folder, zarr_format=2),
    "v2 Fortran": lambda folder: array(folder, zarr_format=2, order="F"),
    "shards": lambda folder: array(folder, shards=(8, 8)),
    "shards plain": lambda folder: array(folder, shards=(8, 8), compressors=None),
    "shards two codecs": lambda folder: array(folder, shards=(8, 8), compressors=[GzipCodec(), ZstdCodec()]),
    "shards, index first": at_start,
}


def lacking() -> int:
    """Chunks of 4 x 4 that hold nothing but the fill value."""
    x = matrix()
    blocks = [x[i : i + 4, j : j + 4] for i in range(0, SHAPE[0], 4) for j in range(0, SHAPE[1], 4)]
    return sum(bool((block == FILL).all()) for block in blocks)


def whole(source: Any) -> npt.NDArray[Any]:
    return read(source, (0, source.shape[0]), (0, source.shape[1]))


@pytest.mark.parametrize("guise", GUISES)
def test_they_are_fill_value_and_counted_or_refused(guise: str, tmp_path: Path) -> None:
    path = GUISES[guise](tmp_path)
    source = open_source(path)
    source.check()
    np.testing.assert_array_equal(whole(source), zarr.open_array(path, mode="r")[...])
    assert absence_of(source) == Absence(lacking(), 66, ("3.0",))
    strict = open_source(path, missing_chunks="error")
    for attempt in (strict.check, lambda: whole(strict)):
        with pytest.raises(ChunkError, match=r"missing.* fill value 3\.0.* missing_chunks='fill'"):
            attempt()
    assert strict.fingerprint() == source.fingerprint()


@pytest.mark.parametrize("guise", ["v3", "shards"])
def test_a_store_that_holds_all_says_nothing(guise: str, tmp_path: Path) -> None:
    path = tmp_path / "x.zarr"
    options = {"shards": (8, 8)} if guise == "shards" else {}
    zarr.create_array(path, shape=SHAPE, dtype="f8", chunks=(4, 4), **options)[...] = matrix()
    strict = open_source(path, missing_chunks="error")
    strict.check()
    assert absence_of(open_source(path)) == Absence(0, 66, ("0.0",))
    result = rf.svd(path, 3)
    assert "missing_chunks" not in result.attrs["input"] and "store" not in str(result.attrs["warnings"])
    assert rf.plan("svd", path, 3).notes == ()


@pytest.mark.parametrize("guise", ["v2", "shards"])
def test_result_plan_and_info_say_how_many(guise: str, tmp_path: Path) -> None:
    path = GUISES[guise](tmp_path)
    words = f"{lacking()} of 66 chunks are not in the store and read as fill value 3.0"
    with pytest.warns(rf.RankfoldWarning, match=words):
        result = rf.svd(path, 3, out=tmp_path / "r.zarr")
    assert result.attrs["input"]["missing_chunks"] == {"missing": lacking(), "of": 66, "fill": ["3.0"]}
    assert [words in message for message in result.attrs["warnings"]].count(True) == 1
    np.testing.assert_allclose(result.s, np.linalg.svd(matrix(), compute_uv=False)[:3], rtol=1e-6)
    assert words in str(rf.plan("svd", path, 3))
    assert words in rankfold("info", path).stdout
    assert words in rankfold("plan", "svd", path, "--rank", "3").stdout
    assert words in str(json.loads(rankfold("info", path, "--json").stdout)["remarks"])


def test_one_name_refuses_them_in_every_door(tmp_path: Path) -> None:
    path = array(tmp_path, shards=(8, 8))
    flow = tmp_path / "flow.yaml"
    flow.write_text(
        f"workflow: w\ninputs:\n  x:\n    store: {path}\n    missing_chunks: error\noutputs: results\n"
        "stages:\n  a: {method: svd, input: x, rank: 2}\n"
    )
    doors: dict[str, Callable[[], Any]] = {
        "open": lambda: rf.open(path, missing_chunks="error").check(),
        "svd": lambda: rf.svd(path, 2, missing_chunks="error"),
        "knn": lambda: rf.knn(path, 2, missing_chunks="error"),
        "import": lambda: rf.import_array(path, tmp_path / "y.zarr", missing_chunks="error"),
        "estimator": lambda: PCA(2).fit(rf.open(path, missing_chunks="error")),
    }
    for door in doors.values():
        with pytest.raises(DataError, match=r"missing_chunks='fill'"):
            door()
    for words in (
        ["svd", path, "--rank", "2", "--out", tmp_path / "r.zarr"],
        ["import", path, tmp_path / "z.zarr"],
    ):
        run = rankfold(*words, "--missing-chunks", "error")
        assert run.exit_code == 4 and "--missing-chunks fill" in run.output, run.output
    run = rankfold("run", flow)
    assert run.exit_code == 4 and "missing_chunks: fill" in run.output, run.output
    flow.write_text(flow.read_text().replace("error", "fill"))
    assert rankfold("run", flow).exit_code == 0
    with pytest.raises(InputError, match="missing_chunks='none' is not known"):
        rf.open(path, missing_chunks="none")


def test_an_import_says_it_once_and_is_found_again(tmp_path: Path) -> None:
    path, copy = array(tmp_path), tmp_path / "y.zarr"
    report = rf.import_array(path, copy)
    assert f"{lacking()} of 66 chunks" in report.notes[0]
    np.testing.assert_array_equal(zarr.open_array(copy, mode="r")[...], matrix())
    assert rf.import_array(path, copy).done_before


@pytest.mark.parametrize("version", [2, 3])
def test_vectors_of_sparse_matrices(version: int, tmp_path: Path) -> None:
    dense = np.zeros((60, 30))
    dense[30:, 0], dense[45:, 3] = 1, 2
    rows, path = sp.csr_array(dense), tmp_path / "s.zarr"
    group = zarr.open_group(path, mode="w", zarr_format=version)
    group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [60, 30]})
    for name in ("data", "indices", "indptr"):
        values = getattr(rows, name)
        group.create_array(name, shape=values.shape, chunks=(5,), dtype=values.dtype)[...] = values
    source = open_source(path)
    source.check()
    np.testing.assert_array_equal(whole(source), dense)
    absence = absence_of(source)
    assert absence is not None and absence.count > 0 and absence.total == 9 + 9 + 13
    with pytest.warns(rf.RankfoldWarning, match=f"{absence.count} of 31 chunks are not in the store"):
        rf.svd(path, 2)
    with pytest.raises(ChunkError, match="missing_chunks='fill'"):
        rf.svd(path, 2, missing_chunks="error")


def test_series_and_stacked_arrays(tmp_path: Path) -> None:
    paths = []
    for number in range(3):
        (tmp_path / str(number)).mkdir()
        paths.append(str(array(tmp_path / str(number), shards=(8, 8))))
    series = open_source(paths)
    np.testing.assert_array_equal(whole(series), np.concatenate([matrix()] * 3))
    assert absence_of(series) == Absence(3 * lacking(), 198, ("3.0",))
    cube = matrix()[:40, :20].reshape(40, 4, 5)
    zarr.create_array(tmp_path / "c.zarr", shape=cube.shape, chunks=(4, 2, 5), dtype="f8", fill_value=FILL)[
        ...
    ] = cube
    stacked = open_source(tmp_path / "c.zarr", row_axes=0)
    np.testing.assert_array_equal(whole(stacked), cube.reshape(40, 20))
    absence = absence_of(stacked)
    assert absence is not None and absence.count >= 8 and absence.total == 20
    with pytest.raises(ChunkError, match="missing_chunks='fill'"):
        rf.pca(rf.open(tmp_path / "c.zarr", row_axes=0, missing_chunks="error"), 2)


def test_of_very_many_files_a_sample_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = array(tmp_path)
    monkeypatch.setattr(chunk_files, "LISTING_LIMIT", 33)
    absence = absence_of(open_source(path))
    assert absence is not None and absence.sampled and absence.total == 66
    assert abs(absence.count - lacking()) <= 12 and str(absence).startswith("about ")


@pytest.mark.parametrize("guise", GUISES)
def test_a_store_that_went_away_is_not_all_fill_value(guise: str, tmp_path: Path) -> None:
    path = GUISES[guise](tmp_path)
    source = open_source(path)
    shutil.rmtree(path)
    for attempt in (source.check, lambda: whole(source), lambda: rf.svd(source, 2)):
        with pytest.raises(DataError, match="no longer there"):
            attempt()


def test_a_store_that_was_replaced_is_opened_again(tmp_path: Path) -> None:
    path = array(tmp_path)
    source = open_source(path)
    shutil.rmtree(path)
    zarr.create_array(path, shape=(22, 43), chunks=(4, 4), dtype="f8")[...] = matrix().T
    with pytest.raises(DataError, match="was changed since it was opened"):
        rf.svd(source, 2)
