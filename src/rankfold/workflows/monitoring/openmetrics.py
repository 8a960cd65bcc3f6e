"""Metrics as text in a form valid for both OpenMetrics 1.0 and Prometheus's own format.

Both read the same lines as long as every metric is a gauge: a counter has different names in the two formats,
and Prometheus refuses the other types of OpenMetrics. ``# UNIT`` and ``# EOF`` are comments to Prometheus. No
sample has a time: the collector of text files of node_exporter refuses those.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

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
    """All metrics as text; metrics without values are left out."""
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
