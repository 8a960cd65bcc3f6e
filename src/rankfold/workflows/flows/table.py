"""The plan of a workflow as a table: the stages that would run and why, then their cost."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rankfold.pipeline.machine import free_bytes
from rankfold.pipeline.planning.seconds import Rates
from rankfold.pipeline.text import Lines, printable
from rankfold.pipeline.units import about, format_bytes
from rankfold.workflows.flows.cost import import_seconds
from rankfold.workflows.flows.importing import Importing
from rankfold.workflows.flows.plan import StagePlan
from rankfold.workflows.messages import columns

WIDTH = 120
"""Largest number of characters in a line of the table, unless names are long."""

NUMBERS = ("stage", "passes", "reads", "memory", "scratch", "result", "files", "tasks", "time")

ACTIONS = {"run": "to run", "resume": "to go on with", "skip": "finished", "leave": "left out"}


def flow_table(verdicts: Sequence[StagePlan], outputs: Path, rates: Rates) -> Lines:
    """The plan as text: a line with reasons for each stage, a line with the cost of each that runs, totals.

    ``outputs`` is the folder of results, and ``rates`` is the speed of this machine.
    """
    counts = Counter(one.action for one in verdicts)
    summary = ", ".join(f"{counts[name]} {words}" for name, words in ACTIONS.items() if counts[name])
    parts = [_reasons(verdicts)]
    running = [one for one in verdicts if one.action in ("run", "resume")]
    if running:
        all_of = totals(verdicts, rates)
        parts.append(_numbers(running, rates, all_of))
        summary += (
            f": reads {format_bytes(all_of['reads_bytes'])}, at most {format_bytes(all_of['peak_bytes'])} in "
            f"a worker; {format_bytes(all_of['scratch_bytes'])} of scratch at a time and "
            f"{format_bytes(all_of['result_bytes'])} of results, {format_bytes(free_bytes(outputs))} free"
        )
        if later := [one.step.name for one in running if one.numbers is None]:
            summary += f"; not counted, since not known yet: {', '.join(later)}"
    blocks = [block for part in parts for block in (part, "")]
    return Lines(*blocks, *textwrap.wrap(summary, WIDTH))


def plan_as_dict(verdicts: Sequence[StagePlan], outputs: Path, rates: Rates) -> dict[str, Any]:
    """The plan, the costs and their totals as a dictionary, for JSON."""
    stages = [{**one.as_dict(), "seconds": stage_seconds(one, rates)} for one in verdicts]
    return {"stages": stages, "total": {**totals(verdicts, rates), "free_bytes": free_bytes(outputs)}}


def _reasons(verdicts: Sequence[StagePlan]) -> Lines:
    rows: list[tuple[str, ...]] = [("stage", "method", "", "why")]
    for one in verdicts:
        rows.append((one.step.name, one.step.stage.method, one.action, printable("; ".join(one.reasons))))
    room = max(40, WIDTH - sum(max(len(row[i]) for row in rows) + 2 for i in range(3)))
    lines: list[tuple[str, ...]] = []
    for name, method, action, why in rows:
        first, *others = textwrap.wrap(why, room) or [""]
        lines.append((name, method, action, first))
        lines += [("", "", "", other) for other in others]
    return columns(lines)


def _numbers(running: Sequence[StagePlan], rates: Rates, all_of: dict[str, Any]) -> Lines:
    rows: list[tuple[str, ...]] = [NUMBERS]
    for one in running:
        if one.numbers is None:
            rows.append((one.step.name, *"-" * (len(NUMBERS) - 1)))
        else:
            cells = _format_cells(one.numbers.as_dict(), stage_seconds(one, rates))
            rows.append((one.step.name, one.numbers.passes, *cells))
    if len(running) > 1:
        rows.append(("all", "", *_format_cells(all_of, all_of["seconds"])))
    return columns(rows, right=range(1, len(NUMBERS)))


def _format_cells(n: Mapping[str, Any], seconds: float | None) -> tuple[str, ...]:
    sizes = (n["reads_bytes"], n["peak_bytes"], n["scratch_bytes"], n["result_bytes"])
    files = "-" if n["files"] is None else f"{n['files']:,}"
    return (*map(format_bytes, sizes), files, f"{n['tasks']:,}", about(seconds))


# Numbers of all ------------------------------------------------------------------------------------


def totals(verdicts: Sequence[StagePlan], rates: Rates) -> dict[str, Any]:
    """Cost of all stages that run, as far as known, by name.

    ``peak_bytes`` and ``scratch_bytes`` (temporary files) are the largest of a stage, the others sums.
    """
    running = [one for one in verdicts if one.numbers is not None]
    numbers = [one.numbers for one in running if one.numbers is not None]
    seconds = [stage_seconds(one, rates) for one in running]
    return {
        "reads_bytes": sum(n.reads_bytes for n in numbers),
        "peak_bytes": max((n.peak_bytes for n in numbers), default=0),
        "scratch_bytes": max((n.scratch_bytes for n in numbers), default=0),
        "result_bytes": sum(n.result_bytes for n in numbers),
        "tasks": sum(n.tasks for n in numbers),
        "files": sum(n.files or 0 for n in numbers),
        "seconds": sum(each or 0.0 for each in seconds),
    }


def stage_seconds(verdict: StagePlan, rates: Rates) -> float | None:
    """Predicted seconds of a stage; None if they are unknown."""
    if isinstance(verdict.work, Importing):
        return import_seconds(verdict.work, rates)
    if verdict.plan is None or verdict.executor is None:
        return None
    if verdict.work is None:
        return None
    return verdict.plan.with_seconds(rates, verdict.work.source, verdict.executor.budget.workers).seconds
