"""A short form of every attack, whose long one is ``tests/chaos/chaos.py``. A fault names its trial."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from chaos import KEPT, attack
from command_line import Outcome
from contents import Contents, contents
from loop_device import missing_loop
from trials import BEGIN, END, FAULT, REFUSED, SAME, Trial, as_json, from_json, judge, page, table

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
SHORT = {"power_loss": 10, "damage": 20, "kills": 12, "hostile": 64}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in SHORT if kind != "power_loss"])
def test_no_attack_finds_a_fault(tmp_path: Path, kind: str) -> None:
    _none_finds_a_fault(kind, tmp_path)


@pytest.mark.slow
def test_a_loss_of_power_costs_nothing() -> None:
    with tempfile.TemporaryDirectory(prefix="rankfold-chaos-") as folder:  # mounts are no place for pytest
        if reason := missing_loop(Path(folder)):
            pytest.skip(reason)
        _none_finds_a_fault("power_loss", Path(folder))


def _none_finds_a_fault(kind: str, folder: Path) -> None:
    trials = attack(kind, folder, seed=1, numbers=list(range(SHORT[kind])))
    faults = [str(trial) for trial in trials if trial.verdict == FAULT]
    assert not faults, "\n".join(faults)


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
    assert table([one, two]).splitlines()[2] == "| damage | svd gram | 2 | 1 | 0 | 0 | 1 |"
    assert page(f"a\n{BEGIN}\nold\n{END}\nb", [one]).startswith("a\n")
    with pytest.raises(ValueError, match="to put the table between"):
        page("no marks", [one])


def test_the_page_has_the_table_of_the_trials_that_are_kept() -> None:
    text = PAGE.read_text()
    assert text == page(text, from_json(KEPT.read_text()) if KEPT.exists() else [])


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
