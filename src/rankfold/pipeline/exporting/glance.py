"""A result at a glance: one line for a prompt, a table for a notebook, of printable text.

Both leave out arrays that preparation steps (``prepare=``) measured; ``Result.keys`` lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rankfold.pipeline.law import is_of_step
from rankfold.pipeline.text import columns_table, facts_table, printable, shortened

SHOWN = ("method", "passes", "rank", "captured", "largest_error_estimate", "relative_error", "converged")
"""Names of the attributes of a result that its table in a notebook shows."""


def one_line(facts: Mapping[str, Any], arrays: Mapping[str, Any]) -> str:
    """One line on a result: what was computed, from which matrix, its arrays, and how accurate it is.

    ``facts`` are the attributes of the result, ``arrays`` its arrays by name.
    """
    shapes = ", ".join(f"{name} {arrays[name].shape}" for name in _shown(arrays))
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
    """Attributes and arrays of a result as two HTML tables.

    ``dimensions`` returns the kinds of the axes of the array of a given name.
    """
    known = attributes["input"]
    facts = {"input": known["name"], "shape": _by(known["shape"])}
    facts |= {name.replace("_", " "): attributes[name] for name in SHOWN if name in attributes}
    if "prepare" in known:
        facts["prepare"] = known["prepare"]
    rows = [
        (name, _by(arrays[name].shape), arrays[name].dtype, ", ".join(dimensions(name)))
        for name in _shown(arrays)
    ]
    return facts_table(attributes["kind"], facts) + columns_table(("array", "shape", "type", "axes"), rows)


def _shown(arrays: Mapping[str, Any]) -> list[str]:
    return sorted(name for name in arrays if not is_of_step(name))


def _by(shape: Sequence[int]) -> str:
    """A shape as text, such as ``1,000 × 20``."""
    return " × ".join(f"{length:,}" for length in shape)
