"""A disk that fills: where the result and its run lie, where scratch lies, or where temporary files go.

Each is a small file system in memory. Either it is too small from the beginning, or the room is taken at an
operation that is drawn. The command must refuse in one message, or end as if nothing had happened. Then there
is room, and the same command again must end with the same bytes. Mounting takes root.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from cases import Case
from command_server import FILLER, Ending
from inputs import write_trial
from moments import FORKED
from trials import FAULT, Answer, Bench, Trial, chance, judge, moment, turn

ROOM = "512m"
"""Enough for any of the cases."""

WITHOUT_SCRATCH = ("import", "run", "run measures", "check")


def full_disk(bench: Bench, seed: int, number: int) -> Trial:
    """One trial: a place that fills, what is said, and the same command with room."""
    draw, began = chance("full_disk", seed, number), time.monotonic()
    case = turn(FORKED, number, seed)
    whole = bench.answer(case)
    bench.clear()
    places = ["output", "output", "temporary"] + ["scratch"] * (case.name not in WITHOUT_SCRATCH)
    place = draw.choice(places)
    with contextlib.ExitStack() as mounts:
        folder = bench.trial if place == "output" else bench.trial / place
        extra = ["--scratch", str(folder)] if place == "scratch" else []
        options = {"env": {"TMPDIR": str(folder)}} if place == "temporary" else {}
        size, ending, attack = _size_and_moment(case, place, whole, folder, draw)
        mounts.enter_context(small_file_system(folder, size))
        if place == "output":
            write_trial(bench.inputs, bench.trial)
        outcome = bench.command(case, *extra, ending=ending, **options)
        verdict, words = judge(outcome, bench.difference(case, outcome))
        if verdict != FAULT:
            make_room(folder)
            again = bench.command(case, *extra, **options)
            after, why = judge(again, bench.difference(case, again), must_finish=True)
            verdict, words = (FAULT, f"with room again: {why}") if after == FAULT else (verdict, words)
    seconds = time.monotonic() - began
    return Trial("full_disk", seed, number, case.name, attack, place, verdict, outcome.code, words, seconds)


def _size_and_moment(
    case: Case, place: str, whole: Answer, folder: Path, draw: random.Random
) -> tuple[str, Ending | None, str]:
    """Of a file system: its size, when it is filled, and both in words."""
    if place != "temporary" and draw.random() < 0.6:
        # Of scratch only some operations are in that folder: those of all of the output bound them.
        most = max(2, whole.outcome.operations // (4 if place == "scratch" else 1))
        at = moment(draw, most)
        return ROOM, Ending(str(folder), at, "fill"), f"filled at operation {at} of {most}"
    stored = sum(len(part) for part in whole.stores.parts.values())
    kibibytes = int(32 * (max(stored, 2**20) * 3 / 2**15) ** draw.random())
    return f"{kibibytes}k", None, f"of {kibibytes} KiB"


@contextlib.contextmanager
def small_file_system(folder: Path, size: str) -> Iterator[None]:
    """A file system in memory at a folder, of that size."""
    folder.mkdir(exist_ok=True)
    _call("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder))
    try:
        yield
    finally:
        for _ in range(50):
            if not subprocess.run(["umount", folder], capture_output=True).returncode:
                break
            time.sleep(0.1)
        else:
            _call("umount", "-l", str(folder))


def make_room(folder: Path) -> None:
    """Enlarge the file system, and take away what has filled it."""
    (folder / FILLER).unlink(missing_ok=True)
    _call("mount", "-o", f"remount,size={ROOM}", str(folder))


def missing_mount(folder: Path) -> str | None:
    """Why no disk can be small here; None if it can."""
    if os.geteuid():
        return "mounting a file system takes root: run the tests as root to have a disk fill"
    try:
        with small_file_system(folder / "probe", "64k"):
            return None
    except (OSError, subprocess.CalledProcessError) as error:
        said = error.stderr.decode().strip() if isinstance(error, subprocess.CalledProcessError) else error
        return f"no file system in memory can be mounted here: {said}"
    finally:
        with contextlib.suppress(OSError):
            (folder / "probe").rmdir()


def _call(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)
