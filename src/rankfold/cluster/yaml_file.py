"""Settings that people write in YAML, read so that every mistake is one line: ``file:line: key: what``.

A key that is not known is told with the key that was probably meant, a missing one with the place it is
missing from, at any depth. Numbers stay text until a model tells them by key: YAML would read 02:00:00 as
one of base sixty. No anchors, no tags: what a file says is what stands there.
"""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, ValidationError, WithJsonSchema

from rankfold.pipeline.errors import InputError
from rankfold.pipeline.units import parse_bytes

Keys = tuple[str | int, ...]
"""The way to a value: names of keys, and numbers in lists."""

Model = TypeVar("Model", bound=BaseModel)

UNITS = ("KiB", "MiB", "GiB", "TiB", "kB", "MB", "GB", "TB")

SHOWN = 40
"""Most characters of a wrong value that a message repeats."""


def _bytes(value: object) -> int:
    text = str(value).strip()
    number = text.rstrip("BKMGTPbkmgtpi ")
    if isinstance(value, str) and text == number and number.replace(".", "", 1).isdigit():
        raise ValueError(f"{text!r} has no unit: write {text}GiB or {text}MiB")
    try:
        return parse_bytes(value)  # type: ignore[arg-type]
    except InputError as error:
        unit = text[len(number) :].strip().lower()
        likely = [u for u in UNITS if u.lower() == unit] or [u for u in UNITS if u.lower().startswith(unit)]
        hint = f" (did you mean {number}{likely[0]}?)" if likely and unit else ""
        raise ValueError(f"{error}{hint}") from None
    except (TypeError, OverflowError):
        raise ValueError(f"{value!r} is not a size in bytes: write for instance 256MiB or 2GiB") from None


Bytes = Annotated[
    int,
    BeforeValidator(_bytes),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": rf"^\s*[0-9]*\.?[0-9]+\s*(B|{'|'.join(UNITS)}|KB)\s*$",
            "title": "Bytes",
        }
    ),
]
"""A size with its unit."""


@dataclass(frozen=True, slots=True)
class Document:
    """What a file says, and where."""

    path: Path
    values: Any
    """Mappings, lists, text, true, false and null."""

    lines: Mapping[Keys, int]

    def at(self, *keys: str | int) -> str:
        """``file:line`` of a value, or of what it would stand in."""
        while keys not in self.lines and keys:
            keys = keys[:-1]
        return f"{self.path}:{self.lines.get(keys, 1)}"

    def told(self, keys: Keys, message: str) -> str:
        """A message about a value."""
        name = ".".join(map(str, keys))
        return f"{self.at(*keys)}: {name}: {message}" if name else f"{self.at()}: {message}"


def read_document(path: Path, what: str) -> Document:
    """Read a file that is to hold ``key: value`` lines; ``what`` is what messages call it."""
    try:
        text = path.read_text()
        root = yaml.compose(text, Loader=_Plain)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        raise InputError(f"{where}: not YAML: {getattr(error, 'problem', None) or error}") from error
    if root is None:
        return Document(path, {}, {})
    if not isinstance(root, yaml.MappingNode):
        raise InputError(f"{path}:1: a {what} is a list of `key: value` lines")
    for event in yaml.parse(text, Loader=_Plain):
        if isinstance(event, yaml.AliasEvent):
            line = event.start_mark.line + 1
            raise InputError(f"{path}:{line}: *{event.anchor} repeats what stands elsewhere: write it out")
    lines: dict[Keys, int] = {}
    return Document(path, _value(root, path, (), lines), lines)


class _Plain(yaml.SafeLoader):
    """YAML whose only plain words with a meaning are those for true, false and null."""


_Plain.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag.rpartition(":")[2] in ("bool", "null")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _value(node: Any, path: Path, keys: Keys, lines: dict[Keys, int]) -> Any:
    """A node as Python has it, the lines of all keys in it noted."""
    if isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            lines[*keys, number] = item.start_mark.line + 1
        return [_value(item, path, (*keys, number), lines) for number, item in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        found = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise InputError(f"{path}:{line}: a key is one word")
            here = (*keys, key.value)
            if here in lines:
                name = ".".join(map(str, here))
                raise InputError(
                    f"{path}:{line}: {name}: already in line {lines[here]}. Keep one, rename the other"
                )
            lines[here] = line
            found[key.value] = _value(value, path, here, lines)
        return found
    tag = node.tag.rpartition(":")[2]
    if tag == "null":
        return None
    return node.value.lower() in ("yes", "true", "on") if tag == "bool" else node.value


def filled(document: Document, model: type[Model], **known: Any) -> Model:
    """What a document says, as a model has it; ``known`` stands where the document says nothing."""
    try:
        return model(**{**known, **document.values})
    except ValidationError as error:
        raise InputError("\n".join(told(document, model, each) for each in error.errors())) from None


def told(document: Document, model: type[BaseModel], error: Mapping[str, Any], within: Keys = ()) -> str:
    """One mistake that a model has found, as a line; ``within`` is where the model begins."""
    found, kinds, holders = within, [model], [model]
    last: str | int = ""
    for last in error["loc"]:
        if (*found, last) in document.lines:
            found, holders, kinds = (*found, last), kinds, [k for kind in kinds for k in _inside(kind, last)]
        else:
            kinds = [kind for kind in kinds if _is_called(kind, last)] or kinds
    kind, context = error["type"], error.get("ctx", {})
    if kind == "extra_forbidden":
        keys = keys_of(holders)
        return document.told(found, f"no such key{meant(last, keys)}. Keys are {', '.join(keys)}")
    if kind == "missing":
        return document.told(found, f"the key {last!r} is missing")
    if kind == "union_tag_not_found":
        return document.told(found, f"the key {_bare(context['discriminator'])!r} is missing")
    if kind == "union_tag_invalid":
        tag = _bare(context["discriminator"])
        return document.told((*found, tag), no_such(tag, context["tag"], _quoted(context["expected_tags"])))
    if kind == "literal_error":
        return document.told(found, no_such("value", error["input"], _quoted(context["expected"])))
    if kind in ("model_type", "dict_type", "model_attributes_type"):
        return document.told(found, "write a list of `key: value` lines below it")
    message, given = error["msg"].removeprefix("Value error, "), _shown(error["input"])
    return document.told(found, message if given in message else f"{message}, not {given}")


def no_such(what: str, given: object, known: Iterable[str]) -> str:
    """A message about a name that is not among those known."""
    names = list(known)
    return f"no such {what} {given!r}{meant(given, names)}. There are {', '.join(names)}"


def meant(given: object, known: Iterable[str]) -> str:
    """The name that was probably meant, in brackets; nothing if none is near."""
    near = difflib.get_close_matches(str(given), list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def keys_of(kinds: Iterable[Any]) -> list[str]:
    """Keys that a file may give to models."""
    fields = {
        name: field
        for kind in kinds
        if isinstance(kind, type) and issubclass(kind, BaseModel)
        for name, field in kind.model_fields.items()
    }
    return [name for name, field in fields.items() if not field.exclude]


def _inside(kind: Any, step: str | int) -> list[Any]:
    """What may stand under a key of a value of some kind."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        field = kind.model_fields.get(str(step))
        return [] if field is None else _alternatives(field.annotation)
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) is dict:
        return _alternatives(arguments[1])
    return _alternatives(arguments[0]) if arguments else []


def _alternatives(annotation: Any) -> list[Any]:
    if typing.get_origin(annotation) is Annotated:
        return _alternatives(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return [kind for each in typing.get_args(annotation) for kind in _alternatives(each)]
    return [annotation]


def _is_called(kind: Any, tag: object) -> bool:
    """Whether pydantic means this one of several models by a tag."""
    if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
        return False
    return any(typing.get_args(field.annotation) == (tag,) for field in kind.model_fields.values())


def _bare(text: str) -> str:
    return text.strip("'")


def _quoted(text: str) -> list[str]:
    """Names from pydantic's list of them in quotes."""
    return [_bare(part) for part in text.replace(" or ", ", ").split(", ")]


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
