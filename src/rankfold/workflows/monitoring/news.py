"""A run in one line, for the mail of cron and for logs: stages that ran and why, or that nothing was new.

Facts of a finished stage, for summaries and metrics: from its result and from the record of its run.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rankfold.pipeline.units import format_bytes
from rankfold.workflows.flows.plan import StagePlan
from rankfold.workflows.flows.record import Record
from rankfold.workflows.flows.retention import rows_of
from rankfold.workflows.reports.history import History
from rankfold.workflows.reports.measures import QUALITIES, read_bytes

MOST_STAGES = 6
"""Largest number of stages that are listed by name."""


def news(outputs: Path, verdicts: Sequence[StagePlan], record: Record, seconds: float) -> str:
    """One line of text on a run of a workflow: how many stages ran, why, on how many rows, and the cost.

    ``outputs`` is the folder of results, ``verdicts`` are the plans of all steps, ``seconds`` is the time of
    the run.

    >>> news(Path("results"), [], Record(Path("results"), {"stages": {}}), 0.84)
    'results: 0 stages: nothing new; 0.84 s'
    """
    ran = [verdict for verdict in verdicts if verdict.action in ("run", "resume")]
    skipped = sum(verdict.action == "skip" for verdict in verdicts)
    counts = [(len(ran), "run"), (skipped, "finished before")]
    counts.append((len(verdicts) - len(ran) - skipped, "left out"))
    words = [f"{count} {what}" for count, what in counts if count]
    words += [] if ran else ["nothing new"]
    line = f"{outputs}: {len(verdicts)} stage{'s' * (len(verdicts) != 1)}: {', '.join(words)}"
    if not ran:
        return f"{line}; {seconds:.3g} s"
    outcomes = {verdict.step.name: record.outcome(verdict.step.name) for verdict in ran}
    told = [_stage(verdict, outcomes[verdict.step.name]) for verdict in ran[:MOST_STAGES]]
    told += [f"and {len(ran) - MOST_STAGES} more"] if len(ran) > MOST_STAGES else []
    read = sum(outcome.get("read_bytes_last") or 0 for outcome in outcomes.values())
    return f"{line}: {', '.join(told)}; {seconds:.3g} s, {format_bytes(read)} read"


def _stage(verdict: StagePlan, outcome: dict[str, Any]) -> str:
    """Text on a stage: the reason why it ran, and if known, the rows of its matrix, before and now."""
    why = "; ".join(verdict.reasons)
    rows, before = outcome.get("rows"), outcome.get("rows_before")
    if rows is not None:
        change = f"{before:,} -> " if before not in (None, rows) else ""
        why += f"; {change}{rows:,} rows"
    return f"{verdict.step.name} ({why})"


def outcome_of(path: Path, rows_before: int | None, imports_bytes: int | None) -> dict[str, Any]:
    """Facts of the result at ``path``, by name, for the record of a workflow; unknown ones are None.

    Parameters
    ----------
    rows_before : int or None
        Rows of the matrix of the result that it replaced; None if that is unknown.
    imports_bytes : int or None
        Bytes that an import read, since it keeps no journal; None for other stages.
    """
    history = History.of(path)
    peak = history.peak
    began = 0.0 if history.last is None else history.last.began
    now = dataclasses.replace(history, segments=tuple(s for s in history.segments if s.began >= began))
    return {
        "rows": rows_of(path),
        "rows_before": rows_before,
        "read_bytes": imports_bytes if imports_bytes is not None else read_bytes(history),
        "read_bytes_last": imports_bytes if imports_bytes is not None else read_bytes(now),
        "planned_bytes": peak and peak.planned_bytes,
        "measured_bytes": peak and peak.measured_bytes,
        "seconds": history.seconds,
        "attempts": len(history.attempts) or 1,
        "qualities": {name: value for name in QUALITIES if _is_number(value := history.facts.get(name))},
    }


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
