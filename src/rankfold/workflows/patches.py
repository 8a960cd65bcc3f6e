"""All overlapping patches of photographs, as the rows of a Zarr array: the data of the demo."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from rankfold.pipeline.engine.run import Progress
from rankfold.pipeline.errors import ChunkError, InputError, OutputError
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.outputs import APPEARED, publish_folder
from rankfold.pipeline.removal import remove
from rankfold.pipeline.storage.checkpoint import disk_errors, load_json
from rankfold.pipeline.storage.manifest import not_ours

Pixels = npt.NDArray[np.uint8]
Patches = npt.NDArray[np.float32]
Load = Callable[[], Sequence["Photograph"]]

SIDE = 8
COLUMNS = SIDE * SIDE * 3
CHUNK_ROWS = 16384
"""Rows in a chunk; a row has 768 bytes, so that a chunk has 12 MiB."""


@dataclass(frozen=True, slots=True)
class Photograph:
    """A color photograph, and the corner of its interesting part."""

    name: str
    pixels: Pixels
    """Colors of the pixels, (height, width, 3)."""

    focus: tuple[int, int] = (0, 0)
    """Row and column of the top left corner of the part that is shown."""

    @property
    def patches(self) -> int:
        """Number of overlapping patches."""
        height, width, _ = self.pixels.shape
        return int((height - SIDE + 1) * (width - SIDE + 1))


def sample_photographs() -> list[Photograph]:
    """The two photographs that come with scikit-learn."""
    try:
        from sklearn.datasets import load_sample_images
    except ImportError as error:
        raise InputError(
            "the photographs of the demo come with scikit-learn, which is not installed: "
            "pip install scikit-learn"
        ) from error
    samples, focus = load_sample_images(), {"china.jpg": (104, 136), "flower.jpg": (143, 244)}
    return [
        Photograph(name, pixels, focus.get(name, (0, 0)))
        for name, pixels in zip(map(os.path.basename, samples.filenames), samples.images, strict=True)
    ]


def write_patches(
    store: Path,
    photographs: Sequence[Photograph],
    *,
    rows_per_chunk: int = CHUNK_ROWS,
    progress: Progress | None = None,
) -> None:
    """Write all patches as rows of an array, chunk by chunk; the array gets its name when complete.

    Raises
    ------
    OutputError
        The path ``store`` belongs to something else, or did so at the end.
    """
    import zarr

    def foreign(path: Path) -> str | None:
        return None if _has_written(path, photographs) and not_ours(path) is None else APPEARED

    total = sum(photograph.patches for photograph in photographs)
    part = store.with_name(f".{store.name}.part")
    aside = store.with_name(f".{store.name}.{uuid.uuid4().hex}")
    remove(part)
    try:
        with disk_errors(store):
            array = zarr.create_array(
                part,
                shape=(total, COLUMNS),
                dtype="float32",
                chunks=(rows_per_chunk, COLUMNS),
                compressors=None,
                fill_value=0,
                zarr_format=3,
                dimension_names=("patch", "value"),
                attributes={"photographs": [photograph.name for photograph in photographs]},
                config={"write_empty_chunks": True},
            )
            rows_written = 0
            for rows in patch_blocks(photographs, rows_per_chunk):
                array[rows_written : rows_written + len(rows)] = rows
                rows_written += len(rows)
                if progress is not None:
                    progress("patches", rows_written, total)
            if (reason := publish_folder(part, store, aside, foreign)) is not None:
                raise OutputError(f"{store} {reason}, so it stays as it is. Choose another folder")
    finally:
        remove(part)
        remove(aside)


def patch_blocks(photographs: Sequence[Photograph], rows: int) -> Iterator[Patches]:
    """Yield all patches in order, in blocks: (rows, 192) float32 in [0, 1], the last block shorter.

    Photograph by photograph, top to bottom, left to right; within a patch row, column, color.
    """
    windows = [sliding_window_view(each.pixels, (SIDE, SIDE, 3))[:, :, 0] for each in photographs]
    for top in range(0, sum(each.patches for each in photographs), rows):
        parts, first = [], top
        for view in windows:
            lines, across = view.shape[:2]
            numbers = np.arange(max(first, 0), min(first + rows, lines * across))
            parts.append(view[numbers // across, numbers % across].reshape(-1, COLUMNS))
            first -= lines * across
        yield np.divide(np.concatenate(parts), np.float32(255), dtype=np.float32)


def _has_written(store: Path, photographs: Sequence[Photograph]) -> bool:
    """True if the metadata of a store, complete or damaged, name these photographs."""
    attributes = (load_json(store / "zarr.json", dict) or {}).get("attributes")
    names = [photograph.name for photograph in photographs]
    return isinstance(attributes, dict) and attributes.get("photographs") == names


def patches_are_there(store: Path, photographs: Sequence[Photograph]) -> bool:
    """True if the patches of these photographs are complete; False for a store with damaged chunks.

    Raises ``OutputError`` if something else has the name.
    """
    if not store.exists():
        return False
    layout = ((sum(each.patches for each in photographs), COLUMNS), "float32")
    try:
        source = open_source(store)
        what: object = (source.shape, source.dtype.name)
        if what == layout:
            source.check()
            return True
    except ChunkError:
        if _has_written(store, photographs) and not_ours(store) is None:
            return False
        what = "damaged, and not written by the demo"
    except InputError:
        what = "not a matrix"
    raise OutputError(
        f"{store} exists and is not what the demo writes: {what} instead of {layout}. Choose another folder "
        "with --out, or remove it."
    )
