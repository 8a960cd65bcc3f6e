"""Strict readers of two formats of metrics, as their specifications have them.

OpenMetrics 1.0 (https://github.com/prometheus/OpenMetrics, specification/OpenMetrics.md), as much of it as
gauges need; and Prometheus's text format 0.0.4 as the collector of text files of node_exporter takes it.
"""

from __future__ import annotations

import re

Samples = list[tuple[str, dict[str, str], float]]

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"'
SAMPLE = re.compile(rf"({NAME})\{{({LABEL}(?:,{LABEL})*)?\}} (\S+)")
"""No blanks but one, no time."""

NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?")


def sample_of(line: str) -> tuple[str, dict[str, str], float]:
    match = SAMPLE.fullmatch(line)
    assert match and NUMBER.fullmatch(match[match.lastindex or 0]), line
    pairs = re.findall(LABEL, match[2] or "")
    labels = {name: re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), text) for name, text in pairs}
    assert len(labels) == len(pairs), line
    return match[1], labels, float(match[match.lastindex or 0])


def read_openmetrics(text: str) -> Samples:
    """Every sample of a text in which every metric is a gauge; fails on whatever is not allowed."""
    assert text.endswith("# EOF\n") and "\n\n" not in text and text.isprintable() is False
    lines = text.split("\n")[:-2]
    assert not any(line.startswith("# EOF") for line in lines)
    samples: Samples = []
    seen: set[str] = set()
    current, facts = "", dict[str, str]()
    for line in lines:
        if line.startswith("#"):
            _, kind, name, value = line.split(" ", 3)
            assert kind in ("HELP", "TYPE", "UNIT"), line
            if name != current:
                assert name not in seen, f"{name} is interrupted by another metric"
                seen.add(name)
                current, facts = name, {}
            assert kind not in facts and not (samples and samples[-1][0] == name), line
            facts[kind] = value
            if kind == "UNIT":
                assert name.endswith(f"_{value}"), line
            if kind == "TYPE":
                assert value == "gauge", line
            continue
        sample = sample_of(line)
        assert sample[0] == current and "TYPE" in facts, f"{line} is not of {current}"
        assert (sample[0], sample[1]) not in [one[:2] for one in samples], line
        samples.append(sample)
    return samples


def read_prometheus(text: str) -> Samples:
    """Every sample; comments are what does not begin with HELP or TYPE."""
    samples: Samples = []
    helped: dict[str, str] = {}
    typed: dict[str, str] = {}
    for line in text.split("\n"):
        if line.startswith("#"):
            words = line.split(" ", 3)
            if words[1] == "HELP":
                assert re.fullmatch(r"([^\\]|\\[\\n])*", words[3]), line
                assert helped.setdefault(words[2], words[3]) == words[3]
            elif words[1] == "TYPE":
                assert words[2] not in typed and words[3] in ("counter", "gauge", "untyped"), line
                typed[words[2]] = words[3]
        elif line:
            samples.append(sample_of(line))
            assert typed[samples[-1][0]] == "gauge"
    return samples
