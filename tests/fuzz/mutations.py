"""Changes of valid files, small and large, by chance: of bytes, of numbers in them, of JSON, of words.

A file that a parser takes leads deeper into it than noise, so every input is a few changes away from one.
"""

from __future__ import annotations

import copy
import json
import random
import re
import struct
from collections.abc import Callable, Mapping, Sequence

Files = Mapping[str, bytes]
"""An input: the contents of files by their path in a folder."""

NUMBERS = (
    0,
    1,
    2,
    3,
    7,
    127,
    128,
    255,
    256,
    32767,
    65535,
    65536,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**53,
    2**63 - 1,
)
TEXTS = (
    b"-1",
    b"0",
    b"1e30",
    b"1e999",
    b"nan",
    b"inf",
    b"99999999999999999999",
    b"0x10",
    b"",
    b"\0",
    b"\xff",
)
ODD: tuple[object, ...] = (
    None, True, False, -1, 0, 1, 2, 2**31, 2**63, 2**70, 1e30, float("nan"), float("inf"), "", "x", "\0",
    "9" * 400, [], {}, [[]], [None], [-1, 3], [2**40, 2**40], {"name": "x"}, {"id": "pickle"}, "|O",
    "<M8[ns]", "<c16", "../x",
)  # fmt: skip
MOST_BYTES = 2**18


def change(
    files: Files, others: Sequence[Files], words: Sequence[bytes], draw: random.Random
) -> dict[str, bytes]:
    """A few changes of one input; ``others`` lend parts, ``words`` are those of the format."""
    changed = dict(files)
    for _ in range(draw.choice((1, 1, 1, 2, 2, 3, 5))):
        name = draw.choice(sorted(changed))
        if len(changed) > 1 and draw.random() < 0.03:
            del changed[name]
            continue
        other = draw.choice(others)
        changed[name] = _change_file(name, changed[name], other.get(name, b""), words, draw)[:MOST_BYTES]
    return changed


def _change_file(name: str, data: bytes, other: bytes, words: Sequence[bytes], draw: random.Random) -> bytes:
    if re.search(r"json|\.z(array|attrs|group)$", name) and draw.random() < 0.7:
        changed = _change_json(data, draw)
        if changed is not None:
            return changed
    change_bytes = draw.choice(_CHANGES)
    return change_bytes(data, other, words, draw)


def _change_json(data: bytes, draw: random.Random) -> bytes | None:
    """One value of a document, or of a line of it, replaced, copied, renamed or left out."""
    lines = data.splitlines() if data.count(b"\n{") else [data]
    at = draw.randrange(len(lines)) if lines else 0
    try:
        value = json.loads(lines[at])
    except (ValueError, IndexError, RecursionError):
        return None
    places = list(_places(value))
    if not places:
        return json.dumps(draw.choice(ODD)).encode()
    holder, key = draw.choice(places)
    how = draw.random()
    if how < 0.55:
        holder[key] = copy.deepcopy(draw.choice(ODD))
    elif how < 0.75:
        there, what = draw.choice(places)
        holder[key] = copy.deepcopy(there[what])
    elif how < 0.9 or isinstance(holder, list):
        del holder[key]
    else:
        holder[f"{key}x"] = holder.pop(key)
    try:
        lines[at] = json.dumps(value).encode()
    except (ValueError, RecursionError):
        return None
    return b"\n".join(lines)


def _places(value: object) -> list[tuple[object, object]]:
    found, waiting = list[tuple[object, object]](), [value]
    while waiting and len(found) < 2000:
        holder = waiting.pop()
        keys = (
            list(holder)
            if isinstance(holder, dict)
            else range(len(holder))
            if isinstance(holder, list)
            else ()
        )
        for key in keys:
            found.append((holder, key))
            waiting.append(holder[key])  # type: ignore[index]
    return found


# Bytes ---------------------------------------------------------------------------------------------


def _flip(data: bytes, other: bytes, words: Sequence[bytes], draw: random.Random) -> bytes:
    if not data:
        return draw.randbytes(4)
    at = draw.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]


def _set(data: bytes, other: bytes, words: Sequence[bytes], draw: random.Random) -> bytes:
    at = draw.randrange(len(data) + 1)
    return data[:at] + bytes([draw.randrange(256)]) + data[at + 1 :]


def _number(data: bytes, other: bytes, words: Sequence[bytes], draw: random.Random) -> bytes:
    """Another number of 2, 4 or 8 bytes, in either order; the first bytes hold most of what is said."""
    code = draw.choice("HIQ")
    size, number = struct.calcsize("<" + code), draw.choice(NUMBERS)
    at = draw.randrange(max(1, min(len(data), 64) if draw.random() < 0.5 else len(data)))
    packed = struct.pack(draw.choice("<>") + code, number % 2 ** (8 * size))
    return data[:at] + packed + data[at + size :]


def _digits(data: bytes, other: bytes, words: Sequence[bytes], draw: random.Random) -> bytes:
    """Another number where one is written out."""
    runs = list(re.finditer(rb"-?[0-9][0-9.eE+-]*", data[:20_000]))
    if not runs:
        return data
    run = draw.choice(runs)
    text = draw.choice((*TEXTS, *(str(number).encode() for number in NUMBERS)))
    return data[: run.start()] + text + data[run.end() :]


def _word(data: bytes, other: bytes, words: Sequence[bytes], draw: random.Random) -> bytes:
    word, at = draw.choice(words or TEXTS), draw.randrange(len(data) + 1)
    return data[:at] + word + data[at + (len(word) if draw.random() < 0.5 else 0) :]


def _cut(data: bytes, other: bytes, words: Sequence[bytes], draw: random.Random) -> bytes:
    first = draw.randrange(len(data) + 1)
    return data[:first] if draw.random() < 0.5 else data[:first] + data[first + draw.randrange(1, 17) :]


def _repeat(data: bytes, other: bytes, words: Sequence[bytes], draw: random.Random) -> bytes:
    first = draw.randrange(len(data) + 1)
    part = data[first : first + draw.randrange(1, 65)]
    return data[:first] + part * draw.choice((2, 3, 300)) + data[first + len(part) :]


def _splice(data: bytes, other: bytes, words: Sequence[bytes], draw: random.Random) -> bytes:
    first = draw.randrange(len(data) + 1)
    return data[:first] + other[draw.randrange(len(other) + 1) :]


def _line(data: bytes, other: bytes, words: Sequence[bytes], draw: random.Random) -> bytes:
    lines = data.split(b"\n")
    at, to = draw.randrange(len(lines)), draw.randrange(len(lines))
    if draw.random() < 0.5:
        lines[at], lines[to] = lines[to], lines[at]
    else:
        lines.insert(to, lines[at])
    return b"\n".join(lines)


Change = Callable[[bytes, bytes, Sequence[bytes], random.Random], bytes]
_CHANGES: tuple[Change, ...] = (
    _flip, _flip, _set, _number, _number, _digits, _digits, _word, _word, _cut, _repeat, _splice, _line
)  # fmt: skip


# Smaller -------------------------------------------------------------------------------------------


def smaller(files: Files, draw: random.Random) -> dict[str, bytes]:
    """The same with a file less, or some bytes of one of them."""
    name = draw.choice(sorted(files))
    data = files[name]
    if not data or draw.random() < 0.1:
        return {other: files[other] for other in files if other != name}
    size = max(1, len(data) // draw.choice((2, 4, 8, 32, len(data))))
    first = draw.randrange(len(data) - size + 1)
    return {**files, name: data[:first] + data[first + size :]}
