"""Facts of a finished stage, for summaries and metrics: from its result and from the record of its run."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

from rankfold.workflows.flows.retention.earlier import rows_of
from rankfold.workflows.reports.history import History
from rankfold.workflows.reports.measures import QUALITIES, read_bytes


def outcome_of(path: Path, rows_before: int | None, imports_bytes: int | None) -> dict[str, Any]:
    """Facts of the result at ``path``, for JSON; unknown values are None.

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
