"""Wording of messages: options of commands renamed to keys of a workflow file; and columns of tables,
aligned.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence

from rankfold.methods.registry import methods
from rankfold.pipeline.errors import Interrupted, PlanError, RankfoldError, in_command
from rankfold.pipeline.text import Lines, printable
from rankfold.settings.yaml_file import Document, Keys, SettingsError

KEYS = {"out": "outputs", "no-rows": "with_rows: false"}
"""Text in a workflow file for options of commands that have another name there."""

SAME = "memory row-axes select-rows select-columns drop-missing-columns drop-missing-rows missing-chunks"
SAME += " scratch workers threads columns without header skip-lines layout dtype"
"""Options of commands that have the same name in a workflow file, besides arguments of methods."""

VALUE = re.compile(
    r"\d[\w.]*\w|\d|krylov|subspace|gram|sketch|tsqr|lanczos|fill|error|random|spectral|pca|DIR|time"
)
"""Pattern of words after an option that are its value, in messages."""

VAGUE = ("method", "input", "needs", "resources", "columns")
"""Keys of a stage that also occur as common words in messages, and do not mean the key then."""


@functools.cache
def _names() -> frozenset[str]:
    """Names of options that are also keys of a workflow file."""
    arguments = (each.name for method in methods() for each in method.parameters())
    return frozenset([*SAME.split(), *(name.lower().replace("_", "-") for name in arguments)])


def in_file(message: str) -> str:
    """Change a message that names options of a command into one that names keys of a file.

    >>> in_file("Give --memory 52MiB, or --solver krylov, which --out needs (--no-rows).")
    'Give memory: 52MiB, or solver: krylov, which outputs needs (with_rows: false).'
    >>> in_file("cannot write x.zarr. Choose another --out.")
    'cannot write x.zarr. Choose other outputs.'
    >>> in_file("ask for larger partitions, partition_rows= (--partition-rows)")
    'ask for larger partitions, partition_rows'
    """

    def key(match: re.Match[str]) -> str:
        if match[1] not in KEYS and match[1] not in _names():
            return match[0]
        name = KEYS.get(match[1], match[1].replace("-", "_"))
        return f"{name}: {match[2]}" if match[2] else name

    kind = type(message)
    message = in_command(message)
    message = re.sub(r"\banother --out\b", "other --out", message)
    message = re.sub(rf"(?<![\w-])--([a-z][a-z-]*)(?: ({VALUE.pattern})(?!\w))?", key, message)
    return Lines.of(message) if kind is Lines else message


def with_place(error: RankfoldError, name: str, stage_name: str, document: Document) -> RankfoldError:
    """A copy of an error of a step, whose message begins with the file, line and key that it is about.

    ``name`` is that of the step, ``stage_name`` that of its stage. An error that has a place already, or is
    about another file, is returned as it is.
    """
    message = in_file(error.message)
    if isinstance(error, Interrupted | SettingsError) or message.startswith(f"{document.path}:"):
        return error
    keys: Keys = ("stages", stage_name)
    values = document.values["stages"][stage_name] if not isinstance(error, PlanError) else {}
    matches = {key: re.search(rf"\b{re.escape(key)}\b", message) for key in values if key not in VAGUE}
    mentions = sorted((match.start(), key) for key, match in matches.items() if match)
    key = mentions[0][1] if mentions else ""
    grid = document.values.get("sweep")
    if key:
        goes_over = name != stage_name and isinstance(grid, Mapping) and key in grid
        keys = ("sweep", key) if goes_over else (*keys, key)
    key = f".{key}" if key else ""
    placed = type(error)(Lines.joined(f"{document.at(*keys)}: stages.{name}{key}: ", message))
    vars(placed).update(vars(error))  # such as how much memory it takes
    return placed


def columns(rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> Lines:
    """Lines of a table with aligned columns; those whose indices, from 0, are in ``right`` align right."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(w) if i in right else cell.ljust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return Lines(*lines)
