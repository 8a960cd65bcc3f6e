"""What the parser of YAML did not understand, in words of those who write the file.

The parser tells where it could not go on, which is often a line after the mistake: a missing colon shows at
the next colon, an open bracket at the end of the file.
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
"""Most levels of lists and keys within each other."""


def oddity(text: str, loader: type[yaml.SafeLoader], what: str) -> tuple[int, str] | None:
    """Line and kind of what no file says that is meant for us, although YAML allows it.

    Lists and keys nested deeper than any that are asked for: building them is recursive. Escapes of
    characters that no name may have.
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
    """Line, and what to write there, for what the parser did not understand."""
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
"""Why a list of keys ends where the parser did not expect it, by what it found."""


def _without_colon(line: str) -> str:
    key, colon, value = line.strip().partition(":")
    if colon and value:
        return f"after a colon comes a space: write {cut(f'{key}: {value}')}"
    return f"{cut(line.strip())!r} has no colon: write `key: value`"


def _odd_colon(lines: Sequence[str], number: int, column: int) -> tuple[int, str]:
    """A colon where none can be: because of its own line, or because of the one before."""
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
