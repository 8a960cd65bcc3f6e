"""Messages name arguments both ways, so that each door shows its own; see ``rankfold.pipeline.errors``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import rankfold
from rankfold.pipeline.errors import in_python

SOURCE = Path(rankfold.__file__).parent
LAYERS = ("api", "methods", "pipeline", "estimators", "settings")
"""Where messages are written that are shown at every door."""

ALONE = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
COMMAND = re.compile(r"`[^`]*`|rankfold [a-z]+ .*")


def _texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Texts of several words, of which docstrings and what arguments say of themselves are none."""
    skipped: set[int] = set()
    for node in ast.walk(tree):
        declares = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Argument"
        if isinstance(node, ast.Expr) or declares:
            skipped |= {id(each) for each in ast.walk(node) if isinstance(each, ast.Constant | ast.JoinedStr)}
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(each) for each in ast.walk(node) if each is not node}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "value" for part in node.values)
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


@pytest.mark.parametrize("layer", LAYERS)
def test_an_option_stands_beside_its_argument(layer: str) -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{line}: {text}"
        for path in sorted((SOURCE / layer).rglob("*.py"))
        for line, text in _texts(ast.parse(path.read_text()))
        if " " in text and not text.startswith(" --") and ALONE.search(COMMAND.sub("", in_python(text)))
    ]
    assert not found, "\n".join(found)
