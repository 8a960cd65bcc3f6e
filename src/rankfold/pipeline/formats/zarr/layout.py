"""Open Zarr arrays in folders: from a path or an open array to a ``ZarrSource`` or ``ZarrVolume``."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rankfold.pipeline import law
from rankfold.pipeline.chunks.edition import ATTRIBUTE, edition_around
from rankfold.pipeline.data.decoded import decode_volume
from rankfold.pipeline.data.dtypes import require_chunks, require_matrix, require_numbers
from rankfold.pipeline.data.source import Volume
from rankfold.pipeline.data.stacked import Rows, StackedSource, axis_names, row_axes, stack_volume
from rankfold.pipeline.errors import InputError, RankfoldError
from rankfold.pipeline.formats.frame_columns import FrameVolume, frame_volume, is_frame_group
from rankfold.pipeline.formats.locate import node_kind, require_array, zarr_refusal
from rankfold.pipeline.formats.naming import zarr_axis
from rankfold.pipeline.formats.zarr.metadata import (
    dimension_names,
    layout_of,
    meaning_in,
    metadata_version,
    names_among,
)
from rankfold.pipeline.formats.zarr.source import ZarrSource, ZarrVolume

if TYPE_CHECKING:
    import zarr


def source_at(path: str, array: str, *, missing: str | None) -> ZarrSource:
    """The array ``array``, of two axes, of the store in the folder ``path``.

    ``missing`` is the option ``missing_chunks`` of ``open_source``; None for its default.
    """
    name = f"{path}::{array}" if array else path
    with _explain(name):
        return source_of(_open(path, array), missing=missing, name=name)


def matrix_at(path: str, array: str, *, missing: str | None, rows: Rows = None) -> ZarrSource | StackedSource:
    """The array ``array`` of the store in the folder ``path``, as a matrix whose rows are the axes ``rows``.

    ``missing`` is the option ``missing_chunks`` of ``open_source``; None for its default.
    """
    name = f"{path}::{array}" if array else path
    with _explain(name):
        if (frame := _frame_at(path, array, missing, name)) is not None:
            return stack_volume(frame, rows)
        return matrix_of(_open(path, array), missing=missing, rows=rows, name=name)


def matrix_of(
    array: zarr.Array[Any], *, missing: str | None, rows: Rows = None, name: str | None = None
) -> ZarrSource | StackedSource:
    """An open array as a matrix whose rows are the axes that ``rows`` names.

    ``missing`` is the option ``missing_chunks``; ``name`` is that of the matrix in messages, by default its
    location.
    """
    path = _folder(array, name)
    name = name or _name(path, array)
    axes = axis_names(array.shape, dimension_names(array))
    require_chunks(name, array.shape, array.shards or array.chunks, array.dtype)
    require_chunks(name, array.shape, array.chunks, array.dtype)
    first = row_axes(name, axes, array.shape, rows) == (0,)
    require_numbers(name, array.dtype)
    meaning = meaning_in(name, array)
    if array.ndim == 2 and first and meaning is None:
        return source_of(array, missing=missing, name=name)
    volume = ZarrVolume(shape=array.shape, axes=axes, **_layout(array, path, missing, name))
    return stack_volume(decode_volume(volume, meaning), rows)


def _frame_at(path: str, group: str, missing: str | None, name: str) -> FrameVolume | None:
    """The columns of a data frame of AnnData as an array of two axes; None if ``group`` is anything else.

    ``group`` is a path in the store in the folder ``path``, ``name`` the name of the frame in messages.
    """
    from rankfold.pipeline.chunks.regular_store import zarr_node

    folder = os.path.join(path, group)
    if not group or node_kind(folder) != "group" or not is_frame_group(node := zarr_node(folder)):
        return None

    def volume_of(column: Any, name: str) -> Volume:
        element = f"{group}/{column.path}"
        array = _open(path, element)
        axes = axis_names(array.shape, None)
        return ZarrVolume(
            shape=array.shape, axes=axes, **_layout(array, os.path.abspath(path), missing, name)
        )

    return frame_volume(node, name, (os.path.abspath(path), group), zarr_axis, volume_of)


def source_of(array: zarr.Array[Any], *, missing: str | None, name: str | None = None) -> ZarrSource:
    """Make a ``Source`` of an open array of two axes; its store must be a folder.

    ``missing`` is the option ``missing_chunks``; ``name`` is that of the matrix in messages, by default its
    location.
    """
    path = _folder(array, name)
    name = name or _name(path, array)
    require_matrix(name, array.shape, array.dtype)
    require_chunks(name, array.shape, array.chunks, array.dtype)
    rows, columns = array.shape
    layout = _layout(array, path, missing, name)
    axes = axis_names(array.shape, dimension_names(array))
    named = len({*axes}) == 2 and not any(axis.isdecimal() for axis in axes)
    named &= names_among(array.attrs) is None and layout["edition"] is None
    return ZarrSource(shape=(rows, columns), dims=axes if named else (), **layout)


def _open(path: str, array: str) -> zarr.Array[Any]:
    """Open an array of the store in the folder ``path`` through Zarr.

    An array of a result must be among those that the attributes of the result list, with the same shape.
    """
    from rankfold.pipeline.chunks.regular_store import zarr_array, zarr_node

    facts = None
    if array and node_kind(path) == "group":
        facts = zarr_node(path).attrs.get(ATTRIBUTE)
    if facts is not None and node_kind(os.path.join(path, array)) is None:
        law.require_array(path, facts, array, None)
    require_array(path, array)
    opened = zarr_array(path, array)
    if facts is not None:
        law.require_array(path, facts, array, opened.shape)
    return opened


@contextlib.contextmanager
def _explain(name: str) -> Iterator[None]:
    """Turn any error of Zarr in the block, about metadata of the array ``name``, into ``InputError``."""
    try:
        yield
    except (RankfoldError, OSError, MemoryError):
        raise
    except Exception as error:
        raise zarr_refusal(name, error) from error


def _instead(store: Any) -> str:
    """Advice on what to pass instead of an array in a store of a kind that is not read."""
    from zarr.storage import MemoryStore, ZipStore

    if isinstance(store, MemoryStore):
        return "Give the numbers, array[:], or write them to a folder"
    if isinstance(store, ZipStore):
        return "Unpack it, and give the path of the folder"
    return "Give its address instead, as s3://bucket/store.zarr::array"


def _folder(array: zarr.Array[Any], name: str | None) -> str:
    """Folder of the store of an open array; ``InputError``, about ``name``, for stores of other kinds."""
    from zarr.storage import LocalStore

    from rankfold.pipeline.chunks.edition_array import EditionArray

    if isinstance(array, EditionArray):
        array.edition.require()
        return array.edition.path
    store = array.store
    if not isinstance(store, LocalStore):
        raise InputError(
            f"{name or array.name} lies in a {type(store).__name__}; only local stores are read as objects. "
            f"{_instead(store)}"
        )
    return os.path.abspath(store.root)


def _name(path: str, array: zarr.Array[Any]) -> str:
    return f"{path}::{array.path}" if array.path else path


def _layout(array: zarr.Array[Any], path: str, missing: str | None, name: str) -> dict[str, Any]:
    """Fields of ``ZarrSource`` and ``ZarrVolume``, by name, that do not depend on the number of axes.

    ``path`` is the folder of the store, ``name`` the name in messages, ``missing`` is ``missing_chunks``.
    """
    folder = os.path.join(path, array.path) if array.path else path
    document, version = metadata_version(array, folder)
    edition = edition_around(folder)
    layout = layout_of(array, folder, document=document, version=version, missing=missing, edition=edition)
    return {"name": name, "path": path, "array": array.path, **layout}
