"""Tests that ``make test-changed`` takes are those that can see a change, and few more."""

from __future__ import annotations

import changed
import pytest

pytestmark = pytest.mark.slow  # reads all of the package and of its tests

ALL = {test.relative_to(changed.ROOT).as_posix() for test in changed.test_files()}
FEW, MANY = len(ALL) // 3, len(ALL) // 2

UNSEEN = {"rankfold.cluster.local.lifeline", "rankfold.estimators.docstrings"}
"""Modules that no arrow leads to: one is started as a process, one runs as its package is imported."""


def test_every_module_is_reached_by_some_test() -> None:
    reached = set().union(*(changed.reached(test) for test in changed.test_files()))
    assert {name for name, path in changed.modules().items() if path not in reached} <= UNSEEN


@pytest.mark.parametrize("method", ["tsne", "umap", "isomap", "nmf", "spectral"])
def test_a_method_is_seen_by_its_own_tests_and_laws_and_by_few_others(method: str) -> None:
    home = f"src/rankfold/methods/{method}"
    for path in (changed.ROOT / home).glob("*.py"):
        found = changed.tests_of([f"{home}/{path.name}"])
        own = {test for test in ALL if test.startswith(f"tests/methods/{method}/")}
        assert own & {*found} and "tests/methods/test_laws.py" in found
        assert len(found) <= MANY


@pytest.mark.parametrize(
    ("file", "test"),
    [
        ("src/rankfold/kernels/layout/forces.py", "tests/methods/umap/test_umap.py"),
        ("src/rankfold/kernels/layout/cpu/vertices.py", "tests/methods/umap/test_umap.py"),
        ("src/rankfold/kernels/layout/cpu/descent.py", "tests/methods/tsne/test_tsne.py"),
        ("src/rankfold/kernels/layout/cpu/descent.py", "tests/kernels/test_conformance.py"),
        ("src/rankfold/estimators/clusters.py", "tests/estimators/test_cluster_estimators.py"),
        ("src/rankfold/workflows/flows/plan.py", "tests/workflows/flows/test_flow_stages.py"),
        ("src/rankfold/cluster/slurm/jobs.py", "tests/cluster/slurm/test_slurm.py"),
        ("tests/stores.py", "tests/pipeline/formats/test_bombs.py"),
        ("src/rankfold/workflows/reports/page.html", "tests/workflows/reports"),
        ("docs/data.md", "tests/architecture"),
        ("Makefile", "tests/packaging"),
    ],
)
def test_whoever_uses_a_file_sees_its_change(file: str, test: str) -> None:
    assert test in changed.tests_of([file])


def test_a_change_of_one_corner_is_seen_by_few() -> None:
    for file in ("estimators/clusters.py", "workflows/operations/lock_owner.py", "methods/isomap/isomap.py"):
        assert len(changed.tests_of([f"src/rankfold/{file}"])) <= FEW
    assert changed.tests_of(["CHANGELOG.md"]) == ["tests/architecture", "tests/packaging"]
    assert changed.tests_of(["tests/methods/nmf/test_sparse_factors.py"]) == [
        changed.ALWAYS,
        "tests/methods/nmf/test_sparse_factors.py",
    ]
