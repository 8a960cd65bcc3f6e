"""Two of the same command on one output, at moments that are drawn, or one in the place of a killed one.

One computes. The other refuses, since another writes there, or finds that all is done; both together leave
the same bytes as one alone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

from command_client import Outcome
from moments import WRITING, outcomes, resume, start_and_stop
from trials import FAULT, REFUSED, SAME, Bench, Trial, chance, judge, moment, turn


def two_drivers(bench: Bench, seed: int, number: int) -> Trial:
    """One trial: the second begins while the first is at some operation, which goes on, or is killed."""
    draw, began = chance("two_drivers", seed, number), time.monotonic()
    case = turn(WRITING, number, seed)
    whole = bench.answer(case)
    bench.clear()
    words = case.command(bench.inputs, bench.trial)
    at, way = moment(draw, whole.outcome.operations), draw.choice(("held", "side by side", "killed"))
    pause = draw.random() * whole.outcome.seconds
    first = start_and_stop(bench, words, bench.trial, at)
    if way == "side by side":
        resume(first)
    second = bench.second_line().start(words, bench.folder)
    if way == "killed":
        time.sleep(pause)
        with contextlib.suppress(ProcessLookupError):
            os.kill(first.pid, signal.SIGKILL)
    ends = outcomes(first, second)
    verdict, said = _judge_both(ends, way)
    verdict, said = bench.ends_again(case, verdict, said)
    for command in (first, second):
        command.kill()
    attack = f"{way}, the second at operation {at} of {whole.outcome.operations}"
    seconds = time.monotonic() - began
    return Trial("two_drivers", seed, number, case.name, attack, "", verdict, ends[1].code, said, seconds)


def _judge_both(ends: list[Outcome], way: str) -> tuple[str, str]:
    """One of two has come to its end, or the first was killed; the other may say that it is in the way."""
    verdicts = [judge(one, None) for one in ends]
    if way == "killed":
        verdicts = verdicts[1:]  # the first ends as killed, or has ended before
    for verdict, words in verdicts:
        if verdict == FAULT:
            return FAULT, words
        if verdict == REFUSED and "another run is writing" not in words and "exists" not in words:
            return FAULT, f"refuses for another reason: {words}"
    if way != "killed" and SAME not in [verdict for verdict, _ in verdicts]:
        return FAULT, f"neither comes to its end: {[words for _, words in verdicts]}"
    return SAME, next((words for verdict, words in verdicts if verdict == REFUSED), "")
