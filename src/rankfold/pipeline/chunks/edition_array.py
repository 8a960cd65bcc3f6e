"""Zarr arrays of a result that read only from the files they were opened on, one edition of that result.

A missing chunk is damage, never fill value. Imported only once Zarr is needed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from zarr.storage import WrapperStore

from rankfold.pipeline.chunks.edition import Edition
from rankfold.pipeline.chunks.lazy_array import LazyArray, in_one_line
from rankfold.pipeline.chunks.regular_store import METADATA, RegularStore
from rankfold.pipeline.errors import DataError

if TYPE_CHECKING:
    from zarr.abc.store import ByteRequest
    from zarr.core.buffer import Buffer, BufferPrototype

DAMAGE = (KeyError, ValueError, OSError, RuntimeError, AttributeError, OverflowError)
"""Exceptions that reading damaged metadata and chunks can raise."""

MOST_FILES = 16
"""Number of first chunk files whose existence is checked each time an array of a result is accessed."""


class WholeStore(WrapperStore[Any]):
    """Store of a result in a folder, in which every chunk must exist."""

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """The bytes of a file. Raises ``DataError`` if a chunk does not exist; None for missing metadata."""
        value = await super().get(key, prototype, byte_range)
        if value is None and key.rpartition("/")[2] not in METADATA:
            raise _damage(os.path.join(self._store.root, key), "is missing")
        return value


def open_edition(
    edition: Edition, path: str = "", *, consolidated: bool = True
) -> zarr.Array[Any] | zarr.Group:
    """Open a result, or the array or group at a path in it, read-only.

    Without ``consolidated``, metadata are read from their own documents, not from the copy in the group.
    """
    store = WholeStore(RegularStore(edition.path, read_only=True))
    node = zarr.open(store, path=path, mode="r")
    if consolidated or isinstance(node, zarr.Array):
        return node
    return zarr.open_group(store, path=path, mode="r", use_consolidated=False)


@dataclass(frozen=False, eq=False, repr=False)
class EditionArray(LazyArray, zarr.Array[Any]):  # type: ignore[misc, override]
    """An array of a result; reading it raises ``DataError`` once the result has been replaced or removed.

    It has the interface of NumPy arrays: see ``LazyArray``.
    """

    edition: Edition
    check: Callable[[Any], None] | None = None
    """Function that raises ``DataError`` for invalid values; called with each part that is read.

    Set for large arrays; others are checked as a whole.
    """

    @classmethod
    def of(cls, array: zarr.Array[Any], edition: Edition) -> EditionArray:
        """Wrap an array that is open in a ``WholeStore``."""
        return cls(array.async_array, edition)

    def read_selection(self, selection: tuple[Any, ...]) -> Any:
        """Read all combinations of indices in ``selection``, a slice or ascending indices for each axis."""
        if all(isinstance(line, slice) for line in selection):
            return np.asarray(self.get_basic_selection(selection))
        return np.asarray(self.get_orthogonal_selection(selection))

    def __repr__(self) -> str:
        return in_one_line(f"{os.path.basename(self.edition.path)}::{self.path}".removesuffix("::"), self)

    def require_files(self) -> None:
        """Raise ``DataError`` unless the metadata and the first ``MOST_FILES`` chunk files exist."""
        grid = (range(-(-n // size)) for n, size in zip(self.shape, self.shards or self.chunks, strict=True))
        keys = ("/".join(map(str, ("c", *place))) for place in itertools.product(*grid))
        folder = os.path.join(self.edition.path, self.path)
        for name in ("zarr.json", *itertools.islice(keys, MOST_FILES)):
            path = os.path.join(folder, name)
            if self.metadata.zarr_format == 3 and not os.path.exists(path):
                raise _damage(path, "is missing")

    def get_basic_selection(self, *args: Any, **options: Any) -> Any:
        """Read as ``zarr.Array.get_basic_selection``, of this edition only."""
        with self._same_edition(options):
            values = super().get_basic_selection(*args, **options)
        return self._checked(values)

    def get_orthogonal_selection(self, *args: Any, **options: Any) -> Any:
        """Read as ``zarr.Array.get_orthogonal_selection``, of this edition only."""
        with self._same_edition(options):
            values = super().get_orthogonal_selection(*args, **options)
        return self._checked(values)

    def get_mask_selection(self, *args: Any, **options: Any) -> Any:
        """Read as ``zarr.Array.get_mask_selection``, of this edition only."""
        with self._same_edition(options):
            values = super().get_mask_selection(*args, **options)
        return self._checked(values)

    def get_coordinate_selection(self, *args: Any, **options: Any) -> Any:
        """Read as ``zarr.Array.get_coordinate_selection``, of this edition only."""
        with self._same_edition(options):
            values = super().get_coordinate_selection(*args, **options)
        return self._checked(values)

    def get_block_selection(self, *args: Any, **options: Any) -> Any:
        """Read as ``zarr.Array.get_block_selection``, of this edition only."""
        with self._same_edition(options):
            values = super().get_block_selection(*args, **options)
        return self._checked(values)

    def _checked(self, values: Any) -> Any:
        if self.check is not None:
            self.check(values)
        return values

    @contextlib.contextmanager
    def _same_edition(self, options: Mapping[str, Any]) -> Iterator[None]:
        """Check before and after the block, a read, that the result was not replaced.

        Errors of unreadable chunks become ``DataError``.
        """
        self.edition.require()
        try:
            yield
        except DAMAGE as error:
            self.edition.require()
            if isinstance(error, DataError) or options.get("out") is not None:
                raise
            raise _damage(os.path.join(self.edition.path, self.path), f"cannot be read ({error})") from error
        self.edition.require()


def _damage(path: str, what: str) -> DataError:
    return DataError(f"{path} {what}: the result is damaged. Give the command that made it once more")
