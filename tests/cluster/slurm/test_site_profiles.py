"""The profiles that come with rankfold: what they make of a job, line by line, and how they are found."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from site_guide import BEGIN, GUIDE, sections
from site_scripts import STORED, allocation, site_scripts, worker_job
from slurm_cluster import SlurmCluster
from typer.testing import CliRunner

import rankfold as rf
from rankfold.cluster.profiles import shipped_profiles, summary
from rankfold.cluster.slurm.profile import find_profile, read_profile
from rankfold.workflows.cli import app

SITES = ("frontier", "leonardo", "lumi-c", "lumi-g", "perlmutter", "perlmutter-gpu")
NODES = {"frontier": (56, 512), "leonardo": (32, 494_000 / 2**10), "lumi-c": (128, 224), "lumi-g": (56, 512)}
NODES |= {"perlmutter": (128, 512 * 10**9 / 2**30), "perlmutter-gpu": (64, 256 * 10**9 / 2**30)}
"""Cores that a job may have on a node, and GiB of memory."""

PAGE = Path(__file__).parents[3] / "docs" / "slurm.md"


def test_job_scripts_are_as_stored() -> None:
    made = dict(site_scripts())
    assert sorted(made) == sorted(STORED.glob("*.sh"))
    for path, text in made.items():
        assert text.splitlines() == path.read_text().splitlines(), path.name
        subprocess.run(["bash", "-n"], input=text, text=True, check=True)


def test_all_are_there_and_say_where_they_are_from() -> None:
    assert sorted(shipped_profiles()) == sorted([*SITES, "cpu", "gpu"])
    for name, path in shipped_profiles().items():
        text = path.read_text()
        assert summary(path).endswith(".") and "# Change: " in text
        assert read_profile(path).account is None  # nobody pays by mistake
        if name in SITES:
            assert "read in November 2026" in text and "# Not verified: " in text


@pytest.mark.parametrize("name", SITES)
def test_a_node_of_a_site_holds_what_is_asked_of_it(name: str) -> None:
    profile, (cores, gibibytes) = find_profile(name), NODES[name]
    assert profile.cores * profile.workers_per_node <= cores
    assert (profile.memory or 0) * (profile.workers_per_node + 1) <= gibibytes * 2**30


def test_a_file_of_ones_own_is_found_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    assert find_profile("lumi-c").partition == "small"
    (tmp_path / "lumi-c.yaml").write_text("partition: mine\n")
    assert find_profile("lumi-c").partition == "mine"
    with pytest.raises(
        rf.RankfoldError, match=r"no profile 'lumi'\. Did you mean lumi-\w\? .* With rankfold come cpu, "
    ):
        find_profile("lumi")


def test_the_command_lists_and_prints_them(tmp_path: Path) -> None:
    listed = CliRunner().invoke(app, ["profile"]).stdout.splitlines()
    assert [line.split()[0] for line in listed] == list(shipped_profiles())
    printed = CliRunner().invoke(app, ["profile", "gpu"]).stdout
    (tmp_path / "gpu.yaml").write_text(printed)
    assert read_profile(tmp_path / "gpu.yaml") == find_profile("gpu")
    wrong = CliRunner().invoke(app, ["profile", "lumi"])
    assert wrong.exit_code == 2 and "no such profile 'lumi' (did you mean 'lumi-" in wrong.output


def test_the_documented_table_is_that_of_the_command() -> None:
    listed = {name: summary(path) for name, path in shipped_profiles().items()}
    section = PAGE.read_text().partition("## Profiles that come with rankfold")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| ([\w-]+) \| ([^|]*) \|$", section, re.M))
    assert rows == {"profile": "for", **listed}


def test_the_guide_has_steps_for_each_of_them() -> None:
    by_hand, _, made = GUIDE.read_text().partition(BEGIN)
    assert made.strip() == sections().strip()
    assert re.findall(r"(?m)^### ([\w-]+)$", made) == list(shipped_profiles())
    for name in SITES:
        part = made.partition(f"### {name}\n")[2].partition("\n### ")[0]
        assert "- Not verified: " in part and f"rankfold doctor --cluster my-{name}.yaml" in part
    assert "None of these steps was tried at the\nsites named here" in by_hand


@pytest.mark.slurm
@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_slurm_takes_the_generic_ones(tmp_path: Path, slurm: SlurmCluster, name: str) -> None:
    # As they are, but for the nodes of the test, which are small.
    profile = find_profile(name).model_copy(update={"cores": 1, "memory": 2**30})
    for script in (worker_job(profile), allocation(profile)):
        asked = subprocess.run(["sbatch", "--test-only"], input=script, capture_output=True, text=True)
        assert asked.returncode == 0, asked.stderr
