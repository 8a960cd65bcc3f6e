"""Two of the same command on one output, where a lock keeps nobody out.

Lustre that is mounted with ``localflock`` gives the same lock to a process on each of its nodes; here all
processes get every lock. The second command begins while the first is at an operation, which goes on at
once, after a moment, or when the second has ended. Either may refuse, and one that says that it has ended
must have left the same bytes; the same command again, where locks hold, must end.
"""

from __future__ import annotations

import time

from attacks.clock import faults_of
from command_client import Outcome
from moments import WRITING, outcomes, resume, start_and_stop
from trials import FAULT, REFUSED, SAME, Bench, Trial, chance, judge, moment, turn


def lost_locks(bench: Bench, seed: int, number: int) -> Trial:
    """One trial: two commands that do not see each other, and the command again."""
    draw, began = chance("lost_locks", seed, number), time.monotonic()
    case = turn(WRITING, number, seed)
    whole = bench.answer(case)
    bench.clear()
    faults = faults_of(bench)
    faults.set(unlocked=1)
    lines = [bench.second_line(name, faults.env) for name in ("faults", "more faults")]
    words = case.command(bench.inputs, bench.trial)
    at, way = moment(draw, whole.outcome.operations), draw.choice(("held", "side by side", "a moment later"))
    pause = {"held": None, "side by side": 0.0}.get(way, draw.random() * whole.outcome.seconds)
    first = start_and_stop(bench, words, bench.trial, at, line=lines[0])
    second = lines[1].start(words, bench.folder)
    if pause is not None:
        time.sleep(pause)
        resume(first)
    ends = outcomes(first, second)
    faults.set()
    verdict, said = _judge_both(ends, [bench.difference(case, one) for one in ends])
    verdict, said = bench.ends_again(case, verdict, said)
    for command in (first, second):
        command.kill()
    attack = f"{way}, the second at operation {at} of {whole.outcome.operations}"
    seconds = time.monotonic() - began
    return Trial("lost_locks", seed, number, case.name, attack, "", verdict, ends[1].code, said, seconds)


def _judge_both(ends: list[Outcome], differences: list[str]) -> tuple[str, str]:
    """The worst of two ends, where to refuse is no worse than to end if the other has ended."""
    verdicts = [judge(one, difference) for one, difference in zip(ends, differences, strict=True)]
    faults = [words for verdict, words in verdicts if verdict == FAULT]
    refusals = [words for verdict, words in verdicts if verdict == REFUSED]
    if faults:
        return FAULT, faults[0]
    return (SAME if len(refusals) < len(ends) else REFUSED), next(iter(refusals), "")
