"""Zarr arrays in object stores (``s3://bucket/store.zarr::array``), through zarr and obstore.

obstore takes endpoint, credentials and region from the environment of each process, so workers need it too.
Zarr decodes whole chunks, several at once, into the caller's memory.

A store that does not answer does not mean that data are damaged. After obstore's own retries,
``UnreachableError`` is raised, and a reduction keeps what it has computed so far.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.chunks.absence import Absence
from rankfold.pipeline.chunks.files import absent_message, missing_message
from rankfold.pipeline.chunks.geometry import Piece, requests
from rankfold.pipeline.chunks.reads import decode_index, index_span
from rankfold.pipeline.data.decoded import decode_volume
from rankfold.pipeline.data.dtypes import require_chunks, require_numbers
from rankfold.pipeline.data.grid import Grid, regular_grids
from rankfold.pipeline.data.names import Axis, Names, names_from
from rankfold.pipeline.data.source import MOST_FILES
from rankfold.pipeline.data.stacked import Rows, StackedSource, axis_names, stack_volume
from rankfold.pipeline.errors import (
    ChunkError,
    InputError,
    RankfoldError,
    SeveralArraysError,
    SourceNotFoundError,
    UnreachableError,
)
from rankfold.pipeline.formats.locate import zarr_refusal
from rankfold.pipeline.formats.naming import UNREADABLE, axis_in
from rankfold.pipeline.formats.open_files import library
from rankfold.pipeline.formats.zarr.metadata import (
    Layout,
    dimension_names,
    layout_of,
    meaning_in,
    names_among,
    read_through_zarr,
)
from rankfold.pipeline.formats.zarr.source import count_listed

if TYPE_CHECKING:
    import zarr

REQUEST_BYTES = 32 * 2**20
"""Largest number of bytes of chunks that are fetched together; a larger chunk is fetched by itself."""

MOST_INDEXES = 1024
"""Largest number of shards whose indexes are fetched to count the chunks that they lack."""

OVERHEAD_BYTES = 8 * 2**20
"""Upper bound in bytes on the memory that connections, tasks and futures of requests take."""

HINT = (
    "Address, region and credentials are taken from the environment, as AWS_ENDPOINT_URL, AWS_REGION, "
    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or GOOGLE_APPLICATION_CREDENTIALS"
)


class RemoteState(NamedTuple):
    """Key, size in bytes and version of one object of an array, as the store lists it."""

    key: str
    size: int
    modified: str
    """Time of the last change, and entity tag."""


@dataclass(frozen=True, slots=True)
class RemoteVolume(Layout):
    """A Zarr array of any number of axes in an object store; connections are made once in a process."""

    url: str
    """Address of the store."""

    axes: tuple[str, ...]

    path = None

    @property
    def grids(self) -> tuple[Grid, ...]:
        """Chunks along every axis, which are fetched whole."""
        return regular_grids(self.shape, self.chunks, splittable=False)

    def read_boxes(self, pieces: Sequence[Piece]) -> None:
        """Read every box into ``out`` of its piece; see ``Volume``."""
        for piece in pieces:
            for request in requests(piece, self.chunks, REQUEST_BYTES // self.dtype.itemsize):
                self._fetch(request)

    def read_bytes(self, elements: int) -> int:
        """Upper bound in bytes on the memory of one read of that many elements, beside its destination.

        It covers the chunks of one request as fetched, in stages of decoding, and decoded.
        """
        return OVERHEAD_BYTES + self.decoding_bytes(self.request_bytes(REQUEST_BYTES), more=1)

    def check(self) -> None:
        """Raise ``ChunkError`` for objects of a wrong size, or for chunks that may not be missing."""
        plain = self.encoding.reader == "plain" and not self.encoding.index_at
        present = dict[tuple[int, ...], int]()
        for state in self._objects():
            place = self._place(state.key)
            if place is None:
                continue
            if self.missing != "fill":
                present[place] = state.size
            if not state.size or (plain and state.size != self.chunk_bytes):
                size = self.chunk_bytes if plain else "at least 1"
                raise ChunkError(
                    f"{self.name}: chunk {state.key} holds {state.size} bytes instead of {size}. "
                    "Restore the store"
                )
        if self.missing != "fill":
            self._require_all(present)

    def _require_all(self, present: Mapping[tuple[int, ...], int]) -> None:
        """Raise ``ChunkError`` unless all objects exist, and shards hold all of their chunks.

        ``present`` maps the grid index of each object to its size.
        """
        if lacks := self.files.total - len(present):
            first = next(place for place in np.ndindex(self.files.counts) if place not in present)
            keys = [self.files.key(*first)] * lacks
            raise ChunkError(missing_message(self.name, keys, self.files.total, self.fill))
        absence = count_listed(self, present, self._read_index, len(present))
        if absence.count:
            raise ChunkError(absent_message(self.name, absence.count, absence.total, self.fill))

    def absent_chunks(self, most: int = MOST_FILES) -> Absence | None:
        """Number of chunks that read as fill value because no object holds them; of many shards, an estimate.

        None if missing chunks are errors, or if the array has more than ``most`` files and ``most`` is below
        ``MOST_FILES``.
        """
        if self.missing != "fill" or (most < MOST_FILES and self.files.total > most):
            return None
        present = {place: s.size for s in self._objects() if (place := self._place(s.key)) is not None}
        return count_listed(self, present, self._read_index, min(most, MOST_INDEXES))

    def _read_index(self, key: str, size: int, count: int) -> npt.NDArray[np.uint64]:
        import obstore

        start, stop = index_span(size, count, self.encoding)
        path = f"{self.array}/{key}" if self.array else key
        try:
            head = bytes(obstore.get_range(connect(self.url), path, start=start, end=stop))
        except Exception as error:
            raise unreachable(self.name, error) from error
        return decode_index(np.frombuffer(head, np.uint8), size, count, self.encoding)

    def axis(self, number: int) -> Axis:
        """Axis ``number`` with the labels that its store has."""
        name, length = self.axes[number], self.shape[number]
        with self._naming():
            return axis_in(open_group(self.url, os.getpid()), self.array, number, name, length)
        return Axis(name, length)

    def names(self, axis: int) -> Names | None:
        """Names of rows (0) or columns (1) that an import wrote, for a matrix of two axes; None without."""
        with self._naming():
            return names_from(names_among(self._open().attrs), axis)
        return None

    def _open(self) -> zarr.Array[Any]:
        return open_array(self.url, self.array, self.missing, self.version, os.getpid())

    @contextlib.contextmanager
    def _naming(self) -> Iterator[None]:
        """Ignore errors of the block, which reads names.

        ``UnreachableError`` if the store does not answer.
        """
        try:
            with contextlib.suppress(*UNREADABLE):
                yield
        except Exception as error:
            if from_obstore(error):
                raise unreachable(self.name, error) from error
            raise

    def fingerprint(self) -> str:
        """Digest of the metadata and of size, time and tag of every object; their order does not matter."""
        total = 0
        for state in self._objects():
            text = f"{state.key} {state.size} {state.modified}"
            total += int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "little")
        text = f"{self.version} {total % 2**128}"
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def stored_bytes(self) -> int:
        """Bytes of all objects of the array."""
        return sum(state.size for state in self._objects())

    def _fetch(self, request: Piece) -> None:
        """Read one request straight into its destination."""
        from rankfold.pipeline.chunks.bounded_store import MissingChunk

        try:
            read_through_zarr(self._open(), request)
        except (MemoryError, RankfoldError):
            raise
        except MissingChunk as error:
            key = error.key.removeprefix(f"{self.array}/")
            raise ChunkError(missing_message(self.name, [key], self.files.total, self.fill)) from None
        except Exception as error:
            if from_obstore(error):
                raise unreachable(self.name, error) from error
            where = ", ".join(f"{axis} {a}:{b}" for axis, (a, b) in zip(self.axes, request.box, strict=True))
            raise ChunkError(
                f"{self.name} cannot be read ({where}): {type(error).__name__}: {error}. Restore the store"
            ) from error

    def _objects(self) -> Iterator[RemoteState]:
        """Yield every object of the array, as the store lists them."""
        import obstore

        prefix = f"{self.array}/" if self.array else ""
        try:
            for batch in obstore.list(connect(self.url), prefix=self.array or None, chunk_size=1000):
                for each in batch:
                    state = f"{each['last_modified'].isoformat()} {each['e_tag']}"
                    yield RemoteState(each["path"].removeprefix(prefix), each["size"], state)
        except Exception as error:
            raise unreachable(self.name, error) from error

    def _place(self, key: str) -> tuple[int, ...] | None:
        """Grid index of the chunk with a key; None for keys that are not chunks of the array."""
        numbers = key.removeprefix(self.files.prefix).split(self.files.separator)
        if not key.startswith(self.files.prefix) or not all(number.isdecimal() for number in numbers):
            return None
        place = tuple(map(int, numbers))
        if len(place) != len(self.shape):
            return None
        inside = all(i < count for i, count in zip(place, self.files.counts, strict=True))
        return place if inside else None


def _require_no_secret(url: str) -> None:
    """Raise ``InputError`` for an address that contains a password, key or token, without repeating it."""
    scheme, _, rest = url.partition("://")
    place, mark, _ = rest.partition("?")
    person, at, host = place.partition("/")[0].rpartition("@")
    # abfs://CONTAINER@ACCOUNT is a regular address of Azure.
    if mark or "#" in place or ":" in person or (at and scheme not in ("abfs", "abfss")):
        raise InputError(
            f"the address {scheme}://...{host} has a key or a token in it, and addresses are kept in "
            f"results, records, reports and job scripts. Leave it out, and change that key. {HINT}"
        )


def connect(url: str) -> Any:
    """The obstore store at an address, created once in a process."""
    return _connect(url, os.getpid())


@functools.lru_cache(maxsize=16)
def _connect(url: str, process: int) -> Any:
    from obstore.store import from_url

    return from_url(url)


@functools.lru_cache(maxsize=16)
def open_array(url: str, array: str, missing: str | None, version: str, process: int) -> zarr.Array[Any]:
    """Open an array, once in a process for each state of its metadata, of which ``version`` is the digest.

    ``url`` is the address of the store, ``array`` the path in it, ``process`` the id of this process. If
    ``missing`` is ``error``, a read of a missing chunk raises ``MissingChunk``.
    """
    from zarr.storage import ObjectStore

    from rankfold.pipeline.chunks.bounded_store import DescribedStore, StrictStore, open_bounded

    objects = ObjectStore(connect(url), read_only=True)
    if missing == "error":
        return open_bounded(StrictStore(objects), array)
    store = DescribedStore(objects)
    opened_array = open_bounded(store, array)
    document = ".zarray" if opened_array.metadata.zarr_format == 2 else "zarr.json"
    store.document = f"{array}/{document}" if array else document
    return opened_array


@functools.lru_cache(maxsize=16)
def open_group(url: str, process: int) -> zarr.Group:
    """Open the group at the root of a store, once in a process, to look up names of axes of its arrays.

    ``url`` is the address of the store, ``process`` the id of this process.
    """
    import zarr
    from zarr.storage import ObjectStore

    return zarr.open_group(ObjectStore(connect(url), read_only=True), mode="r", use_consolidated=False)


def from_obstore(error: Exception) -> bool:
    """True if an error comes from the connection to the store, not from the data in it."""
    return type(error).__module__.startswith("obstore")


def unreachable(name: str, error: Exception) -> UnreachableError:
    """The error for a store that does not answer, or refuses access; ``name`` is that of its array."""
    return UnreachableError(f"{name} cannot be reached: {_reason(error)}. {HINT}")


def _reason(error: Exception) -> str:
    """First line of an error of a store, without query strings of URLs, which may hold signatures."""
    reason = re.sub(r"(://[^\s?]*)\?[^\s\"')]*", r"\1?...", str(error).partition("\n")[0])
    if "builder error" in str(error):  # from the HTTP library below, for an address that it may not call
        return f"{reason}: is the endpoint one of http://, say so by AWS_ALLOW_HTTP=true"
    return reason


# What lies at an address --------------------------------------------------------------------------


SCHEMES = ("s3", "gs", "az", "abfs", "abfss")
"""URL schemes of object stores that can list their objects."""

DOCUMENTS = ("zarr.json", ".zarray")
"""Documents that hold the metadata of an array, in versions 3 and 2."""

MOST_NAMES = 8
"""Largest number of arrays that a message names."""

LOOKED_AT = 2000
"""Number of objects that are listed to find arrays for a message."""


def remote_matrix(url: str, array: str, *, missing: str | None, rows: Rows = None) -> StackedSource:
    """The array ``array`` of the store at an address as a matrix, whose rows are the axes ``rows``.

    ``missing`` is the option ``missing_chunks`` of ``open_source``.
    """
    scheme = url.partition("://")[0]
    _require_no_secret(url)
    if scheme not in SCHEMES:
        raise InputError(f"{url} begins with {scheme}://; read are {', '.join(f'{s}://' for s in SCHEMES)}")
    library("obstore", extra="object-stores", what=f"reading {url}")
    url, array = _store_around(url, array)
    name = f"{url}::{array}" if array else url
    document, version = _metadata(url, array, name)
    try:
        opened_array = open_array(url, array, missing, version, os.getpid())
        require_numbers(name, opened_array.dtype)
        require_chunks(name, opened_array.shape, opened_array.chunks, opened_array.dtype)
        layout = layout_of(
            opened_array,
            name,
            document=document,
            version=version,
            missing=missing,
            where=" in an object store",
        )
    except (InputError, MemoryError):
        raise
    except Exception as error:
        if from_obstore(error):
            raise _refusal(name, error) from error
        raise zarr_refusal(name, error) from error
    axes = axis_names(opened_array.shape, dimension_names(opened_array))
    volume = RemoteVolume(name=name, url=url, array=array, shape=opened_array.shape, axes=axes, **layout)
    return stack_volume(decode_volume(volume, meaning_in(name, opened_array)), rows)


def _store_around(url: str, array: str) -> tuple[str, str]:
    """Address of the store that an address leads into, and path of the array in it.

    ``s3://bucket/a.zarr/X`` is ``X`` of ``s3://bucket/a.zarr``, where names of its rows and columns are. For
    such an address, a request asks whether there is a group; all others are returned unchanged.
    """
    found = re.match(r"(.+://.+\.zarr)/+(.*[^/])/*$", url)
    if array or found is None:
        return url, array
    store, inner = found.groups()
    for document in ("zarr.json", ".zgroup"):
        try:
            text = _read(store, document)
        except FileNotFoundError:
            continue
        except Exception as error:
            raise _refusal(url, error) from error
        if document == ".zgroup" or _node_type(text) == "group":
            return store, inner
    return url, array


def _metadata(url: str, array: str, name: str) -> tuple[str, str]:
    """Name and digest of the document that describes the array ``array`` of the store at ``url``.

    If there is none, the error, which calls the array ``name``, lists the arrays of the store.
    """
    for document in DOCUMENTS:
        key = f"{array}/{document}" if array else document
        try:
            text = _read(url, key)
        except FileNotFoundError:
            continue
        except Exception as error:
            raise _refusal(name, error) from error
        if document == "zarr.json" and _node_type(text) == "group":
            arrays = _arrays(url)
            raise SeveralArraysError.of(
                f"{name} is a Zarr group, not an array. {_list_arrays(url, arrays)}", arrays
            )
        return document, hashlib.blake2b(text, digest_size=16).hexdigest()
    arrays = _arrays(url)
    near = difflib.get_close_matches(array, arrays, n=1) if array else []
    hint = f" Did you mean {url}::{near[0]}?" if near else ""
    raise SourceNotFoundError(f"there is no Zarr array at {name}.{hint} {_list_arrays(url, arrays)}")


def _read(url: str, key: str) -> bytes:
    import obstore

    return bytes(obstore.get(connect(url), key).bytes())


def _node_type(text: bytes) -> str:
    try:
        return str(json.loads(text).get("node_type"))
    except (ValueError, AttributeError, RecursionError):
        return "array"  # Zarr then reports what is wrong with it


def _arrays(url: str) -> list[str]:
    """Paths of arrays among the first objects of a store, about ``LOOKED_AT`` of them."""
    try:
        return sorted(_find_arrays(url))
    except Exception as error:
        raise _refusal(url, error) from error


def _find_arrays(url: str) -> Iterator[str]:
    import obstore

    folders, names = 0, 0
    for batch in obstore.list(connect(url), chunk_size=1000):
        for each in batch:
            folder, _, document = str(each["path"]).rpartition("/")
            if document not in DOCUMENTS or names > MOST_NAMES:
                continue
            if document == ".zarray" or _node_type(_read(url, each["path"])) == "array":
                names += 1
                yield folder
        folders += len(batch)
        if folders >= LOOKED_AT:
            return


def _list_arrays(url: str, arrays: list[str]) -> str:
    if not arrays:
        return "No arrays were found in the store: is the address right?"
    return f"The store holds {', '.join(arrays[:MOST_NAMES])}. Name one: {url}::{arrays[0]}"


def _refusal(name: str, error: Any) -> InputError:
    """The error for an array or store ``name`` that cannot be opened because of ``error``."""
    reason = _reason(error)
    if "NoSuchBucket" in str(error):
        return SourceNotFoundError(f"{name}: there is no such bucket. {HINT}")
    return InputError(f"{name} cannot be opened: {reason}. {HINT}")
