"""A Zarr store that says so when a chunk is not there, where Zarr would read fill value without a word.

Imported only once Zarr is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zarr.storage import WrapperStore

if TYPE_CHECKING:
    from zarr.abc.store import ByteRequest
    from zarr.core.buffer import Buffer, BufferPrototype

METADATA = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")
"""What Zarr looks for and may well not find."""


class MissingChunk(Exception):
    """There is no object with this key."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


class StrictStore(WrapperStore[Any]):
    """Another store, of which every chunk must be there."""

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """The bytes of an object; ``MissingChunk`` if there is none and it is not metadata."""
        found = await super().get(key, prototype, byte_range)
        if found is None and key.rpartition("/")[2] not in METADATA:
            raise MissingChunk(key)
        return found
