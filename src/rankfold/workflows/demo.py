"""Principal components of every patch of two photographs, from pixels to a page with pictures.

All overlapping 8 x 8 x 3 patches of two photographs of 427 x 640 pixels are a matrix of 531 720 x 192
numbers, or 389 MiB, reduced within 256 MiB. What is complete in the folder is used again: patches and
result appear under their names by one rename each.

All overlapping patches of photographs, as the rows of a Zarr array: the data of the demo.
"""

from __future__ import annotations

import os
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from rankfold.api.execute import RankfoldWarning
from rankfold.api.functions.reductions import pca
from rankfold.pipeline.engine.memory import return_freed_memory
from rankfold.pipeline.engine.run import Progress
from rankfold.pipeline.errors import ChunkError, InputError, OutputError, in_command
from rankfold.pipeline.exporting.plots.canvas import picture_output
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.outputs import APPEARED, FileOutput, publish_folder
from rankfold.pipeline.removal import remove
from rankfold.pipeline.storage.checkpoint import disk_errors, load_json
from rankfold.pipeline.storage.manifest import not_ours
from rankfold.pipeline.storage.result import Result
from rankfold.pipeline.text import Lines, printable, shell_words
from rankfold.pipeline.units import format_bytes
from rankfold.workflows.reporting import say
from rankfold.workflows.reports.page import (
    Fact,
    Float64,
    ImageTile,
    Page,
    Picture,
    page_output,
    plain_text,
    scree,
    take_picture,
    tile_grid,
    write_page,
)

RANK = 32

CROP = 128
"""Largest side in pixels of the square part of a photograph that is reconstructed from components."""

PICTURES = ("components.png", "reconstruction.png", "scree.png")

SUBJECT = "demo"
"""Text in a page by which the page of an earlier demo is recognized."""

COMPONENT_COUNTS = (4, 8, 32)
"""Numbers of components from which the photographs are reconstructed."""


_SCRIPT = """\
import rankfold as rf
x = rf.open({store!r})
r = rf.pca(x, rank={rank}, memory={memory!r}, out={out!r})
print(r.explained_variance_ratio.sum(), r.error_estimates.max())
print(r.components.shape, r.scores.shape)
"""


def run_demo(
    folder: Path,
    *,
    memory: str = "256MiB",
    threads: int | None = None,
    progress: Progress | None = None,
    say: Callable[[str], None] = say,
    load: Load | None = None,
) -> Path:
    """Write patches, compute their principal components, draw them; returns the path of a page with the
    pictures.

    Parameters
    ----------
    folder : path
        Folder of all output: ``patches.zarr``, ``pca.zarr``, pictures, ``report.html``.
    memory, threads, progress
        As for ``rankfold.pca``.
    say : callable
        Called with each message.
    load : callable, optional
        Returns the photographs; by default the two that come with scikit-learn.

    Raises ``InputError`` without scikit-learn, ``OutputError`` where a name is taken by something else.
    """
    photographs = (load or sample_photographs)()
    _make_folder(folder)
    pictures = [picture_output(folder / name, overwrite=True) for name in PICTURES]
    page = page_output(folder / "report.html", SUBJECT, overwrite=True)
    store, out = folder / "patches.zarr", folder / "pca.zarr"
    fresh = not patches_are_there(store, photographs)
    say(f"{store}: {'writing every patch' if fresh else 'already there'}")
    if fresh:
        write_patches(store, photographs, progress=progress)
    # Memory that writing leaves in the heap would be used again uncounted, and lower the measured peak.
    return_freed_memory()
    already_done = out.exists() and not fresh
    say(f"{out}: {'already done' if already_done else f'computing {RANK} components in {memory}'}")
    # A result of patches that are gone is useless: it may be overwritten.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RankfoldWarning)  # printed below, from the result
        result = pca(store, RANK, memory=memory, out=out, threads=threads, progress=progress, overwrite=fresh)
    facts = summarize(result, folder, already_done=already_done)
    shown = _page(result, facts, draw_pictures(result, photographs, pictures), folder, memory)
    write_page(shown, page, SUBJECT)
    for message in result.attrs["warnings"]:
        say(f"warning: {in_command(message)}")
    say(Lines("", plain_text(facts)))
    return folder / "report.html"


def _make_folder(folder: Path) -> None:
    if os.path.lexists(folder) and not folder.is_dir():
        raise OutputError(f"{folder} is not a folder. Choose another --out")
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)


def summarize(result: Result, folder: Path, *, already_done: bool) -> list[Fact]:
    """Facts for the page: what was computed, its cost, and where it is; from the result and its record."""
    attrs, last, home = result.attrs, _last_attempt(result), folder.absolute()
    rows, columns = attrs["input"]["shape"]
    attempts = len(result.run.get("attempts", []))
    whose = f", in the last of {attempts} attempts" if attempts > 1 else ""
    size = rows * columns * np.dtype(attrs["input"]["dtype"]).itemsize
    return [
        Fact("matrix", f"{rows:,} x {columns}", "a patch to a row"),
        Fact("size", format_bytes(size), f"of {attrs['input']['dtype']}, not compressed"),
        Fact("computed", f"{attrs['request']['rank']} components", f"by method {attrs['method']}"),
        Fact("passes", str(attrs["passes"]), "over the matrix"),
        Fact("bytes read", format_bytes(attrs["passes"] * size), "of the matrix, all passes"),
        Fact("memory budget", _bytes(last.get("plan", {}), "budget_bytes"), "allowed above the baseline"),
        Fact("peak planned", _bytes(last, "planned_bytes"), "above the baseline, known before the run"),
        Fact("peak measured", _bytes(last, "measured_bytes"), f"above the baseline{whose}"),
        Fact("baseline", _bytes(last, "baseline_bytes"), "interpreter, libraries and photographs"),
        Fact(
            "largest error",
            f"{attrs['largest_error_estimate']:.1e}",
            f"estimated, relative, of a singular value; asked for {attrs['request']['tol']:.0e}",
        ),
        Fact("captured", f"{100 * attrs['captured']:.2f} %", "of the variance"),
        Fact("time", _seconds(last), f"of the reduction{whose}{', already done' if already_done else ''}"),
        Fact("data", str(home / "patches.zarr")),
        Fact("result", str(home / "pca.zarr")),
        Fact("page", str(home / "report.html")),
    ]


def _last_attempt(result: Result) -> dict[str, Any]:
    attempts = result.run.get("attempts", [])
    return attempts[-1] if attempts and attempts[-1].get("finished") else {}


def _bytes(record: dict[str, Any], key: str) -> str:
    """The number of bytes under ``key`` as text; "not recorded" if the record was deleted or has none."""
    value = record.get(key)
    return "not recorded" if value is None else format_bytes(value)


def _seconds(record: dict[str, Any]) -> str:
    return f"{record['seconds']:.3g} s" if "seconds" in record else "not recorded"


def draw_pictures(
    result: Result, photographs: Sequence[Photograph], outputs: Sequence[FileOutput]
) -> list[Picture]:
    """Draw pictures of components, of photographs reconstructed from few of them, and of their variances.

    ``outputs`` are the three files of the pictures, in this order.
    """
    components, mean = np.asarray(result.components, np.float64), np.asarray(result.mean, np.float64)
    ratio = np.asarray(result.explained_variance_ratio, np.float64)
    errors = np.asarray(result.error_estimates, np.float64)
    rank, share, worst = len(ratio), 100 * ratio, 2 * float(errors.max())
    basis, copies = component_tiles(components, ratio), photograph_tiles(photographs, mean, components)
    name = f"The {rank} leading components of all 8 by 8 color patches"
    return [
        take_picture(
            outputs[0],
            lambda theme: tile_grid(basis, 8, name, theme),
            title="Components",
            caption="Each tile is one component, with its share of the variance. Mid grey is zero, every "
            "tile is scaled by its own largest value, and signs are arbitrary. Brightness comes first, then "
            "color, edges, and ever finer waves.",
            alt=f"{rank} color tiles: plain ones first, then gradients, then finer and finer stripes.",
        ),
        take_picture(
            outputs[1],
            lambda theme: tile_grid(
                copies, len(COMPONENT_COUNTS) + 1, "Photographs from a few numbers per patch", theme
            ),
            title="What they capture",
            caption=f"Each patch of {COLUMNS} numbers is put together again from the mean and as many "
            "components as the label says, patches side by side. The error is the root mean square over "
            "pixels, of full intensity.",
            alt="Crops of the photographs, from a coarse copy of 4 components to the photograph itself.",
        ),
        take_picture(
            outputs[2],
            lambda theme: scree(ratio, errors, "Share of the variance", theme),
            title="Variance explained",
            caption="Above, the share of each component; below, of all up to it. Bars show the estimated "
            f"error of a share, at most {worst:.0e} of it{', too little to see' if worst < 0.01 else ''}.",
            alt=f"The share falls from {share[0]:.0f} % for the first component to {share[-1]:.2g} % for "
            f"the last; together they reach {share.sum():.1f} %.",
        ),
    ]


def component_tiles(components: Float64, ratio: Float64) -> list[ImageTile]:
    """Components (k, 192) as images around mid gray, labeled with their shares ``ratio`` (k,) of variance."""
    tiny = np.finfo(np.float64).tiny
    scaled = 0.5 + 0.5 * components / np.maximum(np.abs(components).max(axis=1, keepdims=True), tiny)
    return [
        ImageTile(image.reshape(SIDE, SIDE, 3), str(i + 1), f"{f'{100 * ratio[i]:#.2g}'.rstrip('.')} %")
        for i, image in enumerate(scaled)
    ]


def photograph_tiles(
    photographs: Sequence[Photograph], mean: Float64, components: Float64
) -> list[ImageTile]:
    """Crops of the photographs, reconstructed from ever more components, and the originals.

    ``mean`` (192,) and ``components`` (k, 192) are those of the patches. A row of tiles for each photograph.
    """
    tiles = []
    for photograph in photographs:
        crop = crop_of(photograph)
        for k in COMPONENT_COUNTS:
            near = reconstruct(crop, mean, components[:k])
            error = float(np.sqrt(np.mean((near - crop) ** 2)))
            tiles.append(ImageTile(near.clip(0, 1), f"{k} components", f"error {100 * error:.1f} %"))
        tiles.append(ImageTile(crop, photograph.name, "original"))
    return tiles


def crop_of(photograph: Photograph) -> Float64:
    """Square part (side, side, 3) of a photograph that is shown, of whole patches, with values in [0, 1]."""
    height, width, _ = photograph.pixels.shape
    side = min(CROP, height // SIDE * SIDE, width // SIDE * SIDE)
    top, left = min(photograph.focus[0], height - side), min(photograph.focus[1], width - side)
    return photograph.pixels[top : top + side, left : left + side] / np.float64(255)


def reconstruct(crop: Float64, mean: Float64, components: Float64) -> Float64:
    """Crop (side, side, 3) whose patches, without overlap, are projected on some components.

    ``mean`` (192,) is subtracted from the patches before, and added afterwards; ``components`` are (k, 192).
    """
    count = len(crop) // SIDE
    patches = crop.reshape(count, SIDE, count, SIDE, 3).swapaxes(1, 2).reshape(-1, COLUMNS)
    near = mean + (patches - mean) @ components.T @ components
    return near.reshape(count, count, SIDE, SIDE, 3).swapaxes(1, 2).reshape(crop.shape)


def _page(
    result: Result, facts: Sequence[Fact], pictures: Sequence[Picture], folder: Path, memory: str
) -> Page:
    value = {fact.label: fact.value.replace(" ", "\N{NO-BREAK SPACE}") for fact in facts}
    last, home = _last_attempt(result), folder.absolute()
    origin = [f"{last['started'][:16].replace('T', ' ')} UTC", f"Python {last['python']}"] if last else []
    return Page(
        title="Principal components of every patch of two photographs",
        lead="All overlapping 8 by 8 color patches of two photographs, one to a row, are a matrix on disk. "
        "This is what its principal components look like, and what it took to compute them.",
        headline=[
            Fact(f"matrix of {value['matrix']}", value["size"]),
            Fact(f"peak memory, {value['memory budget']} allowed", value["peak measured"]),
            Fact("passes over the matrix", value["passes"]),
            Fact(f"of the variance in {value['computed']}", value["captured"]),
        ],
        facts=facts,
        remarks=result.attrs["warnings"],
        pictures=pictures,
        command=shell_words(["rankfold", "demo", "--out", str(home), "--memory", memory]),
        script=Lines.of(
            _SCRIPT.format(
                store=printable(str(home / "patches.zarr")),
                rank=RANK,
                memory=memory,
                out=printable(str(home / "pca.zarr")),
            )
        ),
        origin=", ".join([f"rankfold {result.attrs['version']}", *origin]),
    )


Pixels = npt.NDArray[np.uint8]
Patches = npt.NDArray[np.float32]
Load = Callable[[], Sequence["Photograph"]]

SIDE = 8
COLUMNS = SIDE * SIDE * 3
CHUNK_ROWS = 16384
"""Number of rows (patches) in a chunk; a row has 768 bytes, so that a chunk has 12 MiB."""


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
    """Write all patches as rows of a Zarr array at ``store``, which appears there when it is complete.

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
