"""Files of ``scipy.sparse.save_npz`` that are not compressed are read by their stored numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import rankfold as rf
from rankfold.pipeline.data.source import compressed
from rankfold.pipeline.errors import ChunkError, InputError
from rankfold.pipeline.formats import open_source


def sparse(dtype: Any = np.float64, index: Any = np.int32, layout: str = "csr") -> Any:
    rng = np.random.default_rng(3)
    x = scipy.sparse.random_array((300, 170), density=0.05, rng=rng, dtype=np.float64)
    x = (10 * x).astype(dtype).asformat(layout)
    x.indices, x.indptr = x.indices.astype(index), x.indptr.astype(index)
    return x


def saved(folder: Path, x: Any) -> str:
    scipy.sparse.save_npz(folder / "x.npz", x, compressed=False)
    return str(folder / "x.npz")


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
@pytest.mark.parametrize("layout", ["csr", "csc"])
def test_stored_numbers_are_those_of_the_file(tmp_path: Path, layout: str, dtype: Any, index: Any) -> None:
    x = sparse(dtype, index, layout)
    source = compressed(open_source(saved(tmp_path, x)))
    assert source is not None
    assert (source.shape, source.dtype, source.nnz) == (x.shape, np.dtype(dtype), x.nnz)
    assert source.by == ("rows" if layout == "csr" else "columns")
    lines = source.read_sparse((10, 60))
    part = x[10:60] if layout == "csr" else x[:, 10:60]
    for name in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(lines, name), getattr(part, name))
    wide = np.empty((40, 100), dtype)
    source.read_into(wide, (100, 140), (50, 150))
    np.testing.assert_array_equal(wide, x.toarray()[100:140, 50:150])
    source.check()


def test_methods_take_it_as_they_take_the_matrix(tmp_path: Path) -> None:
    x = sparse()
    where = saved(tmp_path, x)
    stored, resident = rf.svd(where, 5), rf.svd(x, 5)
    assert stored.attrs["method"] == resident.attrs["method"] == "lanczos"
    for name in ("U", "s", "Vt"):
        assert stored[name][...].tobytes() == resident[name][...].tobytes()
    assert rf.plan("svd", where, rank=5).peak_bytes > 0


def test_a_matrix_without_numbers(tmp_path: Path) -> None:
    source = open_source(saved(tmp_path, scipy.sparse.csr_array((6, 4))))
    out = np.ones((6, 4))
    source.read_into(out, (0, 6), (0, 4))
    assert not out.any()


def test_what_is_wrong_with_a_file_is_told(tmp_path: Path) -> None:
    x = sparse()
    parts = {"format": b"csr", "shape": x.shape, "data": x.data, "indices": x.indices, "indptr": x.indptr}
    for changes, kind, message in (
        ({"format": b"bsr"}, InputError, "not one of compressed rows or columns"),
        ({"format": np.zeros(10**5)}, InputError, "not one of compressed rows or columns"),
        ({"shape": [3, 4, 5]}, InputError, "says that its shape is"),
        ({"indices": x.indices.astype(float)}, ChunkError, "numbers of places are whole"),
        ({"data": x.data[:, None]}, InputError, "should be a vector"),
        ({"indices": x.indices[:-1]}, ChunkError, "must agree"),
        ({"indices": x.indices + 10**6}, ChunkError, r"indices\[0\] is 10000"),
        ({"indptr": x.indptr[::-1]}, ChunkError, "indptr"),
    ):
        np.savez(tmp_path / "x.npz", **{**parts, **changes})  # type: ignore[arg-type]
        with pytest.raises(kind, match=message):
            rf.svd(tmp_path / "x.npz", 5)
    saved(tmp_path, x)
    content = (tmp_path / "x.npz").read_bytes()
    (tmp_path / "x.npz").write_bytes(content[:1000])
    with pytest.raises(ChunkError, match=r"not a whole \.npz file"):
        open_source(tmp_path / "x.npz")
