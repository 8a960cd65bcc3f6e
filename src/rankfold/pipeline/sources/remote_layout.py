"""From an address to the array that lies there, or to a message that says what is there instead."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
from collections.abc import Iterator
from typing import Any

from rankfold.pipeline.errors import InputError, SourceNotFoundError
from rankfold.pipeline.sources.axes import Rows, axis_names
from rankfold.pipeline.sources.chunk_files import ChunkFiles
from rankfold.pipeline.sources.decoded import decoded
from rankfold.pipeline.sources.libraries import library
from rankfold.pipeline.sources.matrix import native, require_chunks, require_numbers
from rankfold.pipeline.sources.remote import HINT, RemoteVolume, connect, from_obstore, opened
from rankfold.pipeline.sources.stacked import StackedSource, stacked
from rankfold.pipeline.sources.zarr_codecs import encoding_of
from rankfold.pipeline.sources.zarr_layout import dimension_names, key_style, store_fill

SCHEMES = ("s3", "gs", "az", "abfs", "abfss")
"""Object stores that can list what they hold, by the beginning of their addresses."""

DOCUMENTS = ("zarr.json", ".zarray")
"""Where the metadata of an array stand, in version 3 and 2."""

LISTED = 8
"""Most arrays that a message names."""

LOOKED_AT = 2000
"""Most objects that are looked at to find arrays for a message."""


def remote_matrix(url: str, array: str, *, missing: str, rows: Rows = None) -> StackedSource:
    """The array ``array`` of the store at an address as a matrix."""
    scheme = url.partition("://")[0]
    if scheme not in SCHEMES:
        raise InputError(f"{url} begins with {scheme}://; read are {', '.join(f'{s}://' for s in SCHEMES)}")
    library("obstore", extra="object-stores", what=f"reading {url}")
    name = f"{url}::{array}" if array else url
    document, version = _metadata(url, array, name)
    try:
        found = opened(url, array, missing, version, os.getpid())
        prefix, separator = key_style(found.metadata, name)
        encoding = encoding_of(found.metadata)
    except (InputError, MemoryError):
        raise
    except Exception as error:
        if from_obstore(error):
            raise _refused(name, error) from error
        raise InputError(f"Zarr cannot open {name}: {type(error).__name__}: {error}") from error
    require_numbers(name, found.dtype)
    require_chunks(name, found.shape, found.chunks, found.dtype)
    extent = found.shards or found.chunks
    counts = tuple(-(-length // size) for length, size in zip(found.shape, extent, strict=True))
    dtype = native(found.dtype)
    volume = RemoteVolume(
        name=name,
        url=url,
        array=array,
        shape=found.shape,
        axes=axis_names(found.shape, dimension_names(found)),
        dtype=dtype,
        chunks=found.chunks,
        files=ChunkFiles(url, document, extent, counts, prefix, separator),
        encoding=encoding,
        format=f"Zarr v{found.metadata.zarr_format} in an object store"
        + (f", shards of {found.shards}" if found.shards else ""),
        fill=dtype.type(0 if found.fill_value is None else found.fill_value).item(),
        missing=missing,
        version=version,
    )
    return stacked(decoded(volume, found.attrs, fill=store_fill(found)), rows)


def _metadata(url: str, array: str, name: str) -> tuple[str, str]:
    """Which document describes the array, and its digest; an error that says what there is if none does."""
    for document in DOCUMENTS:
        key = f"{array}/{document}" if array else document
        try:
            text = _read(url, key)
        except FileNotFoundError:
            continue
        except Exception as error:
            raise _refused(name, error) from error
        if document == "zarr.json" and _node_type(text) == "group":
            raise InputError(f"{name} is a Zarr group, not an array. {_listed(url, _arrays(url))}")
        return document, hashlib.blake2b(text, digest_size=16).hexdigest()
    arrays = _arrays(url)
    near = difflib.get_close_matches(array, arrays, n=1) if array else []
    hint = f" Did you mean {url}::{near[0]}?" if near else ""
    raise SourceNotFoundError(f"there is no Zarr array at {name}.{hint} {_listed(url, arrays)}")


def _read(url: str, key: str) -> bytes:
    import obstore

    return bytes(obstore.get(connect(url), key).bytes())


def _node_type(text: bytes) -> str:
    try:
        return str(json.loads(text).get("node_type"))
    except (ValueError, AttributeError, RecursionError):
        return "array"  # Zarr then says what is wrong with it


def _arrays(url: str) -> list[str]:
    """Paths of arrays in a store, as far as they are soon found."""
    try:
        return sorted(_found(url))
    except Exception as error:
        raise _refused(url, error) from error


def _found(url: str) -> Iterator[str]:
    import obstore

    looked, named = 0, 0
    for batch in obstore.list(connect(url), chunk_size=1000):
        for each in batch:
            folder, _, document = str(each["path"]).rpartition("/")
            if document not in DOCUMENTS or named > LISTED:
                continue
            if document == ".zarray" or _node_type(_read(url, each["path"])) == "array":
                named += 1
                yield folder
        looked += len(batch)
        if looked >= LOOKED_AT:
            return


def _listed(url: str, arrays: list[str]) -> str:
    if not arrays:
        return "No arrays were found in the store: is the address right?"
    return f"The store holds {', '.join(arrays[:LISTED])}. Name one: {url}::{arrays[0]}"


def _refused(name: str, error: Any) -> InputError:
    """The error for a store that cannot be opened."""
    said = str(error).partition("\n")[0]
    if "NoSuchBucket" in str(error):
        return SourceNotFoundError(f"{name}: there is no such bucket. {HINT}")
    return InputError(f"{name} cannot be opened: {said}. {HINT}")
