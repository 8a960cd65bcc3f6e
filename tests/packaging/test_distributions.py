"""What the wheel and the sdist consist of, as they are built from this tree: the wheel from the sdist."""

from __future__ import annotations

import email
import importlib.metadata
import itertools
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "rankfold"
MADE = {".pyc", ".nbi", ".nbc"}
"""What Python and numba write beside sources."""

TEXTS = ("CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "README.md")
BESIDE_SOURCES = {*TEXTS, "MANIFEST.in", "PKG-INFO", "pyproject.toml", "setup.cfg"}
"""All that the sdist has besides the package: no tests, no benchmarks, no data."""

LARGEST_BYTES = 4 * 2**20


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist, and the wheel that is built from it, of a copy: a build writes into its tree."""
    tree, target = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("dist")
    for name in (*TEXTS, "MANIFEST.in", "pyproject.toml"):
        shutil.copy(ROOT / name, tree)
    made = shutil.ignore_patterns("__pycache__", "*.egg-info", *(f"*{suffix}" for suffix in MADE))
    shutil.copytree(ROOT / "src", tree / "src", ignore=made)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(target), str(tree)]
    build = subprocess.run(command, capture_output=True, text=True, check=False)
    assert build.returncode == 0, build.stdout[-2000:] + build.stderr[-2000:]
    (sdist,), (wheel,) = target.glob("*.tar.gz"), target.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="session")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def package_files() -> set[str]:
    paths = (path for path in SOURCES.rglob("*") if path.is_file() and path.suffix not in MADE)
    return {f"rankfold/{path.relative_to(SOURCES).as_posix()}" for path in paths}


def members_of_sdist(sdist: Path) -> set[str]:
    with tarfile.open(sdist) as archive:
        return {name.partition("/")[2] for name in archive.getnames() if archive.getmember(name).isfile()}


def metadata_of_wheel(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_string(archive.read(name).decode())


@pytest.mark.process
def test_the_wheel_is_the_package_and_nothing_else(distributions: tuple[Path, Path]) -> None:
    wheel = distributions[1]
    assert wheel.stat().st_size < LARGEST_BYTES
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    about = {name for name in names if name.split("/")[0].endswith(".dist-info")}
    assert names - about == package_files()
    assert {name.rpartition("/")[2] for name in about} >= {"LICENSE", "METADATA", "entry_points.txt"}


@pytest.mark.process
def test_the_sdist_is_the_package_and_what_describes_it(distributions: tuple[Path, Path]) -> None:
    sdist = distributions[0]
    assert sdist.stat().st_size < LARGEST_BYTES
    names = members_of_sdist(sdist)
    sources = {name for name in names if name.startswith("src/rankfold/")}
    assert sources == {f"src/{name}" for name in package_files()}
    rest = {name for name in names - sources if not name.startswith("src/rankfold.egg-info/")}
    assert rest == BESIDE_SOURCES


@pytest.mark.process
def test_what_is_no_module_comes_along(distributions: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(distributions[1]) as archive:
        names = set(archive.namelist())
    wanted: tuple[tuple[Path, Callable[[Path], bool]], ...] = (
        (SOURCES / "cluster" / "profiles", lambda path: path.suffix == ".yaml"),
        (SOURCES / "workflows" / "library", lambda path: path.suffix == ".yaml"),
        (SOURCES / "workflows" / "reports", lambda path: path.suffix == ".html"),
        (SOURCES / "kernels", lambda path: path.suffix in (".cu", ".cuh")),
    )
    for folder, is_wanted in wanted:
        there = {path.relative_to(SOURCES.parent).as_posix() for path in folder.rglob("*") if is_wanted(path)}
        assert there and there <= names, folder
    assert {"rankfold/py.typed", "rankfold/__init__.pyi"} <= set(names)


@pytest.mark.process
def test_the_metadata_are_those_of_the_project(
    distributions: tuple[Path, Path], project: dict[str, Any]
) -> None:
    about = metadata_of_wheel(distributions[1])
    version = re.search(r'"(.+)"', (SOURCES / "_version.py").read_text().partition("__version__")[2])
    assert version and about["Version"] == version[1]
    assert about["Summary"] == project["description"] and about["License-Expression"] == project["license"]
    assert about.get_all("License-File") == project["license-files"] == ["LICENSE"]
    assert str(about.get_payload()).strip() == (ROOT / "README.md").read_text().strip()
    extras = set(project["optional-dependencies"])
    assert set(about.get_all("Provides-Extra") or ()) == extras
    needs = [need for need in about.get_all("Requires-Dist") or () if "extra ==" not in need]
    assert len(needs) == len(project["dependencies"])


def test_the_classifiers_are_the_versions_that_are_allowed(project: dict[str, Any]) -> None:
    lowest, highest = (int(minor) for minor in re.findall(r"3\.(\d+)", project["requires-python"]))
    allowed = {f"Programming Language :: Python :: 3.{minor}" for minor in range(lowest, highest)}
    named = {each for each in project["classifiers"] if re.search(r":: 3\.\d+$", each)}
    assert named == allowed


# What cites it ----------------------------------------------------------------------------------------


def citation() -> dict[str, Any]:
    import yaml

    about: dict[str, Any] = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    return about


def test_the_citation_has_what_its_schema_requires(project: dict[str, Any]) -> None:
    about = citation()
    assert {"cff-version", "message", "title", "authors"} <= set(about)
    assert about["cff-version"] == "1.2.0" and about["type"] == "software"
    assert about["title"] == project["name"] and about["license"] == project["license"]
    assert about["keywords"] == project["keywords"]
    assert all(set(author) <= {"name", "family-names", "given-names"} for author in about["authors"])


def test_version_and_date_are_one_in_citation_changelog_and_package() -> None:
    about, version = citation(), (SOURCES / "_version.py").read_text().rpartition('= "')[2].strip().strip('"')
    headings = re.findall(r"^## \[(.+?)\](?: - (\S+))?$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert headings[0] == ("Unreleased", "")
    assert headings[1] == (about["version"], str(about["date-released"])) == (version, headings[1][1])
    dates = [date for _, date in headings[1:]]
    assert all(later >= earlier for later, earlier in itertools.pairwise(dates))


# What it needs -------------------------------------------------------------------------------------------


def test_each_declared_dependency_is_listed_with_a_license() -> None:
    written = runpy.run_path(str(ROOT / "docs" / "licenses.py"))
    declared, rows = written["declared"](), written["earlier_rows"](written["PAGE"].read_text())
    assert list(rows) == list(declared)
    for package, row in rows.items():
        _, needed_by, version, license_ = row.strip("| ").split(" | ")
        assert needed_by == (", ".join(f"`{extra}`" for extra in declared[package]) or "all"), package
        assert version and license_ and license_ != "not stated", package


def test_the_script_writes_a_row_of_what_is_installed() -> None:
    written = runpy.run_path(str(ROOT / "docs" / "licenses.py"))
    page = written["PAGE"].read_text()
    rows = [row for row in written["table"](page) if row.startswith("| `dask` ")]
    assert rows == [
        f"| `dask` | all | {importlib.metadata.version('dask')} | {written['license_of']('dask')} |"
    ]
