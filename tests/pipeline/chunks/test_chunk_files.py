"""Files of chunks that are larger than their array can have them are refused before they are read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from rankfold.pipeline.chunks.regular_store import RegularStore, largest_chunks, zarr_array, zarr_group
from rankfold.pipeline.errors import UnfitFileError

KINDS: dict[str, dict[str, Any]] = {
    "Zarr 3": {},
    "Zarr 2": {"zarr_format": 2},
    "shards": {"shards": (40, 6)},
    "not compressed": {"compressors": None},
    "filtered": {"zarr_format": 2, "filters": [numcodecs.Delta("<f8")]},
}


def chunk_files(folder: Path) -> list[Path]:
    names = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in names)


@pytest.mark.parametrize("within", ["", "group/deep"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_zeros_in_place_of_a_chunk(tmp_path: Path, kind: str, within: str) -> None:
    x = np.arange(360.0).reshape(60, 6)
    store = tmp_path / "x.zarr"
    array = zarr.create_array(
        store, name=within or None, shape=x.shape, chunks=(20, 6), dtype="f8", **KINDS[kind]
    )
    array[...] = x
    assert np.array_equal(zarr_array(store, within)[...], x)
    os.truncate(chunk_files(store)[0], 2**31)
    with pytest.raises(UnfitFileError, match=r"is 2 GiB large, and a chunk of its array has at most"):
        zarr_array(store, within)[...]


def test_text_and_consolidated_metadata(tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path / "cells.zarr", mode="w", zarr_format=2)
    words = np.array([f"cell {i}" * 40 for i in range(90)], object)
    array = group.create_array("obs/_index", shape=words.shape, chunks=(30,), dtype=str)
    array[...] = words
    zarr.consolidate_metadata(group.store, zarr_format=2)
    (tmp_path / "cells.zarr" / "obs" / "_index" / ".zarray").unlink()  # the copy is all that is read
    assert [*zarr_group(tmp_path / "cells.zarr")["obs/_index"][...]] == [*words]
    os.truncate(tmp_path / "cells.zarr" / "obs" / "_index" / "1", 2**31)
    with pytest.raises(UnfitFileError, match="large"):
        zarr_group(tmp_path / "cells.zarr")["obs/_index"][...]


@given(
    st.sampled_from(["bool", "uint8", "float16", "float32", "complex128", "<U30", "S5", "datetime64[s]"]),
    st.lists(st.integers(1, 9), min_size=1, max_size=3),
    st.sampled_from([None, "auto"]),
    st.sampled_from([2, 3]),
)
def test_no_chunk_that_is_written_is_refused(
    tmp_path_factory: pytest.TempPathFactory,
    dtype: str,
    shape: list[int],
    compressors: str | None,
    version: int,
) -> None:
    folder = tmp_path_factory.mktemp("any") / "x.zarr"
    values = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    options: dict[str, Any] = {} if compressors else {"compressors": None}
    array = zarr.create_array(folder, shape=shape, chunks=shape, dtype=dtype, zarr_format=version, **options)
    array[...] = values
    assert np.array_equal(zarr.open_array(RegularStore(folder), mode="r")[...], values)


@pytest.mark.parametrize("document", [None, [], {"chunks": "x"}, {"chunk_grid": 3}, {"metadata": 5}])
def test_metadata_without_an_array_bound_nothing(document: Any) -> None:
    assert largest_chunks("", document) == {}
