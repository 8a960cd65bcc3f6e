"""A short form of every attack, whose long one is ``tests/chaos/chaos.py``. A fault names its trial."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from attacks.folds import folded_again
from chaos import KEPT, KINDS, PAGE, attack, missing, shared_out
from command_client import Outcome
from contents import Contents, contents
from loop_device import missing_loop
from shim.faults import Faults, missing_compiler
from trials import BEGIN, END, FAULT, REFUSED, SAME, Trial, as_json, from_json, judge, page, table

SHORT = {
    "changing_data": 8,
    "clock": 8,
    "damage": 16,
    "file_server": 4,
    "folds": 1,
    "forged": 16,
    "full_disk": 10,
    "hostile": 48,
    "input_damage": 8,
    "kills": 12,
    "lost_locks": 4,
    "memory": 6,
    "names": 12,
    "power_loss": 8,
    "slow_files": 8,
    "slurm": 2,
    "special_files": 20,
    "spectra": 60,
    "two_drivers": 8,
    "workers": 3,
}
"""Trials of each kind: about a quarter of an hour in all, on a machine that does nothing else."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in SHORT if kind != "slurm"])
def test_no_attack_finds_a_fault(kind: str) -> None:
    _none_finds_a_fault(kind)


@pytest.mark.slow
@pytest.mark.slurm
def test_no_attack_on_jobs_finds_a_fault() -> None:
    _none_finds_a_fault("slurm")


def _none_finds_a_fault(kind: str) -> None:
    with tempfile.TemporaryDirectory(prefix="rankfold-chaos-") as name:  # mounts are no place for pytest
        folder = Path(name)
        if reason := missing(kind, folder):
            pytest.skip(reason)
        trials = attack(kind, folder, seed=1, numbers=list(range(SHORT[kind])))
    faults = [str(trial) for trial in trials if trial.verdict == FAULT]
    assert not faults, "\n".join(faults)


def test_every_kind_has_a_short_form_and_a_share_of_the_long_one() -> None:
    assert set(SHORT) == set(KINDS)
    shares = shared_out(1000)
    assert min(shares.values()) >= 1 and 1000 <= sum(shares.values()) < 1000 + len(KINDS)


# The harness itself --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "err", "difference", "verdict"),
    [
        (0, "", "", SAME),
        (0, "", None, SAME),
        (0, "", "differs in s", FAULT),
        (2, "rankfold: r.zarr is there\n", "", REFUSED),
        (2, "Usage: rankfold svd\nError: No such option\n", "", REFUSED),
        (4, "reading\nrankfold: r.zarr is damaged\n", None, REFUSED),
        (2, "", "", FAULT),
        (2, "rankfold: one\nrankfold: two\n", "", FAULT),
        (1, "Traceback (most recent call last):\nKeyError\n", "", FAULT),
        (-9, "", "", FAULT),
        (0, "/x.py:3: RuntimeWarning: overflow\n", "", FAULT),
    ],
)
def test_verdicts(code: int, err: str, difference: str | None, verdict: str) -> None:
    assert judge(Outcome(code, "", err, 0.1), difference)[0] == verdict


def test_a_refusal_is_a_fault_where_a_command_must_end() -> None:
    assert judge(Outcome(2, "", "rankfold: no\n", 0.1), "", must_finish=True)[0] == FAULT
    assert judge(Outcome(0, "", "", 300.0, expired=True), "")[0] == FAULT


def test_contents_tell_a_byte_a_missing_chunk_and_a_stray_file(tmp_path: Path) -> None:
    store = tmp_path / "r.zarr"
    (store / "s" / "c").mkdir(parents=True)
    (store / "s" / "zarr.json").write_text('{"b": 1, "a": 2}')
    (store / "s" / "c" / "0").write_bytes(b"1234")
    whole = contents([store])
    (store / "s" / "zarr.json").write_text('{"a": 2,   "b": 1}')
    assert contents([store]) == whole
    (store / "s" / "c" / "0").write_bytes(b"1235")
    assert contents([store]).difference(whole) == "differs in r.zarr/s/c/0"
    (store / "s" / "c" / "0").unlink()
    assert contents([store]).difference(whole) == "lacks r.zarr/s/c/0"
    (store / "s" / "zarr.json").write_bytes(b"[" * 100_000)
    assert contents([store]).difference(whole) == "lacks r.zarr/s/c/0"
    (store / "s" / ".left").touch()
    assert contents([store]).strays == ("r.zarr/s/.left",)
    assert contents([tmp_path / "none"]) == Contents()


def test_trials_are_kept_and_counted() -> None:
    one = Trial("damage", 0, 3, "svd gram", "half", "s", SAME, 0, "", 1.0)
    two = Trial("damage", 0, 4, "svd gram", "half", "s", FAULT, 1, "traceback", 1.0)
    assert from_json(as_json([one, two])) == [one, two]
    lines = table([one, two]).splitlines()
    assert lines[0] == "2 trials in all, of seed 0."
    assert lines[4:6] == ["| damage | 2 | 1 | 0 | 0 | 1 |", "| all | 2 | 1 | 0 | 0 | 1 |"]
    assert lines[-1] == "| svd gram | 1 | 2 | 1 | 0 | 0 | 1 |"
    assert page(f"a\n{BEGIN}\nold\n{END}\nb", [one]).startswith("a\n")
    with pytest.raises(ValueError, match="to put the table between"):
        page("no marks", [one])


def test_the_page_has_the_table_of_the_trials_that_are_kept() -> None:
    text = PAGE.read_text()
    assert text == page(text, from_json(KEPT.read_text()) if KEPT.exists() else [])


def test_what_is_read_again_is_told_in_ranges(tmp_path: Path) -> None:
    log = tmp_path / "reads"
    panels = [(start, start + 10) for start in range(0, 60, 10)]
    reads = [*panels * 2, (5, 10), *panels[1:3], panels[2], panels[4]]
    log.write_text("".join(f"{start} {stop}\n" for start, stop in reads))
    assert list(folded_again(log)) == [2, 1, 1]


@pytest.mark.skipif(missing_compiler() is not None, reason=missing_compiler() or "")
def test_files_and_clocks_misbehave_as_they_are_told(tmp_path: Path) -> None:
    """The means of the attacks: without it no trial would show anything."""
    below = tmp_path / "below"
    below.mkdir()
    for folder in (tmp_path, below):
        (folder / "file").write_text("1234")
    faults = Faults(tmp_path / "faults", below)
    faults.set(clock_shift=-3600, delay_us=20_000, every=1, stale_at=2)
    code = (
        "import os, sys, time; now, began = time.time(), time.monotonic()\n"
        "for _ in range(5): os.stat(sys.argv[1])\n"
        "print(now, time.monotonic() - began)\n"
        "try: open(sys.argv[1]).read()\n"
        "except OSError as error: print(error.strerror)\n"
        "print(open(sys.argv[1]).read(), open(sys.argv[2]).read())"
    )
    words = [sys.executable, "-c", code, str(below / "file"), str(tmp_path / "file")]
    began = time.time()
    said = subprocess.run(words, env=os.environ | faults.env, capture_output=True, text=True, check=True)
    clock, stale, text = said.stdout.splitlines()
    now, seconds = map(float, clock.split())
    assert -3600 <= now - began < -3500 and seconds > 0.1
    assert stale == "Stale file handle" and text == "1234 1234"
    assert faults.count("calls") >= 7


@pytest.mark.skipif(missing_compiler() is not None, reason=missing_compiler() or "")
def test_names_that_others_made_are_seen_late(tmp_path: Path) -> None:
    """The means of the attacks: without it no trial would show anything."""
    below = tmp_path / "below"
    below.mkdir()
    faults = Faults(tmp_path / "faults", below)
    faults.set(late_us=500_000)
    code = (
        "import os, subprocess, sys, time\n"
        "folder, own = sys.argv[1] + '/folder', sys.argv[1] + '/own'\n"
        "print(os.path.exists(folder + '/file'), os.path.exists(own))\n"
        "open(own, 'w').write('1234'); clean = {'PATH': os.environ['PATH']}\n"
        "subprocess.run(['sh', '-c', 'mkdir $0; touch $0/file', folder], env=clean, check=True)\n"
        "print(os.path.exists(folder + '/file'), os.path.exists(own)); time.sleep(0.6)\n"
        "print(os.path.exists(folder + '/file'), open(own).read())\n"
    )
    words = [sys.executable, "-c", code, str(below)]
    said = subprocess.run(words, env=os.environ | faults.env, capture_output=True, text=True, check=True)
    assert said.stdout.splitlines() == ["False False", "False True", "True 1234"]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a file system takes root")
def test_what_was_not_flushed_is_lost_with_the_power(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The means of the attack: without it no trial would show anything."""
    from loop_device import attach, detach, file_system, shut_down

    with tempfile.TemporaryDirectory(prefix="rankfold-chaos-") as name:
        folder = Path(name)
        if reason := missing_loop(folder):
            pytest.skip(reason)
        with file_system(folder, "commit=300", mebibytes=16) as mount:
            for file, flushed in (("lost", False), ("kept", True)):
                with open(mount / file, "wb") as opened:
                    opened.write(b"1234")
                    opened.flush()
                    if flushed:
                        os.fsync(opened.fileno())
            shut_down(mount)
            detach(folder)
            attach(folder)
            assert (mount / "kept").read_bytes() == b"1234"
            assert not (mount / "lost").exists() or (mount / "lost").read_bytes() == b""
        assert not os.path.ismount(folder / "chaos.mount")
