"""Docstrings of the public functions and estimators, completed: every argument with its type and default.

A docstring explains the arguments that only its function has. Arguments that many functions share are
explained where they are declared: those of a method in its dataclass of arguments, from which the command
line is made too, and those of the place of execution in ``where``. ``completed`` inserts them, in the order
of the signature.
"""

from __future__ import annotations

import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from rankfold.methods.argument import Argument

WIDTH = 106
"""Largest number of characters of a line of text in a completed docstring, with its indentation of four."""

RAISES = """\
InputError
    What cannot be asked: an argument, or arguments that do not go together.
OutputError
    What cannot be written: another output is there, or no folder.
PlanError
    What does not fit in ``memory`` or on the disk, before anything is read.
DataError
    NaN and Inf, with their place; data that are damaged, or change while they are read."""
"""Entries on errors of functions that run a task; they replace the entry "As for ``svd``" under Raises."""

AS_FOR_ANOTHER_RAISES = re.compile(r"^(?:\w+Error(?:, )?)+\n    As for ``\w+``[.;] ?", re.MULTILINE)

AS_FOR = re.compile(r"\s*As for ``([\w.]+)``[.;:,]?\s*")

SHORT = 2
"""Largest number of lines of a text for several arguments that is repeated for each of them; for a longer
text, those after the first refer to the first.
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """Entry of a docstring about one argument: its type and its text."""

    kind: str
    """Type of the argument as a docstring gives it, with its default if the text states that."""

    text: str
    """Text on the argument; its lines are not indented."""

    def joined(self, more: str) -> Entry:
        """The entry with the text ``more`` appended."""
        return Entry(self.kind, " ".join(f"{self.text} {more}".split()) if more else self.text)


def said_by(arguments: Mapping[str, Argument]) -> dict[str, Entry]:
    """Entries of declared arguments, by name."""
    return {name: Entry(_choices(each), each.sentences) for name, each in arguments.items()}


def entries_of(docstring: str) -> dict[str, Entry]:
    """Entries of a docstring, by argument, with the first paragraph of their text only.

    Entries for several arguments at once are left out.
    """
    return {
        names[0]: Entry(entry.kind, _whole(entry.text.partition("\n\n")[0]))
        for names, entry in _entries(_sections(inspect.cleandoc(docstring))[1])
        if len(names) == 1
    }


def _whole(paragraph: str) -> str:
    """A paragraph without a last sentence that introduces a list, by a colon at its end."""
    return re.sub(r"(?<=\.)\s+[^.]*:$", "", paragraph)


def completed(
    docstring: str,
    signature: inspect.Signature,
    declared: Mapping[str, Entry],
    refer: Callable[[str], Mapping[str, Entry]] | None = None,
) -> str:
    """A docstring that explains every argument of a signature.

    Parameters
    ----------
    docstring
        Text with a section of parameters, in which ``others`` may replace those that are left out.
    signature
        Signature of the function, with all arguments.
    declared
        Entries, by name, of arguments that the docstring leaves out.
    refer
        Returns the entries of the docstring of ``name``, for texts "As for ``name``"; without it they come
        from ``declared``.
    """
    head, section, tail = _sections(inspect.cleandoc(docstring))
    entries: dict[str, Entry] = {}
    for names, said in _entries(section):
        match = AS_FOR.match(said.text)
        known = declared if match is None or refer is None else refer(match[1])
        text = said.text if match is None or names[0] not in known else _sentence(said.text[match.end() :])
        entries |= _by_name(names, Entry(said.kind, text), known, refers=match is not None)
    lines = []
    for name, parameter in signature.parameters.items():
        entry = entries.get(name, declared.get(name))
        if entry is not None:
            text = entry.text or declared.get(name, entry).text
            lines += [f"{name} : {_kind(entry, declared.get(name), parameter)}", *_indented(text)]
    text = "\n".join([head.rstrip(), "", "Parameters", "----------", *lines, "", tail]).rstrip()
    return AS_FOR_ANOTHER_RAISES.sub(f"{RAISES} ", text).replace(f"{RAISES} \n", f"{RAISES}\n")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _sections(text: str) -> tuple[str, str, str]:
    """Split a docstring into the text before the section of parameters, that section, and the text
    after it.
    """
    match = re.search(r"^Parameters\n-+\n(.*?)(?:\n\n+(?=[^\n]+\n---)|\Z)", text, re.DOTALL | re.MULTILINE)
    if match is None:
        summary, blank, rest = text.partition("\n\n")
        return summary, "", rest if blank else ""
    return text[: match.start()], match[1], text[match.end() :]


def _entries(section: str) -> list[tuple[tuple[str, ...], Entry]]:
    """Entries of a section of parameters: the names of each, one or several, and its type and text."""
    found: list[tuple[str, list[str]]] = []
    for line in section.strip("\n").splitlines():
        if not line or line.startswith(" "):
            found[-1][1].append(line)
        elif found and found[-1][0].endswith(","):
            found[-1] = (f"{found[-1][0]} {line}", [])
        else:
            found.append((line, []))
    entries = []
    for header, lines in found:
        names, _, kind = header.partition(" :")
        said = Entry(" ".join(kind.split()), textwrap.dedent("\n".join(lines)).strip())
        entries.append((tuple(re.split(r",\s*", names)), said))
    return entries


def _by_name(
    names: tuple[str, ...], said: Entry, known: Mapping[str, Entry], *, refers: bool
) -> dict[str, Entry]:
    """Split an entry for several arguments, such as ``a, b : float``, into an entry for each, by name.

    Parameters
    ----------
    names
        The arguments, in order.
    said
        The entry: text, and type. Several types, separated by commas or semicolons, are those of the
        arguments in order, of which only the first is used.
    known
        Entries, by name, from the declarations or from the docstring to which the text refers.
    refers
        True if the text began with "As for ``NAME``": what ``known`` says then precedes the rest of the text.

    Returns
    -------
    dict
        The first argument has the text. Each other has its entry in ``known`` and a reference to the first;
        if there is none, a copy of a text of at most ``SHORT`` lines, or else only the reference.
    """
    first, *others = names
    kinds = re.split(r";\s*" if "{" in said.kind else r"[;,]\s*", said.kind)
    kind = kinds[0] if len(kinds) == len(names) else said.kind
    elsewhere = known.get(first) if refers else None
    found = {first: said if elsewhere is None else elsewhere.joined(said.text)}
    found[first] = replace(found[first], kind=kind or found[first].kind)
    reference = said.text if said.text.count("\n") < SHORT else f"See ``{first}``."
    for name in others:
        if name in known:
            found[name] = known[name].joined(f"See ``{first}``." if said.text else "")
        else:
            found[name] = Entry("", reference)
    return found


def _choices(argument: Argument) -> str:
    return "{" + ", ".join(f'"{each}"' for each in argument.choices) + "}" if argument.choices else ""


def _kind(entry: Entry, declared: Entry | None, parameter: inspect.Parameter) -> str:
    """Type of an argument, followed by its default: from its entry, its declaration, or its annotation."""
    default, empty = parameter.default, inspect.Parameter.empty
    kind = entry.kind or (declared.kind if declared is not None else "")
    if not kind:
        kind = re.sub(r" \| None$", "", str(parameter.annotation)).replace(" | ", " or ")
        kind = (
            type(default).__name__ if kind in ("Any", str(empty)) and default not in (None, empty) else kind
        )
    if default is empty or "default" in kind or "optional" in kind:
        return kind
    if isinstance(default, str):
        return f'{kind}, default "{default}"'
    return f"{kind}, optional" if default is None else f"{kind}, default {default!r}"


def _indented(text: str) -> list[str]:
    lines = text.splitlines() if "\n" in text else _wrapped(text)
    return [f"    {line}".rstrip() for line in lines]


@functools.cache
def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH - 4)
