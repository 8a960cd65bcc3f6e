"""A machine that loses power: what was not flushed is gone, and the same command must still find its way.

A command writes to a file system of its own. At a moment that is drawn, between two operations on files,
after a share of its time, as its output appears, or when it has said that it is done, that file system is
shut down without flushing its log, mounted again, and the same command given again: it must end, with the
same bytes.

The trap: what is lost depends on what others flush. So some trials have a neighbor that flushes files of its
own, which puts names on the disk whose contents are not.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from cases import Case
from command_client import Outcome
from command_server import Ending
from loop_device import MOUNT, attach, detach, file_system, shut_down
from trials import FAULT, Answer, Bench, Trial, chance, judge, moment, turn

OPTIONS = ("commit=300", "commit=300,noauto_da_alloc", "commit=1", "commit=300,data=writeback", "commit=5")


def open_bench(folder: Path) -> Bench:
    """A bench whose trials take place where a file system will be mounted."""
    return Bench(folder, folder / MOUNT / "trial")


def power_loss(bench: Bench, seed: int, number: int) -> Trial:
    """One trial: lose power, mount, repeat, compare."""
    draw, began = chance("power_loss", seed, number), time.monotonic()
    case = turn(None, number, seed)
    whole = _undisturbed(bench, case)
    options, neighbor = draw.choice(OPTIONS), draw.random() < 0.5
    with file_system(bench.folder, options) as mount:
        bench.clear()
        subprocess.run(["sync", "-f", mount], check=True)
        with _flushing(mount, draw) if neighbor else contextlib.nullcontext():
            moment = _lose(bench, case, draw, whole.outcome)
        detach(bench.folder)
        attach(bench.folder, options)
        outcome = bench.command(case)
        verdict, words = judge(outcome, bench.difference(case, outcome), must_finish=True)
        if verdict == FAULT and case.overwrite:
            again = bench.command(case, "--overwrite")
            way_out, why = judge(again, bench.difference(case, again), must_finish=True)
            words += (
                f"; nor does --overwrite lead out: {why}" if way_out == FAULT else "; --overwrite leads out"
            )
    attack = f"{moment}, {options}{', a neighbor that flushes' if neighbor else ''}"
    seconds = time.monotonic() - began
    return Trial("power_loss", seed, number, case.name, attack, "", verdict, outcome.code, words, seconds)


def _undisturbed(bench: Bench, case: Case) -> Answer:
    def find() -> Answer:
        with file_system(bench.folder):
            return bench.answer(case)

    return bench.once(f"{MOUNT} answer of {case.name}", find)


def _lose(bench: Bench, case: Case, draw: random.Random, whole: Outcome) -> str:
    """Give the command and take the power away; the moment, in words."""
    kinds = ("operation", "operation", "operation", "share", "appears", "done")
    kind = draw.choice(kinds[3:] if case.processes else kinds)
    if kind == "operation" and whole.operations:
        at = moment(draw, whole.operations)
        outcome = bench.command(case, ending=Ending(str(bench.trial), at, "power"))
        if outcome.code != 137:  # it took fewer operations than the undisturbed run
            shut_down(bench.folder / MOUNT)
        return f"at operation {at} of {whole.operations}"
    words = case.command(bench.inputs, bench.trial)
    command = bench.line.start(words, bench.folder, own_interpreter=case.processes)
    share, delay = draw.random(), draw.choice((0.0, 0.01, 0.1, 1.0))
    if kind == "share":
        time.sleep(share * whole.seconds)
        when = f"after {share:.2f} of its time"
    elif kind == "appears" and case.outputs:
        output, until = bench.trial / case.outputs[-1], time.monotonic() + whole.seconds + 10
        while not output.exists() and time.monotonic() < until:
            time.sleep(0.001)
        when = "as the output appeared"
    else:
        command.outcome()
        time.sleep(delay)
        when = f"{delay:.2f} s after it was done"
    shut_down(bench.folder / MOUNT)
    command.kill()
    if not when.endswith("done"):
        command.outcome()
    return when


@contextlib.contextmanager
def _flushing(mount: Path, draw: random.Random) -> Iterator[None]:
    """Flush a file of one's own, again and again: the log goes to the disk, with the names of all others."""
    ended, pause = threading.Event(), draw.choice((0.005, 0.03, 0.1))

    def flush() -> None:
        with contextlib.suppress(OSError), open(mount / "neighbor", "wb", 0) as file:
            while not ended.wait(pause):
                file.write(b"here I am")
                os.fsync(file.fileno())

    thread = threading.Thread(target=flush)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
