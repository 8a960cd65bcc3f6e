"""Nothing that is read from a store or a file is unpickled, in whatever way it asks for that.

Each case has a pickle in it that makes a folder when it is loaded.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rankfold as rf
from rankfold.pipeline.exporting.plots.row_columns import open_column
from rankfold.pipeline.storage.checkpoint import load_arrays

X = np.random.default_rng(0).random((4, 3)).astype("f4")


class Marker:
    """Makes a folder when it is loaded."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("loaded",)


PICKLE = pickle.dumps(Marker())
OBJECTS = np.array([[Marker()] * 3] * 4, object)


def zarr_2(path: Path, **metadata: Any) -> None:
    """An array of version 2 whose chunk is a pickle."""
    path.mkdir()
    document = {
        "zarr_format": 2,
        "shape": [4, 3],
        "chunks": [4, 3],
        "dtype": "<f4",
        "compressor": None,
        "order": "C",
    }
    document |= {"fill_value": 0, "filters": None, "dimension_separator": ".", **metadata}
    (path / ".zarray").write_text(json.dumps(document))
    (path / "0.0").write_bytes(PICKLE)


def zarr_3(path: Path, *codecs: str) -> None:
    chain = [
        {"name": name, "configuration": {"endian": "little"} if name == "bytes" else {}} for name in codecs
    ]
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [4, 3],
        "data_type": "float32",
        "codecs": chain,
    }
    document |= {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4, 3]}}, "fill_value": 0}
    document |= {
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "attributes": {},
    }
    (path / "c" / "0").mkdir(parents=True)
    (path / "zarr.json").write_text(json.dumps(document))
    (path / "c" / "0" / "0").write_bytes(PICKLE)


def object_csr(path: Path) -> None:
    """A sparse matrix whose numbers are objects."""
    import zarr

    group = zarr.open_group(path, mode="w", zarr_format=2)
    group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [4, 3]})
    for name in ("indices", "indptr"):
        group.create_array(name, shape=(5,), dtype="i4")[...] = 0
    zarr_2(path / "data", shape=[4], chunks=[4], dtype="|O", filters=[{"id": "pickle"}])
    (path / "data" / "0.0").rename(path / "data" / "0")


def h5(path: Path) -> None:
    """A dataset of HDF5 of bytes of any length, each a pickle, as old programs kept objects."""
    import h5py

    with h5py.File(path, "w") as file:
        kind = h5py.vlen_dtype(np.uint8)
        data = file.create_dataset("X", (4, 3), kind)
        data[0, 0] = np.frombuffer(PICKLE, np.uint8)


CASES: dict[str, Callable[[Path], object]] = {
    "npy/x.npy": lambda path: np.save(path, OBJECTS, allow_pickle=True),
    "npz/x.npz": lambda path: np.savez(path, allow_pickle=True, X=OBJECTS),
    "npz of scipy/x.npz": lambda path: np.savez(
        path,
        format=np.array(Marker(), object),
        shape=[4, 3],
        data=np.ones(1),
        indices=[0],
        indptr=[0, 1, 1, 1, 1],
    ),
    "compressor/x.zarr": lambda path: zarr_2(path, compressor={"id": "pickle"}),
    "filter/x.zarr": lambda path: zarr_2(path, filters=[{"id": "pickle"}]),
    "objects/x.zarr": lambda path: zarr_2(path, dtype="|O", filters=[{"id": "pickle"}]),
    "fill value/x.zarr": lambda path: zarr_2(
        path, dtype="|O", filters=[{"id": "pickle"}], fill_value=PICKLE.hex()
    ),
    "behind text/x.zarr": lambda path: zarr_2(
        path, dtype="|O", filters=[{"id": "vlen-utf8"}, {"id": "pickle"}]
    ),
    "of version 3/x.zarr": lambda path: zarr_3(path, "bytes", "numcodecs.pickle"),
    "instead of bytes/x.zarr": lambda path: zarr_3(path, "numcodecs.pickle"),
    "csr/x.zarr": object_csr,
    "hdf5/x.h5": h5,
    "h5ad/x.h5ad": h5,
}


def made(case: str, folder: Path) -> Path:
    path = folder / case
    path.parent.mkdir(exist_ok=True)
    CASES[case](path)
    return path


@pytest.mark.parametrize("case", CASES)
def test_a_matrix_of_objects_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    path = made(case, tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(rf.RankfoldError):
        rf.svd(path, 1)
    with pytest.raises(rf.RankfoldError):
        rf.import_array(path, tmp_path / "y.zarr")
    assert not (tmp_path / "loaded").exists()


@pytest.mark.parametrize("case", CASES)
def test_colors_and_masks_are_not_unpickled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    path = made(case, tmp_path)
    monkeypatch.chdir(tmp_path)
    for place in (str(path), f"{path}::X"):
        with contextlib.suppress(rf.RankfoldError):
            open_column(place).read(0, 1)
    assert not (tmp_path / "loaded").exists()


@pytest.mark.parametrize("column", ["filter", "compressor"])
def test_names_of_cells_are_not_unpickled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column: str
) -> None:
    """Text is an array of objects too, so the codec may stand behind one that is right."""
    anndata = pytest.importorskip("anndata")
    anndata.AnnData(X).write_zarr(tmp_path / "x.zarr")
    pickled = {"id": "pickle"}
    codecs = {"filters": [{"id": "vlen-utf8"}, pickled]} if column == "filter" else {"compressor": pickled}
    for part in ("obs", "var"):
        for place in (tmp_path / "x.zarr" / part).glob("*/.zarray"):
            document = json.loads(place.read_text()) | {"filters": [{"id": "vlen-utf8"}]} | codecs
            place.write_text(json.dumps(document))
            for chunk in place.parent.glob("[0-9]*"):
                chunk.write_bytes(PICKLE)
    monkeypatch.chdir(tmp_path)
    for where in ("x.zarr", "x.zarr::X"):
        with contextlib.suppress(rf.RankfoldError):
            rf.pca(where, 1, out="r.zarr", overwrite=True)
        for option in ({"mask_obs": "_index"}, {"mask_var": "_index"}):
            with contextlib.suppress(rf.RankfoldError, ValueError):
                rf.open(where, **option)
    with contextlib.suppress(rf.RankfoldError, ValueError):
        open_column("x.zarr::obs/_index").read(0, 1)
    assert not (tmp_path / "loaded").exists()


def test_the_codec_of_pickles_does_not_decode() -> None:
    """From this version on; older ones unpickled whatever a store told them to."""
    import numcodecs

    assert tuple(map(int, version("numcodecs").split(".")[:3])) >= (0, 16, 6)
    assert os.environ.get("NUMCODECS_ALLOW_UNSAFE_PICKLE_DECODE") is None
    with pytest.raises(Exception, match="disabled"):
        numcodecs.get_codec({"id": "pickle"}).decode(pickle.dumps(1))


def test_a_part_of_a_run_holds_no_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.part").write_bytes(PICKLE)
    with pytest.raises(rf.RankfoldError, match="not whole"):
        load_arrays(tmp_path / "a.part")
    np.save(tmp_path / "b.npy", OBJECTS, allow_pickle=True)
    (tmp_path / "b.npy").rename(tmp_path / "b.part")
    with pytest.raises(rf.RankfoldError, match="not whole"):
        load_arrays(tmp_path / "b.part")
    assert not (tmp_path / "loaded").exists()
