"""Messages for YAML that the parser does not understand, in words that the writer of the file knows.

The parser reports where it could not continue, which is often a line after the mistake: a missing colon shows
at the next colon, an open bracket at the end of the file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import yaml

MOST_CHARACTERS = 40
"""Most characters of a wrong value that a message repeats."""


NO_CHARACTER = re.compile("[\0\ud800-\udfff]")
"""Characters that no path and no UTF-8 may hold."""

MOST_DEPTH = 32
"""Most levels of nested lists and keys."""


def oddity(text: str, loader: type[yaml.SafeLoader], what: str) -> tuple[int, str] | None:
    """Line and description of content that YAML allows but no settings need; None if there is none.

    Such content is: lists and keys nested too deep, since building them is recursive; escapes of characters
    that no name may have.
    """
    depth = 0
    for event in yaml.parse(text, Loader=loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        line = int(event.start_mark.line) + 1
        if depth > MOST_DEPTH:
            return line, f"keys and lists are nested too deep. Is this a {what}?"
        if isinstance(event, yaml.ScalarEvent) and (character := NO_CHARACTER.search(event.value)):
            return line, f"is not text: here is the character #x{ord(character[0]):04x}. Leave it out"
    return None


def in_plain_words(error: yaml.YAMLError, text: str, what: str) -> tuple[int, str]:
    """Line and message, with advice, for an error of the parser."""
    if isinstance(error, yaml.reader.ReaderError):
        line = text.count("\n", 0, error.position) + 1
        return line, f"is not text: here is the character #x{error.character:04x}. A {what} is a text file"
    lines = [*text.split("\n"), ""]
    problem, context = str(getattr(error, "problem", None) or error), getattr(error, "context", None) or ""
    here, begins = error.problem_mark, getattr(error, "context_mark", None) or error.problem_mark
    if "'\\t'" in problem:
        return here.line + 1, "YAML takes spaces for indentation, here is a tab"
    if "expected ':'" in problem:
        return begins.line + 1, _without_colon(lines[begins.line])
    if problem.startswith("mapping values"):
        return _odd_colon(lines, here.line, here.column)
    if problem.startswith(("expected ',' or",)):
        ends_outside = _indent(lines[here.line]) <= _indent(lines[begins.line]) and here.line > begins.line
        opening, closing = lines[begins.line][begins.column], problem[17]
        message = f"between {opening} and {closing} a comma is missing, or {closing} itself"
        return (begins if ends_outside else here).line + 1, message
    if "alias" in f"{context} {problem}" or "cannot start any token" in problem:
        value = re.sub(r"\s+#.*", "", lines[begins.line][begins.column :]).rstrip(" ]}")
        return begins.line + 1, f'what begins with {value[:1]} needs quotes: write "{cut(value)}"'
    if "quoted scalar" in context and "end of stream" in problem:
        return begins.line + 1, "the quote that begins here has no end"
    if "expected <block end>" in problem:
        return here.line + 1, BLOCK_ENDS.get(problem.rpartition("found ")[2], BLOCK_ENDS[""])
    if "another document" in problem:
        return here.line + 1, f"a second document begins here, and a {what} is one: take --- away"
    return here.line + 1, f"not YAML: {' '.join(problem.split())}"


BLOCK_ENDS = {
    "'<scalar>'": "text goes on after its closing quote: put all of it in quotes",
    "'-'": "a list that begins with - stands among `key: value` lines: indent it below its key",
    "": "indented otherwise than the lines it belongs to: give them the same number of spaces",
}
"""Messages for the unexpected end of a list of keys, by what the parser found there."""


def _without_colon(line: str) -> str:
    key, colon, value = line.strip().partition(":")
    if colon and value:
        return f"after a colon comes a space: write {cut(f'{key}: {value}')}"
    return f"{cut(line.strip())!r} has no colon: write `key: value`"


def _odd_colon(lines: Sequence[str], number: int, column: int) -> tuple[int, str]:
    """Line and message for a misplaced colon: the cause is its own line, or the one before."""
    if ": " in lines[number][:column]:
        return number + 1, "a second colon in one line: put the value in quotes, or the second key below"
    before = number - 1
    while before > 0 and not lines[before].partition("#")[0].strip():
        before -= 1
    if before >= 0 and ": " not in lines[before]:
        return before + 1, _without_colon(lines[before])
    return number + 1, f"indented deeper than line {before + 1}, which has its value already"


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def cut(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."
