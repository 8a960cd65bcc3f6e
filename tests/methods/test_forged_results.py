"""What a result brings is checked by its law: a changed one is refused in words by all that reads it."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import forged_results
import numpy as np
import pytest
from forged_results import CASES, FACTS_ALONE, able, prepare, try_one
from forgeries import forgeries
from laws import LAWS as CALLS

import rankfold as rf
from rankfold.methods.registry import METHODS
from rankfold.pipeline.errors import DataError, InputError
from rankfold.pipeline.law import Law, result_law

DRAWN = 12
"""Pairs of a forgery and a reader of each result that are tried in the quick tier."""


def test_every_method_has_a_result_that_is_forged() -> None:
    assert set(METHODS.ours) - set(FACTS_ALONE) <= set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_every_array_has_a_law(name: str, tmp_path: Path) -> None:
    result = rf.open_result(prepare(name, tmp_path) / "r.zarr")
    declared = result_law(result.attrs["kind"]).arrays
    assert {each for each in result if not each.startswith("prepare_")} <= set(declared)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_forged_result_is_refused_in_words(name: str, tmp_path: Path) -> None:
    draw, folder = random.Random(name), prepare(name, tmp_path)
    everyone, all_forgeries = able(folder), forgeries(folder / "r.zarr")
    pairs = [(draw.choice(all_forgeries), draw.choice(everyone)) for _ in range(DRAWN)]
    assert not [fault for pair in pairs if (fault := try_one(folder, *pair))]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CASES)
def test_every_forged_result_is_refused_in_words(name: str, tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, forged_results.__file__, name, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert not ended.returncode, f"{(tmp_path / 'tried').read_text()}: {ended.stderr[-2000:]}"
    assert not ended.stdout, ended.stdout[:4000]


def test_an_array_that_is_named_is_of_the_shape_that_its_result_says(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((40, 5))
    rf.qr(x, out=tmp_path / "r.zarr")
    place = tmp_path / "r.zarr" / "Q" / "zarr.json"
    place.write_text(place.read_text().replace("40", "39"))
    with pytest.raises(
        DataError, match=r"Q is of shape \(39, 5\), with 39 along row, of which the matrix has 40"
    ):
        rf.open(f"{tmp_path / 'r.zarr'}::Q")
    shutil.rmtree(place.parent)
    with pytest.raises(DataError, match="is damaged: it has no Q"):
        rf.svd(f"{tmp_path / 'r.zarr'}::Q", 2)
    with pytest.raises(InputError, match="has no array QR"):
        rf.open(f"{tmp_path / 'r.zarr'}::QR")
    rf.svd(x, 2, with_rows=False, out=tmp_path / "s.zarr")
    with pytest.raises(InputError, match="has no array U"):  # as it was asked for
        rf.open(f"{tmp_path / 's.zarr'}::U")


@pytest.mark.parametrize("name", [name for name, law in CALLS.items() if law.name == name])
def test_results_as_they_are_obey_their_laws(name: str, tmp_path: Path) -> None:
    law = CALLS[name]
    result = rf.open_result(law(law.store(tmp_path), tmp_path, threads=2).path)
    result.require_whole()


@pytest.mark.parametrize(
    ("law", "values", "place"),
    [
        (Law(), np.array([0.0, np.nan]), "1"),
        (Law(), np.array([[0, 1], [np.inf, 0]], np.float32), "1, 0"),
        (Law(), np.array([0, 1j * np.inf]), "1"),
        (Law(least=0), np.array([3, 2, -1]), "2"),
        (Law(below=("row",)), np.array([[0, 9], [10, 0]]), "1, 0"),
        (Law(reaches=("row",)), np.array([0, 10, 11]), "2"),
        (Law(rising=True), np.array([[0, 1], [3, 2]]), "1, 1"),
        (Law(least=0, reaches=("row",), rising=True, spans=True), np.array([0, 4, 9]), "2"),
        (Law(least=0, reaches=("row",), rising=True, spans=True), np.array([10, 10, 10]), "0"),
        (Law(falling=True), np.array([5.0, 4.0, 4.5]), "2"),
    ],
)
def test_a_law_names_the_first_number_that_breaks_it(
    law: Law, values: np.ndarray[tuple[int, ...], np.dtype[np.float64]], place: str
) -> None:
    with pytest.raises(DataError, match=rf"^r\.zarr: a\[{place}\] is .* is to be "):
        law.require_all("r.zarr: a", values, {"row": 10})


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128, np.int32, np.int64])
def test_a_law_lets_what_is_within_bounds_pass(dtype: type) -> None:
    for values in (np.arange(10).astype(dtype), np.empty((0, 3), dtype), np.empty((3, 0), dtype)):
        Law(axes=("row",), least=0, below=("row",)).require_all("a", values, {"row": 10})
