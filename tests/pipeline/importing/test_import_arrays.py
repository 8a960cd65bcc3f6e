"""Files of one dense array: npz, stored or compressed, vectors of the big-ann benchmarks, other types."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stores import KINDS, numbers, read

import rankfold as rf
from rankfold.pipeline.data.describe import describe
from rankfold.pipeline.data.dtypes import ConvertedSource, convert_into
from rankfold.pipeline.errors import ChunkError, DataError, InputError, RankfoldError, SourceNotFoundError
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.importing import import_array


def whole(source: Any) -> Any:
    return read(source, (0, source.shape[0]), (0, source.shape[1]))


def test_an_argument_that_is_not_taken_is_answered_with_the_one_that_is(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"takes no memory .did you mean 'memory_bytes'"):
        rf.import_array(np.ones((4, 4)), tmp_path / "x.zarr", memory="1GiB")
    assert not os.listdir(tmp_path)


def imported(source: Path | str, folder: Path, **options: Any) -> Any:
    before = {*os.listdir(folder), "out.zarr"}
    import_array(source, folder / "out.zarr", **{"overwrite": True, **options})
    assert set(os.listdir(folder)) == before
    return whole(open_source(folder / "out.zarr"))


def refused(
    source: Path | str, folder: Path, error: type[RankfoldError], message: str, **options: Any
) -> None:
    before = os.listdir(folder)
    with pytest.raises(error, match=message):
        import_array(source, folder / "out.zarr", **options)
    assert os.listdir(folder) == before


# --- npz


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f4", ">f8", "u1"])
def test_a_member_of_an_npz(tmp_path: Path, save: Any, order: str, dtype: str) -> None:
    x = np.asarray(numbers(dtype), order=order)  # type: ignore[call-overload]
    path = tmp_path / "x.npz"
    save(path, before=np.arange(7.0), X=x, other=x[:5])
    np.testing.assert_array_equal(imported(f"{path}::X", tmp_path), x)
    np.testing.assert_array_equal(imported(f"{path}::other", tmp_path, dtype="float64"), x[:5])
    refused(path, tmp_path, InputError, r"X \(53, 37\) .*Name one: .*x\.npz::X", overwrite=True)
    refused(
        f"{path}::Y", tmp_path, SourceNotFoundError, r"no array Y. It holds before \(7,\)", overwrite=True
    )
    refused(f"{path}::before", tmp_path, InputError, "has 1 axes", overwrite=True)
    save(path, y=np.arange(7.0), X=x)
    np.testing.assert_array_equal(imported(path, tmp_path), x)


def test_a_stored_member_is_read_in_place(tmp_path: Path) -> None:
    x = numbers()
    np.savez(tmp_path / "x.npz", y=np.arange(5.0), X=x)
    source = open_source(f"{tmp_path / 'x.npz'}::X")
    np.testing.assert_array_equal(read(source, (7, 30), (2, 9), apart=3), x[7:30, 2:9])
    assert describe(source).format == "npz"
    source.check()
    s = np.linalg.svd(x.astype("f8"), compute_uv=False)[:3]
    np.testing.assert_allclose(rf.svd(str(tmp_path / "x.npz"), 3).s, s, rtol=1e-4)
    np.savez_compressed(tmp_path / "x.npz", X=x)
    with pytest.raises(InputError, match=r"is compressed.*rankfold import .*x\.npz::X STORE\.zarr"):
        open_source(tmp_path / "x.npz")


def test_a_damaged_npz_is_refused(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 50, (300, 200))
    np.savez_compressed(path := tmp_path / "x.npz", X=x)
    content = path.read_bytes()
    path.write_bytes(content[:-40])
    refused(path, tmp_path, ChunkError, r"not a whole \.npz file.*Restore the file")
    path.write_bytes(content[:5000] + bytes(500) + content[5500:])
    refused(path, tmp_path, ChunkError, r"x\.npz::X is damaged or cut short")
    np.savez(path, y=np.arange(3))
    refused(path, tmp_path, InputError, r"y \(3,\) int64: none of them is a matrix")


# --- big-ann


@pytest.mark.parametrize(
    ("ending", "dtype"), [("fbin", "f4"), ("u8bin", "u1"), ("i8bin", "i1"), ("ibin", "i4")]
)
def test_vectors_are_read_in_place_and_imported(tmp_path: Path, ending: str, dtype: str) -> None:
    x, path = numbers(dtype), tmp_path / f"x.{ending}"
    path.write_bytes(np.array(x.shape, "<u4").tobytes() + x.tobytes())
    source = open_source(path)
    source.check()
    np.testing.assert_array_equal(read(source, (3, 50), (1, 37), apart=2), x[3:50, 1:])
    assert describe(source).format == ending
    np.testing.assert_array_equal(imported(path, tmp_path, dtype="float32"), x)
    before = source.fingerprint()
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ChunkError, match=r"is truncated: it holds .* bytes, its header promises"):
        open_source(path)
    path.write_bytes(path.read_bytes() + b"~")
    assert open_source(path).fingerprint() != before


def test_files_that_are_not_what_their_name_says(tmp_path: Path) -> None:
    path, x = tmp_path / "x.fbin", numbers()
    path.write_bytes(np.array([53, 37], "<u4").tobytes() + x.astype("f8").tobytes())
    with pytest.raises(InputError, match=r"header says 53 x 37, .*Is it really a \.fbin file"):
        open_source(path)
    path.write_bytes(b"\0\0\0")
    with pytest.raises(InputError, match="holds 3 bytes, less than the 8 of its header"):
        open_source(path)
    path.write_bytes(bytes(8))
    with pytest.raises(InputError, match="without rows"):
        open_source(path)


# --- other types


@pytest.mark.parametrize("kind", ["v3 gzip", "v3 shards of blosc", "npy fortran", "numpy", "dask"])
def test_any_source_in_another_type(tmp_path: Path, kind: str) -> None:
    source = open_source(KINDS[kind](tmp_path, numbers()))
    np.testing.assert_array_equal(imported(source, tmp_path, dtype="uint8"), numbers())  # type: ignore[arg-type]
    made = open_source(tmp_path / "out.zarr")
    assert made.dtype == np.uint8
    converted = ConvertedSource(source, np.dtype("f8"))
    np.testing.assert_array_equal(read(converted, (9, 40), (3, 30), apart=1), numbers()[9:40, 3:30])
    assert converted.fingerprint() != source.fingerprint()


INTEGERS = ["int8", "uint8", "int32", "uint32", "int64", "uint64"]


@settings(max_examples=200, derandomize=True, deadline=None)
@given(
    value=st.one_of(
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=True, allow_infinity=True),
        st.sampled_from([2.0**63, -(2.0**63), 2.0**64, 255.0, 256.0, -129.0, 2**53 + 1]),
    ),
    dtype=st.sampled_from(INTEGERS),
)
def test_a_conversion_to_integers_is_exact_or_an_error(value: Any, dtype: str) -> None:
    x = np.array([value])
    kept = np.zeros(1, dtype)
    fits = value == value and abs(value) != float("inf") and int(value) == value
    if fits and np.iinfo(dtype).min <= int(value) <= np.iinfo(dtype).max:
        convert_into(kept, x, "x")
        assert int(kept[0]) == int(value)
    else:
        with pytest.raises(DataError, match=rf"x: .* cannot be written as {dtype}"):
            convert_into(kept, x, "x")


def test_rounding_is_allowed_but_not_overflow() -> None:
    out = np.empty(3, np.float32)
    convert_into(out, np.array([0.1, np.nan, np.inf]), "x")
    np.testing.assert_array_equal(out, np.array([0.1, np.nan, np.inf], "f4"))
    with pytest.raises(DataError, match=r"1e\+300 cannot be written as float32"):
        convert_into(out, np.array([1, 2, 1e300]), "x")
    with pytest.raises(DataError, match="2 cannot be written as bool"):
        convert_into(np.empty(2, bool), np.array([1, 2]), "x")


# --- real data


def test_images_as_they_are_published(tmp_path: Path) -> None:
    folder = os.environ.get("RANKFOLD_TEST_DATA")
    if not folder or not (Path(folder) / "fashion_mnist.npz").exists():
        pytest.skip("set RANKFOLD_TEST_DATA to the folder of the real data")
    path = Path(folder) / "fashion_mnist.npz"
    np.testing.assert_array_equal(imported(f"{path}::X", tmp_path), np.load(path)["X"])
