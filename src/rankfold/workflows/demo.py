"""Principal components of every patch of two photographs, from pixels to a page with pictures.

All overlapping 8 x 8 x 3 patches of two photographs of 427 x 640 pixels are a matrix of 531 720 x 192
numbers, or 389 MiB, reduced within 256 MiB. What is complete in the folder is used again: patches and
result appear under their names by one rename each.
"""

from __future__ import annotations

import os
import shlex
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rankfold.api import RankfoldWarning, pca
from rankfold.pipeline.checkpoint import disk_errors
from rankfold.pipeline.errors import InputError, OutputError
from rankfold.pipeline.memory import return_freed_memory
from rankfold.pipeline.result import Result
from rankfold.pipeline.run import Progress
from rankfold.pipeline.sources import open_source
from rankfold.pipeline.units import format_bytes
from rankfold.workflows.report import (
    WIDTH,
    Fact,
    Page,
    Picture,
    Theme,
    new_figure,
    pixel_axes,
    plain_text,
    scree,
    take_picture,
    write_page,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Pixels = npt.NDArray[np.uint8]
Patches = npt.NDArray[np.float32]
Load = Callable[[], Sequence["Photograph"]]

SIDE = 8
COLUMNS = SIDE * SIDE * 3
RANK = 32
CHUNK_ROWS = 16384
"""Of 768 bytes each: 12 MiB."""

CROP = 128
"""Side of the part of a photograph that is put together again from components."""

KEPT = (4, 8, 32)
"""Numbers of components that it is put together from."""


_SCRIPT = """\
import rankfold as rf
x = rf.open({store!r})
r = rf.pca(x, rank={rank}, memory={memory!r}, out={out!r})
print(r.explained_variance_ratio.sum(), r.error_estimates.max())
print(r.components.shape, r.scores[:5])
"""


@dataclass(frozen=True, slots=True)
class Photograph:
    """Colour pixels, and where the interesting part begins."""

    name: str
    pixels: Pixels
    """(height, width, 3)"""

    focus: tuple[int, int] = (0, 0)
    """Row and column of the top left corner of the crop."""

    @property
    def patches(self) -> int:
        """Number of overlapping patches."""
        height, width, _ = self.pixels.shape
        return (height - SIDE + 1) * (width - SIDE + 1)


def run_demo(
    folder: Path, *, memory: str = "256MiB", threads: int | None = None, progress: Progress | None = None,
    say: Callable[[str], None] = print, load: Load | None = None,
) -> Path:
    """Write patches, reduce them, draw the components; the page that shows all of it.

    Parameters
    ----------
    folder : path
        Where everything goes: ``patches.zarr``, ``pca.zarr``, pictures, ``report.html``.
    memory, threads, progress
        As for ``rankfold.pca``.
    say : callable
        Takes each message.
    load : callable, optional
        Gives the photographs; the two that come with scikit-learn by default.

    Raises
    ------
    InputError
        scikit-learn is not installed.
    OutputError
        The folder holds something else under one of the names.
    """
    photographs = (load or sample_photographs)()
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    store, out = folder / "patches.zarr", folder / "pca.zarr"
    fresh = not _is_there(store, photographs)
    say(f"{store}: {'writing every patch' if fresh else 'already there'}")
    if fresh:
        write_patches(store, photographs, progress=progress)
    # What writing leaves in the heap would be taken again unseen, and flatter the measured peak.
    return_freed_memory()
    already_done = out.exists() and not fresh
    say(f"{out}: {'already done' if already_done else f'{RANK} principal components within {memory}'}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RankfoldWarning)  # said below, from the result
        # A result of patches that are gone is of no use: its own name is all that it blocks.
        result = pca(
            store, RANK, memory=memory, out=out, threads=threads, progress=progress, overwrite=fresh
        )
    page = folder / "report.html"
    facts = summarize(result, folder, already_done=already_done)
    pictures = draw_pictures(result, photographs, folder)
    write_page(_page(result, facts, pictures, folder, memory), page)
    for message in result.attrs["warnings"]:
        say(f"warning: {message}")
    say("\n" + plain_text(facts))
    return page


def sample_photographs() -> list[Photograph]:
    """The two photographs that come with scikit-learn."""
    try:
        from sklearn.datasets import load_sample_images
    except ImportError as error:
        raise InputError(
            "the photographs of the demo come with scikit-learn, which is not installed: "
            'pip install "rankfold[demo]"'
        ) from error
    found = load_sample_images()
    focus = {"china.jpg": (104, 136), "flower.jpg": (143, 244)}
    names = [Path(name).name for name in found.filenames]
    return [
        Photograph(name, pixels, focus.get(name, (0, 0)))
        for name, pixels in zip(names, found.images, strict=True)
    ]


def write_patches(
    store: Path, photographs: Sequence[Photograph], *, rows_per_chunk: int = CHUNK_ROWS,
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
                part, shape=(total, COLUMNS), dtype="float32", chunks=(rows_per_chunk, COLUMNS),
                compressors=None, fill_value=0, zarr_format=3, dimension_names=("patch", "value"),
                attributes={"photographs": [photograph.name for photograph in photographs]},
                config={"write_empty_chunks": True},
            )
            done = 0
            for rows in patch_blocks(photographs, rows_per_chunk):
                array[done : done + len(rows)] = rows
                done += len(rows)
                if progress is not None:
                    progress("patches", done, total)
            os.rename(part, store)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def patch_blocks(photographs: Sequence[Photograph], rows: int) -> Iterator[Patches]:
    """All patches in order, so many at a time: (rows, 192) float32 in [0, 1], the last block shorter.

    Photograph by photograph, top to bottom, left to right; within a patch row, column, colour.
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


def _is_there(store: Path, photographs: Sequence[Photograph]) -> bool:
    """Whether the patches of these photographs are complete.

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
    except InputError:
        found = None
    raise OutputError(
        f"{store} exists and is not what the demo writes: {'not a matrix' if found is None else found} "
        f"instead of {((total, COLUMNS), 'float32')}. Choose another folder with --out, or remove it."
    )


def summarize(result: Result, folder: Path, *, already_done: bool) -> list[Fact]:
    """What was computed, what it took, and where it is; all from the result and its record."""
    attrs, last = result.attrs, _last_attempt(result)
    rows, columns = attrs["input"]["shape"]
    size = rows * columns * np.dtype(attrs["input"]["dtype"]).itemsize
    baseline = _bytes(last, "baseline_bytes")
    return [
        Fact("matrix", f"{rows:,} x {columns}", f"{attrs['input']['dtype']}, {format_bytes(size)}"),
        Fact("computed", f"{attrs['request']['rank']} components", f"of {columns}, by {attrs['method']}"),
        Fact("passes", str(attrs["passes"]), "over the matrix"),
        Fact("bytes read", format_bytes(attrs["passes"] * size), "of the matrix"),
        Fact("memory budget", _bytes(last.get("plan", {}), "budget_bytes"), "of which"),
        Fact("peak planned", _bytes(last, "planned_bytes"), "above the baseline"),
        Fact("peak measured", _bytes(last, "measured_bytes"), "above the baseline"),
        Fact("baseline", baseline, "interpreter, libraries, photographs"),
        Fact(
            "largest error", f"{attrs['largest_error_estimate']:.1e}",
            f"estimated, relative, of a singular value; asked for {attrs['request']['tol']:.0e}",
        ),
        Fact("captured", f"{100 * attrs['captured']:.2f} %", "of the variance"),
        Fact("time", _seconds(last), "of the run that made it: already done" if already_done else ""),
        Fact("files", str(folder.absolute()), "patches.zarr, pca.zarr, report.html and its pictures"),
    ]


def _last_attempt(result: Result) -> dict[str, Any]:
    attempts = result.run.get("attempts", [])
    return attempts[-1] if attempts and attempts[-1].get("finished") else {}


def _bytes(record: dict[str, Any], key: str) -> str:
    """A recorded number; there is none where the record was deleted or the system does not tell."""
    value = record.get(key)
    return "not recorded" if value is None else format_bytes(value)


def _seconds(record: dict[str, Any]) -> str:
    return f"{record['seconds']:.3g} s" if "seconds" in record else "not recorded"


def draw_pictures(result: Result, photographs: Sequence[Photograph], folder: Path) -> list[Picture]:
    """Components, photographs put together from few of them, and the variance they explain."""
    components = np.asarray(result.components, np.float64)
    mean = np.asarray(result.mean, np.float64)
    ratio = np.asarray(result.explained_variance_ratio, np.float64)
    errors = np.asarray(result.error_estimates, np.float64)
    rank, first = len(ratio), 100 * ratio[0]
    return [
        take_picture(
            folder / "components.png", lambda theme: component_tiles(components, ratio, theme),
            title=f"The {rank} leading components",
            caption="Each tile is one component as an 8 x 8 colour patch, with its share of the variance. "
            "Mid grey is zero; each is scaled by its own largest value, and its sign is arbitrary. Brightness "
            "comes first, then colour, edges and ever finer waves: natural images look like this everywhere.",
            alt=f"Grid of {rank} small colour tiles, smooth ones first, finer patterns towards the end.",
        ),
        take_picture(
            folder / "reconstruction.png",
            lambda theme: reconstructions(photographs, mean, components, theme),
            title="What they capture",
            caption=f"Crops of the photographs, each patch of {COLUMNS} numbers put together again from the "
            "mean and a few components. The error is the root mean square over pixels, of full intensity.",
            alt="Crops of the photographs beside coarser copies made from 32, 8 and 4 components.",
        ),
        take_picture(
            folder / "scree.png", lambda theme: scree(ratio, errors, theme),
            title="Variance explained",
            caption="Above, the share of the variance of each component, on a logarithmic scale, with bars "
            f"of its estimated error (at most {200 * float(errors.max()):.1g} % of the share, so "
            "mostly within the line); below, the share of all components so far.",
            alt=f"Line falling from {first:.0f} % for the first component to {100 * ratio[-1]:.2g} % for the last, "
            f"above a line rising to {100 * ratio.sum():.1f} %.",
        ),
    ]


def component_tiles(
    components: npt.NDArray[np.float64], ratio: npt.NDArray[np.float64], theme: Theme
) -> Figure:
    """Components as colour tiles around mid grey, eight to a line."""
    across, gap, label = 8, 24, 44
    tile = (WIDTH - (across + 1) * gap) // across // SIDE * SIDE  # whole screen pixels to a pixel
    left = (WIDTH - across * tile - (across - 1) * gap) // 2
    lines = -(-len(components) // across)
    figure = new_figure(lines * (tile + label) + 2 * gap - 12, theme)
    for i, component in enumerate(components):
        x, y = left + i % across * (tile + gap), gap + i // across * (tile + label)
        scaled = 0.5 + 0.5 * component / max(float(np.abs(component).max()), np.finfo(float).tiny)
        axes = pixel_axes(figure, x, y, tile, tile)
        axes.imshow(scaled.reshape(SIDE, SIDE, 3), interpolation="nearest", aspect="auto")
        for at, text, colour in ((0, str(i + 1), theme.ink), (1, f"{100 * ratio[i]:.3g} %", theme.muted)):
            axes.text(
                at, -6 / tile, text, transform=axes.transAxes, color=colour, fontsize=7.5, va="top",
                ha="right" if at else "left",
            )
    return figure


def reconstructions(
    photographs: Sequence[Photograph], mean: npt.NDArray[np.float64],
    components: npt.NDArray[np.float64], theme: Theme,
) -> Figure:
    """Crops of the photographs, and what 32, 8 and 4 components make of them."""
    kept = [k for k in reversed(KEPT) if k <= len(components)]
    gap, label = 24, 56
    panel = (WIDTH - (len(kept) + 2) * gap) // (len(kept) + 1)
    figure = new_figure(len(photographs) * (panel + label) + gap, theme)
    for line, photograph in enumerate(photographs):
        crop = crop_of(photograph)
        shown = [(crop, photograph.name)]
        for k in kept:
            image = reconstruct(crop, mean, components[:k])
            error = float(np.sqrt(np.mean((image - crop) ** 2)))
            shown.append((image, f"{k} components, error {100 * error:.1f} %"))
        for place, (image, text) in enumerate(shown):
            axes = pixel_axes(figure, gap + place * (panel + gap), gap + line * (panel + label), panel, panel)
            axes.imshow(image.clip(0, 1), interpolation="nearest", aspect="auto")
            axes.text(
                0, -8 / panel, text, transform=axes.transAxes, color=theme.ink, fontsize=8, va="top"
            )
    return figure


def crop_of(photograph: Photograph) -> npt.NDArray[np.float64]:
    """The square part that is shown: whole patches, in [0, 1]."""
    height, width, _ = photograph.pixels.shape
    side = min(CROP, height // SIDE * SIDE, width // SIDE * SIDE)
    top, left = min(photograph.focus[0], height - side), min(photograph.focus[1], width - side)
    return photograph.pixels[top : top + side, left : left + side] / np.float64(255)


def reconstruct(
    crop: npt.NDArray[np.float64], mean: npt.NDArray[np.float64], components: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """A crop from the mean and some components, patch by patch side by side."""
    count = len(crop) // SIDE
    patches = crop.reshape(count, SIDE, count, SIDE, 3).swapaxes(1, 2).reshape(-1, COLUMNS)
    near = mean + (patches - mean) @ components.T @ components
    return near.reshape(count, count, SIDE, SIDE, 3).swapaxes(1, 2).reshape(crop.shape)


def _page(
    result: Result, facts: Sequence[Fact], pictures: Sequence[Picture], folder: Path, memory: str
) -> Page:
    by_label = {fact.label: fact.value for fact in facts}
    last = _last_attempt(result)
    headline = [
        Fact(f"is the matrix of {by_label['matrix']}", facts[0].note.split(", ")[-1]),
        Fact(f"peak memory, of {by_label['memory budget']} allowed", by_label["peak measured"]),
        Fact("passes over the matrix", by_label["passes"]),
        Fact(f"of the variance in {by_label['computed']}", by_label["captured"]),
    ]
    return Page(
        title="Principal components of every patch of two photographs",
        lead="Every overlapping 8 x 8 colour patch of two photographs, as a matrix on disk with a patch to a row, "
        "was reduced to its principal components in less memory than the matrix itself takes.",
        headline=headline, facts=facts, remarks=result.attrs["warnings"], pictures=pictures,
        command=f"rankfold demo --out {shlex.quote(str(folder))} --memory {shlex.quote(memory)}",
        script=_SCRIPT.format(
            store=str(folder / "patches.zarr"), rank=RANK, memory=memory, out=str(folder / "pca.zarr")
        ),
        origin=" · ".join(
            [f"rankfold {result.attrs['version']}"]
            + [str(last[key]) for key in ("started", "system") if key in last]
            + ([f"Python {last['python']}"] if "python" in last else [])
        ),
    )
