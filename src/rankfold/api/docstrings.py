"""Docstrings of the public functions, completed: every argument with its type, default and meaning.

A docstring explains what a function has of its own. Arguments that many share are explained where they are
declared: those of a method in its dataclass of arguments, of which the command line is made too, and those of
where it runs in ``where``. ``completed`` puts them in, in the order of the signature.
"""

from __future__ import annotations

import functools
import inspect
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, replace

from rankfold.methods.argument import Argument

WIDTH = 106
"""Columns of a line, before it is indented as the text of an entry."""

RAISES = """\
InputError
    What cannot be asked: an argument, or arguments that do not go together.
OutputError
    What cannot be written: another output is there, or no folder.
PlanError
    What does not fit in ``memory`` or on the disk, before anything is read.
DataError
    NaN and Inf, with their place; data that are damaged, or change while they are read."""
"""What functions raise that run a task: in place of "As for ``svd``" under these names."""

AS_FOR_ANOTHER = re.compile(r"^(?:\w+Error(?:, )?)+\n    As for ``\w+``[.;] ?", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Entry:
    """Names of arguments, and what is said of them."""

    names: tuple[str, ...]
    kind: str
    text: str
    """Indented lines."""

    def __str__(self) -> str:
        return "\n".join(filter(None, (f"{', '.join(self.names)} : {self.kind}", self.text)))


def completed(docstring: str, signature: inspect.Signature, declared: Mapping[str, Argument]) -> str:
    """A docstring that explains every argument of a signature.

    Parameters
    ----------
    docstring
        With a section of parameters, in which ``others`` may stand for those that are left out.
    signature
        Of the function, with all arguments by their names.
    declared
        What arguments say of themselves. One that neither says anything of is left out.
    """
    head, section, tail = _sections(inspect.cleandoc(docstring))
    entries: dict[str, Entry] = {}
    for each in _entries(section):
        entries |= _by_name(each, declared)
    lines = []
    for name, parameter in signature.parameters.items():
        entry = entries.get(name)
        if name in declared and (entry is None or not entry.text):
            said = _indented(declared[name].sentences)
            entry = Entry((name,), "", said) if entry is None else replace(entry, text=said)
        if entry is not None:
            lines.append(str(replace(entry, kind=_kind(entry.kind, parameter, declared.get(name)))))
    lines += [str(each) for name, each in entries.items() if name not in {*signature.parameters, "others"}]
    text = "\n".join([head.rstrip(), "", "Parameters", "----------", *lines, "", tail]).rstrip()
    return AS_FOR_ANOTHER.sub(f"{RAISES} ", text).replace(f"{RAISES} \n", f"{RAISES}\n")


def _sections(text: str) -> tuple[str, str, str]:
    """What comes before the section of parameters, that section, and what comes after it."""
    match = re.search(r"^Parameters\n-+\n(.*?)(?:\n\n(?=[^\n]+\n---)|\Z)", text, re.DOTALL | re.MULTILINE)
    if match is None:
        summary, blank, rest = text.partition("\n\n")
        return summary, "", rest if blank else ""
    return text[: match.start()], match[1], text[match.end() :]


def _entries(section: str) -> list[Entry]:
    found: list[Entry] = []
    for line in section.splitlines():
        if line and not line.startswith(" "):
            names, _, kind = line.partition(" : ")
            found.append(Entry(tuple(re.split(r",\s*", names)), kind, ""))
        elif found:
            found[-1] = replace(found[-1], text=f"{found[-1].text}\n{line}".strip("\n"))
    return found


def _by_name(entry: Entry, declared: Mapping[str, Argument]) -> dict[str, Entry]:
    """Entries of one name each; what was said of several stands at the first of them."""
    first, *others = entry.names
    kinds = re.split(r"[;,]\s*", entry.kind)
    if re.fullmatch(r"\s+As for ``\w+``\.", entry.text):
        return {}
    found = {first: Entry((first,), kinds[0] if len(kinds) == len(entry.names) else entry.kind, entry.text)}
    for name in others:
        said = f"{declared[name].sentences} " if name in declared else ""
        found[name] = Entry((name,), "", _indented(f"{said}See ``{first}``."))
    return found


def _kind(kind: str, parameter: inspect.Parameter, argument: Argument | None) -> str:
    """The type of an argument, and its default where it has one."""
    if not kind:
        choices = argument.choices if argument is not None else ()
        kind = re.sub(r" \| None$", "", str(parameter.annotation)).replace(" | ", " or ")
        if choices:
            kind = "{" + ", ".join(f'"{each}"' for each in choices) + "}"
    default = parameter.default
    if default is inspect.Parameter.empty or "default" in kind or "optional" in kind:
        return kind
    if isinstance(default, str):
        return f'{kind}, default "{default}"'
    return f"{kind}, optional" if default is None else f"{kind}, default {default!r}"


@functools.cache
def _indented(text: str) -> str:
    return textwrap.indent(textwrap.fill(text, WIDTH - 4), "    ")
