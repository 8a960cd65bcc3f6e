"""Profiles: what they may say, and how mistakes in them are told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import rankfold as rf
from rankfold.cluster.slurm.profile import Profile, find_profile, read_profile

SITE = """\
# What our cluster wants.
partition: main
account: physics
walltime: 02:00:00        # unquoted: a number of base sixty to other readers of YAML
memory: 16GiB
cores: 8
interface: ib0
prologue:
  - module load python
directives: ["--qos=long"]
"""


def written(folder: Path, text: str, name: str = "site.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_profile_is_read_as_it_is_written(tmp_path: Path) -> None:
    profile = read_profile(written(tmp_path, SITE))
    assert profile == Profile(
        name="site",
        partition="main",
        account="physics",
        walltime="02:00:00",
        memory=16 * 2**30,
        cores=8,
        interface="ib0",
        prologue=("module load python",),
        directives=("--qos=long",),
    )


def test_an_empty_profile_is_the_default(tmp_path: Path) -> None:
    assert read_profile(written(tmp_path, "# nothing\n")).model_dump() == Profile(name="site").model_dump()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("partition: main\ncore: 8\n", r"site.yaml:2: core: no such key \(did you mean 'cores'\?\)"),
        ("cores: many\n", r"site.yaml:1: cores: .* not 'many'"),
        ("\n\ncores: 0\n", r"site.yaml:3: cores: takes a whole number of at least 1, not 0"),
        ("memory: 16 GX\n", r"site.yaml:1: memory: .*16 GX"),
        ("walltime: tomorrow\n", r"site.yaml:1: walltime: a walltime is written .* not 'tomorrow'"),
        ("prologue: module load\n", r"site.yaml:1: prologue: takes a list, such as .*, not 'module load'"),
        ("tls: perhaps\n", r"site.yaml:1: tls: "),
        ("- a\n- b\n", r"site.yaml:1: a profile is a list of `key: value` lines"),
        ("partition: [main\n", r"site.yaml:1: between \[ and \] a comma is missing"),
        ("core: 1\ncors: 2\n", r"site.yaml:1: core: .*\n.*site.yaml:2: cors: "),
    ],
)
def test_a_mistake_is_told_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(rf.RankfoldError, match=message) as error:
        read_profile(written(tmp_path, text))
    assert error.value.exit_code == 2


def test_profiles_are_found_by_name_and_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "config" / "rankfold" / "profiles"
    home.mkdir(parents=True)
    written(home, "partition: home\n", "site.yaml")
    assert find_profile("site").partition == "home"
    near = written(tmp_path, "partition: near\n")
    assert find_profile("site").partition == "near"
    assert find_profile(near).partition == "near"
    assert find_profile("slurm") == Profile()
    written(home, "partition: mine\n", "slurm.yaml")
    assert find_profile("slurm").partition == "mine"
    with pytest.raises(
        rf.RankfoldError, match=r"no profile 'siet'. Did you mean site\? .* put siet.yaml into"
    ):
        find_profile("siet")


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a file to somebody else takes root")
def test_a_profile_of_somebody_else_is_not_met_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "site.yaml").write_text("cores: 2\n")
    assert find_profile("site").cores == 2
    os.chown(tmp_path / "site.yaml", 54321, -1)
    with pytest.raises(
        rf.RankfoldError, match=r"site.yaml in the working folder belongs to somebody else.*\./site.yaml"
    ):
        find_profile("site")
    assert find_profile("./site.yaml").cores == 2
