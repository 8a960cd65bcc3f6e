"""Figures of a report on runs: timeline, memory, roofline of the machine, convergence, speedup.

A sweep is one run through the matrix or through temporary files; a segment is a part of it that one worker
runs at a time. See ``plots.canvas`` for what figures share: objects without global state, for light and for
dark screens.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rankfold.pipeline.exporting.plots.canvas import (
    MARGIN,
    WIDTH,
    Theme,
    drawn,
    new_figure,
    place_axes,
    quiet,
    short,
    whole_numbers,
)
from rankfold.pipeline.exporting.plots.row_colors import HUES
from rankfold.pipeline.units import format_bytes
from rankfold.workflows.reports.history import History, Period, Segment, periods
from rankfold.workflows.reports.measures import Scaling, group_sweeps
from rankfold.workflows.reports.page import Float64

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOSS_COLOR = "#c1121f"

LANES = 48
"""Largest number of lines of bars in a timeline; others are left out."""

SIGN = 13
"""Width of a character of a label, in pixels."""

LEGEND_PIXELS = 260
"""Width of a name in the legend of a timeline, in pixels."""

LINE = 34
"""Distance between two lines of bars in a timeline, in pixels."""


def timeline(stages: Sequence[History], title: str, theme: Theme, width: int = WIDTH) -> Figure:
    """Bars of segments over time, colored by stage; a process has as many lines as it ran segments at once.

    Long pauses between attempts are left out. ``width`` is in pixels, as in all figures here.
    """
    spans = [(one.began, stage.seen_until(one)) for stage in stages for one in stage.bars]
    spans += [(one.at, one.at) for stage in stages for one in stage.events]
    axis = periods(spans, gap_seconds=max(1.0, 0.25 * sum(end - begin for begin, end in _merge_spans(spans))))
    lines, label = _lines(stages), "seconds of work" + ", pauses left out" * (len(axis) > 1)
    if len(lines) > LANES:
        lines, label = lines[:LANES], f"{label}; the first {LANES} of {len(lines)} lines"
    height = 30 + LINE * len(lines)
    across = max(1, min(6, len(stages), width // LEGEND_PIXELS))
    legend = 155 + 45 * -(-len(stages) // across)
    figure = new_figure(height + legend, title, theme, width)
    axes = place_axes(figure, 240, 20, width - 240 - MARGIN, height)
    for number, (_, segments) in enumerate(lines):
        for color, segment, until, running in segments:
            begin, end = (_on(axis, at) for at in (segment.began, until))
            is_lost = segment.ended is None and not running
            axes.broken_barh(
                [(begin, max(end - begin, 1e-3 * _length(axis)))],
                (number - 0.38, 0.76),
                facecolor="none" if is_lost else color,
                edgecolor=LOSS_COLOR if is_lost else (theme.ink if segment.cut else theme.paper),
                hatch="////" if is_lost else None,
                linewidth=1.0 if is_lost or segment.cut else 0.3,
            )
    _mark_workers(axes, stages, lines, axis, theme)
    for one in axis[1:]:
        axes.axvline(one.offset - 0.01 * _length(axis), color=theme.muted, linewidth=1, linestyle=":")
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.set_xlim(0, _length(axis) or 1)
    axes.set_yticks(range(len(lines)), [drawn(one) for one in _line_labels(lines)])
    axes.set_xlabel(label, color=theme.muted, fontsize=9)
    quiet(axes, theme, grid="x")
    _legend(axes, [(stage.name, HUES[i % len(HUES)]) for i, stage in enumerate(stages)], across, theme)
    return figure


def _merge_spans(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    return [(one.began, one.ended) for one in periods(spans, gap_seconds=0.0)]


def _length(axis: Sequence[Period]) -> float:
    return axis[-1].offset + axis[-1].ended - axis[-1].began if axis else 0.0


def _on(axis: Sequence[Period], at: float) -> float:
    for one in reversed(axis):
        if at >= one.began:
            return one.offset + min(at, one.ended) - one.began
    return 0.0


Bar = tuple[str, Segment, float, bool]
"""Color of the bar, its segment, the time of its end in seconds since 1970, and True if it still runs."""

Line = tuple[str, list[Bar]]


def _lines(stages: Sequence[History]) -> list[Line]:
    """Lines of a timeline (a process and its bars), in the order in which processes started.

    A process has as many lines as it ran segments at once.
    """
    lines_of_process: dict[str, list[list[Bar]]] = {}
    everything = [
        (HUES[i % len(HUES)], segment, stage.seen_until(segment), stage.goes_on(segment))
        for i, stage in enumerate(stages)
        for segment in stage.bars
    ]
    for bar in sorted(everything, key=lambda each: each[1].began):
        lines = lines_of_process.setdefault(bar[1].process, [])
        for line in lines:
            if line[-1][2] <= bar[1].began:
                line.append(bar)
                break
        else:
            lines.append([bar])
    return [(process, line) for process, lines in lines_of_process.items() for line in lines]


def _line_labels(lines: Sequence[Line]) -> list[str]:
    """Label of each line: the name of its process at the first of the process's lines, else empty."""
    names = [process.rpartition(".")[0] or process for process, _ in lines]
    return [name if i == 0 or names[i - 1] != name else "" for i, name in enumerate(names)]


def _mark_workers(
    axes: Axes, stages: Sequence[History], lines: Sequence[Line], axis: Sequence[Period], theme: Theme
) -> None:
    """Mark where workers came, left and were lost, on the first line of their process."""
    names = [process for process, _ in lines]
    marks = {"came": (">", theme.ink), "handed over": ("D", theme.ink), "gone": ("X", LOSS_COLOR)}
    for event, process in itertools.chain.from_iterable(stage.events_with_process() for stage in stages):
        if event.what in marks and process in names:
            marker, color = marks[event.what]
            place = _on(axis, event.at), names.index(process) - 0.45
            axes.plot(*place, marker=marker, markersize=4, color=color, clip_on=False, linestyle="none")


def memory_bars(stages: Sequence[History], title: str, theme: Theme, width: int = WIDTH) -> Figure:
    """For each stage, a bar of the measured peak memory of a worker within one of the planned, if known."""
    rows = [(one, one.peak) for one in stages if one.peak]
    figure = new_figure(110 + 62 * len(rows), title, theme, width)
    axes = place_axes(figure, 240, 20, width - 240 - 330, 30 + 62 * len(rows))
    most = max(peak.planned_bytes for _, peak in rows)
    for number, (_, (measured_bytes, planned_bytes, _)) in enumerate(rows):
        axes.barh(number, planned_bytes, 0.62, facecolor=theme.rule, edgecolor=theme.muted, linewidth=0.8)
        axes.barh(
            number, measured_bytes, 0.4, color=theme.accent if measured_bytes <= planned_bytes else LOSS_COLOR
        )
        text = f"{format_bytes(measured_bytes)} of {format_bytes(planned_bytes)}"
        axes.text(most * 1.015, number, text, va="center", fontsize=9, color=theme.ink)
    axes.set_yticks(range(len(rows)), [drawn(one.name) for one, _ in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, most)
    step = 2.0 ** np.ceil(np.log2(most / max(2, min(5, (width - 570) // 150))))
    axes.set_xticks(np.arange(0, most, step), [format_bytes(round(x)) for x in np.arange(0, most, step)])
    quiet(axes, theme, grid="x")
    return figure


def roofline(facts: dict[str, Any], title: str, theme: Theme, width: int = WIDTH) -> Figure:
    """Measured speed of each sweep, below the roofline of one core: its highest speeds of products and reads.

    ``facts`` are those of ``measures.report_facts``.
    """
    limits, points = facts["limits"], roofline_points(facts)
    figure = new_figure(820, title, theme, width)
    axes = place_axes(figure, 150, 20, width - 150 - MARGIN, 680)
    intensity = np.array([sweep["flops"] / sweep["bytes"] for _, sweep, _ in points])
    bend = limits["flops_float64"] / limits["read_bytes"]
    span = np.logspace(np.log10(min(intensity.min(), bend) / 4), np.log10(intensity.max() * 8), 300)
    for name, style in (("float32", "-"), ("float64", "--")):
        peak = limits[f"flops_{name}"]
        roof = np.minimum(peak, limits["read_bytes"] * span)
        axes.plot(span, roof / 1e9, color=theme.muted, linewidth=1.6, linestyle=style)
        axes.text(
            span[-1], peak / 1e9 * 1.06, f"{name} products", ha="right", fontsize=8.5, color=theme.muted
        )
    speeds = np.array([sweep["flops"] / sweep["seconds"] / sweep["lanes"] / 1e9 for _, sweep, _ in points])
    low, high = min(speeds.min() / 3, 1.0), 1.6 * limits["flops_float32"] / 1e9
    heights = _apart(np.log(speeds), 0.038 * np.log(high / low))
    most = max(10, (width - 150 - MARGIN) // 2 // SIGN - len(", 100 %"))
    halfway = 0.4 if width == WIDTH else 0.5  # labels end within the axes
    gap = 1.09 ** (WIDTH / width)
    for (stage, sweep, number), x, y, height in zip(points, intensity, speeds, heights, strict=True):
        axes.plot(x, y, "o", color=HUES[number % len(HUES)], markersize=6)
        left = x < span[0] ** halfway * span[-1] ** (1 - halfway)
        name = f"{stage}: {sweep['name']}" if len(facts["stages"]) > 1 else sweep["name"]
        axes.annotate(
            f"{short(name, most)}, {100 * sweep['share_of_limit']:.0f} %",
            (x * (gap if left else 1 / gap), np.exp(height)),
            fontsize=8.5,
            color=theme.ink,
            va="center",
            ha="left" if left else "right",
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    for side in (axes.xaxis, axes.yaxis):
        side.set_major_formatter(lambda value, _: f"{value:g}")
        side.set_minor_formatter(lambda value, _: "")
    axes.set_xlabel("flops for each byte that is read or written", color=theme.muted, fontsize=9)
    axes.set_ylabel("Gflop/s of one core", color=theme.muted, fontsize=9)
    quiet(axes, theme, grid="both")
    return figure


def roofline_points(facts: dict[str, Any]) -> list[tuple[str, dict[str, Any], int]]:
    """Sweeps that can be drawn in a roofline: name of the stage, facts of the sweep, index of the stage.

    ``facts`` are those of ``measures.report_facts``.
    """
    return [
        (stage["name"], sweep, number)
        for number, stage in enumerate(facts["stages"])
        for sweep in group_sweeps(stage["sweeps"])
        if sweep.get("long_enough") and sweep["flops"] > 0 and sweep["bytes"] > 0
    ]


def _apart(heights: Float64, least: float) -> Float64:
    """Heights of labels, in their order, where some are moved up until all are at least ``least`` apart."""
    positions = heights.copy()
    order = np.argsort(heights, kind="stable")
    for before, after in itertools.pairwise(order):
        positions[after] = max(positions[after], positions[before] + least)
    return positions


def errors_by_step(
    errors: Sequence[float | None],
    tolerance: float | None,
    title: str,
    theme: Theme,
    width: int = WIDTH,
    *,
    step: str = "pass",
) -> Figure:
    """Estimated error after each pass over the matrix, or step in memory, and the requested tolerance.

    ``errors`` has a value for each pass or step, None or not finite where there is no estimate; ``step`` is
    the label of the axis.
    """
    figure = new_figure(520, title, theme, width)
    axes = place_axes(figure, 150, 20, width - 150 - MARGIN, 400)
    points = [(i + 1, e) for i, e in enumerate(errors) if e is not None and np.isfinite(e) and e > 0]
    places, values = zip(*points, strict=True)
    axes.plot(places, values, color=theme.accent, marker="o", markersize=5, linewidth=1.4)
    if tolerance:
        axes.axhline(tolerance, color=theme.second, linewidth=1.2, linestyle="--")
        axes.text(1, tolerance, " asked", va="bottom", fontsize=8.5, color=theme.second)
    if tolerance or max(values) > 3 * min(values):
        axes.set_yscale("log")
    else:
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.7g}")
    axes.set_xlabel(step, color=theme.muted, fontsize=9)
    axes.xaxis.set_major_locator(whole_numbers(10))
    quiet(axes, theme, grid="y")
    return figure


def speedups(scaling: Scaling, title: str, theme: Theme, width: int = WIDTH) -> Figure:
    """Measured speedup over one segment at a time, with the fitted law and the ideal."""
    figure = new_figure(720, title, theme, width)
    axes = place_axes(figure, 150, 20, width - 150 - MARGIN, 580)
    most = max(parallelism for parallelism, _, _ in scaling.points)
    span = np.linspace(1, 2 * most, 200)
    axes.plot(span, span, color=theme.muted, linewidth=1, linestyle=":")
    axes.text(most, most * 1.04, "ideal", color=theme.muted, fontsize=8.5, ha="right")
    axes.plot(span, scaling.speedup(span), color=theme.accent, linewidth=1.5)
    for parallelism, speedup, efficiency in scaling.points:
        axes.plot(parallelism, speedup, "o", color=theme.second, markersize=6)
        axes.annotate(
            f"{100 * efficiency:.0f} %", (parallelism, speedup), (7, -12), textcoords="offset points",
            fontsize=8.5, color=theme.ink,
        )  # fmt: skip
    axes.set_ylim(0, 1.15 * max(most, float(scaling.speedup(2 * most))))
    axes.xaxis.set_major_locator(whole_numbers(10))
    axes.set_xlabel("segments at once", color=theme.muted, fontsize=9)
    axes.set_ylabel("speedup over one", color=theme.muted, fontsize=9)
    quiet(axes, theme, grid="both")
    return figure


def _legend(axes: Axes, entries: Sequence[tuple[str, str]], across: int, theme: Theme) -> None:
    from matplotlib.patches import Patch

    axes.legend(
        handles=[Patch(color=color, label=drawn(name)) for name, color in entries],
        loc="upper center",
        bbox_to_anchor=(0.5, -80 / axes.bbox.height),
        ncols=across,
        frameon=False,
        fontsize=8.5,
        labelcolor=theme.ink,
    )
