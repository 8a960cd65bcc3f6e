"""The page of a workflow or of one run: request, outcome, cost, and how to repeat it.

One file that opens without a network; it also holds the numbers as JSON.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rankfold.pipeline.errors import InputError, NonFiniteError
from rankfold.pipeline.exporting.plots.bars import Bars
from rankfold.pipeline.exporting.plots.curves import Curve, Scree
from rankfold.pipeline.exporting.plots.kinds import (
    Drawing,
    drawing_of,
    figure_of,
    kinds_of,
    resolve_kind,
    title_of,
)
from rankfold.pipeline.exporting.plots.maps import Maps
from rankfold.pipeline.exporting.plots.patterns import Patterns
from rankfold.pipeline.exporting.plots.series import Series
from rankfold.pipeline.presentation import presentation_of
from rankfold.pipeline.storage.manifest import NAME as MANIFEST
from rankfold.pipeline.storage.manifest import require_whole
from rankfold.pipeline.storage.result import Result
from rankfold.pipeline.text import Lines, json_text, shell_words
from rankfold.pipeline.units import format_bytes
from rankfold.workflows.flows.record import Record
from rankfold.workflows.operations.running import find_work
from rankfold.workflows.reports import tables
from rankfold.workflows.reports.charts import (
    errors_by_step,
    memory_bars,
    roofline,
    roofline_points,
    speedups,
    timeline,
)
from rankfold.workflows.reports.history import History, preparation
from rankfold.workflows.reports.measures import report_facts, scaling_of, segment_counts
from rankfold.workflows.reports.page import NARROW, Fact, Picture, draw_picture

TEMPLATE = "run_page.html"

CAPTIONS = {
    "scree": "Relative to the largest, on a logarithmic scale; bars are estimated errors.",
    "scatter": "Where rows lie; of more than 20 000 how many lie where, on a logarithmic scale.",
    "sizes": "Rows of each cluster.",
    "loadings": "The columns that weigh most in the first components.",
    "maps": "The first components over the two axes of the columns; gray where nothing was read.",
    "patterns": "The first components on the map, and over time; gray where nothing was read.",
    "degrees": "How many rows have how many edges.",
}


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page; empty parts are left out."""

    title: str
    paragraphs: Sequence[str] = ()
    pictures: Sequence[Picture] = ()
    tables: Sequence[tables.Table] = ()
    listings: Sequence[str] = ()
    remarks: Sequence[str] = ()
    """Warnings of the section."""


@dataclass(frozen=True, slots=True)
class RunPage:
    """Content of the page about a run, which its template shows."""

    title: str
    lead: str
    headline: Sequence[Fact]
    sections: Sequence[Section]
    facts: dict[str, Any]
    origin: str


@dataclass(frozen=True, slots=True)
class Subject:
    """Workflow or single result that a report is about."""

    title: str
    stages: tuple[History, ...]
    record: dict[str, Any]
    folder: Path
    """Default folder of the page."""


def subject(path: Path) -> Subject:
    """Find the subject of a path: a workflow by its file or its folder of results, or one result.

    Raises
    ------
    InputError
        Nothing has run there.
    """
    work = find_work(path)
    running = work.holder() is not None
    if work.output is not None:
        one = History.of(work.output, running=running)
        return Subject(one.name, (one,), {}, work.folder)
    record = Record.of(work.folder)
    if "steps" not in record.values:
        raise InputError(f"{path}: no stage of it has begun, so there is nothing to report")
    records = {name: record.stages.get(name, {}) for name in record.values["steps"]}
    stages = tuple(
        History.of(work.folder / f"{name}.zarr", facts, running=running and facts.get("state") == "running")
        for name, facts in records.items()
    )
    return Subject(work.workflow, stages, record.values, work.folder)


def run_page(about: Subject, others: Sequence[History] = ()) -> RunPage:
    """Make the content of the page about a workflow or run.

    ``others`` are runs of the same requests with other numbers of workers.

    Raises
    ------
    DataError
        A result is damaged, so it is not reported.
    """
    for one in (*about.stages, *others):
        if (one.out / MANIFEST).exists():
            require_whole(one.out)
    facts = report_facts(about.title, about.stages, others)
    last = max((one.last.began for one in about.stages if one.last), default=0.0)
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(last))
    done_count = sum(stage["state"] == "done" for stage in facts["stages"])
    hosts = sorted({one["host"] for stage in facts["stages"] for one in stage["attempts"] if "host" in one})
    many = len(about.stages) > 1
    lead = (
        f"{done_count} of {len(about.stages)} stages are done"
        if many
        else ("Done" if done_count else "Not finished")
    )
    return RunPage(
        title=about.title,
        lead=f"{lead}; the last attempt began {when}" + (f" on {', '.join(hosts)}." if hosts else "."),
        headline=_headline(facts),
        sections=[section for section in _sections(about, others, facts) if _has_content(section)],
        facts=facts,
        origin=f"rankfold {facts['version']}",
    )


def _has_content(section: Section) -> bool:
    texts = section.pictures or section.listings or section.remarks
    return bool(texts or any(table.rows for table in section.tables))


def _headline(facts: dict[str, Any]) -> list[Fact]:
    stages = [stage for stage in facts["stages"] if stage["measured"]]
    measurements = [stage["measured"] for stage in stages]
    seconds = sum(one["all_attempts_seconds"] for one in measurements)
    is_noted = all(one["reads_bytes"] is not None for one in measurements)
    read = sum(
        stage["planned"].get("reads_bytes", 0)
        if (noted := stage["measured"]["reads_bytes"]) is None
        else noted
        for stage in stages
    )
    peaks = [one["peak_bytes"] for one in measurements if one["peak_bytes"]]
    loss_count = sum(stage["segments"]["lost"] for stage in facts["stages"])
    compiling, loading = (
        sum(one[kind] for one in measurements) for kind in ("compile_seconds", "load_seconds")
    )
    work = f"of work{preparation(compiling, loading, tables.time_of)}"
    lines = [
        Fact(work, tables.time_of(seconds)),
        Fact("read of matrices" if is_noted else "to be read of matrices, as planned", format_bytes(read)),
    ]
    if peaks:
        lines.append(Fact("peak memory of a worker", format_bytes(max(peaks))))
    attempts = max((len(stage["attempts"]) for stage in facts["stages"]), default=0)
    lines.append(Fact("most attempts of a stage", str(attempts)))
    if loss_count:
        lines.append(Fact("segments lost and done again", str(loss_count)))
    return lines


def _sections(about: Subject, others: Sequence[History], facts: dict[str, Any]) -> Iterator[Section]:
    stages = facts["stages"]
    yield Section("What was asked, and what came of it", tables=[tables.request_table(stages)])
    yield Section("When it ran", pictures=_timeline(about), tables=[tables.workers(stages)])
    yield Section(
        "Planned and measured",
        [
            "The plan is made before anything is read. Memory is that of one worker process above its "
            "baseline; bytes are those of matrices, counted from the rows that segments took. 'Best "
            "possible' is the time the sweeps would need if only matrix products or only reading took time."
        ],
        _memory(about),
        [tables.plan_table(stages)],
    )
    yield Section(
        "Share of the machine's limit",
        [
            "For each sweep: the time that its products, or its reads, would take at the least on as many "
            f"cores, by the speed of one core as measured on {facts['limits']['host']}, over the time it "
            "took."
        ],
        _roof(facts),
        [tables.sweeps(stages)],
    )
    for one, stage in zip(about.stages, stages, strict=True):
        pictures, good = list(_results(one)), [tables.quality(stage)]
        remarks = [f"Failed: {stage['message']}"] if stage["message"] else []
        yield Section(f"Result: {one.name}", [], pictures, good, remarks=[*remarks, *stage["warnings"]])
    yield Section("Parallel efficiency", _scaling_words(facts), _scaling(about, others))
    yield _again(about, facts)


def _timeline(about: Subject) -> list[Picture]:
    stages = [one for one in about.stages if one.bars]
    if not stages:
        return []
    counts = [segment_counts(one) for one in stages]
    losses, cut = (sum(count[name] for count in counts) for name in ("lost", "stopped"))
    caption = (
        "A line is a process, or one of the segments that it runs at once; a bar is a segment, or all of a "
        "step that has none. Outlined: "
        f"stopped with a checkpoint ({cut}). Hatched: killed, and done again from its last checkpoint "
        f"({losses}). Triangles: a worker came; diamonds: it handed over; crosses: it was gone."
    )
    draw = functools.partial(timeline, stages, "Segments and workers")
    alt = f"Timeline of {sum(len(one.bars) for one in stages)} segments of {len(stages)} stages"
    return [draw_chart(draw, title="When it ran", caption=caption, alt=alt)]


def _memory(about: Subject) -> list[Picture]:
    if not any(one.peak for one in about.stages):
        return []
    draw = functools.partial(memory_bars, about.stages, "Peak memory of a worker, measured within planned")
    caption = "Grey: planned. Colored: measured above the baseline, in the attempt that finished."
    return [
        draw_chart(
            draw, title="Memory", caption=caption, alt="Measured and planned peak memory of each stage"
        )
    ]


def _roof(facts: dict[str, Any]) -> list[Picture]:
    if not roofline_points(facts):
        return []
    draw = functools.partial(roofline, facts, "Speed of sweeps under the roof of a core")
    caption = (
        "Left of the bend a sweep waits for the matrix, right of it for products. Lines: what one core reads "
        "from the page cache and multiplies at most. Each point is for one core, with its share of the limit."
    )
    return [draw_chart(draw, title="Roofline", caption=caption, alt="Sweeps beside the limits of a core")]


def _results(one: History) -> Iterator[Picture]:
    if one.result is None:
        return
    for kind, options in _plots(one):
        drawing = _drawing(one.result, kind, options)
        if drawing is None:
            continue
        title = title_of(one.result, kind)
        draw, small = functools.partial(figure_of, drawing, title), narrow(drawing)
        yield draw_picture(
            draw,
            title=kind.title(),
            caption=CAPTIONS.get(kind, drawing.alt),
            alt=drawing.alt,
            narrow=None if small is None else functools.partial(figure_of, small, title, least=NARROW),
        )
    history = one.facts.get("errors") or one.facts.get("convergence") or []
    if sum(1 for error in history if error) > 1:
        tolerance = None if "errors" in one.facts else one.facts["request"].get("tol")
        passes = one.facts["passes"]
        in_memory = len(history) > passes
        caption = "Error after each pass over the matrix, as estimated from it."
        if in_memory:
            again = f"{passes} pass{'es' * (passes != 1)} over the matrix"
            caption = f"Error after each step in memory, as estimated from it, with {again} in all."
        step = "step in memory" if in_memory else "pass"
        title = f"Convergence of {one.name}"
        draw = functools.partial(errors_by_step, history, tolerance, title, step=step)
        yield draw_chart(draw, title="Convergence", caption=caption, alt=f"Error after each {step}")


def draw_chart(draw: Any, *, title: str, caption: str, alt: str) -> Picture:
    """Draw a figure for wide screens and for narrow ones; returns both as one picture.

    ``draw`` is a function of the theme and of ``width``, in pixels.
    """
    return draw_picture(
        draw, title=title, caption=caption, alt=alt, narrow=functools.partial(draw, width=NARROW)
    )


def narrow(drawing: Drawing) -> Drawing | None:
    """The same plot for a narrow screen; None if its content determines its size."""
    if isinstance(drawing, Maps | Patterns | Series):
        return replace(drawing, width=NARROW)
    if not isinstance(drawing, Bars | Curve | Scree):
        return None
    return replace(drawing, size=(NARROW - drawing.left - drawing.right, drawing.size[1]))


def _drawing(result: Result, kind: str, options: dict[str, Any]) -> Drawing | None:
    """A plot of a result with its options, or without them if they do not fit, as when colors are missing.

    None if there is no plot of this kind.
    """
    for choice in (options, {}):
        with contextlib.suppress(InputError, NonFiniteError):
            return drawing_of(result, kind, **choice)
    return None


def _plots(one: History) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield kinds of plots of a result, with options: those that its stage asks for, then quick ones.

    Quick ones read little of the result.
    """
    assert one.result is not None  # noqa: S101  asked before
    kinds = list[str]()
    for picture in one.record.get("pictures", ()):
        kinds.append(resolve_kind(one.result, picture["kind"]))
        yield kinds[-1], picture["options"]
    yield from ((kind, {}) for kind in _cheap(one) if kind not in kinds)


def _cheap(one: History) -> Iterator[str]:
    names = set(one.result or ())
    if "error_estimates" in names:
        yield "scree"
    if "embedding" in names:
        yield "scatter"
    field = next(
        (kind for kind in ("patterns", "maps") if one.result is not None and kind in kinds_of(one.result)), ""
    )
    if field:
        yield field
    elif quick := presentation_of(one.facts["kind"]).quick_plot:
        yield quick


def _scaling(about: Subject, others: Sequence[History]) -> list[Picture]:
    fits = [(one.name, scaling) for one in about.stages if (scaling := scaling_of(one, others))]
    return [
        draw_chart(
            functools.partial(speedups, scaling, f"Speedup of {name}, and the law of {scaling.law.title()}"),
            title="Speedup",
            caption=f"Points: measured, with their efficiency. Line: the law with a serial share of "
            f"{100 * scaling.serial:.1f} %. Dotted: ideal.",
            alt=f"Speedup of {name} over segments at once",
        )
        for name, scaling in fits
    ]


def _scaling_words(facts: dict[str, Any]) -> list[str]:
    return [
        f"{one['stage']}: runs on {', '.join(str(point['lanes']) for point in one['measured'])} segments "
        f"at once fit the law of {one['law'].title()} with a serial share of {100 * one['serial']:.1f} %."
        for one in facts["scaling"]
    ]


def _again(about: Subject, facts: dict[str, Any]) -> Section:
    """Section of the page on where the run took place, and on the commands that repeat it."""
    attempts = [one for stage in facts["stages"] for one in stage["attempts"]]
    commands = [about.record["command"]] if "command" in about.record else []
    commands += [one["command"] for one in attempts[-1:] if not commands and "command" in one]
    folder = [f"cd {shell_words([one['folder']])}" for one in reversed(attempts) if "folder" in one][:1]
    listings = [Lines(*folder, one) for one in commands]
    if "text" in about.record:
        listings.append(Lines.of(about.record["text"].rstrip()))
    text = "Finished stages are skipped, unfinished ones go on from checkpoints; results have the same bytes."
    return Section("Do it again", [text], tables=[tables.provenance(facts["stages"])], listings=listings)


def as_json(facts: dict[str, Any]) -> Lines:
    """The content of a report as JSON."""
    return json_text(facts, indent=1, default=str)
