"""Test files that a change can reach.

    python tests/changed.py            what differs from the last commit
    python tests/changed.py BASE       what differs from a commit or branch

A test file reaches the modules that it imports, the methods that it names (``rf.pca``, or ``"pca"`` as in a
command), the helpers of ``tests`` that it imports, and whatever these import in turn. The table of methods
leads nowhere: a test of ``pca`` does not reach ``tsne`` by it. A file that is no module, such as a style
sheet or a CUDA source, is reached by the tests of the folder that it lies in.
"""

from __future__ import annotations

import argparse
import ast
import functools
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import rankfold
from rankfold import estimators
from rankfold.methods.registry import METHODS

ROOT = Path(__file__).resolve().parents[1]
SOURCE, TESTS = ROOT / "src", ROOT / "tests"
ALWAYS = "tests/architecture/test_layers.py"
CONFORMANCE = "tests/kernels/test_conformance.py"
"""Tests of all kernels, which a table names by parts of their paths."""

OTHERS = ("tests/architecture", "tests/packaging")
"""Tests of files outside the package, the tests and the documents."""

NO_ARROW = {"rankfold", "rankfold.methods.registry", "rankfold.estimators"}
"""Modules that name all methods, or estimators, without needing them."""

DISPATCH = ("rankfold.api.functions", "rankfold.methods.model", "rankfold.workflows")
"""Packages that hand over to whatever method is named: their arrows to folders of methods do not count."""


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def module_of(path: Path) -> str:
    """Name of a module of the package."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def modules() -> dict[str, Path]:
    """Files of the package, by the names of their modules."""
    return {module_of(path): path for path in (SOURCE / "rankfold").rglob("*.py")}


@functools.cache
def helpers() -> dict[str, Path]:
    """Modules that tests share, by the names by which they import them."""
    paths = [path for path in TESTS.rglob("*.py") if not path.name.startswith("test_")]
    return {path.parent.name if path.name == "__init__.py" else path.stem: path for path in paths}


def in_package(method: str) -> set[str]:
    """Modules in the folder of a method."""
    home = METHODS.ours[method].partition(":")[0].rpartition(".")[0]
    return {name for name in modules() if name == home or name.startswith(f"{home}.")}


def known(name: str) -> Iterator[str]:
    """The module that a dotted name is, or lies in, and the packages around it."""
    while name and name not in modules():
        name = name.rpartition(".")[0]
    while name:
        yield name
        name = name.rpartition(".")[0]


def imported(path: Path) -> Iterator[str]:
    """Names that a file imports, with the modules that they come from."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{each.name}" for each in node.names)


def named(path: Path) -> Iterator[str]:
    """Modules that a file names in homes (``"module:function"``), and functions of the package.

    A test names methods by their names alone as well, as in commands and tables.
    """
    is_test = TESTS in path.parents
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id in ("rf", "rankfold"):
                yield f"rankfold.{node.attr}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            word = node.value.partition(":")[0]
            if is_test or (word != node.value and word.startswith("rankfold.")):
                yield word.replace("-", "_")


def targets(name: str) -> set[str]:
    """Modules that a name stands for."""
    short = name.removeprefix("rankfold.")
    if short in METHODS.ours:
        home = rankfold._HOMES.get(short, "").partition(":")[0]
        return in_package(short) | {"rankfold.api.execute", home} & modules().keys()
    if name == short:
        return set()
    if short in rankfold._HOMES:
        return set(known(rankfold._HOMES[short].partition(":")[0]))
    package, _, last = name.rpartition(".")
    if package == "rankfold.estimators" and last in estimators.__all__:
        return set(known(getattr(estimators, last).__module__))
    return set(known(name))


@functools.cache
def arrows(path: Path) -> frozenset[Path]:
    """Files that a file needs itself."""
    own = module_of(path) if SOURCE in path.parents else ""
    if own in NO_ARROW:
        return frozenset()
    imports = {*imported(path)}
    found = {modules()[each] for name in imports | {*named(path)} for each in targets(name)}
    found |= {*path.parent.glob(f"[cg]pu/{path.name}")}  # bodies of kernels, which are found by their names
    if own.startswith(DISPATCH):
        found = {each for each in found if "methods" not in each.parts or path.parent in each.parents}
    if not own:
        words = {word for name in imports for word in name.split(".") if not name.startswith("rankfold")}
        found |= {helpers()[word] for word in words & helpers().keys()}
        if any(name.startswith("rankfold.methods.registry") for name in imports):  # of all methods, in a loop
            found |= {modules()[each] for method in METHODS.ours for each in in_package(method)}
    return frozenset(found - {path})


@functools.cache
def reached(test: Path) -> frozenset[Path]:
    """All files that a test file can depend on."""
    found, left = {test}, [test]
    while left:
        added = arrows(left.pop()) - found
        found |= added
        left += added
    return frozenset(found)


def test_files() -> list[Path]:
    return sorted(TESTS.rglob("test_*.py"))


def beside(path: Path) -> str:
    """Tests of the folder of a file of the package or of the tests: those of the nearest one that has any."""
    inside = SOURCE / "rankfold" if SOURCE in path.parents else TESTS
    folder = TESTS / path.relative_to(inside).parent
    while not folder.is_dir():
        folder = folder.parent
    return folder.relative_to(ROOT).as_posix()


def tests_of(changed: Iterable[str]) -> list[str]:
    """Test files and folders for changed files, given by their paths in the repository."""
    found, python = {ALWAYS}, set[Path]()
    for path in (ROOT / name for name in changed):
        if not {SOURCE, TESTS} & {*path.parents}:
            found |= {*OTHERS[: 1 if ROOT / "docs" in path.parents else 2]}
        elif path.suffix == ".py" and path.exists():
            python.add(path)
        else:
            found.add(
                beside(path)
            )  # nothing imports it; whoever imported a file that is gone has changed too
    if any(SOURCE / "rankfold" / "kernels" in path.parents for path in python):
        found.add(CONFORMANCE)
    found |= {test.relative_to(ROOT).as_posix() for test in test_files() if reached(test) & python}
    folders = {each for each in found if (ROOT / each).is_dir()}
    return sorted(each for each in found if not {*map(str, Path(each).parents)} & folders)


def changes(base: str) -> list[str]:
    """Paths of files that differ from a commit, and of those that git does not know yet."""
    asked = (["diff", "--name-only", base], ["ls-files", "--others", "--exclude-standard"])
    runs = [
        subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
        for words in asked
    ]
    return [line for run in runs for line in run.stdout.splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("base", nargs="?", default="HEAD")
    found = tests_of(changes(parser.parse_args().base))
    print(f"{len(found)} of {len(test_files())} test files and their folders", file=sys.stderr)
    print(*found, sep="\n")


if __name__ == "__main__":
    main()
