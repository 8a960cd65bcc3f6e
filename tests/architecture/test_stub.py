"""The stub of the package, which editors and type checkers read, says what the functions take."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_stub_is_what_the_declarations_of_the_methods_make() -> None:
    written = runpy.run_path(str(ROOT / "docs" / "stub.py"))
    stub = ROOT / "src" / "rankfold" / "__init__.pyi"
    assert stub.read_text() == written["stub"](), "run python docs/stub.py"
