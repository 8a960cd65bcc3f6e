"""Write ``metrics.prom`` in the folder of results: metrics of the last run, and of the last result of each
stage.

The whole file is written when a run begins, after each stage and when the run ends. A run that was killed
appears to be still running, so an alert should use the time since a run last succeeded.

The trap: a mistake in the workflow file is found before its folder of results is known. It shows only in the
exit code, and in the growing age of the last success.

Metrics as text in a form valid for both OpenMetrics 1.0 and Prometheus's own format.

Both read the same lines as long as every metric is a gauge: a counter has different names in the two formats,
and Prometheus refuses the other types of OpenMetrics. ``# UNIT`` and ``# EOF`` are comments to Prometheus. No
sample has a time: the collector of text files of node_exporter refuses those.
"""

from __future__ import annotations

import calendar
import logging
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankfold.pipeline.errors import RankfoldError
from rankfold.pipeline.machine import free_bytes
from rankfold.pipeline.regular import TABLE_BYTES, is_regular, read_bounded
from rankfold.pipeline.storage.checkpoint import atomic_file
from rankfold.workflows.flows.retention import EarlierResults

if TYPE_CHECKING:
    from rankfold.workflows.flows.record import Record


UNITS = ("seconds", "bytes")
"""Units with which the name of a metric may end."""

_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Metric:
    """A gauge of Prometheus, with a value for each set of labels."""

    name: str
    help: str

    def __post_init__(self) -> None:
        assert _NAME.fullmatch(self.name) and not {'"', "\\", "\n"} & {*self.help}  # noqa: S101

    @property
    def unit(self) -> str:
        """Unit at the end of its name; empty for a number without unit."""
        last = self.name.rpartition("_")[2]
        return last if last in UNITS else ""


Sample = tuple[Mapping[str, str], float]
"""Labels by name, and the value of a metric for them."""


def text_of(families: Iterable[tuple[Metric, Sequence[Sample]]]) -> str:
    """Metrics and their samples in the text format of Prometheus; metrics without samples are left out."""
    lines: list[str] = []
    for metric, samples in families:
        if not samples:
            continue
        lines.append(f"# HELP {metric.name} {metric.help}")
        lines.append(f"# TYPE {metric.name} gauge")
        lines += [f"# UNIT {metric.name} {metric.unit}"] * bool(metric.unit)
        for labels, value in samples:
            inside = ",".join(f'{name}="{_escape(text)}"' for name, text in labels.items())
            lines.append(f"{metric.name}{{{inside}}} {_number(value)}")
    return "\n".join([*lines, "# EOF", ""])


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))


LOG = logging.getLogger("rankfold")

FILE = "metrics.prom"
OWN = "# HELP rankfold_"
"""First bytes of ``metrics.prom``; a file of that name that begins otherwise is never replaced."""

OF_RUNS = {
    "began": Metric("rankfold_run_start_timestamp_seconds", "When the last run began, since 1970."),
    "ended": Metric("rankfold_run_end_timestamp_seconds", "When a run last ended, well or not, since 1970."),
    "succeeded": Metric(
        "rankfold_run_success_timestamp_seconds", "When a run last ended with exit code 0, since 1970."
    ),
    "exit_code": Metric(
        "rankfold_run_exit_code",
        "Of the run that ended last: 0 done, 2 bad input, 3 plan refused, 4 bad data, 75 more to do, "
        "130 interrupted.",
    ),
    "active": Metric("rankfold_run_active", "1 from the beginning of a run to its end, 0 after it."),
    "seconds": Metric("rankfold_run_duration_seconds", "Of the run that ended last."),
    "read_bytes": Metric("rankfold_run_read_bytes", "Of matrices, by the stages that this run has made."),
}
"""Metrics of the last run of a workflow, by the names of their values in ``Record.run``."""

STAGES = Metric("rankfold_run_stages", "Stages by what the last run has done about them.")
FREE = Metric("rankfold_outputs_free_bytes", "Free on the disk of the results.")

OF_STAGES = {
    "seconds": Metric("rankfold_stage_duration_seconds", "Of all attempts at the result that is there."),
    "ended": Metric("rankfold_stage_end_timestamp_seconds", "When the stage last ended, since 1970."),
    "success": Metric("rankfold_stage_success", "1 if it is done, 0 if it failed or was interrupted."),
    "attempts": Metric("rankfold_stage_attempts", "Times that it was begun until its result was there."),
    "rows": Metric("rankfold_stage_rows", "Of the matrix that its result stands on."),
    "read_bytes": Metric("rankfold_stage_read_bytes", "Of its matrix, in all attempts at the result."),
    "planned_bytes": Metric("rankfold_stage_peak_planned_bytes", "Most memory of a worker, as planned."),
    "measured_bytes": Metric("rankfold_stage_peak_measured_bytes", "Most memory of a worker, as measured."),
}
"""Metrics with a sample for each stage, by the names of their values in the record of the stage."""

EARLIER = Metric("rankfold_stage_earlier_results", "Results that are kept beside the newest.")
QUALITY = Metric("rankfold_stage_quality", "Error estimates and other measures that its result tells.")

METRICS = (*OF_RUNS.values(), STAGES, FREE, *OF_STAGES.values(), EARLIER, QUALITY)
"""All metrics that the file may hold."""


def write_metrics(record: Record) -> None:
    """Write the metrics of a workflow to ``metrics.prom`` in its folder of results, as text for Prometheus.

    They replace those in the file. If writing fails, the failure is logged, and the run continues.
    """
    path = Path(os.path.realpath(record.outputs / FILE))  # the target of a link, as for all that is written
    try:
        if is_regular(path) and not read_bounded(path, TABLE_BYTES).startswith(OWN.encode()):
            LOG.warning("%s is not of a workflow, so no metrics are written", path)
            return
        text = metrics_text(record)
        with atomic_file(path, durable=False) as file:
            file.write(text.encode())
    except (OSError, RankfoldError) as error:
        LOG.warning("no metrics are written: %s", error)


def metrics_text(record: Record) -> str:
    """The metrics of a workflow in the text format of Prometheus, from its record."""
    workflow = str(record.values.get("workflow", ""))
    run, own = record.run, {"workflow": workflow}
    families: list[tuple[Metric, list[Sample]]] = [
        (metric, [(own, run[key])] if run.get(key) is not None else []) for key, metric in OF_RUNS.items()
    ]
    counts = run.get("stages", {}).items()
    actions: list[Sample] = [({**own, "action": action}, count) for action, count in counts]
    families += [(STAGES, actions), (FREE, [(own, free_bytes(record.outputs))])]
    steps = [name for name in record.values.get("steps", ()) if name in record.stages]
    facts = {name: _stage_facts(record.stages[name]) for name in steps}
    labels = {
        name: {**own, "stage": name, "method": str(record.stages[name].get("method"))} for name in steps
    }
    for key, metric in OF_STAGES.items():
        known: list[Sample] = [
            (labels[name], facts[name][key]) for name in steps if facts[name].get(key) is not None
        ]
        families.append((metric, known))
    families += [
        (EARLIER, list(_earlier(record.outputs, labels))),
        (QUALITY, list(_qualities(facts, labels))),
    ]
    return text_of(families)


def _stage_facts(stage: dict[str, Any]) -> dict[str, Any]:
    facts = {**stage.get("outcome", {})}
    with suppress(KeyError, ValueError, TypeError):  # of a stage that has not ended, or an older version
        facts["ended"] = calendar.timegm(time.strptime(stage["ended"], "%Y-%m-%dT%H:%M:%SZ"))
    if stage.get("state") != "running":
        facts["success"] = int(stage.get("state") == "done")
    return facts


def _earlier(outputs: Path, labels: dict[str, dict[str, str]]) -> Iterator[Sample]:
    for name, own in labels.items():
        results = EarlierResults(outputs / f"{name}.zarr")
        if results.folder.exists():
            yield own, len(results.all())


def _qualities(facts: dict[str, dict[str, Any]], labels: dict[str, dict[str, str]]) -> Iterator[Sample]:
    for name, own in labels.items():
        for measure, value in facts[name].get("qualities", {}).items():
            yield {**own, "measure": measure}, value
