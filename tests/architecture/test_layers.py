"""What is forbidden by tool and not by will: imports upward, hidden settings, monsters.

Each list of exceptions may only shrink: an entry that is no longer needed fails as well.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

import rankfold

PACKAGE = Path(rankfold.__file__).parent
ROOT = Path(__file__).parents[2]
LINKS = ("kernels", "pipeline", "methods", "cluster", "workflows")
FILES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))
BELOW = {
    "kernels": (),
    "pipeline": ("kernels",),
    "methods": ("kernels", "pipeline"),
    "settings": ("pipeline",),
    "cluster": ("kernels", "pipeline", "settings"),
    "api": ("kernels", "pipeline", "methods", "settings", "cluster"),
    "estimators": ("kernels", "pipeline", "methods", "settings", "cluster", "api"),
    "scanpy": ("kernels", "pipeline", "methods", "settings", "cluster", "api"),
    "workflows": ("kernels", "pipeline", "methods", "settings", "cluster", "api"),
}
"""What each layer may import besides itself; modules at the top of the package may import everything."""

FLOORS = ("chunks", "data", "prepare", "formats", "exporting", "storage", "engine", "planning", "importing")
"""Folders of the pipeline, each of which may import those before it."""

PUBLIC = {*rankfold.__all__, "open_source"}
"""Functions that users call."""

LONGEST_FUNCTION, LONGEST_FILE = 80, 600
"""Lines beyond which one thought is rarely what is written."""

LONG_FUNCTIONS: dict[str, int] = {}
LONG_FILES: dict[str, int] = {}
NOT_WRITTEN_YET: dict[str, int] = {}
"""Places that raise NotImplementedError, and how many: what is not written yet, never a bad value."""


@cache
def tree(file: str) -> ast.Module:
    return ast.parse((PACKAGE / file).read_text())


def layer(file: str) -> str:
    """The layer of a file, or ``""`` at the top of the package."""
    return file.partition("/")[0] if "/" in file else ""


@cache
def imports(file: str) -> tuple[tuple[str, bool], ...]:
    """Modules that a file imports, and whether for type checkers alone."""
    return tuple(_imports(file))


def _imports(file: str) -> Iterator[tuple[str, bool]]:
    for_checkers = {
        inner
        for node in ast.walk(tree(file))
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node in for_checkers) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno} imports relatively"
            yield from ((f"{node.module}.{alias.name}", node in for_checkers) for alias in node.names)


def top(module: str) -> str:
    return module.partition(".")[0]


# Layers --------------------------------------------------------------------------------------------


def upward(file: str) -> Iterator[str]:
    """Imports of a file from layers that it may not see, or from floors of the pipeline above its own."""
    mine = layer(file)
    if not mine:
        return
    allowed = {mine, *BELOW[mine]} | ({"_version", "__version__"} if mine != "kernels" else set())
    for module, _ in imports(file):
        _, _, inside = module.partition("rankfold.")
        if top(module) != "rankfold" or (
            module == "rankfold" and mine in ("estimators", "scanpy", "workflows")
        ):
            continue
        if inside.partition(".")[0] not in allowed or floor(file.replace("/", ".")) < floor(inside):
            yield f"{file} imports {module}"


def floor(module: str) -> int:
    """Where a module of the pipeline stands; 0 outside its folders, or below them all."""
    layer_, _, rest = module.partition(".")
    name = rest.partition(".")[0]
    if layer_ != "pipeline":
        return len(FLOORS) + 1 if layer_ not in ("kernels", "_version", "__version__") else 0
    return FLOORS.index(name) + 1 if name in FLOORS else 0


def test_imports_point_one_way() -> None:
    assert not [offence for file in FILES for offence in upward(file)]


def test_no_module_imports_itself_by_way_of_others() -> None:
    names = {module_of(file): file for file in FILES}
    arrows: dict[str, set[str]] = {}
    for name, file in names.items():
        inside = {module for module, checkers in imports(file) if top(module) == "rankfold" and not checkers}
        arrows[name] = {m if m in names else m.rpartition(".")[0] for m in inside} & names.keys()
    finished: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join((*path[path.index(name) :], name))
        if name not in finished:
            for other in sorted(arrows[name]):
                visit(other, (*path, name))
            finished.add(name)

    for name in names:
        visit(name, ())


def module_of(file: str) -> str:
    return ("rankfold." + file.removesuffix(".py").replace("/", ".")).removesuffix(".__init__")


def test_absolute_imports_only() -> None:
    for file in FILES:
        list(imports(file))


def test_kernels_know_arrays_only() -> None:
    offences = {}
    for file in FILES:
        if layer(file) != "kernels":
            continue
        forbidden = {"dask", "distributed", "zarr", "pathlib", "os", "io", "logging", "yaml", "numba"}
        if file == "kernels/_compiled.py":  # keeps compiled loops, which come from and go to files
            forbidden -= {"pathlib", "numba"}
        forbidden |= {"cupy"} - {"cupy" if "/gpu/" in file else ""}
        forbidden -= {"numba" if "/cpu/" in file else ""}
        if foreign := {top(module) for module, _ in imports(file)} & forbidden:
            offences[file] = foreign
    assert not offences


def test_sweeps_alone_make_tasks() -> None:
    for file in FILES:
        dask = {(m, checkers) for m, checkers in imports(file) if top(m) in ("dask", "distributed")}
        if layer(file) != "pipeline" or not dask:
            continue
        if file in ("pipeline/engine/sweep.py", "pipeline/engine/pair_sweep.py"):
            of_graphs = {f"dask.highlevelgraph.{name}" for name in ("HighLevelGraph", "MaterializedLayer")}
            assert {m for m, _ in dask} <= {"dask.delayed.Delayed", "dask.delayed.delayed", *of_graphs}
        elif file == "pipeline/engine/team.py":
            assert {m for m, _ in dask} <= {"dask.annotate", "dask.delayed.Delayed", "dask.delayed.delayed"}
        elif file == "pipeline/exporting/fields.py":  # blocks of an array, for xarray's writer of files
            assert {m for m, _ in dask} <= {"dask", "dask.array", "dask.delayed.delayed"}
        elif file.startswith("pipeline/formats/"):
            assert all(m.startswith("dask.array") for m, _ in dask), f"{file} imports {dask}"
        else:
            assert all(checkers for _, checkers in dask), f"{file} imports {dask}"


def test_settings_come_as_arguments() -> None:
    for file in FILES:
        if layer(file) == "cluster" or file == "workflows/cli.py":
            continue
        for node in ast.walk(tree(file)):
            name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
            assert name not in ("environ", "getenv", "putenv"), f"{file}:{node.lineno} reads the environment"  # type: ignore[attr-defined]
        assert not {m for m, _ in imports(file)} & {"os.environ", "os.getenv"}, file


# Sizes ---------------------------------------------------------------------------------------------


def test_functions_fit_a_screen() -> None:
    long = {}
    for file in FILES:
        for node in ast.walk(tree(file)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if layer(file) == "api" or node.name in PUBLIC:  # whose docstrings are pages of the manual
                    lines -= len((ast.get_docstring(node) or "").splitlines())
                if lines > LONGEST_FUNCTION:
                    long[f"{file} {node.name}"] = lines
    assert_only_shrinks(long, LONG_FUNCTIONS)


def test_files_are_short() -> None:
    lines = {file: len((PACKAGE / file).read_text().splitlines()) for file in FILES}
    assert_only_shrinks({file: n for file, n in lines.items() if n > LONGEST_FILE}, LONG_FILES)


def test_what_is_not_implemented_is_named() -> None:
    found: dict[str, int] = {}
    for file in FILES:
        for node in ast.walk(tree(file)):
            if isinstance(node, ast.Raise) and node.exc and "NotImplementedError" in ast.unparse(node.exc):
                found[file] = found.get(file, 0) + 1
    assert_only_shrinks(found, NOT_WRITTEN_YET)


def assert_only_shrinks(found: dict[str, int], allowed: dict[str, int]) -> None:
    grown = {name: n for name, n in found.items() if n > allowed.get(name, 0)}
    assert not grown, "over the limit, or longer than its exception allows"
    assert found == allowed, "an exception is larger than what it excuses: lower or remove it"


# What a reader sees --------------------------------------------------------------------------------


def test_links_show_the_layers_first() -> None:
    for name in LINKS:
        link = ROOT / name
        assert link.is_symlink() and link.readlink().as_posix() == f"src/rankfold/{name}"
        assert (link / "__init__.py").is_file()


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        file for file in FILES if (PACKAGE / file).read_text().strip() and not ast.get_docstring(tree(file))
    ]
    assert set(silent) <= {"_version.py"}


def test_the_map_of_a_folder_names_what_is_in_it() -> None:
    """The docstring of each package is the table of its contents: every entry exists, none is left out."""
    for file in FILES:
        folder = (PACKAGE / file).parent
        if not file.endswith("__init__.py") or folder == PACKAGE or folder.name in ("cpu", "gpu"):
            continue
        text = ast.get_docstring(tree(file)) or ""
        entries = set(re.findall(r"^(?: {4})?(\w+) {2,}", text, re.MULTILINE))
        modules = {path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")}
        packages = {path.parent.name for path in folder.glob("*/__init__.py")} - {"cpu", "gpu"}
        assert entries == modules | packages, file


def test_pytest_finds_every_test(pytestconfig: pytest.Config) -> None:
    patterns = pytestconfig.getini("norecursedirs")
    folders = {p.parent.relative_to(ROOT) for p in (ROOT / "tests").rglob("test_*.py")}
    for folder in folders:
        hidden = [pattern for pattern in patterns if any(fnmatch(part, pattern) for part in folder.parts)]
        assert not hidden, f"pytest does not look into {folder}"


def test_no_two_tests_share_a_name() -> None:
    # Without packages in tests/, the name of the file is the name of the module.
    names = [path.name for path in (ROOT / "tests").rglob("*.py")]
    assert len(names) == len(set(names))
