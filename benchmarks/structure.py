"""How much a stranger has to read: files, classes and lines of the source, and what one call enters.

- source: files, classes, functions and lines, and of these the text, blank lines and imports
- one call of ``rf.pca`` and ``rf.umap`` of a small store: files and functions that it enters, in all threads
- places that name a method though they are no part of it: methods should be looked up, not listed
- lines of the example of a method and of a solver, without text and blank lines

python benchmarks/structure.py
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tempfile
import threading
import tokenize
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import zarr

import rankfold as rf
from rankfold.methods.registry import METHODS

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "rankfold"
TOY = ROOT / "tests" / "methods" / "toy"


def size_of(file: Path) -> Counter[str]:
    """Classes, functions and lines of a file; and its lines of text, which are strings that stand alone."""
    content, size = file.read_text(), Counter[str](files=1)
    for node in ast.walk(ast.parse(content)):
        size["classes"] += isinstance(node, ast.ClassDef)
        size["functions"] += isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if isinstance(node, ast.Import | ast.ImportFrom):
            size["imports"] += lines_of(node)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            size["text"] += lines_of(node) * (type(node.value.value) is str)
    size["lines"] = content.count("\n")
    size["blank"] = sum(not line.strip() for line in content.splitlines())
    return size


def lines_of(node: ast.stmt) -> int:
    """Number of lines of a statement."""
    return (node.end_lineno or node.lineno) - node.lineno + 1


def entered(call: Callable[[], Any]) -> tuple[int, int]:
    """Files and functions of rankfold that a call enters, in all threads."""
    codes: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            codes.add(frame.f_code)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    ours = [each for each in codes if each.co_filename.startswith(str(SOURCE)) and each.co_name[0] != "<"]
    return len({each.co_filename for each in ours}), len(ours)


def calls(folder: Path) -> dict[str, tuple[int, int]]:
    """What calls of methods enter once everything is imported, by method."""
    x = np.random.default_rng(0).random((4000, 64))
    store = zarr.create_array(folder / "x.zarr", shape=x.shape, chunks=(1000, 64), dtype="f8")
    store[...] = x
    near = rf.knn(x[:500], 14, out=folder / "near.zarr")
    made = {
        "pca": lambda out: rf.pca(folder / "x.zarr", rank=5, out=out),
        "umap": lambda out: rf.umap(near.path, n_epochs=20, out=out),
    }
    found = {}
    for name, make in made.items():
        make(folder / f"{name}-first.zarr")
        found[name] = entered(lambda make=make, name=name: make(folder / f"{name}.zarr"))  # type: ignore[misc]
    return found


def named_elsewhere() -> Counter[str]:
    """Places that name a method as text, by file, outside its folder, the registry and the package's list."""
    count = Counter[str]()
    for file in sorted(SOURCE.rglob("*.py")):
        place = file.relative_to(SOURCE)
        if place.name == "__init__.py" or str(place) == "methods/registry.py":
            continue
        for token in tokenize.generate_tokens(io.StringIO(file.read_text()).readline):
            name = token.string.strip("\"'") if token.type == tokenize.STRING else ""
            if name in METHODS.ours and METHODS.ours[name].split(".")[2] not in place.parts:
                count[place.as_posix()] += 1
    return count


def main() -> None:
    """Print the table."""
    size = sum(map(size_of, SOURCE.rglob("*.py")), Counter[str]())
    print(f"source: {size['files']} files, {size['classes']} classes, {size['functions']} functions")
    parts = ", ".join(f"{size[name]} {name}" for name in ("text", "blank", "imports"))
    print(f"lines: {size['lines']}, of these {parts}")
    with tempfile.TemporaryDirectory(prefix="rankfold-structure-") as folder:
        for name, (files, functions) in calls(Path(folder)).items():
            print(f"rf.{name} of a small store: {files} files, {functions} functions")
    print(f"names of methods elsewhere: {named_elsewhere().total()}")
    for name in ("column_sums", "power"):
        own = size_of(TOY / f"{name}.py")
        print(f"{name}: {own['lines'] - own['text'] - own['blank']} lines of code")
    declared = [(SOURCE / "methods").glob("*/arguments.py"), (SOURCE / "methods").glob("*/request.py")]
    fields = [
        set(re.findall(r"^    (\w+): ", "".join(f.read_text() for f in files), re.M)) for files in declared
    ]
    print(f"names that are declared as an argument and again in a request: {len(fields[0] & fields[1])}")


if __name__ == "__main__":
    main()
