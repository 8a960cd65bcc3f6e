"""Panels that are folded twice after workers were killed: those of segments in flight, and no others.

Two worker processes of a thread each fold a matrix whose reads are slow and noted. Workers are killed when as
many panels were read as is drawn. A worker has one segment in flight, which begins at the last checkpoint of
its stream: so each kill may repeat one range of panels that follow each other, no longer than a segment is.
"""

from __future__ import annotations

import contextlib
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from contents import Contents, contents
from inputs import filled
from trials import FAULT, SAME, Bench, Trial, chance, moment

sys.path.append(str(Path(__file__).parents[2] / "cluster"))

from drivers import GONE_SECONDS, Driver, workers_of

PASSES = 2
COMMAND = ("pca", "{input}/long.zarr", "--rank", "8", "--memory", "256MiB", "--threads", "2")
SEGMENT_SECONDS = 20.0
"""Longest time between two checkpoints: ``rankfold.pipeline.engine.sweep.SEGMENT_SECONDS``."""


def folds(bench: Bench, seed: int, number: int) -> Trial:
    """One trial: one to three kills, and what was folded again."""
    draw, began = chance("folds", seed, number), time.monotonic()
    right, looks, reads = _undisturbed(bench)
    bench.clear()
    seconds, kills = draw.choice((0.05, 0.1, 0.2)), draw.randint(1, 3)
    moments = sorted(moment(draw, reads) for _ in range(kills))
    with _driver(bench, seconds) as driver:
        done = [at for at in moments if _kill_at(driver, looks + at, draw)]
        code = driver.end()
    log, out = bench.trial / "r.zarr.reads", bench.trial / "r.zarr"
    ranges = list(folded_again(log))
    longest = SEGMENT_SECONDS / seconds + 1
    verdict, words = SAME, f"{len(done)} kills: {sum(ranges)} of {reads} reads again, in {len(ranges)} ranges"
    if code:
        verdict, words = FAULT, f"exit {code}: {driver.said[-200:]}"
    elif difference := contents([out]).difference(right):
        verdict, words = FAULT, f"the answer {difference}"
    elif len(ranges) > len(done) or any(length > longest for length in ranges):
        verdict, words = FAULT, f"{words}, more than were in flight"
    attack = f"kills at reads {moments} of {reads}, of {seconds} s each"
    took = time.monotonic() - began
    return Trial("folds", seed, number, "pca, noted reads", attack, "", verdict, code, words, took)


def folded_again(log: Path, passes: int = PASSES) -> Iterator[int]:
    """Lengths of ranges of panels that were read more often than there were passes.

    A panel that was read three times too often counts in three ranges. What was read once was looked at
    before any pass.
    """
    counts = Counter(tuple(map(int, line.split())) for line in log.read_text().splitlines())
    extra = {panel: count - passes for panel, count in counts.items() if count > passes}
    while extra:
        length, last = 0, None
        for panel in sorted(extra):
            if last is not None and panel[0] != last:
                break
            length, last = length + 1, panel[1]
            extra[panel] -= 1
        extra = {panel: count for panel, count in extra.items() if count}
        yield length


@contextlib.contextmanager
def _driver(bench: Bench, seconds: float) -> Iterator[Driver]:
    """A driver with two workers that notes its reads; nothing of it stays."""
    where = {"script": "counting_driver.py", "workers": 2, "threads": 1}
    driver = Driver(bench.inputs / "long.zarr", bench.trial / "r.zarr", seconds, **where)
    try:
        yield driver
    finally:
        workers = workers_of(driver.process.pid)
        driver.process.kill()
        driver.process.wait()
        for worker in workers:
            with contextlib.suppress(Exception):
                worker.wait(GONE_SECONDS)


def _kill_at(driver: Driver, reads: int, draw: random.Random) -> bool:
    """Kill a worker when so many panels have been read; whether there was one."""
    log = driver.log.with_name("r.zarr.reads")
    while driver.process.poll() is None:
        done = log.read_bytes().count(b"\n") if log.exists() else 0
        if done >= reads and (found := workers_of(driver.process.pid)):
            draw.choice(found).kill()
            return True
        time.sleep(0.02)
    return False


def _undisturbed(bench: Bench) -> tuple[Contents, int, int]:
    """What threads of one process leave, and how many reads workers do before passes and in them."""

    def find() -> tuple[Contents, int, int]:
        bench.clear()
        words = [*filled(COMMAND, bench.inputs, bench.trial), "--out", str(bench.trial / "r.zarr")]
        outcome = bench.line.run(words, bench.folder)
        if outcome.code:
            raise RuntimeError(f"{words} fails: {outcome.err}")
        right = contents([bench.trial / "r.zarr"])
        bench.clear()
        with _driver(bench, 0.0) as driver:
            if driver.end():
                raise RuntimeError(driver.said)
        if list(folded_again(bench.trial / "r.zarr.reads")):
            raise RuntimeError("panels are read again though nothing was killed")
        counts = Counter((bench.trial / "r.zarr.reads").read_text().splitlines())
        reads = sum(count for count in counts.values() if count == PASSES)
        return right, sum(counts.values()) - reads, reads

    return bench.once("folds", find)
