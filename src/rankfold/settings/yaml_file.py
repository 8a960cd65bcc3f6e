"""Settings in YAML, read so that every mistake is reported in one line: ``file:line: key: what``.

For an unknown key, the message suggests the key that was probably meant; for a missing key it names the
place, at any depth. Numbers stay text until a model converts them by key: YAML would read 02:00:00 as a
number of base sixty. Anchors and tags are refused: every value is written where it is used.

Errors of the YAML parser become messages in words that the writer of the file knows. The parser reports where
it could not continue, which is often a line after the mistake: a missing colon shows at the next colon, an
open bracket at the end of the file.
"""

from __future__ import annotations

import difflib
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, ValidationError, WithJsonSchema
from pydantic_core import PydanticKnownError

from rankfold.pipeline.errors import InputError, UnfitFileError
from rankfold.pipeline.regular import read_text
from rankfold.pipeline.text import Lines, suggest_name
from rankfold.pipeline.units import SIZES, parse_bytes

Keys = tuple[str | int, ...]
"""Path to a value, from the top of the file: names of keys, and indices in lists, from 0."""

Model = TypeVar("Model", bound=BaseModel)

SIZE_UNITS = ("KiB", "MiB", "GiB", "TiB", "kB", "MB", "GB", "TB")

MOST_BYTES = 2**18
"""Largest size of a file in bytes; a larger one is refused, as the parser takes ten seconds for a MiB."""

MOST_FILES = 8
"""Largest number of YAML files that the message about a missing file lists; of more, it lists none."""

NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
"""Pattern of numbers, which messages repeat without quotes."""


class SettingsError(InputError):
    """A file of settings is missing or has a mistake; the message names the file."""


def _bytes(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("takes a size, such as 256MiB or 2GiB")
    text = str(value).strip()
    number = text.rstrip("BKMGTPbkmgtpi ")
    if NUMBER.fullmatch(number) and float(number) <= 0:
        raise ValueError("takes a size above 0, such as 256MiB or 2GiB")
    if isinstance(value, str) and text == number and number.replace(".", "", 1).isdigit():
        raise ValueError(f"{text!r} has no unit: write {text}GiB or {text}MiB")
    try:
        return parse_bytes(value)  # type: ignore[arg-type]
    except InputError as error:
        unit = text[len(number) :].strip()
        likely = [u for u in SIZE_UNITS if u.lower() == unit.lower()]
        likely += [u for u in SIZE_UNITS if u.lower().startswith(unit.lower())]
        hint = f" (did you mean {number}{likely[0]}?)" if likely and unit not in ("", likely[0]) else ""
        raise ValueError(f"{error}{hint}") from None
    except OverflowError:
        raise ValueError("takes a size, such as 256MiB or 2GiB") from None


def _no_truth(value: object) -> object:
    """Return the value as it is; raise for True and False, which Python counts as the integers 1 and 0."""
    if isinstance(value, bool):
        raise PydanticKnownError("int_type")
    return value


def _no_truth_as_number(value: object) -> object:
    if isinstance(value, bool):
        raise PydanticKnownError("float_type")
    return value


WHOLE = BeforeValidator(_no_truth)
"""Validator for integer values, which refuses true and false. In ``Annotated`` it must follow the bounds
(``Field(ge=...)``), or these would be missing from the JSON Schema.
"""

NUMERIC = BeforeValidator(_no_truth_as_number)
"""Validator for float values, which refuses true and false; it must follow the bounds like ``WHOLE``."""

Bytes = Annotated[
    int,
    BeforeValidator(_bytes),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": rf"^\s*[0-9]*\.?[0-9]+\s*({'|'.join(SIZES)})\s*$",
            "title": "Bytes",
        }
    ),
]
"""Number of bytes, written as a size with its unit."""


@dataclass(frozen=True, slots=True)
class Document:
    """Values of a settings file, and the lines where they are."""

    path: Path
    values: Any
    """Mappings, lists, text, true, false and null."""

    lines: Mapping[Keys, int]

    def at(self, *keys: str | int) -> str:
        """``file:line`` of a value, or of the nearest enclosing one if it is missing."""
        while keys not in self.lines and keys:
            keys = keys[:-1]
        return f"{self.path}:{self.lines.get(keys, 1)}"

    def message_at(self, keys: Keys, message: str) -> str:
        """A message about a value, preceded by its ``file:line`` and key."""
        name = ".".join(map(str, keys))
        return f"{self.at(*keys)}: {name}: {message}" if name else f"{self.at()}: {message}"


def read_document(path: Path, what: str) -> Document:
    """Read a YAML file of ``key: value`` lines; an empty file gives a document without values.

    ``what`` names the kind of file in messages, such as "profile". Raises ``SettingsError`` for mistakes.
    """
    text = _text_of(path, what)
    try:
        if mistake := oddity(text, _Plain, what):
            raise SettingsError(f"{path}:{mistake[0]}: {mistake[1]}")
        root = yaml.compose(text, Loader=_Plain)
    except yaml.YAMLError as error:
        line, message = in_plain_words(error, text, what)
        raise SettingsError(f"{path}:{line}: {message}") from error
    if root is None:
        return Document(path, {}, {})
    if not isinstance(root, yaml.MappingNode):
        raise SettingsError(f"{path}:1: a {what} is a list of `key: value` lines")
    for event in yaml.parse(text, Loader=_Plain) if "*" in text else ():
        if isinstance(event, yaml.AliasEvent):
            line = event.start_mark.line + 1
            raise SettingsError(f"{path}:{line}: *{event.anchor} repeats what stands elsewhere: write it out")
    lines: dict[Keys, int] = {}
    return Document(path, _value(root, path, (), lines), lines)


def require_file(path: Path, what: str) -> Path:
    """Return the path if it exists; else raise ``SettingsError``, with a similar name or the files there.

    ``what`` names the kind of file in the message.
    """
    if path.exists():
        return path
    if not path.absolute().parent.is_dir():
        raise SettingsError(f"there is no file {path}, nor a folder {path.absolute().parent}")
    beside = sorted(one for ending in ("*.yaml", "*.yml") for one in path.parent.glob(ending))
    # Compare stems: all names have the same endings.
    near = difflib.get_close_matches(path.stem, [one.stem for one in beside], n=1)
    if near:
        hint = f". Did you mean {next(one for one in beside if one.stem == near[0])}?"
    elif 0 < len(beside) <= MOST_FILES:
        hint = f". YAML files there: {', '.join(one.name for one in beside)}"
    else:
        hint = f": give the path of a {what}"
    raise SettingsError(f"there is no file {path}{hint}")


def _text_of(path: Path, what: str) -> str:
    try:
        return read_text(path, MOST_BYTES)
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        byte = f"here is the byte 0x{error.object[error.start]:02x}"
        message = f"{path}:{line}: is not text: {byte}. A {what} is a text file, saved as UTF-8"
        raise SettingsError(message) from error
    except UnfitFileError as error:
        message = f"a {what} is a YAML file, and here is {error.found}. Name a file"
        if error.most_bytes:
            size = path.stat().st_size
            message = f"holds {size} bytes, and a {what} at most {MOST_BYTES}. Is it the right file?"
        raise SettingsError(f"{path}: {message}") from error
    except PermissionError as error:
        raise SettingsError(
            f"{path}: may not be read by you. Allow it with chmod u+r, or ask its owner"
        ) from error


class _Plain(yaml.SafeLoader):
    """Loader of YAML that converts only the words for true, false and null; all else stays text."""


_Plain.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag.rpartition(":")[2] in ("bool", "null")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _value(node: Any, path: Path, keys: Keys, lines: dict[Keys, int]) -> Any:
    """Convert a node of YAML to Python values; adds the line of each key and item in it to ``lines``.

    ``keys`` is the path to the node itself, and ``path`` the file, for messages.
    """
    if isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            lines[*keys, number] = item.start_mark.line + 1
        return [_value(item, path, (*keys, number), lines) for number, item in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        mapping = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise SettingsError(f"{path}:{line}: a key is one word")
            here = (*keys, key.value)
            if here in lines:
                name = ".".join(map(str, here))
                raise SettingsError(
                    f"{path}:{line}: {name}: already in line {lines[here]}. Keep one, rename the other"
                )
            lines[here] = line
            mapping[key.value] = _value(value, path, here, lines)
        return mapping
    tag = node.tag.rpartition(":")[2]
    if tag == "null":
        return None
    return node.value.lower() in ("yes", "true", "on") if tag == "bool" else node.value


# What a model refuses -------------------------------------------------------------------------------


def fill_model(document: Document, model: type[Model], **defaults: Any) -> Model:
    """Make a model from the values of a document; ``defaults`` are used for keys that it lacks.

    Raises ``SettingsError`` with a line for each mistake.
    """
    try:
        return model(**{**defaults, **document.values})
    except ValidationError as error:
        mistakes = reversed(_gather_mistakes(error))
        messages = {_place(each): explain_mistake(document, model, each) for each in mistakes}
        raise SettingsError(Lines(*reversed(messages.values()))) from None


def _gather_mistakes(error: ValidationError) -> list[dict[str, Any]]:
    """Items of ``error.errors()``, where all missing keys of one object become one item, with ``keys``.

    A missing key is left out if an unknown key of the object looks like a misspelling of it.
    """
    mistakes, missing = list[dict[str, Any]](), dict[Keys, list[str]]()
    errors: list[dict[str, Any]] = [{**each} for each in error.errors()]
    unknown = [tuple(each["loc"]) for each in errors if each["type"] == "extra_forbidden"]
    for each in errors:
        if each["type"] != "missing":
            mistakes.append(each)
            continue
        holder, key = tuple(each["loc"][:-1]), str(each["loc"][-1])
        if difflib.get_close_matches(key, [str(way[-1]) for way in unknown if way[:-1] == holder], n=1):
            continue
        if holder not in missing:
            mistakes.append({**each, "keys": missing.setdefault(holder, [])})
        missing[holder].append(key)
    return mistakes


def _place(error: Mapping[str, Any]) -> tuple[str | int, ...]:
    """Path to the value that is wrong, equal for all errors that the alternatives of a union report of it."""
    way = error["loc"]
    return tuple(way[:-1]) if way and way[-1] in ("int", "float", "str") else tuple(way)


def explain_mistake(
    document: Document, model: type[BaseModel], error: Mapping[str, Any], within: Keys = ()
) -> str:
    """Describe in one line, with its place, a mistake that ``model`` finds in the values of a document.

    ``error`` is an item of pydantic's ``ValidationError.errors()``. ``within`` holds the keys in the document
    that precede its ``loc``, if the model was made from a part of the document.
    """
    place, kinds, holders = within, [model], [model]
    last: str | int = ""
    for last in error["loc"]:
        if (*place, last) in document.lines:
            place, holders, kinds = (*place, last), kinds, [k for kind in kinds for k in _inside(kind, last)]
        else:
            kinds = [k for kind in kinds for k in _unwritten(kind, last)] or kinds
    kind, context = error["type"], error.get("ctx", {})
    if kind == "extra_forbidden":
        return document.message_at(place, _unknown(last, error["input"], keys_of(holders)))
    if kind == "missing":
        *others, final = [repr(key) for key in error.get("keys", [last])]
        keys = f"keys {', '.join(others)} and {final} are" if others else f"key {final} is"
        return document.message_at(place, f"the {keys} missing")
    if kind == "union_tag_not_found":
        return document.message_at(place, f"the key {_bare(context['discriminator'])!r} is missing")
    if kind == "union_tag_invalid":
        tag = _bare(context["discriminator"])
        return document.message_at(
            (*place, tag), no_such(tag, context["tag"], _split_names(context["expected_tags"]))
        )
    if kind == "literal_error":
        return document.message_at(place, no_such("value", error["input"], _split_names(context["expected"])))
    if kind == "too_short":
        what, least = str(place[-1]).removesuffix("s"), context["min_length"]
        return document.message_at(place, f"needs at least {'one' if least == 1 else least} {what}")
    message = WORDS[kind](context) if kind in WORDS else error["msg"].removeprefix("Value error, ")
    if repr(error["input"]) in message:
        return document.message_at(place, message)
    ending = _say_value(error["input"])
    if kind in HOLDERS and document.lines.get((*place, 0), 0) > document.lines.get(place, 0):
        ending = "not a list that begins with -"
    return document.message_at(place, f"{message}, {ending}")


def _say_limit(by: str, limit: float) -> str:
    return (
        f"takes a whole number {by} {limit}" if isinstance(limit, int) else f"takes a number {by} {limit:g}"
    )


WORDS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), lambda _: "takes a whole number"),
    "int_parsing_size": lambda _: "takes a smaller whole number",
    **dict.fromkeys(("float_type", "float_parsing"), lambda _: "takes a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), lambda _: "takes true or false"),
    "string_type": lambda _: "takes a name",
    **dict.fromkeys(("tuple_type", "list_type"), lambda _: "takes a list, such as [first, second]"),
    "dict_type": lambda _: "takes `name: ...` lines",
    **dict.fromkeys(("model_type", "model_attributes_type"), lambda _: "takes `key: value` lines"),
    "greater_than_equal": lambda context: _say_limit("of at least", context["ge"]),
    "greater_than": lambda context: _say_limit("above", context["gt"]),
    "less_than_equal": lambda context: _say_limit("of at most", context["le"]),
    "less_than": lambda context: _say_limit("below", context["lt"]),
}
"""Functions that make a message, by pydantic's type of error, from the context of the error."""

HOLDERS = ("dict_type", "model_type", "model_attributes_type")
"""Pydantic's types of errors for a value that should be an object with keys."""


def _unknown(key: str | int, value: object, keys: list[str]) -> str:
    """A message about an unknown key and its value, with the one of ``keys`` that was probably meant."""
    first, _, rest = str(key).partition(" ")
    if value is None and first in keys and rest:
        return f"has no colon: write {first}: {rest}"
    return f"no such key{suggest_name(key, keys)}. Keys are {', '.join(keys)}"


def no_such(what: str, value: object, choices: Iterable[str]) -> str:
    """A message that no ``what`` (a kind of thing, such as "stage") is named ``value``, with all choices."""
    names = list(choices)
    return f"no such {what} {value!r}{suggest_name(value, names)}. There are {', '.join(names)}"


def keys_of(kinds: Iterable[Any]) -> list[str]:
    """Names of the keys that a file may set in any of the models in ``kinds``; other types are ignored."""
    fields = {
        name: field
        for kind in kinds
        if isinstance(kind, type) and issubclass(kind, BaseModel)
        for name, field in kind.model_fields.items()
    }
    return [name for name, field in fields.items() if not field.exclude]


def _inside(kind: Any, step: str | int) -> list[Any]:
    """Types that are allowed for the value under the key or index ``step`` of a value of type ``kind``."""
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


def _unwritten(kind: Any, step: str | int) -> list[Any]:
    """Types after an element ``step`` of pydantic's path to an error that the file itself does not have.

    Such an element is the tag that chooses a model, or the index of an item where the file has a single item
    in place of a list. Empty if ``kind`` has no such element.
    """
    fields = getattr(kind, "model_fields", {}).values()
    is_tag = any(typing.get_args(field.annotation) == (step,) for field in fields)
    return _inside(kind, step) if isinstance(step, int) else [kind] * is_tag


def _bare(text: str) -> str:
    return text.strip("'")


def _split_names(text: str) -> list[str]:
    """Names in a list of quoted names from pydantic."""
    return [_bare(part) for part in text.replace(" or ", ", ").split(", ")]


def _say_value(value: object) -> str:
    """A value from a file, as the end of a message."""
    if value is None:
        return "here is nothing"
    if isinstance(value, bool):
        return f"not {str(value).lower()}"
    if isinstance(value, list | dict):
        return "not a list" if isinstance(value, list) else "not `key: value` lines"
    text = str(value) if NUMBER.fullmatch(str(value)) else repr(value)
    return f"not {cut(text)}"


MOST_CHARACTERS = 40
"""Largest number of characters of a wrong value that a message repeats."""


NO_CHARACTER = re.compile("[\0\ud800-\udfff]")
"""Characters that no path and no UTF-8 may hold."""

MOST_DEPTH = 32
"""Largest number of levels of nested lists and keys."""


def oddity(text: str, loader: type[yaml.SafeLoader], what: str) -> tuple[int, str] | None:
    """Line and message about content that YAML allows but no settings need; None if there is none.

    Such content is: lists and keys nested too deep, since building them is recursive; escapes of characters
    that no name may have. Lines count from 1; ``what`` names the kind of file in the message.
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
    """Line, from 1, and message with advice, for an error of the YAML parser in ``text``, the whole file.

    ``what`` names the kind of file in the message.
    """
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
    """Line, from 1, of the mistake behind the odd colon at ``lines[number][column]``, and a message on it."""
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
