"""Tables of a report, as text.

A ``stage`` here is the dictionary of facts on a stage that ``measures.stage_facts`` returns.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rankfold.api.finished import argument_of
from rankfold.methods.registry import METHODS
from rankfold.pipeline.units import format_bytes
from rankfold.workflows.reports.history import preparation
from rankfold.workflows.reports.measures import group_sweeps

EVENTS = 40
"""Largest number of events of workers that the page lists; all are in its JSON."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a report: headings and rows of text."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


def request_table(stages: Sequence[dict[str, Any]]) -> Table:
    """Table of the request of each stage, its matrix, and the outcome."""
    rows = []
    for stage in stages:
        shape = " x ".join(f"{n:,}" for n in stage["input"].get("shape", []))
        asked = (*_input_items(stage["input"]), *_request_items(stage["request"]))
        words = ", ".join(f"{key} {_plain(value)}" for key, value in asked)
        rows.append(
            (
                stage["name"],
                " by ".join(part for part in (stage["kind"], stage["method"]) if part),
                f"{shape} {stage['input'].get('dtype', '')}".strip(),
                words,
                "; ".join(stage["why"]),
                stage["state"],
                _total_time(stage) if stage["measured"] else "",
            )
        )
    return Table(("stage", "method", "matrix", "asked", "why it ran", "state", "time"), rows)


def _input_items(data: dict[str, Any]) -> Iterator[tuple[str, object]]:
    """Yield names and values of options with which the matrix was opened: ``row_axes`` and ``prepare``.

    ``data`` is the ``input`` of a stage.
    """
    row_axes = data.get("layout", {}).get("row_axes")
    if isinstance(row_axes, list):
        yield "row_axes", " ".join(map(str, row_axes))
    if "prepare" in data:
        yield "prepare", data["prepare"]


def _request_items(request: dict[str, Any]) -> Iterator[tuple[str, object]]:
    """Yield names, as in workflows, and values of the parameters of a request.

    Digests of other results and values that are not set are left out.
    """
    kind = str(request.get("kind"))
    known = {each.name for each in METHODS[kind].parameters()} if kind in METHODS else None
    for key, value in request.items():
        name = argument_of(key, kind)
        is_plain = isinstance(value, bool | int | float) or (value and isinstance(value, str))
        is_asked = name != "kind" and (known is None or name in known)
        if is_plain and is_asked and not re.match(r"[0-9a-f]{32}", str(value)):
            yield name, value


def _plain(value: object) -> str:
    return {True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def workers(stages: Sequence[dict[str, Any]]) -> Table:
    """Table of the events in which workers were lost or replaced, at most ``EVENTS``."""
    rows = [
        (
            time.strftime("%H:%M:%S", time.gmtime(one["at"])),
            stage["name"],
            one["worker"],
            one["what"],
            one["why"],
        )
        for stage in stages
        for one in stage["workers"]
        if one["what"] in ("gone", "handed over")
    ]
    return Table(("UTC", "stage", "worker", "what happened", "why"), rows[:EVENTS])


def plan_table(stages: Sequence[dict[str, Any]]) -> Table:
    """Table of planned and measured cost of each stage with a finished attempt."""
    rows = []
    for stage in stages:
        plan, measurement = stage["planned"], stage["measured"]
        if not measurement:
            continue
        likely, most = plan.get("likely_passes"), plan.get("most_passes")
        planned = f"{likely}" + (f" to {most}" if most != likely else "") if plan else None
        rows.append(
            (
                stage["name"],
                _beside(measurement["passes"], planned),
                _beside(bytes_of(measurement["reads_bytes"]), bytes_of(plan.get("reads_bytes"))),
                _beside(bytes_of(measurement["peak_bytes"]), bytes_of(plan.get("peak_bytes"))),
                bytes_of(plan.get("budget_bytes")),
                _total_time(stage),
                time_of(sum(one.get("least_seconds", 0.0) for one in stage["sweeps"]))
                if stage["sweeps"]
                else "",
                str(stage["segments"]["begun"] or ""),
            )
        )
    headings = (
        "stage",
        "passes",
        "bytes read",
        "peak memory",
        "memory allowed",
        "time",
        "best possible",
        "segments",
    )
    return Table(headings, rows)


def _beside(measured: object, planned: object) -> str:
    """Measured and planned value in one text, as far as they are known."""
    if measured in (None, ""):
        return f"{planned} planned" if planned else ""
    return f"{measured} of {planned}" if planned else str(measured)


def sweeps(stages: Sequence[dict[str, Any]]) -> Table:
    """Table of sweeps (runs through the matrix or temporary files), with the share of
    the machine's limit reached.
    """
    rows = []
    for stage in stages:
        for sweep in group_sweeps(stage["sweeps"]):
            share = sweep.get("share_of_limit")
            limit = "" if share is None else "too short"
            if share is not None and sweep["long_enough"]:
                limit = f"{100 * share:.0f} %"
            rows.append(
                (
                    stage["name"],
                    sweep["name"],
                    sweep["over"],
                    bytes_of(sweep.get("bytes")),
                    f"{sweep['flops']:.1e}" if "flops" in sweep else "",
                    str(sweep.get("lanes", "")),
                    time_of(sweep["seconds"]) + " each" * (sweep["count"] > 1),
                    limit,
                )
            )
    headings = ("stage", "sweep", "over", "bytes", "flops", "cores", "time", "share of the limit")
    return Table(headings, rows)


def quality(stage: dict[str, Any]) -> Table:
    """Table of the measures of quality of the result of a stage."""
    words = {
        "largest_error_estimate": "largest estimated error of a singular value, relative",
        "captured": "share of the variance that is captured",
        "relative_error": "error of the approximation, relative",
        "orthogonality": "distance of the basis from orthonormal",
        "recall": "recall of neighbors",
        "recall_interval": "where that of all rows lies, for 95 % of samples",
        "value": "share of neighbors that are kept",
        "standard_error": "standard error of that share",
        "largest_residual": "largest residual of a singular triplet, relative",
        "left_orthogonality": "distance of left vectors from orthonormal",
        "right_orthogonality": "distance of right vectors from orthonormal",
        "trustworthiness": "trustworthiness: neighbors in the embedding that are near in the data",
        "trustworthiness_error": "standard error of trustworthiness",
        "continuity": "continuity: neighbors in the data that are near in the embedding",
        "continuity_error": "standard error of continuity",
        "preservation": "share of neighbors in the data that are neighbors in the embedding",
        "preservation_error": "standard error of that share",
    }
    measurement = stage["measured"]
    return Table(
        ("how good it is", "value"),
        [(label, _share(measurement[key])) for key, label in words.items() if key in measurement],
    )


def _share(value: float | Sequence[float]) -> str:
    """A number, or an interval, as text."""
    return f"{value:.3g}" if isinstance(value, float | int) else " to ".join(f"{each:.3g}" for each in value)


def provenance(stages: Sequence[dict[str, Any]]) -> Table:
    """Table of the place of execution, host, interpreter and input of each stage."""
    rows = []
    for stage in stages:
        facts = stage["provenance"]
        place = stage["attempts"][-1].get("place", {}) if stage["attempts"] else {}
        rows.append(
            (
                stage["name"],
                ", ".join(f"{key} {value}" for key, value in place.items() if key != "profile"),
                facts.get("host", ""),
                f"Python {facts.get('python', '')}",
                facts.get("blas", ""),
                str(stage["input"].get("fingerprint", ""))[:16],
            )
        )
    headings = ("stage", "place", "host", "interpreter", "BLAS", "fingerprint of its input")
    return Table(headings, rows)


def bytes_of(count: int | None) -> str:
    """Bytes as text with a unit; empty if unknown."""
    return "" if count is None else format_bytes(count)


def _total_time(stage: dict[str, Any]) -> str:
    """Time of all attempts at the result of a stage, as text."""
    count, measured = len(stage["attempts"]), stage["measured"]
    attempts = f" in {count} attempts" if count > 1 else ""
    before = preparation(measured["compile_seconds"], measured["load_seconds"], time_of)
    return time_of(measured["all_attempts_seconds"]) + attempts + before


def time_of(seconds: float) -> str:
    """Time as text: seconds, minutes or hours."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
