"""Tables for notebooks, of printable text: every value has its label, and none is cut on a narrow screen.

A notebook decides how wide its output is, and style sheets of rankfold's pages do not apply there. So words
break where they must, by a style in each cell.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence

from rankfold.pipeline.text import printable

CELL = "text-align: left; vertical-align: top; white-space: normal; overflow-wrap: anywhere; max-width: 40em"
HEAD = f"{CELL}; overflow-wrap: normal"
TABLE = "max-width: 100%; margin: 0 0 0.5em 0"
"""CSS styles of cells, of cells with labels, and of the table around them."""


def facts_table(title: str, facts: Mapping[str, object]) -> str:
    """A title, and below it a line with label and value for each fact, as HTML."""
    rows = "".join(
        f'<tr><th scope="row" style="{HEAD}">{_shown(label)}</th>{_cell(value)}</tr>'
        for label, value in facts.items()
    )
    return printable(
        f'<p style="overflow-wrap: anywhere"><b>{_shown(title)}</b></p>'
        f'<table style="{TABLE}"><tbody>{rows}</tbody></table>'
    )


def columns_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """HTML table with a line of headings, and below it a line for each of ``rows``."""
    head = "".join(f'<th scope="col" style="{HEAD}">{_shown(name)}</th>' for name in headings)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return printable(f'<table style="{TABLE}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>')


def _cell(value: object) -> str:
    return f'<td style="{CELL}">{_shown(value)}</td>'


def _shown(value: object) -> str:
    """Value as HTML text that may break after punctuation within a name or a path."""
    text = html.escape(f"{value:.3g}" if isinstance(value, float) else str(value))
    return re.sub(r"(?<=\w)([_/:])(?=\w)", r"\1<wbr>", text)
