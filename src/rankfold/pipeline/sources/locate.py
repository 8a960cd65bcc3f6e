"""From ``STORE::path/in/group`` to folder and array path, or to a message that says what is there."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterator
from typing import Any

from rankfold.pipeline.errors import InputError, SourceNotFoundError

LISTED = 8
"""Most arrays that a message names."""

DEPTH = 4
"""Groups are searched this deep: deeper arrays can be named, they are just not listed."""


def split_location(location: str) -> tuple[str, str]:
    """Path of the store and path of the array in it, which is empty for the store itself.

    >>> split_location("a.zarr::layers/X/")
    ('a.zarr', 'layers/X')
    >>> split_location("s3://bucket/a.zarr::X")
    ('s3://bucket/a.zarr', 'X')
    """
    store, _, array = location.partition("::")
    return store.removeprefix("file://"), array.strip("/")


def is_address(store: str) -> bool:
    """Whether a store lies elsewhere, by its name."""
    return "://" in store


def require_path(path: str) -> None:
    """Raise ``SourceNotFoundError``, with the nearest name beside it, when there is no such path."""
    if any("\ud800" <= sign <= "\udfff" for sign in path):
        shown = path.encode("utf-8", "backslashreplace").decode()
        raise InputError(f"{shown} is a name that is not UTF-8, which no result can keep. Rename it")
    if os.path.exists(path):
        return
    folder, wanted = os.path.split(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise SourceNotFoundError(f"{path} does not exist, nor does the folder {folder}")
    near = difflib.get_close_matches(wanted, os.listdir(folder), n=1)
    hint = f". Did you mean {os.path.join(os.path.dirname(path), near[0])}?" if near else ""
    raise SourceNotFoundError(f"{path} does not exist{hint}")


def require_array(path: str, array: str) -> None:
    """Raise unless there is a Zarr array ``array`` in the folder ``path``, which need not be a group."""
    kind, holder = node_kind(os.path.join(path, array)), node_kind(path)
    if kind == "array":
        return
    arrays = dict(arrays_below(path))
    near = difflib.get_close_matches(array, arrays, n=1) if array else []
    hint = f" Did you mean {path}::{near[0]}?" if near else ""
    if holder is None and kind is None:
        listed = f"{hint} {_listed(path, arrays)}" if arrays else " Give a Zarr store or a .npy file"
        raise InputError(
            f"{path} is a folder without Zarr metadata (zarr.json, .zarray or .zgroup)"
            f"{f', and has no array {array}' if array else ''}.{listed}"
        )
    if kind is None and holder == "array":
        raise SourceNotFoundError(
            f"{path} is itself an array and holds no other: say {path}, without ::{array}"
        )
    if kind is None:
        raise SourceNotFoundError(f"{path} has no array {array}.{hint} {_listed(path, arrays)}")
    raise InputError(
        f"{path}{'::' + array if array else ''} is a Zarr group, not an array. {_listed(path, arrays)}"
    )


def _listed(path: str, arrays: dict[str, str]) -> str:
    """Sentence that names the arrays of a store and how to ask for one."""
    if not arrays:
        return "It holds no arrays"
    shown = [f"{name} {what}" for name, what in list(arrays.items())[:LISTED]]
    more = f" and {len(arrays) - LISTED} more" if len(arrays) > LISTED else ""
    return f"It holds {', '.join(shown)}{more}. Name one: {path}::{next(iter(arrays))}"


def node_kind(folder: str) -> str | None:
    """``array`` or ``group`` by the metadata in a folder, ``None`` where there is none."""
    if os.path.isfile(os.path.join(folder, "zarr.json")):
        # A document that cannot be read counts as an array: Zarr then says what is wrong with it.
        return "group" if _metadata(folder, "zarr.json").get("node_type") == "group" else "array"
    if os.path.isfile(os.path.join(folder, ".zarray")):
        return "array"
    return "group" if os.path.isfile(os.path.join(folder, ".zgroup")) else None


def arrays_below(folder: str, array: str = "", depth: int = DEPTH) -> Iterator[tuple[str, str]]:
    """Path within the store, and shape and type as text, of the arrays in a group."""
    here = os.path.join(folder, array)
    for entry in sorted(entry.name for entry in os.scandir(here) if entry.is_dir()):
        path = f"{array}/{entry}" if array else entry
        kind = node_kind(os.path.join(folder, path))
        if kind == "array":
            yield path, _described(os.path.join(folder, path))
        elif kind == "group" and depth > 1:
            yield from arrays_below(folder, path, depth - 1)


def _described(folder: str) -> str:
    """Shape and type of an array, read without Zarr: one odd neighbour must not spoil the message."""
    name = "zarr.json" if os.path.isfile(os.path.join(folder, "zarr.json")) else ".zarray"
    metadata = _metadata(folder, name)
    shape = metadata.get("shape")
    lengths = tuple(shape) if isinstance(shape, list) else shape
    return f"{lengths} {metadata.get('data_type', metadata.get('dtype'))}"


def _metadata(folder: str, name: str) -> dict[str, Any]:
    """The metadata document, empty if it cannot be read."""
    try:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            document = json.load(file)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
