"""Mutants of the package: whether the quick tests see what the longer ones see.

    python tests/mutants.py --count 200 --seed 0 --out benchmarks/results/mutants.json

A mutant is a copy of the tree with one change that turns a sign, a bound, a limit or a connective, drawn from
kernels, methods and the pipeline. The test files nearest to the changed file run against it: first their
quick tests, and if these all pass, the long ones (those that ``long_tests.txt`` lists). A mutant that only a
long test fails on is given to the quick tests of all files that the change can reach. One that nothing near
it fails on says nothing about tiers: it may change no result, or only be seen from far away.

A run that ends is continued from the file of results.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import changed

ROOT = Path(__file__).resolve().parents[1]
DRAWN_FROM = ("kernels", "methods", "pipeline")
NEAREST = 10
"""Test files that are tried first."""
TIMEOUT_SECONDS = 600
"""A run of tests that takes longer counts as failed: the change made a loop without end."""

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
}
LIMITS = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum"}


class Mutant(NamedTuple):
    """A change of one expression."""

    file: str
    span: tuple[int, int, int, int]
    """Line and byte where the expression begins and ends, lines counted from 1."""
    before: str
    after: str


# Drawing ------------------------------------------------------------------------------------------


def mutants_of(path: Path) -> Iterator[Mutant]:
    """All mutants of a file."""
    for node in _expressions(ast.parse(path.read_text())):
        turned = _turned(node)
        if turned is not None:
            before, after = ast.unparse(node), ast.unparse(turned)
            after = after if isinstance(node, ast.Constant) else f"({after})"
            assert node.end_lineno is not None and node.end_col_offset is not None
            span = (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)
            yield Mutant(path.relative_to(ROOT).as_posix(), span, before, after)


def _expressions(node: ast.AST) -> Iterator[ast.expr]:
    """Expressions that are computed: none of annotations, decorators, base classes, errors and imports."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "bases"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom):
                continue
            if isinstance(child, ast.expr):
                yield child
            if isinstance(child, ast.AST):
                yield from _expressions(child)


def _turned(node: ast.expr) -> ast.expr | None:
    """An expression with its sign, bound, limit or connective turned; None if it has none."""
    new: Any = copy.deepcopy(node)
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in COMPARISONS:
            new.ops = [COMPARISONS[type(operator)]()]
        case ast.BinOp(op=operator) if type(operator) in OPERATORS:
            new.op = OPERATORS[type(operator)]()
        case ast.BoolOp(op=operator):
            new.op = ast.Or() if isinstance(operator, ast.And) else ast.And()
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            return operand
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            new.value = number + 1
        case ast.Call(func=ast.Name(id=name)) if name in LIMITS:
            new.func.id = LIMITS[name]
        case ast.Call(func=ast.Attribute(attr=name)) if name in LIMITS:
            new.func.attr = LIMITS[name]
        case _:
            return None
    return new  # type: ignore[no-any-return]


def changed_text(text: str, mutant: Mutant) -> str:
    """Text of a file with the expression of a mutant replaced."""
    lines = text.splitlines(keepends=True)
    first, begin, last, end = mutant.span
    head, tail = lines[first - 1].encode()[:begin].decode(), lines[last - 1].encode()[end:].decode()
    return "".join([*lines[: first - 1], head + mutant.after + tail, *lines[last:]])


def drawn(count: int, seed: int) -> list[Mutant]:
    """Mutants of a seed: the files in proportion to what can be turned in them."""
    folders = [ROOT / "src" / "rankfold" / name for name in DRAWN_FROM]
    files = sorted(path for folder in folders for path in folder.rglob("*.py") if "gpu" not in path.parts)
    return random.Random(seed).sample([each for path in files for each in mutants_of(path)], count)


# Trying -------------------------------------------------------------------------------------------


def nearest_tests(path: Path) -> list[str]:
    """Test files that reach a file: those of its folder first, then those with the fewest imports between."""
    steps = {test: _steps(test, path) for test in changed.test_files() if path in changed.reached(test)}
    folder = ROOT / changed.beside(path)
    order = sorted(steps, key=lambda test: (folder not in test.parents, steps[test], test.stat().st_size))
    near = [test.relative_to(ROOT).as_posix() for test in order[:NEAREST]]
    is_kernel = ROOT / "src" / "rankfold" / "kernels" in path.parents
    return [*near, *([changed.CONFORMANCE] if is_kernel and changed.CONFORMANCE not in near else [])]


def _steps(test: Path, path: Path) -> int:
    found, outer, steps = {test}, {test}, 0
    while path not in found:
        outer = {each for at in outer for each in changed.arrows(at)} - found
        found, steps = found | outer, steps + 1
    return steps


class Copy:
    """A copy of the tree in which mutants are tried."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "tree"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(self.folder)], check=True)
        makefile = (ROOT / "Makefile").read_text()
        (self.seconds,) = re.findall(r"^SECONDS := (.*)$", makefile, re.MULTILINE)
        loops = folder / "loops"
        there = os.environ.get("NUMBA_CACHE_DIR")
        if there and Path(there).is_dir():
            shutil.copytree(there, loops)
        threads = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "NUMBA")}
        source = {"PYTHONPATH": str(self.folder / "src"), "NUMBA_CACHE_DIR": str(loops)}
        self.environment = {**os.environ, **threads, **source}

    def fails(self, tests: list[str], tier: str) -> bool:
        """True if a test of a tier fails."""
        marks = f"{self.seconds} and {tier}"
        words = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", marks, *tests]
        try:
            ran = subprocess.run(
                words,
                cwd=self.folder,
                env=self.environment,
                timeout=TIMEOUT_SECONDS,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            return True
        return ran.returncode not in (0, 5)  # 5: no test of that tier

    def trial(self, mutant: Mutant) -> dict[str, Any]:
        """The tier whose tests fail first."""
        path, own = self.folder / mutant.file, ROOT / mutant.file
        before, near = path.read_text(), nearest_tests(own)
        path.write_text(changed_text(before, mutant))
        began = time.perf_counter()
        try:
            tier = "none near"
            if self.fails(near, "not long"):
                tier = "quick"
            elif self.fails(near, "long"):
                tier = "quick, farther" if self.fails(changed.tests_of([mutant.file]), "not long") else "long"
        finally:
            path.write_text(before)
        facts = {"file": mutant.file, "line": mutant.span[0], "before": mutant.before, "after": mutant.after}
        return {**facts, "seen by": tier, "seconds": round(time.perf_counter() - began)}


def main() -> None:
    """Try mutants of a seed, and count by which tier they are seen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    there = arguments.out is not None and arguments.out.exists()
    results: list[dict[str, Any]] = json.loads(arguments.out.read_text()) if there else []
    with tempfile.TemporaryDirectory(prefix="rankfold-mutants-") as folder:
        tree = Copy(Path(folder))
        for mutant in drawn(arguments.count, arguments.seed)[len(results) :]:
            results.append(tree.trial(mutant))
            print(json.dumps(results[-1]), flush=True)
            if arguments.out is not None:
                arguments.out.write_text(json.dumps(results, indent=1) + "\n")
    for tier, number in Counter(each["seen by"] for each in results).most_common():
        print(f"{number:4} {tier}")


if __name__ == "__main__":
    main()
