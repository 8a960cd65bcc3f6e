"""Pytest plugin: what is a peer's becomes ours before its tests are imported.

``--suite`` names the suite, ``--counts`` the file of the outcome, as JSON.
"""

from __future__ import annotations

import importlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from exclusions import why_excluded
from suites import SUITES

import rankfold


def pytest_addoption(parser: pytest.Parser) -> None:
    """The suite, and the file of its outcome."""
    parser.addoption("--suite", choices=SUITES, required=True)
    parser.addoption("--counts", type=Path, required=True)


def pytest_configure(config: pytest.Config) -> None:
    """Replace, and begin to count."""
    suite = SUITES[config.getoption("suite")]
    theirs, ours = importlib.import_module(suite.replaced), importlib.import_module(suite.ours)
    replacements = {name: getattr(ours, name) for name in suite.names}
    for name, replacement in replacements.items():
        setattr(theirs, name, replacement)
    if suite.downloads:
        remote, drawn = map(importlib.import_module, suite.downloads)
        for name in drawn.__all__:
            setattr(remote, name, getattr(drawn, name))
    counts = Counts(suite.name, config.getoption("counts"))
    factors, rows = ("svd", "pca", "qr", "nmf", "kernel_pca", "nystroem"), ("knn", "density")
    for name in (*factors, *rows, "isomap", "tsne", "spectral"):
        setattr(rankfold, name, counts.counted(getattr(rankfold, name)))
    config.pluginmanager.register(counts)


class Counts:
    """What became of each test."""

    def __init__(self, suite: str, file: Path) -> None:
        self.suite, self.file = suite, file
        self.excluded: Counter[str] = Counter()
        self.outcomes: dict[str, str] = {}
        self.calls = 0

    def counted(self, function: Any) -> Any:
        """The same function, with its calls counted: tests that never call it would show nothing."""

        def call(*args: Any, **options: Any) -> Any:
            self.calls += 1
            return function(*args, **options)

        return call

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out what the table of exclusions names."""
        reasons = [why_excluded(self.suite, item.nodeid) for item in items]
        self.excluded.update(reason for reason in reasons if reason)
        config.hook.pytest_deselected(items=[item for item, why in zip(items, reasons, strict=True) if why])
        items[:] = [item for item, why in zip(items, reasons, strict=True) if not why]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test counts once: as failed whatever fails of it, as skipped if its own suite skips it."""
        if self.outcomes.get(report.nodeid) != "failed" and (report.when == "call" or not report.passed):
            self.outcomes[report.nodeid] = report.outcome

    def pytest_sessionfinish(self) -> None:
        """Write the outcome."""
        facts = {"excluded": self.excluded, "outcomes": self.outcomes, "calls": self.calls}
        self.file.write_text(json.dumps(facts))
