"""A plan as text, for people."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from rankfold.pipeline.planning.passes import Pass
from rankfold.pipeline.planning.sweep_words import words_of
from rankfold.pipeline.presentation import presentation_of
from rankfold.pipeline.text import Lines
from rankfold.pipeline.units import format_bytes

if TYPE_CHECKING:
    from rankfold.pipeline.planning.plan import Plan


def table(plan: Plan) -> Lines:
    """A plan as text: its values, then a table with a line for each sweep."""
    rows = [("sweep", "reads", "writes", "flops", "memory of a segment", "tasks")]
    for name, p in _groups(plan.passes):
        rows.append(
            (
                f"{name} over {p.over}",
                format_bytes(p.reads_bytes),
                format_bytes(p.writes_bytes),
                f"{p.flops:.1e}",
                format_bytes(p.segment_bytes),
                str(p.tasks),
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(6)]
    lines = [
        f"{plan.kind} by {plan.method}: {plan.shape[0]} x {plan.shape[1]} {plan.dtype}, {_rank_words(plan)}",
        *(_pairs(plan) if plan.groups else _passes(plan)),
        f"memory of a worker       {format_bytes(plan.peak_bytes)} of {format_bytes(plan.budget_bytes)}, "
        f"{plan.concurrency} segments at once, {_reading(plan)}",
        *_device(plan),
        f"scratch, result          {format_bytes(plan.scratch_bytes + plan.checkpoint_bytes)} at most, "
        f"{format_bytes(plan.result_bytes)}",
        f"tasks, useful workers    {plan.tasks} at most, {plan.scaling}",
    ]
    if plan.comparison:
        lines.append(f"operations               {plan.comparison}")
    if plan.traffic is not None:
        lines.append(f"matrix products          {plan.traffic}")
    if plan.seconds is not None:
        lines.append(f"time                     about {plan.seconds:.3g} s with the data in page cache")
    if plan.shares is not None:
        lines.append(f"seconds                  {plan.shares}")
    lines += [f"note                     {note}" for note in plan.notes]
    lines.append("")
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(row[i].rjust(widths[i]) for i in range(1, 6))]
        lines.append("  ".join(cells))
    return Lines(*lines)


def _reading(plan: Plan) -> str:
    if plan.slots > 2:
        return f"{plan.slots - 2} threads that read" if plan.slots > 3 else "one thread that reads"
    return "reading ahead" if plan.slots == 2 else "not reading ahead"


def _device(plan: Plan) -> tuple[str, ...]:
    """Line on the use of a GPU and its memory; empty without one."""
    if plan.device == "cpu":
        return ()
    others = sorted({p.name for p in plan.passes if not p.on_device})
    host = f"; on the host: {', '.join(others)}" if others else ""
    memory, upload = format_bytes(plan.device_bytes), format_bytes(plan.upload_bytes)
    return (f"GPU                      {memory} of its memory, {upload} copied to it at most{host}",)


def _rank_words(plan: Plan) -> str:
    if plan.groups:
        return f"k {plan.rank}, every pair of rows once"
    if size := presentation_of(plan.kind).size:
        return size.format(rank=plan.rank, orientation=plan.orientation)
    if plan.details:
        return plan.orientation
    return f"rank {plan.rank}{' at most' * plan.adaptive}, swept by {plan.orientation}"


def passes_note(plan: Plan) -> str:
    """Text on the number of passes, and what it depends on."""
    likely, most = plan.likely_passes, plan.most_passes
    if plan.decided_by:
        typical = f", typically {likely}" * (likely < most)
        return f"up to {most}{typical}; depends on {plan.decided_by}, which no plan knows"
    return f"{likely} likely, at most {most}" if likely < most else f"{most}"


def _passes(plan: Plan) -> tuple[str, ...]:
    if plan.details:
        return (
            f"passes                   {passes_note(plan)}",
            *(f"{name:<25}{text}" for name, text in plan.details),
        )
    return (
        f"passes over the matrix   {passes_note(plan)}",
        f"block width, grain       {plan.width} columns, {plan.grain_rows} rows "
        f"({plan.panel_rows} read at once)",
    )


def _pairs(plan: Plan) -> tuple[str, ...]:
    return (
        f"candidates               {plan.width} of a row and a pair of blocks",
        f"blocks, groups           at most {plan.grain_rows} rows, {plan.groups} of at most "
        f"{plan.panel_rows} rows",
    )


def _groups(passes: tuple[Pass, ...]) -> list[tuple[str, Pass]]:
    """Sweeps by their names in words; those that repeat at one cost are one item with the cost of each."""
    groups: list[tuple[Pass, ...]] = []
    while passes:
        period, times = _repetition(passes)
        groups += [passes[start : period * times : period] for start in range(period)]
        passes = passes[period * times :]
    names = [[words_of(p.name) for p in group] for group in groups]
    return [
        (first[0] if len(first) == 1 else f"{first[0]} to {first[-1].rpartition(' ')[2]}, each", group[0])
        for first, group in zip(names, groups, strict=True)
    ]


def _repetition(passes: tuple[Pass, ...]) -> tuple[int, int]:
    """Length of the pattern that repeats at the beginning (1 sweep, or 2 of a round), and its repetitions."""
    for period in (1, 2):
        times = 1
        while _comes_again(passes[:period], passes[period * times : period * (times + 1)]):
            times += 1
        if times > 1:
            return period, times
    return 1, 1


def _comes_again(first: tuple[Pass, ...], other: tuple[Pass, ...]) -> bool:
    """True if ``other`` sweeps differ from ``first`` by their names alone, those of a round by its number."""
    return len(first) == len(other) and all(
        dataclasses.replace(one, name=two.name) == two
        and (len(first) == 1 or _without_number(one.name) == _without_number(two.name) != "")
        for one, two in zip(first, other, strict=True)
    )


def _without_number(name: str) -> str:
    """The words of a sweep before its number; empty if it has no number."""
    words, _, number = words_of(name).rpartition(" ")
    return words if number.isdecimal() else ""
