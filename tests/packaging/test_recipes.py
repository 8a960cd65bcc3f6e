"""Recipes of others, and images, ask for what ``pyproject.toml`` asks for, and name files that exist."""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import rankfold

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
CONTAINERS = ROOT / "containers"

CONDA_NAMES = {"dask": "dask-core", "matplotlib": "matplotlib-base"}
"""Of packages of conda-forge that hold what the project asks for, and nothing that it does not."""


def normalized(requirements: list[str]) -> dict[str, SpecifierSet]:
    wanted = [Requirement(text) for text in requirements]
    return {each.name.lower(): each.specifier for each in wanted}


NEEDS = normalized(PROJECT["dependencies"])


# conda ----------------------------------------------------------------------------------------------


def recipe() -> dict[str, Any]:
    text = (ROOT / "packaging" / "conda" / "recipe" / "recipe.yaml").read_text()
    context = yaml.safe_load(text)["context"]
    for key, value in context.items():
        text = text.replace(f"${{{{ {key} }}}}", value)
    return dict(yaml.safe_load(text))


def test_the_recipe_of_conda_asks_for_what_the_project_asks_for() -> None:
    run = [
        line.replace(" ", "==" if line.endswith(".*") else "", 1) for line in recipe()["requirements"]["run"]
    ]
    there = normalized(run)
    assert there.pop("python") == SpecifierSet(PROJECT["requires-python"])
    assert there == {CONDA_NAMES.get(name, name): specifier for name, specifier in NEEDS.items()}


def test_the_recipe_of_conda_builds_this_version() -> None:
    made = recipe()
    assert made["package"] == {"name": "rankfold", "version": rankfold.__version__}
    assert made["build"]["python"]["entry_points"] == [
        f"{name} = {target}" for name, target in PROJECT["scripts"].items()
    ]
    assert (
        made["about"]["license"] == PROJECT["license"] and made["about"]["summary"] == PROJECT["description"]
    )
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert (
        normalized(build).items()
        <= normalized([x.replace(" ", "", 1) for x in made["requirements"]["host"] if ">=" in x]).items()
    )


# Spack ----------------------------------------------------------------------------------------------


def spack_calls(name: str) -> list[ast.Call]:
    tree = ast.parse((ROOT / "packaging" / "spack" / "package.py").read_text())
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
    ]


def in_words_of_spack(specifier: SpecifierSet) -> str:
    """A range with both ends, the upper one the last version line that is in it.

    >>> in_words_of_spack(SpecifierSet(">=3.1.6,<4")), in_words_of_spack(SpecifierSet("==0.9.*"))
    ('3.1.6:3', '0.9')
    """
    bounds = {each.operator: each.version for each in specifier}
    if "==" in bounds:
        return bounds["=="].removesuffix(".*")
    *line, last = bounds.get("<", "0").split(".")
    upper = ".".join([*line, str(int(last) - 1)]) if "<" in bounds else ""
    return f"{bounds['>=']}:{upper}"


def test_the_package_of_spack_asks_for_what_the_project_asks_for() -> None:
    always: dict[str, str] = {}
    variants: dict[str, dict[str, str]] = {}
    for call in spack_calls("depends_on"):
        name, _, version = ast.literal_eval(call.args[0]).partition("@")
        when = next((ast.literal_eval(k.value) for k in call.keywords if k.arg == "when"), "")
        (variants.setdefault(when.removeprefix("+"), {}) if when else always)[name.removeprefix("py-")] = (
            version
        )
    assert always.pop("setuptools") == "77:"
    assert always.pop("python") == in_words_of_spack(SpecifierSet(PROJECT["requires-python"]))
    assert always == {name: in_words_of_spack(specifier) for name, specifier in NEEDS.items()}
    assert variants.keys() == {ast.literal_eval(call.args[0]) for call in spack_calls("variant")}
    for extra, needs in variants.items():
        assert needs == {n: in_words_of_spack(s) for n, s in normalized(EXTRAS[extra]).items()}


def test_the_package_of_spack_is_of_this_version() -> None:
    assert [ast.literal_eval(call.args[0]) for call in spack_calls("version")] == [rankfold.__version__]
    text = (ROOT / "packaging" / "spack" / "package.py").read_text()
    assert f'pypi = "rankfold/rankfold-{rankfold.__version__}.tar.gz"' in text


# Modules --------------------------------------------------------------------------------------------


def module_file() -> Path:
    (path,) = (ROOT / "packaging" / "modules" / "rankfold").glob("*.lua")
    return path


def test_the_module_is_of_this_version() -> None:
    path = module_file()
    assert path.stem == rankfold.__version__
    assert {*re.findall(r"\d+\.\d+\.\d+", path.read_text())} == {rankfold.__version__}


LMOD = Path("/usr/share/lmod/lmod/libexec/lmod")


@pytest.mark.skipif(not LMOD.exists(), reason="there is no Lmod; on Debian: apt-get install lmod")
def test_the_module_can_be_loaded() -> None:
    ran = subprocess.run(
        [str(LMOD), "bash", "load", "rankfold"],
        env={"MODULEPATH": str(module_file().parents[1]), "HOME": "/home/anna", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"/apps/rankfold/{rankfold.__version__}/bin:" in ran.stdout
    assert f"/home/anna/.cache/rankfold-{rankfold.__version__}" in ran.stdout


# Images ---------------------------------------------------------------------------------------------


def instructions() -> list[tuple[str, str]]:
    """Of the Dockerfile, each on one line."""
    text = (CONTAINERS / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


def sections() -> dict[str, list[str]]:
    """Of the definition of Apptainer: their lines."""
    found: dict[str, list[str]] = {"": []}
    lines: list[str] = found[""]
    for line in (CONTAINERS / "rankfold.def").read_text().splitlines():
        if match := re.fullmatch(r"%(\w+)", line):
            lines = found.setdefault(match[1], [])
        elif line.strip() and not line.startswith("#"):
            lines.append(line.strip())
    return found


def test_the_dockerfile_is_well_formed() -> None:
    known = {"FROM", "ARG", "LABEL", "COPY", "RUN", "ENV", "USER", "WORKDIR", "ENTRYPOINT", "CMD"}
    words = [word for word, _ in instructions()]
    assert words[0] == "FROM" and {*words} == known
    by_word = dict(instructions())
    assert by_word["USER"] == "rankfold" and words.index("USER") > words.index("RUN")
    assert ast.literal_eval(by_word["ENTRYPOINT"]) == ["rankfold"]
    assert all("=" in pair for pair in shlex.split(by_word["ENV"]))


def test_what_is_copied_into_images_exists() -> None:
    copied = [shlex.split(rest)[:-1] for word, rest in instructions() if word == "COPY"]
    into_docker = {name for names in copied for name in names}
    into_apptainer = {line.split()[0] for line in sections()["files"]}
    assert into_docker == into_apptainer
    assert all((ROOT / name).exists() for name in into_docker)
    # All that the wheel is built from.
    assert {"pyproject.toml", "src", PROJECT["readme"], *PROJECT["license-files"]} <= into_docker


def test_both_images_are_alike() -> None:
    by_word, apptainer = dict(instructions()), sections()
    extras = dict(line.split("=", 1) for line in apptainer["arguments"])["EXTRAS"]
    assert by_word["ARG"] == f"EXTRAS={extras}"
    assert by_word["RUN"].replace("${EXTRAS}", "{{ EXTRAS }}") == apptainer["post"][0]
    environment = {pair for line in apptainer["environment"] for pair in shlex.split(line) if "=" in pair}
    assert environment <= {*shlex.split(by_word["ENV"])}
    assert by_word["FROM"].endswith(apptainer[""][1].removeprefix("From: "))
    assert apptainer["runscript"] == ['exec rankfold "$@"']


def test_images_take_extras_that_exist() -> None:
    texts = [(CONTAINERS / name).read_text() for name in ("Dockerfile", "rankfold.def")]
    for text in texts:
        named = re.findall(r"EXTRAS=([\w,-]+)", text)
        assert len(named) == 2 and any("gpu" in each.split(",") for each in named)
        for each in named:
            assert {*each.split(",")} <= EXTRAS.keys()


def test_images_have_one_thread_below_workers() -> None:
    from rankfold.cluster.local.processes import ONE_THREAD

    environment = dict(pair.split("=", 1) for pair in shlex.split(dict(instructions())["ENV"]))
    threads = {name: value for name, value in environment.items() if name.endswith("_NUM_THREADS")}
    assert threads.items() <= ONE_THREAD.items() and "OMP_NUM_THREADS" in threads


@pytest.mark.parametrize("script", sorted(CONTAINERS.glob("*.sh")), ids=lambda path: path.name)
def test_scripts_of_images_can_be_read(script: Path) -> None:
    subprocess.run(["sh", "-n", str(script)], check=True)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", str(script)], check=True)


@pytest.mark.slow  # compiles some 150 loops
def test_what_an_image_has_compiled_is_not_compiled_again(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(CONTAINERS / "compile_kernels.py")]
    counts = [
        int(
            subprocess.run(
                command, env=environment, capture_output=True, text=True, check=True
            ).stdout.split()[0]
        )
        for _ in range(2)
    ]
    assert counts[0] > 100 and counts[1] == 0
