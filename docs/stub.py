"""Types of the public names, for editors and type checkers, into ``src/rankfold/__init__.pyi``.

``python docs/stub.py`` writes them: signatures of methods from their declarations, other names as imports.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import rankfold
from rankfold.api.method_function import takes_of
from rankfold.methods.registry import METHODS

STUB = Path(__file__).parents[1] / "src" / "rankfold" / "__init__.pyi"

HEAD = '''\
"""Signatures of the public functions. ``python docs/stub.py`` writes this file."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Unpack

from rankfold._version import __version__
'''

TYPES = {
    "rankfold.api.functions.embedding_quality": ("Quality",),
    "rankfold.api.functions.models": ("Matrix",),
    "rankfold.api.where": ("GrowOptions", "MatrixOptions", "RunOptions"),
    "rankfold.pipeline.engine.run": ("Progress",),
}
"""Types that signatures name, by module."""


def stub() -> str:
    """Text of the stub."""
    own = [name for name in sorted(rankfold._HOMES) if name in METHODS.ours]
    others = [name for name in rankfold._HOMES if name not in own]
    names = "\n".join(["__all__ = [", *(f'    "{name}",' for name in rankfold.__all__), "]"])
    functions = "\n".join(line for name in own for line in _function(name))
    return "\n\n".join([HEAD + _imports(others), names, functions]) + "\n"


def _imports(names: list[str]) -> str:
    """Imports of types and of names that are no functions of methods."""
    parts: dict[str, list[str]] = {module: [*each] for module, each in TYPES.items()}
    for name in names:
        module, _, attribute = rankfold._HOMES[name].partition(":")
        parts.setdefault(module, []).append(f"{attribute} as {name}" if attribute else name)
    lines = []
    for module in sorted(parts):
        plain = [each for each in parts[module] if " as " not in each]
        lines += [f"from {module} import {', '.join(sorted(plain))}"] if plain else []
        lines += [f"from {module} import {each}" for each in parts[module] if " as " in each]
    return "\n".join(lines)


def _function(name: str) -> Iterator[str]:
    """Lines of the declaration of a method's function."""
    signature = inspect.signature(getattr(rankfold, name))
    takes = takes_of(METHODS[name])
    where = takes.__annotations__ if takes.__annotations__.keys() <= signature.parameters.keys() else {}
    yield f"def {name}("
    star = False
    for each in signature.parameters.values():
        if each.name in where:
            continue
        if each.kind is each.KEYWORD_ONLY and not star:
            star = True
            yield "    *,"
        default = "" if each.default is each.empty else f" = {_literal(each.default)}"
        yield f"    {each.name}: {each.annotation}{default},"
    if where:
        yield f"    **where: Unpack[{takes.__name__}],"
    yield f") -> {signature.return_annotation}: ..."


def _literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


if __name__ == "__main__":
    STUB.write_text(stub())
