"""The rows of a matrix behind those that an earlier result stands on."""

from __future__ import annotations

from rankfold.pipeline.data.selection import select
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.prepare.prepared import PreparedSource, select_prepared


def new_rows(source: Source, first: int) -> Source:
    """Rows from ``first`` on, after the same steps."""
    rows = slice(first, None)
    if isinstance(source, PreparedSource):
        return select_prepared(source, rows=rows, columns=None)
    return select(source, rows=rows, columns=None)
