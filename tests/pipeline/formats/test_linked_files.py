"""HDF5 files that lead to others, which may be no files at all."""

from __future__ import annotations

import os
from pathlib import Path

import h5py
import numpy as np
import pytest

from rankfold.pipeline.data.source import Source
from rankfold.pipeline.errors import InputError, SourceNotFoundError, UnfitFileError
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.importing import import_array

X = np.arange(12.0, dtype=np.float32).reshape(4, 3)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "elsewhere")
    return tmp_path / "elsewhere"


def read(source: Source) -> None:
    source.read_into(np.empty(source.shape, source.dtype), (0, source.shape[0]), (0, source.shape[1]))


@pytest.mark.parametrize("name", ["x.h5", "x.h5ad"])
def test_a_link_to_a_pipe_is_not_followed(tmp_path: Path, elsewhere: Path, name: str) -> None:
    path = tmp_path / name
    with h5py.File(path, "w") as file:
        file["X"] = X
        file["away"] = h5py.ExternalLink("elsewhere", "/x")
    with pytest.raises(UnfitFileError, match=f"{elsewhere} is a pipe"):
        open_source(path)
    with pytest.raises(UnfitFileError, match=f"{elsewhere} is a pipe"):
        import_array(path, tmp_path / "out.zarr")


@pytest.mark.parametrize("name", ["x.h5", "x.h5ad"])
def test_numbers_in_a_pipe_are_not_read(tmp_path: Path, elsewhere: Path, name: str) -> None:
    path = tmp_path / name
    with h5py.File(path, "w") as file:
        file.create_dataset("X", X.shape, X.dtype, external=[(str(elsewhere), 0, X.nbytes)])
    with pytest.raises(UnfitFileError, match=f"{elsewhere} is a pipe"):
        read(open_source(path, missing="fill"))


def test_parts_in_a_pipe_are_not_read(tmp_path: Path, elsewhere: Path) -> None:
    layout = h5py.VirtualLayout(X.shape, X.dtype)
    layout[...] = h5py.VirtualSource("elsewhere", "x", X.shape)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_virtual_dataset("X", layout)
    with pytest.raises(UnfitFileError, match=f"{elsewhere} is a pipe"):
        open_source(tmp_path / "x.h5", missing="fill")


def test_links_to_files_are_followed(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "elsewhere", "w") as file:
        file["x"] = X
    with h5py.File(tmp_path / "x.h5ad", "w") as file:
        file["X"] = h5py.ExternalLink("elsewhere", "/x")
        file["gone"] = h5py.ExternalLink("nowhere", "/x")
        file["soft"] = h5py.SoftLink("/X")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["X"] = X
        file["away"] = h5py.ExternalLink("elsewhere", "/x")
    read(open_source(tmp_path / "x.h5"))


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """A file of links to the matrix and to groups of another, as detectors write one file for each series."""
    (tmp_path / "parts").mkdir()
    with h5py.File(tmp_path / "parts" / "a.h5", "w") as file:
        file["entry/x"] = X
        file["soft"], file["hard"] = h5py.SoftLink("/entry/x"), file["entry/x"]
        file["circle"] = h5py.SoftLink("/circle")
    with h5py.File(tmp_path / "master.h5", "w") as file:
        file["x"] = h5py.ExternalLink("parts/a.h5", "/entry/x")
        file["group"] = h5py.ExternalLink("parts/a.h5", "/entry")
        file["twice"] = h5py.ExternalLink("parts/a.h5", "/soft")
        file["inner"] = h5py.SoftLink("/group/x")
        file["gone"] = h5py.ExternalLink("parts/b.h5", "/x")
    return tmp_path / "master.h5"


@pytest.mark.parametrize("name", ["x", "/x", "group/x", "twice", "inner"])
def test_a_link_to_a_matrix_of_another_file_names_it(linked: Path, name: str) -> None:
    source = open_source(f"{linked}::{name}")
    np.testing.assert_array_equal(source[...], X)
    assert source.name == f"{linked.parent / 'parts' / 'a.h5'}::{'soft' if name == 'twice' else 'entry/x'}"
    before = source.fingerprint()
    del source  # and let go of its file
    with h5py.File(linked.parent / "parts" / "a.h5", "a") as file:
        file["entry/x"][0, 0] = 7
    assert open_source(f"{linked}::{name}").fingerprint() != before


@pytest.mark.parametrize("name", ["entry/x", "/entry/x", "soft", "hard"])
def test_any_name_of_a_matrix_is_one(linked: Path, name: str) -> None:
    np.testing.assert_array_equal(open_source(f"{linked.parent / 'parts' / 'a.h5'}::{name}")[...], X)


def test_a_file_whose_only_matrix_is_a_link(linked: Path) -> None:
    with pytest.raises(InputError, match=r"links to other files, gone, group, twice, x\. Name one: .*::gone"):
        open_source(linked)
    with h5py.File(linked.parent / "one.h5", "w") as file:
        file["x"] = h5py.ExternalLink("parts/a.h5", "/entry/x")
    np.testing.assert_array_equal(open_source(linked.parent / "one.h5")[...], X)


def test_links_that_lead_nowhere_are_said(linked: Path) -> None:
    with pytest.raises(SourceNotFoundError, match=r"master\.h5::gone is a link, and leads to .*parts/b\.h5"):
        open_source(f"{linked}::gone")
    with pytest.raises(InputError, match="circle leads through more than 16 links"):
        open_source(f"{linked.parent / 'parts' / 'a.h5'}::circle")
    with h5py.File(linked.parent / "round.h5", "w") as file:
        file["x"] = h5py.ExternalLink("round.h5", "/x")
    with pytest.raises(SourceNotFoundError, match="leads to more than 16 links"):
        open_source(f"{linked.parent / 'round.h5'}::x")


@pytest.mark.parametrize("chunks", [(1000, 1000), (1, 1000), (10**6, 10)])
def test_what_a_header_declares_takes_no_memory(tmp_path: Path, chunks: tuple[int, int]) -> None:
    """10^12 rows: 8 GB and more, were the edges of chunks written out."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", (10**12, 1000), np.float32, chunks=chunks)
    grid = open_source(tmp_path / "x.h5").row_grid
    assert grid.length == 10**12 and grid.longest == chunks[0] and grid.count == 10**12 // chunks[0]
    assert grid.chunk_of(10**12 - 1) == (10**12 - chunks[0], 10**12)
