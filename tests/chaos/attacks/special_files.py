"""Pipes, devices, sockets, folders, links to themselves, and documents without end, in place of a file.

One file of an input, or of a result and its run, is something else as the command is given. It must end in
time and within bounded memory, with an exit code that is documented and one message, or with an answer where
the file was of no account. Once the inputs are as they were and the output is gone, the same command must end
with the bytes of an undisturbed run.
"""

from __future__ import annotations

import shutil
import time

from guises import CLAIMS, GUISES, put
from moments import FORKED, OwnInputs
from trials import ANSWERED, FAULT, SAME, Bench, Trial, chance, files_below, judge, turn

MOST_SECONDS = 60.0
"""Of a command, on a machine that does other things as well: what waits, waits for ever."""

MOST_BYTES = 300 * 2**20
"""Of a process, with all that it has imported, unless an undisturbed one takes more."""


def special_files(bench: Bench, seed: int, number: int) -> Trial:
    """One trial: a file and what takes its place are drawn, and the command is given."""
    draw, began = chance("special_files", seed, number), time.monotonic()
    case = turn(FORKED, number, seed)
    own = OwnInputs(bench, case)
    usual = bench.answer(case).outcome
    own.lay_out()
    is_done = bool(case.outputs) and draw.random() < 0.4
    if is_done:
        bench.line.run(own.words(), bench.folder)
    files = [path for path in files_below(bench.trial if is_done else own.folder) if path.is_file()]
    path, guise = draw.choice(files), draw.choice([*GUISES, *CLAIMS])
    if not put(path, guise):
        guise = "pipe"
        put(path, guise)
    outcome = bench.line.run(own.words(), bench.folder, patience=MOST_SECONDS)
    verdict, words = judge(outcome, None)
    verdict = ANSWERED if verdict == SAME else verdict
    if verdict != FAULT and outcome.peak_bytes > max(MOST_BYTES, usual.peak_bytes):
        verdict, words = FAULT, f"takes {outcome.peak_bytes / 2**20:.0f} MiB"
    target = path.relative_to(bench.trial).as_posix()
    if verdict != FAULT:
        verdict, words = _ends_again(own, verdict, words)
    seconds = time.monotonic() - began
    return Trial(
        "special_files", seed, number, case.name, guise, target, verdict, outcome.code, words, seconds
    )


def _ends_again(own: OwnInputs, verdict: str, words: str) -> tuple[str, str]:
    """A verdict and its reason, once the same was asked for where nothing is in the way."""
    shutil.rmtree(own.folder)
    own.lay_out()
    outcome = own.bench.line.run(own.words(), own.bench.folder)
    after, why = judge(outcome, own.bench.difference(own.case, outcome), must_finish=True)
    return (FAULT, f"the command again: {why}") if after == FAULT else (verdict, words)
