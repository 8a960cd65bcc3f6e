"""Attack rankfold at random, and tell how often it kept its promises.

    python tests/chaos/chaos.py --kind power_loss --trials 100 --seed 0 --json trials.json
    python tests/chaos/chaos.py --kind damage --only 17          one trial again
    python tests/chaos/chaos.py --kind all --trials 1000 --jobs 2 --keep
    python tests/chaos/chaos.py --page docs/reliability.md       the table of the trials that are kept

Kinds are modules of ``attacks``:

    kills          signals to a command, or to one of its workers
    damage         files of a run, or of a result, that are not what was written
    power_loss     a file system that forgets what was not flushed
    full_disk      no room for the output, scratch or temporary files
    two_drivers    the same command twice at once
    changing_data  inputs that change, or are damaged, before a command or during it
    clock          a clock that is set
    slow_files     names of files that take long, and files that are stale
    workers        worker processes that are killed, stopped or cut off
    slurm          jobs, nodes and processes of a real SLURM
    file_server    names that other processes see late
    lost_locks     the same command twice at once, where locks keep nobody out
    folds          panels that are folded twice after kills
    forged         results with one array or attribute changed, and no manifest
    hostile        words, workflows and places nobody would give
    special_files  pipes, devices, sockets and documents without end in place of files
    memory         matrices of any type, shape, chunks and codec, whose memory is compared with the plan
    names          what others put, or have, under the name of an output
    spectra        matrices whose values come many times, or in clusters

With ``all`` the trials are shared out among the kinds; a kind that takes root, loop devices, a compiler or a
SLURM, where there is none, is left out with the reason. Trials of the same kind in the file of ``--json``,
``--keep`` for the one in the repository, are replaced, others stay.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # modules that tests share

from attacks.changing_data import changing_data, input_damage
from attacks.clock import clock
from attacks.damage import damage
from attacks.file_server import file_server
from attacks.folds import folds
from attacks.forged import forged
from attacks.full_disk import full_disk, missing_mount
from attacks.hostile import hostile
from attacks.kills import kills
from attacks.lost_locks import lost_locks
from attacks.memory import FolderBench, memory, missing_measure
from attacks.names import names
from attacks.power_loss import open_bench, power_loss
from attacks.slow_files import slow_files
from attacks.slurm import SlurmBench, slurm
from attacks.special_files import special_files
from attacks.spectra import spectra
from attacks.two_drivers import two_drivers
from attacks.workers import workers
from loop_device import clear_stale, missing_loop
from shim.faults import missing_compiler
from slurm_cluster import missing_slurm
from trials import FAULT, Attack, Bench, Trial, as_json, carry_out, from_json, page, table

KEPT = Path(__file__).parents[2] / "benchmarks" / "results" / "chaos.json"
PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of attack, and what it takes."""

    attack: Attack
    share: int
    """Of the trials of all kinds, beside the shares of others."""

    bench: Callable[[Path], Bench] = Bench
    missing: Callable[[Path], str | None] = lambda folder: None
    """Takes a folder that may be used; says why nothing of the kind can be done here."""

    alone: bool = False
    """Whether no two of its benches may be open at once."""


KINDS: dict[str, Kind] = {
    "changing_data": Kind(changing_data, 12),
    "clock": Kind(clock, 10, missing=lambda folder: missing_compiler()),
    "damage": Kind(damage, 20),
    "file_server": Kind(file_server, 4, missing=lambda folder: missing_compiler()),
    "folds": Kind(folds, 1),
    "forged": Kind(forged, 10),
    "full_disk": Kind(full_disk, 12, missing=missing_mount),
    "hostile": Kind(hostile, 10),
    "input_damage": Kind(input_damage, 12),
    "kills": Kind(kills, 12),
    "lost_locks": Kind(lost_locks, 4, missing=lambda folder: missing_compiler()),
    "names": Kind(names, 8),
    "memory": Kind(memory, 24, FolderBench, lambda folder: missing_measure()),
    "power_loss": Kind(power_loss, 10, open_bench, missing_loop),
    "slow_files": Kind(slow_files, 10, missing=lambda folder: missing_compiler()),
    "slurm": Kind(slurm, 2, SlurmBench, lambda folder: missing_slurm(), alone=True),
    "special_files": Kind(special_files, 10),
    "spectra": Kind(spectra, 20),
    "two_drivers": Kind(two_drivers, 10),
    "workers": Kind(workers, 4, missing=lambda folder: missing_compiler()),
}


def attack(kind: str, folder: Path, seed: int, numbers: list[int]) -> list[Trial]:
    """Carry trials out in a folder; each is told of as it ends."""
    with KINDS[kind].bench(folder) as bench:
        return carry_out(KINDS[kind].attack, bench, seed, numbers, lambda trial: tell(trial, folder))


def tell(trial: Trial, folder: Path) -> None:
    """Print a trial, and write it down beside the others, should these not come to their end."""
    print(trial, flush=True)
    with open(folder / "trials.jsonl", "a") as file:
        file.write(json.dumps(asdict(trial)) + "\n")


def in_parts(kind: str, folder: Path, seed: int, numbers: list[int], jobs: int) -> list[Trial]:
    """The same in several processes, each in a folder of its own."""
    if jobs == 1 or KINDS[kind].alone:
        return attack(kind, folder, seed, numbers)
    with ProcessPoolExecutor(jobs) as pool:
        parts = [
            pool.submit(attack, kind, folder / f"part-{job}", seed, numbers[job::jobs]) for job in range(jobs)
        ]
        return sorted((trial for part in parts for trial in part.result()), key=lambda trial: trial.number)


def missing(kind: str, folder: Path) -> str | None:
    """Why no trial of a kind can be done here; None if it can."""
    folder.mkdir(parents=True, exist_ok=True)
    return KINDS[kind].missing(folder)


def shared_out(trials: int) -> dict[str, int]:
    """How many trials each kind has of all: at least one."""
    total = sum(kind.share for kind in KINDS.values())
    return {name: max(1, -(-trials * kind.share // total)) for name, kind in KINDS.items()}


def carry_out_kind(kind: str, folder: Path, trials: int, given: argparse.Namespace) -> list[Trial]:
    """The trials of one kind; none, with the reason, where they cannot be done."""
    if reason := missing(kind, folder):
        if given.kind != "all":
            sys.exit(reason)
        print(f"{kind}: left out, since {reason}", flush=True)
        return []
    return in_parts(kind, folder, given.seed, given.only or list(range(trials)), given.jobs)


def carry_out_kinds(folder: Path, given: argparse.Namespace) -> list[Trial]:
    """The trials of one kind, or of all; those of a kind are kept when they have ended."""
    trials: list[Trial] = []
    shares = shared_out(given.trials) if given.kind == "all" else {given.kind: given.trials}
    for kind, count in shares.items():
        of_kind = carry_out_kind(kind, folder, count, given)
        trials += of_kind
        for path in [given.json] * bool(given.json) + [KEPT] * given.keep:
            keep(of_kind, path)
    return trials


def keep(trials: list[Trial], path: Path) -> None:
    """Add trials to a file, in place of those of the same kind."""
    kinds = {trial.kind for trial in trials}
    others = from_json(path.read_text()) if path.exists() else []
    others = [trial for trial in others if trial.kind not in kinds]
    path.write_text(as_json(sorted(others + trials, key=lambda trial: (trial.kind, trial.number))))


def write_page(path: Path) -> None:
    """Put the table of the trials that are kept into a page."""
    path.write_text(page(path.read_text(), from_json(KEPT.read_text()) if KEPT.exists() else []))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kind", choices=[*KINDS, "all"])
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, nargs="*", help="numbers of trials")
    parser.add_argument("--jobs", type=int, default=1, help="processes that attack at once")
    parser.add_argument("--folder", type=Path, help="kept; a temporary one by default")
    parser.add_argument("--json", type=Path, help="where trials are kept")
    parser.add_argument("--keep", action="store_true", help="in the repository, and in the table of its page")
    parser.add_argument("--page", type=Path, help="write the table of the kept trials into this page")
    given = parser.parse_args()
    if given.page:
        write_page(given.page)
        return 0
    if given.kind is None:
        parser.error("say --kind, or --page")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing stays mounted
    os.environ.pop("SLURM_CONF", None)
    folder = given.folder or Path(tempfile.mkdtemp(prefix="rankfold-chaos-"))
    try:
        trials = carry_out_kinds(folder, given)
    finally:
        for part in (folder, *folder.glob("part-*")):
            clear_stale(part)
        if given.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    if given.keep:
        write_page(PAGE)
    print(table(trials))
    return any(trial.verdict == FAULT for trial in trials)


if __name__ == "__main__":
    sys.exit(main())
