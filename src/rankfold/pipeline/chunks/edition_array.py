"""Zarr arrays of one edition of a result: a chunk that is not there is damage, never fill value.

Imported only once Zarr is needed.
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
"""What reading metadata and chunks that are not whole can raise."""

MOST_FILES = 16
"""Chunk files of an array that are looked at each time it is taken from memory."""


class WholeStore(WrapperStore[Any]):
    """The folder of a result, of which every chunk must be there."""

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """The bytes of a file; ``DataError`` if there is none and it is not metadata."""
        value = await super().get(key, prototype, byte_range)
        if value is None and key.rpartition("/")[2] not in METADATA:
            raise _damage(os.path.join(self._store.root, key), "is missing")
        return value


def open_edition(
    edition: Edition, path: str = "", *, consolidated: bool = True
) -> zarr.Array[Any] | zarr.Group:
    """Open a result to read it, or the array or group at a path in it.

    Without ``consolidated``, metadata are read where they belong, and not from their copy in the group.
    """
    store = WholeStore(RegularStore(edition.path, read_only=True))
    node = zarr.open(store, path=path, mode="r")
    if consolidated or isinstance(node, zarr.Array):
        return node
    return zarr.open_group(store, path=path, mode="r", use_consolidated=False)


@dataclass(frozen=False, eq=False, repr=False)
class EditionArray(LazyArray, zarr.Array[Any]):  # type: ignore[misc, override]
    """An array that reads numbers of its edition alone, or raises ``DataError``.

    It can be asked what NumPy's arrays can: see ``LazyArray``.
    """

    edition: Edition
    check: Callable[[Any], None] | None = None
    """Raises ``DataError`` for numbers that were read and may not be there; of large arrays, part by part."""

    @classmethod
    def of(cls, array: zarr.Array[Any], edition: Edition) -> EditionArray:
        """An array that is open in a ``WholeStore``."""
        return cls(array.async_array, edition)

    def read_selection(self, selection: tuple[Any, ...]) -> Any:
        """Numbers of an outer product of slices and rising indices."""
        if all(isinstance(line, slice) for line in selection):
            return np.asarray(self.get_basic_selection(selection))
        return np.asarray(self.get_orthogonal_selection(selection))

    def __repr__(self) -> str:
        return in_one_line(f"{os.path.basename(self.edition.path)}::{self.path}".removesuffix("::"), self)

    def require_files(self) -> None:
        """Raise ``DataError`` unless the first files of the array are there."""
        grid = (range(-(-n // size)) for n, size in zip(self.shape, self.shards or self.chunks, strict=True))
        keys = ("/".join(map(str, ("c", *place))) for place in itertools.product(*grid))
        folder = os.path.join(self.edition.path, self.path)
        for name in ("zarr.json", *itertools.islice(keys, MOST_FILES)):
            path = os.path.join(folder, name)
            if self.metadata.zarr_format == 3 and not os.path.exists(path):
                raise _damage(path, "is missing")

    def get_basic_selection(self, *args: Any, **options: Any) -> Any:
        """See ``zarr.Array``."""
        with self._same_edition(options):
            values = super().get_basic_selection(*args, **options)
        return self._checked(values)

    def get_orthogonal_selection(self, *args: Any, **options: Any) -> Any:
        """See ``zarr.Array``."""
        with self._same_edition(options):
            values = super().get_orthogonal_selection(*args, **options)
        return self._checked(values)

    def get_mask_selection(self, *args: Any, **options: Any) -> Any:
        """See ``zarr.Array``."""
        with self._same_edition(options):
            values = super().get_mask_selection(*args, **options)
        return self._checked(values)

    def get_coordinate_selection(self, *args: Any, **options: Any) -> Any:
        """See ``zarr.Array``."""
        with self._same_edition(options):
            values = super().get_coordinate_selection(*args, **options)
        return self._checked(values)

    def get_block_selection(self, *args: Any, **options: Any) -> Any:
        """See ``zarr.Array``."""
        with self._same_edition(options):
            values = super().get_block_selection(*args, **options)
        return self._checked(values)

    def _checked(self, values: Any) -> Any:
        if self.check is not None:
            self.check(values)
        return values

    @contextlib.contextmanager
    def _same_edition(self, options: Mapping[str, Any]) -> Iterator[None]:
        """Compare editions before and after a read, and say what a chunk that cannot be read means."""
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
