"""Inputs that change under a command, or are damaged: while it runs, or before.

The command is stopped between two operations on files, one chunk of an input of its own is written to,
cut, emptied, zeroed or removed, and it goes on. Whatever it answers must be that of the inputs as they were,
or as they are, wholly; never of a mixture. Then the input is put back, its time too, and the same command
again must end with the same bytes, or say what has changed, and ``--overwrite`` must lead out.

The trap: what a fingerprint stands for is sizes and times. A change that is taken back before the command
ends, times and all, is not seen by anybody, so it is not drawn.
"""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path

from cases import Case
from command_client import Outcome
from contents import METADATA
from moments import FORKED, OwnInputs, resume, start_and_stop
from trials import FAULT, REFUSED, SAME, Bench, Trial, chance, files_below, judge, moment, turn


def changing_data(bench: Bench, seed: int, number: int) -> Trial:
    """One trial: other numbers in a chunk, at a moment that is drawn."""
    return _attack(
        "changing_data", ("other numbers", "other numbers", "of another chunk"), bench, seed, number
    )


def input_damage(bench: Bench, seed: int, number: int) -> Trial:
    """One trial: a chunk that is not whole any more, or not there, before the run or during it."""
    return _attack("input_damage", ("half", "empty", "zeros", "removed", "all removed"), bench, seed, number)


def _attack(kind: str, ways: tuple[str, ...], bench: Bench, seed: int, number: int) -> Trial:
    draw, began = chance(kind, seed, number), time.monotonic()
    case = turn(FORKED, number, seed)
    own = OwnInputs(bench, case)
    operations = own.operations()
    own.lay_out()
    before = kind == "input_damage" and draw.random() < 0.3
    at = 1 if before else moment(draw, operations)
    command = start_and_stop(bench, own.words(), bench.trial, at)
    name, how = _harm(own, draw, draw.choice(ways))
    resume(command)
    outcome = command.outcome()
    command.kill()
    verdict, words = judge(outcome, None)
    if verdict == SAME:
        verdict, words = _of_one_state(own, outcome)
    if verdict != FAULT:
        own.restore(name)
        again, words_again = _again(own)
        verdict, words = (FAULT, words_again) if again == FAULT else (verdict, words)
    attack = f"{how} at operation {at} of {operations}"
    seconds = time.monotonic() - began
    return Trial(kind, seed, number, case.name, attack, name, verdict, outcome.code, words, seconds)


def _harm(own: OwnInputs, draw: random.Random, how: str) -> tuple[str, str]:
    """Change one chunk of one input; the name of the input, and what was done."""
    name = draw.choice(own.names())
    whole = own.folder / name
    chunks = [path for path in files_below(whole) if _is_data(path)] if whole.is_dir() else [whole]
    chunk = draw.choice(chunks)
    if how == "all removed":
        shutil.rmtree(whole) if whole.is_dir() else whole.unlink()
        return name, how
    if how == "removed":
        chunk.unlink()
    elif how == "of another chunk":
        chunk.write_bytes(draw.choice(chunks).read_bytes())
    elif how == "other numbers":
        _write_numbers(chunk, draw)
    else:
        data = chunk.read_bytes()
        size = {"half": len(data) // 2, "empty": 0, "zeros": len(data)}[how]
        chunk.write_bytes(bytes(len(data)) if how == "zeros" else data[:size])
    return name, f"{chunk.relative_to(own.folder)}: {how}"


def _write_numbers(chunk: Path, draw: random.Random) -> None:
    """Exchange two halves of a chunk, in place or by a new file: numbers that can be, in another order."""
    data = chunk.read_bytes()
    middle = len(data) // 16 * 8
    swapped = data[middle : 2 * middle] + data[:middle] + data[2 * middle :]
    if draw.random() < 0.5:
        with open(chunk, "r+b") as file:
            file.write(swapped)
    else:
        other = chunk.with_name(chunk.name + ".new")
        other.write_bytes(swapped)
        other.rename(chunk)


def _is_data(path: Path) -> bool:
    return path.is_file() and path.name not in (*METADATA, "manifest.json")


def _of_one_state(own: OwnInputs, outcome: Outcome) -> tuple[str, str]:
    """Whether an answer is that of the inputs as they were, or as they are."""
    difference = own.bench.difference(own.case, outcome)
    if not difference:
        return SAME, ""
    found, fresh = own.bench.stores(own.case), own.fresh_answer()
    if fresh is not None and (found == fresh[0] if own.case.outputs else outcome.out == fresh[1]):
        return SAME, "of the inputs as they are now"
    return (
        FAULT,
        f"exit 0, and the answer is of no state of the inputs: {own.bench.difference(own.case, outcome)}",
    )


def _again(own: OwnInputs) -> tuple[str, str]:
    """The same command on the inputs as they were; if it refuses, in place of what is there."""
    case: Case = own.case
    outcome = own.bench.line.run(own.words(), own.bench.folder)
    verdict, words = judge(outcome, own.bench.difference(case, outcome))
    if verdict == REFUSED and case.overwrite:
        outcome = own.bench.line.run(own.words("--overwrite"), own.bench.folder)
        verdict, words = judge(outcome, own.bench.difference(case, outcome), must_finish=True)
        words = words and f"--overwrite does not lead out: {words}"
    elif verdict == REFUSED:
        return FAULT, f"the same command on the restored input: {words}"
    return verdict, words and f"on the restored input: {words}"
