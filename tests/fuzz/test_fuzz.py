"""What fuzzing has found stays mended, and a short form finds no more. The long form is ``make fuzz``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).with_name("fuzz.py")
SECONDS = 3
"""For each parser of the short form."""


def fuzz(*words: str) -> None:
    ended = subprocess.run([sys.executable, FUZZ, *words], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr[-3000:]


@pytest.mark.process
def test_what_was_found_earlier_is_no_fault_any_more() -> None:
    fuzz("--again")


@pytest.mark.slow
def test_no_parser_has_a_fault_that_is_soon_found() -> None:
    fuzz("--seconds", str(SECONDS), "--seed", "1")
