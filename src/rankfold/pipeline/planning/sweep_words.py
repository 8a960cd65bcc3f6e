"""Plain words for sweeps, to show to people: their names are those of their checkpoints."""

from __future__ import annotations

import re

PASS = re.compile(r"(?:pass|iteration)-0*(\d+)")
"""Pattern of names of sweeps over the matrix that have a number."""

COMPLETION = re.compile(r"completion-0*(\d+)")
"""Pattern of names of sweeps that fill in missing values."""

ROUND = re.compile(r"(assign|search|merge|visit|meet|join)-0*(\d+)")
"""Pattern of names of sweeps of one round (a set of partitions of all rows, and the search in them)."""

ROUND_WORDS = {
    "assign": "filling partitions",
    "search": "searching partitions",
    "merge": "merging lists",
    "visit": "sending rows to other partitions",
    "meet": "searching these partitions",
    "join": "merging lists again",
}

OVER_MATRIX = re.compile(
    r"(?:pass|iteration|completion)-\d+|gram|statistics|sketch|reflections(?:[- ].*)?|ranks-.*|update|"
    r"transform|check|reconstruct|whole|sample|pairs|trustworthiness|continuity|assign(?:-\d+)?|visit-\d+|complete-.*|queries"
)
"""Pattern of names of sweeps that read the matrix, whatever the method."""

WORDS = {
    "gram": "products of columns",
    "statistics": "mean and scale of columns",
    "sketch": "single pass",
    "reflections": "triangular factor",
    "ritz": "combining the passes",
    "range": "combining the pass",
    "rows": "writing the result",
    "signs": "start from singular vectors",
    "sample": "sampling rows",
    "labels": "writing labels",
    "pairs": "comparing rows",
    "write": "writing neighbors",
    "distances": "reading distances",
    "weights": "weighing neighbors",
    "strongest": "looking for the strongest edges",
    "layout": "laying out rows",
    "degrees": "degrees and components",
    "filters": "eigenvectors of the graph",
    "placement": "placing rows",
    "check": "residuals",
    "whole": "reading the matrix",
    "lanczos": "iterating in memory",
    "iterations": "iterating in memory",
    "search": "searching partitions",
    "merge": "merging lists",
    "assign": "filling partitions",
    "meet": "searching for visitors",
    "sort": "sorting rows by partition",
    "near": "near rows of a few queries",
    "truth": "their true neighbors",
    "queries": "neighbors of queries",
}
"""Plain words by the name of a sweep."""

SHARES = ("lanczos", "filters")
"""Sweeps that report the share done in per cent, since the number of their steps is not known."""

STEMS = {
    "reflections": "triangular factor again",
    "ritz": "combining the passes again",
    "range": "combining the pass again",
    "compressed": "iterating on the compressed matrix",
    "complete": "completing lists",
    "probe": "what so many probes find",
    "ranks": "counting nearer rows",
    "thresholds": "distances of neighbors",
}
"""Plain words by the beginning of names that go on with a number or a word."""


def words_of(name: str) -> str:
    """A sweep in plain words; a name that has none stays as it is.

    >>> words_of("pass-02"), words_of("ritz"), words_of("ranks-0-5000"), words_of("import")
    ('pass 2', 'combining the passes', 'counting nearer rows', 'import')
    """
    if match := PASS.fullmatch(name):
        return f"pass {match[1]}"
    if match := COMPLETION.fullmatch(name):
        return f"completing what is missing {match[1]}"
    if match := ROUND.fullmatch(name):
        return f"{ROUND_WORDS[match[1]]} {match[2]}"
    stem = re.split(r"[- ]", name, maxsplit=1)[0]
    return WORDS.get(name) or (STEMS.get(stem, name) if stem != name else name)


def unit_of(name: str, lines: str) -> str:
    """Unit in which a sweep counts its progress: ``lines`` (``"rows"`` or ``"columns"``), steps or per cent.

    >>> unit_of("gram", "rows"), unit_of("iterations", "rows"), unit_of("lanczos", "rows")
    ('rows', 'steps', '%')
    """
    return "%" if name in SHARES else "steps" if name == "iterations" else lines


def over_matrix(name: str) -> bool:
    """True if a sweep reads the matrix, judged by its name alone."""
    return OVER_MATRIX.fullmatch(name) is not None
