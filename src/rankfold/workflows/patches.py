"""All overlapping patches of photographs, as the rows of a Zarr array: the data of the demo."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.engine.run import Progress
from rankfold.pipeline.errors import ChunkError, InputError, OutputError
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.storage.checkpoint import disk_errors

Pixels = npt.NDArray[np.uint8]
Patches = npt.NDArray[np.float32]
Load = Callable[[], Sequence["Photograph"]]

SIDE = 8
COLUMNS = SIDE * SIDE * 3
CHUNK_ROWS = 16384
"""Of 768 bytes each: 12 MiB."""


@dataclass(frozen=True, slots=True)
class Photograph:
    """Color pixels, and where the interesting part begins."""

    name: str
    pixels: Pixels
    """(height, width, 3)"""

    focus: tuple[int, int] = (0, 0)
    """Row and column of the top left corner of the crop."""

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
    found = load_sample_images()
    focus = {"china.jpg": (104, 136), "flower.jpg": (143, 244)}
    names = [Path(name).name for name in found.filenames]
    return [
        Photograph(name, pixels, focus.get(name, (0, 0)))
        for name, pixels in zip(names, found.images, strict=True)
    ]


def write_patches(
    store: Path,
    photographs: Sequence[Photograph],
    *,
    rows_per_chunk: int = CHUNK_ROWS,
    progress: Progress | None = None,
) -> None:
    """Write all patches as rows of an array, chunk by chunk; it appears under its name when complete."""
    import zarr

    total = sum(photograph.patches for photograph in photographs)
    part = store.with_name(f".{store.name}.part")
    shutil.rmtree(part, ignore_errors=True)
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
            done = 0
            for rows in patch_blocks(photographs, rows_per_chunk):
                array[done : done + len(rows)] = rows
                done += len(rows)
                if progress is not None:
                    progress("patches", done, total)
            shutil.rmtree(store, ignore_errors=True)  # damaged: see ``patches_are_there``
            os.rename(part, store)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def patch_blocks(photographs: Sequence[Photograph], rows: int) -> Iterator[Patches]:
    """All patches in order, so many at a time: (rows, 192) float32 in [0, 1], the last block shorter.

    Photograph by photograph, top to bottom, left to right; within a patch row, column, color.
    """
    block = np.empty((rows, COLUMNS), np.float32)
    filled = 0
    for photograph in photographs:
        taken = 0
        while taken < photograph.patches:
            count = min(rows - filled, photograph.patches - taken)
            _cut_patches(photograph.pixels, taken, block[filled : filled + count])
            taken, filled = taken + count, filled + count
            if filled == rows:
                yield block
                filled = 0
    if filled:
        yield block[:filled]


def _cut_patches(pixels: Pixels, first: int, out: Patches) -> None:
    """Patches ``first`` and following of a photograph; copies only the lines of pixels they lie in."""
    lines = np.lib.stride_tricks.sliding_window_view(pixels, (SIDE, SIDE, 3))[:, :, 0]
    across = lines.shape[1]
    top, bottom = first // across, -(-(first + len(out)) // across)
    window = lines[top:bottom].reshape(-1, COLUMNS)
    start = first - top * across
    np.divide(window[start : start + len(out)], np.float32(255), out=out)


def patches_are_there(store: Path, photographs: Sequence[Photograph]) -> bool:
    """Whether the patches of these photographs are complete; a store with damaged chunks is not.

    Raises
    ------
    OutputError
        Something else has the name.
    """
    if not store.exists():
        return False
    total = sum(photograph.patches for photograph in photographs)
    try:
        source = open_source(store)
        found = (source.shape, source.dtype.name)
        if found == ((total, COLUMNS), "float32"):
            source.check()
            return True
    except ChunkError:
        return False
    except InputError:
        found = None
    raise OutputError(
        f"{store} exists and is not what the demo writes: {'not a matrix' if found is None else found} "
        f"instead of {((total, COLUMNS), 'float32')}. Choose another folder with --out, or remove it."
    )
