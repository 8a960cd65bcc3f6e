"""What an installed package can lack: modules, files beside them, the command. Numbers are tested elsewhere.

``make test-wheel`` runs these outside the tree, by the interpreter that the built wheel was installed for.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer.main
from reference import same_bytes, to_zarr
from typer.testing import CliRunner

import rankfold as rf
from rankfold.cluster.profiles import shipped_profiles
from rankfold.cluster.slurm.profile import Profile, read_profile
from rankfold.workflows.cli import app
from rankfold.workflows.library import example_names

TREE = Path(__file__).parents[2] / "src" / "rankfold"
INSTALLED = Path(rf.__file__).parent
COMMANDS = sorted(typer.main.get_group(app).commands)
MADE = {".pyc", ".nbi", ".nbc"}
"""What Python and numba write beside sources."""


def files(folder: Path) -> set[str]:
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix not in MADE
    }


def rankfold(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_every_file_of_the_tree_is_there() -> None:
    assert files(INSTALLED) == files(TREE)
    data = {"py.typed", "__init__.pyi", "workflows/reports/page.html", "cluster/profiles/cpu.yaml"}
    assert data <= files(INSTALLED)


@pytest.mark.slow  # with all libraries, which nothing has loaded before
def test_every_module_can_be_imported() -> None:
    names = [module.name for module in pkgutil.walk_packages([str(INSTALLED)], "rankfold.")]
    for name in names:
        if ".gpu." not in name:  # they need CuPy
            importlib.import_module(name)
    assert len(names) > 200


def test_the_version_is_that_of_the_distribution() -> None:
    assert importlib.metadata.version("rankfold") == rf.__version__


def test_the_distribution_says_what_it_needs_and_under_what_license() -> None:
    about = importlib.metadata.metadata("rankfold")
    assert about["License-Expression"] == "Apache-2.0" and about["Requires-Python"]
    assert {"estimators", "formats", "gpu", "xarray"} <= set(about.get_all("Provides-Extra") or ())


def test_the_command_is_installed() -> None:
    (entry,) = importlib.metadata.entry_points(group="console_scripts", name="rankfold")
    assert callable(entry.load())
    script = Path(sys.executable).with_name("rankfold")
    for command in ([str(script)], [sys.executable, "-m", "rankfold"]):
        said = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True).stdout
        assert rf.__version__ in said


def test_help_names_every_command() -> None:
    said = rankfold("--help")
    assert said.exit_code == 0 and not [name for name in COMMANDS if name not in said.stdout]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_help(name: str) -> None:
    said = rankfold(name, "--help")
    assert said.exit_code == 0, said.output
    assert re.search(rf"Usage: .*{name}", said.stdout) and "--help" in said.stdout


def test_every_profile_can_be_read() -> None:
    assert shipped_profiles()
    for name, path in shipped_profiles().items():
        assert isinstance(read_profile(path), Profile), name
        assert rankfold("profile", name).stdout == path.read_text()


def test_every_workflow_is_printed_and_valid(tmp_path: Path) -> None:
    from rankfold.workflows.flows import flow_file

    assert example_names()
    for name in example_names():
        said = rankfold("example", name)
        assert said.exit_code == 0, said.output
        (tmp_path / "flow.yaml").write_text(said.stdout)
        flow, _ = flow_file.read_flow(tmp_path / "flow.yaml")
        assert flow.stages


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> str:
    x = np.random.default_rng(0).standard_normal((2000, 30), dtype=np.float32)
    return to_zarr(tmp_path_factory.mktemp("wheel") / "x.zarr", x, (200, 30))


@pytest.mark.process
def test_threads_and_processes_give_the_same_components(matrix: str, tmp_path: Path) -> None:
    here = rf.pca(matrix, 3, threads=2, memory="256MiB", out=tmp_path / "here.zarr")
    there = rf.pca(matrix, 3, workers=2, threads=1, memory="256MiB", out=tmp_path / "there.zarr")
    assert same_bytes(here) == same_bytes(there)


def test_a_report_is_made_of_its_templates(matrix: str, tmp_path: Path) -> None:
    rf.pca(matrix, 3, out=tmp_path / "r.zarr")
    said = rankfold("report", tmp_path / "r.zarr")
    assert said.exit_code == 0, said.output
    (page,) = tmp_path.rglob("*.html")
    assert page.read_text().lstrip().lower().startswith("<!doctype html>")
