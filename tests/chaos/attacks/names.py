"""What stands under the name of an output, or comes to stand there while the command runs, and is not ours.

A file, a folder, a store or a link is put there at the beginning, or at an operation of the command, which is
stopped for that. Whatever the command says, the thing must be as it was. Once it is gone, the same command
must end with the bytes of an undisturbed run.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import zarr
from moments import WRITING, resume, start_and_stop
from trials import FAULT, REFUSED, Bench, Trial, chance, files_below, judge, moment, turn


def _file(path: Path) -> None:
    path.write_text("precious")


def _folder(path: Path) -> None:
    path.mkdir()
    (path / "mine.txt").write_text("precious")


def _store(path: Path) -> None:
    zarr.save_array(path, np.arange(12.0).reshape(4, 3))


def _link(path: Path) -> None:
    kept = path.with_name("elsewhere-of-mine")
    _folder(kept)
    path.symlink_to(kept.name)


def _nowhere(path: Path) -> None:
    path.symlink_to("nowhere")


GUISES: dict[str, Callable[[Path], None]] = {
    "a file": _file,
    "a folder": _folder,
    "a store": _store,
    "a link to a folder": _link,
    "a link to nowhere": _nowhere,
}


def names(bench: Bench, seed: int, number: int) -> Trial:
    """One trial: something takes the name of the output, before the command or during it."""
    draw, began = chance("names", seed, number), time.monotonic()
    case = turn(WRITING, number, seed)
    whole = bench.answer(case)
    bench.clear()
    output = bench.trial / draw.choice(case.outputs)
    guise, during = draw.choice(sorted(GUISES)), draw.random() < 0.6
    extra = ["--overwrite"] if case.overwrite and draw.random() < 0.5 else []
    words = case.command(bench.inputs, bench.trial, *extra)
    if during:
        at = moment(draw, whole.outcome.operations)
        command = start_and_stop(bench, words, bench.trial, at)
        before = _put(guise, output)
        resume(command)
        outcome = command.outcome()
    else:
        at = 0
        before = _put(guise, output)
        outcome = bench.line.run(words, bench.folder)
    verdict, said = judge(outcome, None)
    if before is not None:
        if _seen(output) != before:
            verdict, said = FAULT, f"{guise} of somebody else is not as it was; exit {outcome.code}"
        elif verdict != FAULT and verdict != REFUSED:
            verdict, said = FAULT, f"exit {outcome.code}, and its output is {guise} of somebody else"
        _take_away(output)
        verdict, said = bench.ends_again(case, verdict, said)
    what = f"{guise} {f'at operation {at} of {whole.outcome.operations}' if during else 'before'}"
    what += ", with --overwrite" * bool(extra)
    seconds = time.monotonic() - began
    return Trial("names", seed, number, case.name, what, output.name, verdict, outcome.code, said, seconds)


def _put(guise: str, output: Path) -> object:
    """Make it, unless the name is taken by now; what it looks like then."""
    if output.exists() or output.is_symlink():
        return None
    output.parent.mkdir(exist_ok=True)
    GUISES[guise](output)
    return _seen(output)


def _seen(output: Path) -> object:
    """What stands under a name, with all that is in it, links followed once."""
    link = str(output.readlink()) if output.is_symlink() else ""
    place = output.resolve() if output.exists() else output
    if place.is_file():
        return link, place.read_bytes()
    return link, {
        str(path.relative_to(place)): path.read_bytes() if path.is_file() else None
        for path in files_below(place)
    }


def _take_away(output: Path) -> None:
    if output.is_dir() and not output.is_symlink():
        shutil.rmtree(output)
    else:
        output.unlink()
    shutil.rmtree(output.with_name("elsewhere-of-mine"), ignore_errors=True)
