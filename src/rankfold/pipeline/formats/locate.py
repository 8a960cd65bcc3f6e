"""Locations ``STORE::path/in/group``: split into store and array, or refused with a list of what it holds."""

from __future__ import annotations

import contextlib
import difflib
import glob
import math
import os
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from rankfold.pipeline.errors import (
    InputError,
    SeveralArraysError,
    SourceNotFoundError,
    UnfitFileError,
)
from rankfold.pipeline.outputs import require_finished
from rankfold.pipeline.regular import is_regular, read_json

MOST_NAMES = 8
"""Largest number of arrays that a message names."""

SPARSE = ("csr_matrix", "csc_matrix")
"""Values of AnnData's attribute ``encoding-type`` for groups that are sparse matrices."""

DEPTH = 4
"""Number of levels of groups that are searched: deeper arrays can be opened by name, but are not listed."""


def split_location(location: str) -> tuple[str, str]:
    """Path of the store and path of the array in it, which is empty for the store itself.

    >>> split_location("a.zarr::layers/X/")
    ('a.zarr', 'layers/X')
    >>> split_location("s3://bucket/a.zarr::X")
    ('s3://bucket/a.zarr', 'X')

    The name of a store may contain ``::``: the longest part that exists as a path is the store.
    """
    location = location.removeprefix("file://")
    words = [] if is_address(location) else location.split("::")
    for count in range(len(words), 1, -1):
        if os.path.exists(store := "::".join(words[:count])):
            return store, "::".join(words[count:]).strip("/")
    store, _, array = location.partition("::")
    return store, array.strip("/")


def natural_key(name: str) -> tuple[tuple[str | int, ...], str]:
    """Sort key of names by which ``part-2`` comes before ``part-10``.

    >>> sorted(["a10b", "a2b", "a"], key=natural_key)
    ['a', 'a2b', 'a10b']
    """
    parts = re.split(r"([0-9]+)", name)
    return tuple(int(part) if place % 2 else part for place, part in enumerate(parts)), name


def matching_files(location: str) -> list[str] | None:
    """Locations of all files that match a pattern with ``*``, ``?`` or ``[``, sorted; None for plain names.

    Of ``PATTERN::array``, the name of the array is added to each path.
    Numbers in names are compared as numbers: ``part-2`` comes before ``part-10``.
    """
    store, mark, array = location.partition("::")
    if "://" in store or not glob.has_magic(store) or os.path.exists(store):
        return None
    paths = sorted(glob.glob(store), key=natural_key)
    if not paths:
        raise SourceNotFoundError(f"no file is called as {store} says")
    return [f"{path}{mark}{array}" for path in paths]


def is_address(store: str) -> bool:
    """True if a store is given by a URL."""
    return "://" in store


def require_text(path: str) -> None:
    """Raise ``InputError`` for a path that is not UTF-8, which JSON cannot hold."""
    if any("\ud800" <= sign <= "\udfff" for sign in path):
        text = path.encode("utf-8", "backslashreplace").decode()
        with contextlib.suppress(UnicodeError):
            named = os.fsencode(path).decode()
            raise InputError(
                f"{named} is a name that Python cannot use here, where names of files are to be "
                f"{sys.getfilesystemencoding()}: set PYTHONUTF8=1, or LC_ALL to a locale of UTF-8"
            )
        raise InputError(f"{text} is a name that is not UTF-8, which no result can keep. Rename it")


def require_path(path: str) -> None:
    """Raise ``SourceNotFoundError``, with the most similar name in its folder, if a path does not exist."""
    require_text(path)
    if not path.strip():
        raise SourceNotFoundError(f"{path!r} names no file: give the path of one")
    if os.path.exists(path):
        return
    folder, leaf = os.path.split(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise SourceNotFoundError(f"{path} does not exist, nor does the folder {folder}")
    require_finished(path)
    near = difflib.get_close_matches(leaf, os.listdir(folder), n=1)
    hint = f". Did you mean {os.path.join(os.path.dirname(path), near[0])}?" if near else ""
    raise SourceNotFoundError(f"{path} does not exist{hint}")


def require_array(path: str, array: str) -> None:
    """Raise an error unless the folder ``path``, which need not be a group, has a Zarr array ``array``."""
    kind, holder = node_kind(os.path.join(path, array)), node_kind(path)
    if kind == "array":
        return
    arrays = dict(best_first(arrays_below(path)))
    near = difflib.get_close_matches(array, arrays, n=1) if array else []
    hint = f" Did you mean {path}::{near[0]}?" if near else ""
    if holder is None and kind is None:
        choices = f"{hint} {_list_arrays(path, arrays)}" if arrays else " Give a Zarr store or a .npy file"
        raise InputError(
            f"{path} is a folder without Zarr metadata (zarr.json, .zarray or .zgroup)"
            f"{f', and has no array {array}' if array else ''}.{choices}"
        )
    if kind is None and holder == "array":
        raise SourceNotFoundError(
            f"{path} is itself an array and holds no other: say {path}, without ::{array}"
        )
    if kind is None:
        raise SourceNotFoundError(f"{path} has no array {array}.{hint} {_list_arrays(path, arrays)}")
    raise SeveralArraysError.of(
        f"{path}{'::' + array if array else ''} is a Zarr group, not an array. {_list_arrays(path, arrays)}",
        [name for name in arrays if not array or name.startswith(f"{array}/")],
    )


def _list_arrays(path: str, arrays: dict[str, str]) -> str:
    """Sentence that names the arrays of the store at ``path``, and says how to ask for one.

    ``arrays`` maps the path of each array in the store to a text of its shape and type.
    """
    if not arrays:
        return "It holds no arrays"
    lines = [f"{name} {what}" for name, what in list(arrays.items())[:MOST_NAMES]]
    more = f" and {len(arrays) - MOST_NAMES} more" if len(arrays) > MOST_NAMES else ""
    return f"It holds {', '.join(lines)}{more}. Name one: {path}::{next(iter(arrays))}"


def node_kind(folder: str) -> str | None:
    """``array`` or ``group`` by the Zarr metadata in a folder, ``None`` if there are none."""
    if is_regular(os.path.join(folder, "zarr.json")):
        # A document that cannot be read counts as an array: Zarr then reports what is wrong with it.
        return "group" if _metadata(folder, "zarr.json").get("node_type") == "group" else "array"
    if is_regular(os.path.join(folder, ".zarray")):
        return "array"
    return "group" if is_regular(os.path.join(folder, ".zgroup")) else None


def store_around(store: str, array: str) -> tuple[str, str]:
    """Path of the Zarr store that holds the names of an array, and path of the array in it.

    ``store`` and ``array`` are those of ``split_location``. A path may lead into a store, as ``a.zarr/X``
    does: names of rows and columns lie around it, in ``obs`` and ``var`` of AnnData, or in the same group.
    Both paths are returned unchanged if there is nothing around.
    """
    if not os.path.isdir(store):
        return store, array
    path, inner, nearest = os.path.normpath(store), array, None
    while True:
        if all(node_kind(os.path.join(path, each)) is not None for each in ("obs", "var")):
            return (store, array) if inner == array else (path, inner)
        above, name = os.path.split(path)
        if name in ("", ".", "..") or node_kind(above or ".") != "group":
            break
        path, inner = above or ".", f"{name}/{inner}".strip("/")
        nearest = nearest or (path, inner)
    if array or nearest is None or node_kind(store) != "array":
        return store, array
    return nearest


def zarr_refusal(name: str, error: Exception) -> InputError:
    """The error for an array whose metadata Zarr does not understand."""
    if "bfloat16" in str(error):
        return InputError(
            f"{name} holds bfloat16, which the zarr package does not read. Write it as float32, which holds "
            "the same numbers"
        )
    return InputError(f"Zarr cannot open {name}: {type(error).__name__}: {error}")


class Location(NamedTuple):
    """An array or sparse matrix in a store."""

    path: str
    words: str
    """Text of its shape and type."""

    shape: tuple[int, ...]

    @property
    def weight(self) -> tuple[int, int]:
        """Sort key (number of axes, number of elements): data have more than coordinates and the like."""
        return len(self.shape), math.prod(self.shape)


def best_first(arrays: Iterable[Location]) -> list[tuple[str, str]]:
    """(path, text of shape and type) of arrays, the most likely first: ``X``, then the largest matrices.

    Vectors are left out if there is anything else: tables and coordinates may add dozens of them.
    """
    in_order = sorted(arrays, key=lambda each: (each.path != "X", *(-n for n in each.weight), each.path))
    wide = [each for each in in_order if len(each.shape) >= 2]
    return [(each.path, each.words) for each in wide or in_order]


def arrays_below(folder: str, array: str = "", depth: int = DEPTH) -> Iterator[Location]:
    """Yield the arrays and sparse matrices in a group, and in groups below it, by their metadata.

    ``folder`` is that of the store, ``array`` the path of the group in it, ``depth`` the number of levels of
    groups that are searched.
    """
    here = os.path.join(folder, array)
    for entry in sorted(entry.name for entry in os.scandir(here) if entry.is_dir()):
        path = f"{array}/{entry}" if array else entry
        try:
            kind = node_kind(os.path.join(folder, path))
            sparse = _sparse(os.path.join(folder, path)) if kind == "group" else None
        except UnfitFileError:  # an error only for callers that open it; its neighbors are still listed
            continue
        if kind == "array":
            words, shape = _describe(os.path.join(folder, path))
            yield Location(path, words, shape)
        elif sparse is not None:
            yield Location(path, f"{sparse} sparse", sparse)
        elif kind == "group" and depth > 1:
            yield from arrays_below(folder, path, depth - 1)


def _sparse(folder: str) -> tuple[int, ...] | None:
    """Shape of the sparse matrix in AnnData's layout that a group, in ``folder``, is; None for other groups.

    An empty tuple if the group does not state a valid shape.
    """
    attributes = _metadata(folder, "zarr.json").get("attributes") or _metadata(folder, ".zattrs")
    if not isinstance(attributes, dict) or attributes.get("encoding-type") not in SPARSE:
        return None
    return _lengths(attributes.get("shape"))


def _lengths(shape: object) -> tuple[int, ...]:
    """A shape as a tuple; empty if ``shape`` is not a list of whole numbers."""
    whole = isinstance(shape, list) and all(type(length) is int for length in shape)
    return tuple(shape) if isinstance(shape, list) and whole else ()


def _describe(folder: str) -> tuple[str, tuple[int, ...]]:
    """Text of shape and type of the array in ``folder``, and its shape.

    They are read without Zarr, which raises an error for an array that it does not understand.
    """
    name = "zarr.json" if is_regular(os.path.join(folder, "zarr.json")) else ".zarray"
    metadata = _metadata(folder, name)
    shape = metadata.get("shape")
    lengths = tuple(shape) if isinstance(shape, list) else shape
    return f"{lengths} {metadata.get('data_type', metadata.get('dtype'))}", _lengths(shape)


def _metadata(folder: str, name: str) -> dict[str, Any]:
    """The JSON document ``name`` in a folder as a dictionary; empty if it is missing or invalid."""
    try:
        document = read_json(os.path.join(folder, name))
    except UnfitFileError:
        raise
    except (FileNotFoundError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}
