"""Tiers are kept: covers have every pair, slow tests need a mark, and files that are left behind are seen."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from covers import cover, spread
from hypothesis import given
from hypothesis import strategies as st
from tiers import LONG_TESTS, Clock

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests"

INNER = {
    "conftest.py": """
        import os, tiers
        tiers.LIMIT_SECONDS = 0.05
        os.getloadavg = lambda: (0.0, 0.0, 0.0)
        pytest_plugins = ["tiers", "leftovers"]
    """,
    "test_inner.py": """
        import pathlib, tempfile, time, pytest

        def work():
            end = time.process_time() + 0.5
            while time.process_time() < end:
                pass

        @pytest.fixture(scope="module")
        def shared():
            work()

        @pytest.fixture
        def its_own():
            work()

        def test_without_a_mark():
            work()

        def test_whose_fixture_takes_long(its_own):
            pass

        @pytest.mark.slow
        def test_with_a_mark():
            work()

        def test_that_is_the_first_to_share(shared):
            pass

        def test_that_leaves_something():
            tempfile.mkdtemp(prefix="forgotten-")
            pathlib.Path("here.txt").write_text("")

        def test_that_cleans_up(tmp_path):
            with tempfile.TemporaryDirectory() as folder:
                (tmp_path / "kept.txt").write_text(folder)
    """,
}


def quick(parameters: list[object]) -> list[tuple[object, ...]]:
    return [each.values for each in parameters if not each.marks]  # type: ignore[attr-defined]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(1, 2))
def test_a_cover_has_every_pair_and_the_rest_is_there_too(sizes: list[int], strength: int) -> None:
    axes = [[f"{axis}{i}" for i in range(size)] for axis, size in zip("abcd", sizes, strict=False)]
    made = cover(*axes, strength=strength)
    assert [each.values for each in made] == list(itertools.product(*axes))
    strength = min(strength, len(axes))
    wanted = {
        pair for chosen in itertools.combinations(axes, strength) for pair in itertools.product(*chosen)
    }
    assert {pair for values in quick(made) for pair in itertools.combinations(values, strength)} == wanted
    if strength == 1:
        assert len(quick(made)) == max(sizes)


def test_marks_and_names_of_values_are_kept() -> None:
    gpu = pytest.param("gpu", marks=pytest.mark.gpu, id="device")
    made = cover(["cpu", gpu], [1, pytest.param(2, id="two")], [int, float])
    assert made[0].id == "cpu-1-int" and made[-1].id == "device-two-float"
    assert all(("gpu" in {mark.name for mark in each.marks}) == ("gpu" in each.values) for each in made)


@given(st.integers(1, 9), st.integers(1, 30))
def test_a_spread_has_as_many_as_are_asked_for(count: int, size: int) -> None:
    made = spread(count, range(size))
    assert len(made) == size and len(quick(made)) == min(count, size)


@pytest.mark.parametrize(
    ("clock", "seconds"),
    [
        (Clock(wall=30, processor=3, stalled=26), 4),  # beside others
        (Clock(wall=30, processor=3, stalled=None), 3),
        (Clock(wall=12, processor=1, stalled=0), 12),  # asleep
        (Clock(wall=6, processor=11, stalled=4), 6),  # on two processors
    ],
)
def test_seconds_are_those_of_a_machine_without_other_work(clock: Clock, seconds: float) -> None:
    assert clock.own_seconds == seconds


def test_slow_tests_without_a_mark_fail_and_what_is_left_behind_is_told(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for name, text in INNER.items():
        (tmp_path / name).write_text(re.sub(r"^ {8}", "", text, flags=re.MULTILINE))
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow: slow\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment["PYTEST_DEBUG_TEMPROOT"] = str(tmp_path_factory.mktemp("kept"))
    environment |= {"PYTHONPATH": os.pathsep.join([str(FOLDER), *filter(None, sys.path)])}
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ran.returncode == 1
    assert "2 failed, 4 passed" in ran.stdout, ran.stdout
    for name in ("without_a_mark", "whose_fixture_takes_long"):
        assert re.search(rf"test_{name} takes [01] s, and a test without a mark may take 0.05 s", ran.stdout)
    left = re.findall(r"^(\S+), since (\S+)$", ran.stdout, re.MULTILINE)
    assert {test for _, test in left} == {"test_inner.py::test_that_leaves_something"} and len(left) == 2
    assert "/forgotten-" in ran.stdout and str(tmp_path / "here.txt") in ran.stdout
    assert not [path for path, _ in left if "forgotten" in path and Path(path).exists()]


def test_commands_and_marks_are_those_of_the_makefile() -> None:
    """What the quick tests leave out are marks that there are, and the README and CI call what there is."""
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    for text in ((ROOT / "README.md").read_text(), (ROOT / ".ci" / "run").read_text()):
        assert set(re.findall(r"^(?:\$ )?make ([\w-]+)", text, re.MULTILINE)) <= targets
    assert "make test\n" in (ROOT / ".ci" / "run").read_text()
    marks = set(re.findall(r'^    "(\w+): ', (ROOT / "pyproject.toml").read_text(), re.MULTILINE))
    for name in ("SECONDS", "QUICK"):
        (left_out,) = re.findall(rf"^{name} := (.*)$", makefile, re.MULTILINE)
        assert set(re.findall(r"not (\w+)", left_out)) <= marks


def test_long_tests_are_tests_that_there_are() -> None:
    names = LONG_TESTS.read_text().splitlines()
    assert names == sorted(set(names))
    tests = {tuple(name.partition("[")[0].split("::")) for name in names}
    for file, test in tests:
        assert re.search(rf"^def {test}\(", (ROOT / file).read_text(), re.MULTILINE), f"{file} has no {test}"
