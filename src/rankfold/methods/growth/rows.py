"""The rows of a matrix after those that an earlier result was made from."""

from __future__ import annotations

from rankfold.pipeline.data.selection import select
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.prepare.prepared import PreparedSource, select_prepared


def new_rows(source: Source, first: int) -> Source:
    """The matrix of rows from ``first`` on, with the same preparation steps (``prepare=``) if any."""
    rows = slice(first, None)
    if isinstance(source, PreparedSource):
        return select_prepared(source, rows=rows, columns=None)
    return select(source, rows=rows, columns=None)
