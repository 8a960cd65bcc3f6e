"""Real matrices, which are not part of the project.

``RANKFOLD_TEST_DATA`` names the folder that holds them, by default ``shared/data`` beside the checkout.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("RANKFOLD_TEST_DATA") or Path(__file__).parents[2] / "shared" / "data")


def real(name: str) -> Path:
    path = FOLDER / name
    if not path.exists():
        pytest.skip(f"real data {name} are not in {FOLDER}; set RANKFOLD_TEST_DATA to their folder")
    return path
