"""Files that are not what was written: of an unfinished run, of its scratch, of a finished result.

One file of a run is cut short, emptied, zeroed, flipped, replaced by garbage or by a file of another run, or
is no file any more. The command that is given then, the same one or one that reads the result, must answer
with the same bytes or refuse in one message, and ``--overwrite`` must always lead out.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cases import Case
from command_client import Outcome
from command_server import Ending
from contents import contents
from inputs import FLOWS
from trials import FAULT, REFUSED, SAME, THEN, Answer, Bench, Trial, chance, files_below, judge, turn

STAGES = ("0.15", "0.35", "0.55", "0.75", "0.9", "done")
"""Shares of the operations on files after which a run is killed."""

HASH = re.compile(r"[0-9a-f]{16,}")

GARBAGE: dict[str, bytes] = {
    "text": b"not what was written\n",
    "a number": b"7",
    "a list": b"[1, 2, 3]",
    "null": b"null",
    "nested JSON": b"[" * 100_000 + b"]" * 100_000,
    "an object": b'{"attempts": 3, "chunks": null, "shape": [-1], "next_panel": "x"}',
    "a pickle": b"\x80\x04\x8c\x05posix\x94\x8c\x06system\x94\x93\x94\x8c\x04true\x94\x85\x94R\x94.",
    "an empty zip file": b"PK\x05\x06" + bytes(18),
    "bytes that are no text": bytes(range(128, 256)) * 3,
}


def damage(bench: Bench, seed: int, number: int) -> Trial:
    """One trial: a run as far as drawn, one file of it damaged, a command, and the way out."""
    draw, began = chance("damage", seed, number), time.monotonic()
    case = turn(None, number, seed, processes=False)
    while not case.outputs:
        case = turn(None, draw.randrange(1000), seed, processes=False)
    bench.answer(case)
    stage = draw.choice((*STAGES, "done"))
    consumer = draw.choice(("", "", *case.consumers)) if stage == "done" else ""
    right = _right(bench, case, consumer) if consumer else None
    _lay_out(bench, case, stage)
    target, attack = _damage(bench, case, stage, draw)
    harmed = stage == "done" and bench.stores(case) != bench.answer(case).stores
    outcome, verdict, words = _attempt(bench, case, consumer, right, target, harmed=harmed)
    if case.overwrite and verdict in (REFUSED, FAULT):
        again = bench.command(case, "--overwrite")
        way_out, why = judge(again, bench.difference(case, again), must_finish=True)
        # What import wrote has no list of its chunks: it does not remove a folder that may be anybody's. Nor
        # is a file removed that stands where a user named the output or a folder for scratch.
        unknown = case.name == "import" and "Remove it yourself" in why
        unknown |= attack == "made a file" and "/" not in target and "Choose another" in why
        if way_out == FAULT and not unknown:
            words = (f"{words}; " if verdict == FAULT else "") + f"--overwrite does not lead out: {why}"
            verdict = FAULT
    name = f"{case.name}{THEN}{consumer}" if consumer else case.name
    where = f"{target} of a run {'that is done' if stage == 'done' else f'killed after {stage}'}"
    seconds = time.monotonic() - began
    return Trial("damage", seed, number, name, attack, where, verdict, outcome.code, words, seconds)


def _attempt(
    bench: Bench, case: Case, consumer: str, right: Answer | None, target: str, *, harmed: bool
) -> tuple[Outcome, str, str]:
    """Give the command that meets the damage, and judge what it does."""
    if right is None:
        outcome = bench.command(case)
        return outcome, *judge(outcome, bench.difference(case, outcome))
    outcome = bench.consume(consumer)
    difference: str | None = None
    if consumer == "verify":
        if right.outcome.code:
            return outcome, SAME, "there is no such command"
        difference = "calls a damaged result whole" if harmed and not outcome.code else None
    elif right.stores.parts:
        difference = contents([bench.trial / "t.zarr"]).difference(right.stores)
    elif ".run" not in target:
        difference = "" if outcome.out == right.outcome.out else "is another"
    return outcome, *judge(outcome, difference)


def _right(bench: Bench, case: Case, consumer: str) -> Answer:
    """What a command answers that reads the result as it was written."""

    def find() -> Answer:
        _lay_out(bench, case, "done")
        outcome = bench.consume(consumer)
        return Answer(outcome, contents([bench.trial / "t.zarr"]))

    return bench.once(f"{consumer} of {case.name}", find)


# Runs that are damaged -----------------------------------------------------------------------------


def _lay_out(bench: Bench, case: Case, stage: str) -> None:
    run = _pool(bench, case, stage)
    bench.clear()
    shutil.copytree(run, bench.trial, symlinks=True, dirs_exist_ok=True)


def _pool(bench: Bench, case: Case, stage: str, other: str = "") -> Path:
    """The folder of a run that was killed at a stage; of another request or matrix, if ``other`` says so.

    It is made once. What lies in the folder of the trial meanwhile is there again afterwards.
    """
    kept, aside = bench.folder / "pool" / _name(case.name) / f"{stage}-{other}", bench.folder / "aside"
    if kept.exists():
        return kept
    shutil.rmtree(aside, ignore_errors=True)
    bench.trial.rename(aside)
    bench.clear()
    ending = None
    if stage != "done":
        at = max(1, int(float(stage) * bench.answer(case).outcome.operations))
        ending = Ending(str(bench.trial), at, "SIGKILL")
    bench.command(case, ending=ending, other=other)
    kept.parent.mkdir(parents=True, exist_ok=True)
    bench.trial.rename(kept)
    aside.rename(bench.trial)
    return kept


def _name(text: str) -> str:
    return re.sub(r"\W+", "-", text)


# Damage --------------------------------------------------------------------------------------------


def _damage(bench: Bench, case: Case, stage: str, draw: random.Random) -> tuple[str, str]:
    """Damage one file, or folder; its name and what was done to it."""
    every = [path for path in files_below(bench.trial) if path.name not in FLOWS]
    files = [path for path in every if path.is_file()]
    if not files:
        return "nothing", "nothing is there yet"
    if draw.random() < 0.08:
        path = draw.choice([path for path in every if path.is_dir()])
        how = draw.choice(("removed", "made a file"))
        shutil.rmtree(path)
        if how == "made a file":
            path.write_text("a folder was here")
    else:
        # Chunks are many and alike: kinds of files have the same chance, not files.
        alike: dict[str, list[Path]] = {}
        for path in files:
            alike.setdefault(re.sub(r"\d+", "0", HASH.sub("*", path.name)) + path.parent.name[:3], []).append(
                path
            )
        path = draw.choice(alike[draw.choice(sorted(alike))])
        how = _damage_file(path, bench, case, stage, draw)
    return HASH.sub("*", str(path.relative_to(bench.trial))), how


def _damage_file(path: Path, bench: Bench, case: Case, stage: str, draw: random.Random) -> str:
    before = path.stat()
    names: list[str] = ["half", "empty", "one byte short", "one byte more", "zeros", "a bit flipped"]
    names += ["garbage", "of another request", "of another matrix", "of the same run", "removed"]
    names += ["a folder", "a link to itself"] + ["edited"] * 2 * path.name.endswith(("json", "jsonl"))
    how = draw.choice(names)
    data = path.read_bytes()
    if how == "garbage":
        how = draw.choice(sorted(GARBAGE))
        path.write_bytes(GARBAGE[how])
    elif how.startswith("of "):
        other = _other(path, bench, case, stage, how, draw)
        if other is None:
            how = "empty"
            path.write_bytes(b"")
        else:
            path.write_bytes(other.read_bytes())
    elif how == "edited":
        path.write_bytes(_edited(data, draw))
    elif how in _BYTES:
        path.write_bytes(_BYTES[how](data, draw))
    else:
        path.unlink()
        if how == "a folder":
            path.mkdir()
        elif how == "a link to itself":
            path.symlink_to(path.name)
    if path.is_file() and draw.random() < 0.5:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        how += ", its time kept"
    return how


def _flipped(data: bytes, draw: random.Random) -> bytes:
    if not data:
        return b"\1"
    at = draw.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]


_BYTES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "half": lambda data, draw: data[: len(data) // 2],
    "empty": lambda data, draw: b"",
    "one byte short": lambda data, draw: data[:-1],
    "one byte more": lambda data, draw: data + b"0",
    "zeros": lambda data, draw: bytes(len(data)),
    "a bit flipped": _flipped,
}


def _other(path: Path, bench: Bench, case: Case, stage: str, how: str, draw: random.Random) -> Path | None:
    """The file of the same name of another run, or another file of the same run."""
    if how == "of the same run":
        others = [one for one in files_below(bench.trial) if one.is_file() and one != path]
        alike = [one for one in others if one.suffix == path.suffix and one.name != path.name]
        return draw.choice(alike or others) if others else None
    folder = _pool(bench, case, stage, "request" if "request" in how else "matrix")
    name = HASH.sub("*", str(path.relative_to(bench.trial)))
    found = [one for one in files_below(folder) if HASH.sub("*", str(one.relative_to(folder))) == name]
    return draw.choice(found) if found and found[0].is_file() else None


ODD: tuple[Any, ...] = (None, -1, 0, 1e30, "", "x", [], {}, [[]], True, 2**70, float("nan"), "9" * 5000)


def _edited(data: bytes, draw: random.Random) -> bytes:
    """JSON, or a line of it, with one value replaced, or one key left out or renamed."""
    lines = data.splitlines() if data.count(b"\n{") else [data]
    at = draw.randrange(len(lines)) if lines else 0
    try:
        value = json.loads(lines[at])
    except (ValueError, IndexError):
        return b"{}"
    lines[at] = json.dumps(edited(value, draw)).encode()
    return b"\n".join(lines) + b"\n"


def edited(value: Any, draw: random.Random) -> Any:
    """A value of JSON with one place in it changed."""
    places = list(_places(value))
    if not places:
        return draw.choice(ODD)
    holder, key = draw.choice(places)
    how = draw.choice(("replace", "replace", "replace", "remove", "rename"))
    if how == "replace":
        holder[key] = draw.choice(ODD)
    elif how == "remove" or isinstance(holder, list):
        del holder[key]
    else:
        holder[f"{key}x"] = holder.pop(key)
    return value


def _places(value: Any) -> Any:
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])
