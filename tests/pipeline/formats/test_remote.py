"""Zarr arrays in object stores: a server of S3 in this process, no network."""

from __future__ import annotations

import json
import pickle
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from stores import read
from zarr.codecs import BloscCodec, GzipCodec
from zarr.storage import ObjectStore

import rankfold as rf
from rankfold.pipeline.data.origin import names_of
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.errors import ChunkError, InputError, SourceNotFoundError, UnreachableError
from rankfold.pipeline.formats import open_source, remote

obstore = pytest.importorskip("obstore", reason="obstore is not installed: pip install obstore")
moto = pytest.importorskip("moto.server", reason="moto, a server of S3 for tests, is not installed")

Array = np.ndarray[Any, Any]
SHAPE = (20, 5, 6)


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """Address of an empty bucket; the settings are those a user would make."""
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }.items():
            patch.setenv(name, value)
        remote._connect.cache_clear()
        request = urllib.request.Request(f"http://{host}:{port}/bucket", method="PUT")
        urllib.request.urlopen(request).close()
        yield "s3://bucket"
        remote._connect.cache_clear()
    server.stop()


def field() -> Array:
    return np.random.default_rng(4).integers(0, 100, SHAPE).astype("f4")


def store(url: str, x: Array, **options: Any) -> str:
    options = {"chunks": (4, 5, 3), "compressors": None, "config": {"write_empty_chunks": True}, **options}
    if options.get("zarr_format") != 2:
        options["dimension_names"] = ("time", "lat", "lon")[: x.ndim]
    place: Any = ObjectStore(obstore.store.from_url(url))
    zarr.create_array(place, name="sst", shape=x.shape, dtype=x.dtype, overwrite=True, **options)[...] = x
    return f"{url}::sst"


def delete(place: str, key: str) -> None:
    obstore.delete(obstore.store.from_url(place.partition("::")[0]), f"sst/{key}")


def put(place: str, key: str, content: bytes) -> None:
    obstore.put(obstore.store.from_url(place.partition("::")[0]), f"sst/{key}", content)


KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "blosc": {"compressors": BloscCodec(cname="lz4")},
    "gzip": {"compressors": GzipCodec(level=1)},
    "shards": {"shards": (8, 5, 6), "compressors": BloscCodec(cname="lz4")},
    "v2": {"zarr_format": 2},
}


@pytest.fixture(scope="module", params=KINDS)
def place(request: pytest.FixtureRequest, bucket: str) -> str:
    return store(f"{bucket}/{request.param}.zarr", field(), **KINDS[request.param])


@settings(max_examples=8, derandomize=True, deadline=None)
@given(data=st.data(), rows=st.sampled_from([(0,), (1,), (2, 0)]))
def test_any_rectangle_of_a_store_elsewhere(place: str, data: st.DataObject, rows: tuple[int, ...]) -> None:
    source = open_source(place, row_axes=list(rows))
    axes = rows + tuple(axis for axis in range(3) if axis not in rows)
    expected = field().transpose(axes).reshape(source.shape)
    spans = []
    for length in expected.shape:
        start = data.draw(st.integers(0, length - 1))
        spans.append((start, data.draw(st.integers(start + 1, length))))
    found = read(source, *spans, apart=2)
    np.testing.assert_array_equal(found, expected[slice(*spans[0]), slice(*spans[1])])


def test_a_store_elsewhere_keeps_the_protocol(place: str) -> None:
    source = open_source(place, row_axes=0)
    source.check()
    assert isinstance(source, Source) and source.shape == (20, 30)
    assert source.row_grid.edges.tolist() == [0, 4, 8, 12, 16, 20] and source.read_bytes(20, 30) > 0
    assert source.path is None  # type: ignore[attr-defined]
    message = pickle.dumps(source)
    again = pickle.loads(message)
    assert len(message) < 3000 and again.fingerprint() == source.fingerprint()
    with ThreadPoolExecutor(6) as pool:
        pieces = list(pool.map(lambda top: read(again, (top, top + 4), (2, 29)), range(16)))
    for top, piece in enumerate(pieces):
        np.testing.assert_array_equal(piece, field().reshape(20, 30)[top : top + 4, 2:29])


def test_a_reduction_and_two_axes(bucket: str) -> None:
    x = field().reshape(20, 30)
    place = store(f"{bucket}/flat.zarr", x, chunks=(4, 30))
    s = np.linalg.svd(x.astype("f8"), compute_uv=False)[:3]
    np.testing.assert_allclose(rf.svd(place, 3, solver="gram").s, s, rtol=1e-5)
    assert open_source(place).name == place


@pytest.mark.parametrize("kind", ["plain", "gzip", "shards", "v2"])
def test_missing_objects_are_fill_value_or_errors(bucket: str, kind: str) -> None:
    place = store(f"{bucket}/gaps-{kind}.zarr", field(), **KINDS[kind])
    key = {"shards": "c/1/0/0", "v2": "2.0.0"}.get(kind, "c/2/0/0")
    before = open_source(place, row_axes=0).fingerprint()
    delete(place, key)
    source = open_source(place, row_axes=0, missing_chunks="error")
    for attempt in (source.check, lambda: read(source, (8, 12), (0, 30))):
        with pytest.raises(ChunkError, match=rf"chunk {key} of \d+ is missing; .* missing_chunks='fill'"):
            attempt()
    assert source.fingerprint() != before
    filled = open_source(place, row_axes=0)
    filled.check()
    assert (read(filled, (8, 12), (0, 3)) == 0).all()


def test_objects_cut_short_are_errors(bucket: str) -> None:
    place = store(f"{bucket}/short.zarr", field())
    put(place, "c/2/0/0", b"123")
    source = open_source(place, row_axes=0)
    with pytest.raises(ChunkError, match=r"chunk c/2/0/0 holds 3 bytes instead of 240"):
        source.check()
    with pytest.raises(ChunkError, match=r"cannot be read \(time 8:12.*Restore the store"):
        read(source, (8, 12), (0, 30))


def test_a_store_written_anew_is_opened_anew(bucket: str) -> None:
    prints = set()
    for factor in (1, 2):
        place = store(
            f"{bucket}/anew.zarr",
            factor * field(),
            compressors=GzipCodec(level=factor),
            chunks=(4 * factor, 5, 6),
        )
        source = open_source(place, row_axes="time")
        np.testing.assert_array_equal(read(source, (0, 20), (0, 30)), factor * field().reshape(20, 30))
        prints.add(source.fingerprint())
    assert len(prints) == 2


def test_what_is_not_there_is_said(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"{bucket}/names.zarr"
    zarr.create_group(ObjectStore(obstore.store.from_url(url)))
    place = store(url, field())
    with pytest.raises(
        SourceNotFoundError, match=r"no Zarr array at .*::ssd\. Did you mean .*names\.zarr::sst\?"
    ):
        open_source(f"{url}::ssd", row_axes=0)
    with pytest.raises(
        InputError, match=r"is a Zarr group, not an array\. The store holds sst\. Name one: .*::sst"
    ):
        open_source(url, row_axes=0)
    with pytest.raises(SourceNotFoundError, match="No arrays were found in the store"):
        open_source(f"{bucket}/nothing.zarr::sst")
    with pytest.raises(SourceNotFoundError, match=r"there is no such bucket\. .*AWS_ENDPOINT_URL"):
        open_source("s3://other-bucket/x.zarr::sst")
    with pytest.raises(InputError, match=r"time \(20\), lat \(5\), lon \(6\).*row_axes='time'"):
        open_source(place)
    put(place, "zarr.json", json.dumps({"zarr_format": 3, "node_type": "array"}).encode())
    with pytest.raises(InputError, match=r"Zarr cannot open .*names\.zarr::sst"):
        open_source(place, row_axes=0)


def test_a_store_that_does_not_answer_is_no_damage(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = open_source(store(f"{bucket}/away.zarr", field()), row_axes=0)
    gone = obstore.store.S3Store(
        "bucket", prefix="away.zarr", endpoint="http://127.0.0.1:9", retry_config={"max_retries": 0}
    )
    monkeypatch.setattr(remote, "connect", lambda url: gone)
    remote.open_array.cache_clear()
    for attempt in (source.check, source.fingerprint, lambda: read(source, (0, 4), (0, 30))):
        with pytest.raises(UnreachableError, match=r"away\.zarr::sst cannot be reached: .*AWS_ENDPOINT_URL"):
            attempt()
    remote.open_array.cache_clear()


def test_names_of_columns_and_rows_are_read_where_the_store_has_them(bucket: str, tmp_path: Path) -> None:
    x = field()
    for version in (2, 3):
        dataset = xr.DataArray(
            x,
            {"time": 1990 + np.arange(20), "lat": np.linspace(-60, 60, 5), "lon": 60.0 * np.arange(6)},
            ("time", "lat", "lon"),
            "sst",
            {"units": "degC"},
        ).to_dataset()
        url = f"{bucket}/named{version}.zarr"
        dataset.to_zarr(ObjectStore(obstore.store.from_url(url)), zarr_format=version, consolidated=False)
        fitted = rf.pca(rf.open(f"{url}::sst", row_axes="time"), 2)
        turned = rf.transform(fitted, rf.open(dataset.sst[:, ::-1], row_axes="time"))
        np.testing.assert_allclose(turned.scores[:], fitted.scores[:], atol=1e-4)
        assert fitted.to_xarray(physical=True)["mean"].units == "degC"
        assert list(fitted.to_pandas("scores").index) == list(range(1990, 2010))
    rf.import_array(pd.DataFrame(x[:, :, 0], columns=list("abcde")), tmp_path / "t.zarr")
    for file in (each for each in (tmp_path / "t.zarr").rglob("*") if each.is_file()):
        key = f"t.zarr/{file.relative_to(tmp_path / 't.zarr')}"
        obstore.put(obstore.store.from_url(bucket), key, file.read_bytes())
    names = names_of(rf.open(f"{bucket}/t.zarr"), 1)
    assert names is not None
    assert names.axes[0].labels is not None
    assert names.axes[0].labels.tolist() == list("abcde")


@pytest.mark.parametrize("version", [2, 3])
def test_an_address_into_a_store_has_the_names_around(bucket: str, version: int) -> None:
    data = xr.DataArray(field()[:, :, 0], {"lat": np.linspace(-60, 60, 5)}, ("time", "lat"), "sst")
    url = f"{bucket}/inner{version}.zarr"
    store = ObjectStore(obstore.store.from_url(url))
    data.to_dataset().to_zarr(store, zarr_format=version, consolidated=False)
    names = names_of(open_source(f"{url}/sst"), 1)
    assert names is not None and names.axes[0].labels is not None
    assert names.axes[0].labels.tolist() == np.linspace(-60, 60, 5).tolist()
    with pytest.raises(SourceNotFoundError, match=f"no Zarr array at {url}::sss. Did you mean {url}::sst"):
        open_source(f"{url}/sss")


def test_an_address_below_a_folder_that_is_no_store(bucket: str) -> None:
    place = store(f"{bucket}/folder.zarr/a.zarr", field()).replace("::", "/")
    assert open_source(place, row_axes=0).shape == (20, 30)
