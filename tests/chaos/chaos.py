"""Attack rankfold at random, and tell how often it kept its promises.

    python tests/chaos/chaos.py --kind power_loss --trials 100 --seed 0 --json trials.json
    python tests/chaos/chaos.py --kind damage --only 17          one trial again
    python tests/chaos/chaos.py --page docs/reliability.md       the table of the trials that are kept

Kinds: power_loss (takes root and loop devices), damage, kills, hostile. Trials of the same kind in the file
of ``--json`` are replaced, others stay.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from attacks.changing_data import changing_data, input_damage
from attacks.damage import damage
from attacks.hostile import hostile
from attacks.kills import kills
from attacks.loop_device import clear_stale, missing_loop
from attacks.power_loss import open_bench, power_loss
from trials import FAULT, Attack, Bench, Trial, as_json, carry_out, from_json, page, table

ATTACKS: dict[str, Attack] = {
    "changing_data": changing_data,
    "damage": damage,
    "hostile": hostile,
    "input_damage": input_damage,
    "kills": kills,
    "power_loss": power_loss,
}
KEPT = Path(__file__).parents[2] / "benchmarks" / "results" / "chaos.json"


def attack(kind: str, folder: Path, seed: int, numbers: list[int]) -> list[Trial]:
    """Carry trials out in a folder; each is told of as it ends."""
    make = open_bench if kind == "power_loss" else Bench
    with make(folder) as bench:
        return carry_out(ATTACKS[kind], bench, seed, numbers, lambda trial: print(trial, flush=True))


def in_parts(kind: str, folder: Path, seed: int, numbers: list[int], jobs: int) -> list[Trial]:
    """The same in several processes, each in a folder of its own."""
    if jobs == 1:
        return attack(kind, folder, seed, numbers)
    with ProcessPoolExecutor(jobs) as pool:
        parts = [
            pool.submit(attack, kind, folder / f"part-{job}", seed, numbers[job::jobs]) for job in range(jobs)
        ]
        return sorted((trial for part in parts for trial in part.result()), key=lambda trial: trial.number)


def keep(trials: list[Trial], path: Path) -> None:
    """Add trials to a file, in place of those of the same kind."""
    kinds = {trial.kind for trial in trials}
    others = from_json(path.read_text()) if path.exists() else []
    path.write_text(as_json([trial for trial in others if trial.kind not in kinds] + trials))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kind", choices=sorted(ATTACKS))
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, nargs="*", help="numbers of trials")
    parser.add_argument("--jobs", type=int, default=1, help="processes that attack at once")
    parser.add_argument("--folder", type=Path, help="kept; a temporary one by default")
    parser.add_argument("--json", type=Path, help="where trials are kept")
    parser.add_argument("--page", type=Path, help="write the table of the kept trials into this page")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing stays mounted
    if given.page:
        given.page.write_text(
            page(given.page.read_text(), from_json(KEPT.read_text()) if KEPT.exists() else [])
        )
        return 0
    if given.kind is None:
        parser.error("say --kind, or --page")
    folder = given.folder or Path(tempfile.mkdtemp(prefix="rankfold-chaos-"))
    try:
        if given.kind == "power_loss" and (reason := missing_loop(folder)):
            sys.exit(reason)
        numbers = given.only or list(range(given.trials))
        trials = in_parts(given.kind, folder, given.seed, numbers, given.jobs)
    finally:
        for part in (folder, *folder.glob("part-*")):
            clear_stale(part)
        if given.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    if given.json:
        keep(trials, given.json)
    print(table(trials))
    return any(trial.verdict == FAULT for trial in trials)


if __name__ == "__main__":
    sys.exit(main())
