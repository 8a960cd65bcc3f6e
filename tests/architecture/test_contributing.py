"""The worked examples of CONTRIBUTING.md are true: their code is run as it stands."""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

import rankfold.kernels.linear
import rankfold.kernels.linear.cpu
from rankfold.pipeline.formats import OPENERS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "CONTRIBUTING.md"
TOY = ROOT / "tests" / "methods" / "toy"


def code_of(section: str) -> list[str]:
    """Blocks of Python below a heading."""
    text = PAGE.read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert blocks, section
    return blocks


def run(code: str) -> None:
    """As a module, since classes are pickled by the name of theirs."""
    module = types.ModuleType("contributing_example")
    sys.modules[module.__name__] = module
    try:
        exec(compile(code, PAGE.name, "exec"), module.__dict__)
    finally:
        del sys.modules[module.__name__]


@pytest.fixture
def linear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder whose files are modules of ``rankfold.kernels.linear``, as if they lay there."""
    (tmp_path / "cpu").mkdir()
    for package, folder in (
        (rankfold.kernels.linear, tmp_path),
        (rankfold.kernels.linear.cpu, tmp_path / "cpu"),
    ):
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
    yield tmp_path
    for name in [name for name in sys.modules if name.endswith(".row_lengths")]:
        del sys.modules[name]


def test_the_example_of_a_method_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(TOY)
    (code,) = code_of("A method")
    run(code)


def test_the_example_of_a_kernel_runs_and_its_tuned_body_is_taken(linear: Path) -> None:
    from rankfold.kernels._dispatch import has_body

    contract, body, use = code_of("A kernel")
    for text in (contract, body):
        place, _, code = text.partition("\n")
        (linear / place.partition("/linear/")[2]).write_text(code)
    run(use)
    assert has_body("rankfold.kernels.linear.row_lengths", "row_lengths", "cpu")
    assert "rankfold.kernels.linear.cpu.row_lengths" in sys.modules


def test_the_example_of_a_format_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(OPENERS, ".rows", None)
    (code,) = code_of("A format")
    run(code)


def test_markers_of_the_page_are_those_that_there_are() -> None:
    import tomllib

    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    table = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.M)
    assert set(table) == {marker.partition(":")[0] for marker in settings["markers"]}
