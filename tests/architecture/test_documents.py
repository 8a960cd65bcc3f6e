"""What the documents name exists: files, commands, options, functions, and the Python they show runs."""

from __future__ import annotations

import functools
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import rankfold
from rankfold.workflows.cli import app

ROOT = Path(__file__).parents[2]
TOP = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
PAGES = [*TOP, *sorted((ROOT / "docs").rglob("*.md"))]
FOREIGN = ("--cpus-per-task", "--gpus-per-task", "--nodes", "--ntasks-per-node", "--qos", "--signal")
FOREIGN += ("--test-only", "--time", "--bind", "--build-arg", "--gpus", "--nv")
FOREIGN += ("--bfile", "--make-bed", "--merge-list", "--pfile", "--recode", "--ref-allele", "--vcf")
"""Options of SLURM, Apptainer, Docker and PLINK."""

APP = typer.main.get_command(app)
COMMANDS = tuple(sorted(APP.commands))  # type: ignore[attr-defined]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_linked_and_named_files_exist(page: Path) -> None:
    text = page.read_text()
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (page.parent / target).exists(), target
    for target in re.findall(
        r"`((?:tests|benchmarks|docs|src|examples|containers|packaging)/[\w./-]+)`", text
    ):
        assert (ROOT / target).exists(), target


@functools.cache
def help_of_all() -> str:
    return "".join(CliRunner(env={"COLUMNS": "200"}).invoke(app, [c, "--help"]).stdout for c in COMMANDS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_options_and_commands_exist(page: Path) -> None:
    known = help_of_all()
    text = page.read_text()
    for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", text):
        assert option in known or option in FOREIGN, option
    for command in re.findall(r"(?:^\$ |`)rankfold ([a-z]+(?:-[a-z]+)*)", text, re.M):
        assert command in COMMANDS, command


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", ROOT / "docs" / "every-command.md"], ids=lambda p: p.name
)
def test_commands_of_the_readme_are_complete(page: Path) -> None:
    """Every line has what its command requires, and values that it takes."""
    lines = re.findall(r"^\$ (?:mpiexec -n 4 )?rankfold (.+)$", page.read_text(), re.M)
    for line in lines:
        words = shlex.split(line.partition(" > ")[0], comments=True)
        APP.commands[words[0]].make_context(words[0], words[1:])  # type: ignore[attr-defined]
    assert page.name == "README.md" or {line.split()[0] for line in lines} >= {*COMMANDS} - {"demo"}


def test_the_readme_claims_what_the_benchmark_has() -> None:
    (claim,) = re.findall(r"^> (.+?)\(\[bench", (ROOT / "README.md").read_text(), re.M | re.S)
    error, ours, dask, sklearn = re.findall(r"\d[\d.]*e-\d+|[\d.]+(?= s\b)", claim)
    page, error = (ROOT / "docs" / "benchmarks.md").read_text(), f"{float(error):.1e}"
    assert f"| {error} | 1 pass, {ours} s | 4 passes, {dask} s (" in page
    assert re.search(rf"^\| {error} .*passes, {sklearn} s \(.*\|$", page, re.M)
    assert f"to {re.findall(r'at most (.+) MiB', claim)[0]} MiB, Dask" in page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_functions_exist(page: Path) -> None:
    for name in re.findall(r"\brf\.([a-z_]+)\(", page.read_text()):
        assert hasattr(rankfold, name), name


def test_the_python_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import zarr

    monkeypatch.chdir(tmp_path)
    data = np.random.default_rng(0).standard_normal((400, 60))
    zarr.create_array("store.zarr", shape=data.shape, dtype=data.dtype, chunks=(100, 60))[...] = data
    code = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)[0]
    exec(compile(code, "README.md", "exec"), {})
    assert rankfold.open_result("pca.zarr").components.shape == (50, 60)


def test_make_targets_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"\bmake ([a-z]+)", (ROOT / "README.md").read_text()):
        assert re.search(rf"^{target}:", makefile, re.M), target


def test_the_keys_of_a_profile_are_those_documented() -> None:
    from rankfold.cluster.slurm.profile import Profile

    page = (ROOT / "docs" / "slurm.md").read_text()
    table = "\n".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))
    assert set(re.findall(r"`(\w+)`", table)) == set(Profile.model_fields) - {"name"}


def test_the_profile_in_the_documents_is_valid(tmp_path: Path) -> None:
    from rankfold.cluster.slurm.profile import read_profile

    text = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "slurm.md").read_text(), re.S)[0]
    (tmp_path / "site.yaml").write_text(text)
    assert read_profile(tmp_path / "site.yaml").account == "physics"


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_workflows_in_the_documents_are_valid(page: Path, tmp_path: Path) -> None:
    from rankfold.workflows.flows.flow_file import read_flow

    for number, text in enumerate(re.findall(r"```yaml\n(workflow:.*?)```", page.read_text(), re.S)):
        (tmp_path / f"{number}.yaml").write_text(text)
        assert read_flow(tmp_path / f"{number}.yaml")[0].stages


def test_the_readme_tells_the_size_that_the_demo_does() -> None:
    from rankfold.workflows import demo

    (size,) = re.findall(r"(\d+ MiB), reduced within", (demo.__doc__ or "").replace("\n", " "))
    assert f"image patches, {size}, principal components" in (ROOT / "README.md").read_text()
