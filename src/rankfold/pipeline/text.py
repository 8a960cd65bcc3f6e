"""Text for output: control characters in text from elsewhere are shown as escapes, never obeyed.

Names of files, arrays, columns, labels, attributes and jobs, and messages of other libraries may hold any
character: ESC that a terminal obeys, a newline that begins another line, marks that change the direction of a
line, characters without width, surrogates that no file can store. ``printable`` makes one line of such a
text, in which each of these is an escape such as ``\\x1b``. Only ``Lines`` has several lines, all written by
this package.

The root of all errors, the logger, tables, ``repr`` and pages use it, so that messages need not. The trap:
the sum of ``Lines`` and a text is plain text, and becomes one line again. ``Lines.joined`` keeps the lines.

Tables for notebooks, of printable text: every value has its label, and none is cut on a narrow screen.

A notebook decides how wide its output is, and style sheets of rankfold's pages do not apply there. So words
break where they must, by a style in each cell.
"""

from __future__ import annotations

import difflib
import html
import json
import logging
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

_UNSEEN = (
    "\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"
)
"""Control and zero-width characters, direction marks, line separators, surrogates, invalid XML."""

_FOREIGN = re.compile(f"[\x00-\x1f{_UNSEEN}]")
_WRITTEN = re.compile(f"[\x00-\x08\x0b-\x1f{_UNSEEN}]")
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def printable(text: str) -> str:
    r"""One line of text without characters that a terminal would obey; ``Lines`` stay as they are.

    >>> printable("a\x1b[2J\nrankfold: done")
    'a\\x1b[2J\\nrankfold: done'
    >>> printable("ü 日本")
    'ü 日本'
    """
    return text if isinstance(text, Lines) else _FOREIGN.sub(_escape, text)


LONGEST = 160
"""Largest number of characters of a name in one line."""


def shortened(name: str) -> str:
    """A name of at most ``LONGEST`` characters: a longer one loses its middle.

    >>> len(shortened("x" * 1000))
    160
    """
    if len(name) <= LONGEST:
        return name
    return f"{name[: LONGEST - 53]} ... {name[-48:]}"


def harmless(text: str) -> str:
    """Escape control characters in a text of several lines, for an output stream; line ends and tabs stay."""
    return _WRITTEN.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    sign, number = match[0], ord(match[0])
    width, letter = (2, "x") if number < 256 else (4, "u") if number < 2**16 else (8, "U")
    return _SHORT.get(sign) or f"\\{letter}{number:0{width}x}"


class Lines(str):
    r"""Lines that this package wrote, each of them printable: foreign text in them adds no line.

    >>> Lines("two", "a\nb").split("\n")
    ['two', 'a\\nb']
    """

    __slots__ = ()

    def __new__(cls, *lines: str) -> Self:
        return super().__new__(cls, "\n".join(map(printable, lines)))

    @classmethod
    def of(cls, text: str) -> Self:
        """Make it from a text of several lines that rankfold wrote, such as a script."""
        return cls(*text.split("\n"))

    @classmethod
    def joined(cls, *parts: str) -> Self:
        """Concatenation of parts: those that are ``Lines`` keep their lines, others become one line."""
        return cls.of("".join(map(printable, parts)))

    def __str__(self) -> str:
        return self

    def __getnewargs__(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(self.split("\n"))


def json_text(value: Any, **options: Any) -> Lines:
    r"""A value as JSON of printable characters.

    >>> json_text({"a\x7f": "\x1b"})
    '{"a\\u007f": "\\u001b"}'
    """
    return Lines.of(json.dumps(value, **options).replace("\x7f", "\\u007f"))


def shell_words(words: Iterable[str]) -> str:
    r"""Words quoted for bash in printable characters: bash reads exactly the given words.

    >>> print(shell_words(["ls", "my data", "a\x1b'\n"]))
    ls 'my data' $'a\x1b\'\x0a'
    """
    return " ".join(shlex.quote(word) if printable(word) == word else _ansi_word(word) for word in words)


def _ansi_word(word: str) -> str:
    word = word.replace("\\", r"\\").replace("'", r"\'")
    return f"$'{_FOREIGN.sub(lambda sign: _bytes_of(sign[0]), word)}'"


def _bytes_of(sign: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in sign.encode("utf-8", "surrogateescape"))


def suggest_name(value: object, choices: Iterable[str]) -> str:
    """A hint with the name that was probably meant, in brackets; empty if no choice is similar.

    >>> suggest_name("normalise_total", ["log1p", "normalize_total"]), suggest_name("x", ["log1p"])
    (" (did you mean 'normalize_total'?)", '')
    """
    near = difflib.get_close_matches(str(value), list(choices), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


class _Printable(logging.Filter):
    """Filter that makes the message of every log record one printable line, before handlers receive it."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = printable(record.getMessage()), None
        return True


logging.getLogger("rankfold").addFilter(_Printable("rankfold"))


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
