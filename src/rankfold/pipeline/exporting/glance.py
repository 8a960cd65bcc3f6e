"""A result at a glance: one line for a prompt, a table for a notebook, of printable text."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from typing import Any

from rankfold.pipeline.text import printable, shortened

SHOWN = ("method", "passes", "rank", "captured", "largest_error_estimate", "relative_error", "converged")
"""Names of the facts that a notebook shows."""


def one_line(facts: Mapping[str, Any], arrays: Mapping[str, Any]) -> str:
    """What was computed of what, its arrays, and how good it is."""
    shapes = ", ".join(f"{name} {arrays[name].shape}" for name in sorted(arrays))
    quality = ""
    if "largest_error_estimate" in facts:
        quality = f"; largest error estimate {facts['largest_error_estimate']:.1e}"
    elif "relative_error" in facts:
        quality = f"; relative error {facts['relative_error']:.1e}"
    return printable(
        f"<{facts['kind']} of {shortened(facts['input']['name'])} by {facts['method']} in {facts['passes']} "
        f"pass{'es' if facts['passes'] != 1 else ''}: {shapes}{quality}>"
    )


def html_table(
    attributes: Mapping[str, Any], arrays: Mapping[str, Any], dimensions: Callable[[str], tuple[str, ...]]
) -> str:
    """Arrays, and what a result says of itself, as HTML; ``dimensions`` gives the axes of an array."""
    rows = [
        f"<tr><td><code>{html.escape(name)}</code></td>"
        f"<td>{' &times; '.join(map(str, arrays[name].shape))}</td>"
        f"<td>{arrays[name].dtype}</td>"
        f"<td>{html.escape(', '.join(dimensions(name)))}</td></tr>"
        for name in sorted(arrays)
    ]
    facts = {"input": attributes["input"]["name"], "shape": attributes["input"]["shape"]}
    facts |= {name.replace("_", " "): attributes[name] for name in SHOWN if name in attributes}
    if "prepare" in attributes["input"]:
        facts["prepare"] = attributes["input"]["prepare"]
    said = "; ".join(
        f"{name} {html.escape(f'{value:.3g}' if isinstance(value, float) else str(value))}"
        for name, value in facts.items()
    )
    head = "<tr><th>array</th><th>shape</th><th>type</th><th>axes</th></tr>"
    kind = html.escape(attributes["kind"])
    return printable(f"<p><b>{kind}</b>: {said}</p><table>{head}{''.join(rows)}</table>")
