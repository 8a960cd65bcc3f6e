"""Tests keep to their tier: without a mark, one that takes more than ten seconds fails; the slowest are told.

Those that take more than ``LONG_SECONDS`` are in ``long_tests.txt``, and are marked ``long``: one test of
five, and four fifths of the time. ``make tiers`` measures them, and writes the list.

What counts is the test and the fixtures made for it alone: not what many share, nor what numba compiles,
which is kept for later. On a machine with other work a test takes longer through no fault of its own. So its
seconds are those of processors, of the children it waited for too, or those by the clock if they are fewer,
as threads make them. A test that sleeps uses no processor: for it they are the seconds by the clock less
those in which any process waited for a processor or a disk, where Linux tells (``/proc/pressure``).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

LIMIT_SECONDS = 10.0
"""On a machine with a core for each process that computes: see ``limit_seconds``."""
SLOWEST = 20
LONG_SECONDS = 0.3
"""Own seconds of a test above which it is ``long``."""

ALWAYS_QUICK = "tests/architecture/"
"""Folder of tests that are never long: any change of files can break them, and no others see that."""

LONG_TESTS = Path(__file__).parent / "long_tests.txt"
"""Names of long tests, one to a line; a parametrized test has one name for each of its parameters."""

MARKS = ("process", "memory", "slow", "slurm", "exhaustive", "gpu")
"""A test with any of these may take longer."""

COST = "own seconds"
PRESSURE = tuple(Path("/proc/pressure") / name for name in ("cpu", "io"))


@dataclass(frozen=True)
class Clock:
    """Seconds since some moment."""

    wall: float
    processor: float
    stalled: float | None
    """In which a process waited for a processor or a disk; none where the system does not tell."""

    @classmethod
    def now(cls) -> Clock:
        """What clocks say now."""
        return cls(time.perf_counter(), sum(os.times()[:4]), _stalled_seconds())

    def __add__(self, other: Clock) -> Clock:
        return self._with(other, 1)

    def __sub__(self, other: Clock) -> Clock:
        return self._with(other, -1)

    def _with(self, other: Clock, sign: int) -> Clock:
        known = self.stalled is not None and other.stalled is not None
        return Clock(
            self.wall + sign * other.wall,
            self.processor + sign * other.processor,
            self.stalled + sign * other.stalled if known else None,
        )

    @property
    def own_seconds(self) -> float:
        """What a machine without other work would take, about."""
        waited = 0.0 if self.stalled is None else self.wall - self.stalled
        return max(min(self.wall, self.processor), waited)


ZERO = Clock(0.0, 0.0, 0.0)


class Costs:
    """What the running test has cost, and what of that is not its own."""

    def __init__(self) -> None:
        self.test, self.others = ZERO, ZERO
        self.depth, self.begun = 0, ZERO

    @contextlib.contextmanager
    def not_its_own(self) -> Generator[None]:
        """Time within, once where such times lie within each other, is nobody's."""
        if not self.depth:
            self.begun = Clock.now()
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1
            if not self.depth:
                self.others += Clock.now() - self.begun


costs = Costs()


def _stalled_seconds() -> float | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = [path.read_text().splitlines()[0] for path in PRESSURE]
        return sum(int(line.rpartition("total=")[2]) for line in lines) / 1e6
    return None


def _watch_compilation() -> None:
    """Compiling is not the cost of the test that comes first."""
    with contextlib.suppress(ImportError):
        from numba.core import event

        class Compilation(event.Listener):  # type: ignore[misc]
            def on_start(self, event: Any) -> None:
                self.scopes.append(costs.not_its_own())
                self.scopes[-1].__enter__()

            def on_end(self, event: Any) -> None:
                self.scopes.pop().__exit__(None, None, None)

            scopes: list[Any] = []  # noqa: RUF012  # of the one listener

        # Compiling holds numba's lock: one thread at a time comes here.
        event.register("numba:compile", Compilation())


def pytest_sessionstart(session: pytest.Session) -> None:
    if not (session.config.option.collectonly or getattr(session.config.option, "dist", "no") != "no"):
        _watch_compilation()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any) -> Generator[None, Any, Any]:
    """What many tests share is not the cost of the first."""
    if fixturedef.scope == "function":
        return (yield)
    with costs.not_its_own():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    costs.test, costs.others = ZERO, ZERO
    return (yield from _measure())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    return (yield from _measure())


def limit_seconds() -> float:
    """What a test without a mark may take before it fails.

    Machines differ by a factor of two, and where processes outnumber cores all are slower.
    """
    return 2 * LIMIT_SECONDS * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def _measure() -> Generator[None, Any, Any]:
    start = Clock.now()
    try:
        return (yield)
    finally:
        costs.test += Clock.now() - start


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when != "call":
        return report
    seconds = (costs.test - costs.others).own_seconds
    report.user_properties.append((COST, round(seconds, 2)))
    if report.passed and seconds > limit_seconds() and not any(map(item.get_closest_marker, MARKS)):
        report.outcome = "failed"
        report.longrepr = (
            f"{item.nodeid} takes {seconds:.0f} s, and a test without a mark may take {LIMIT_SECONDS:g} s. "
            "Make it smaller; or mark it process if it starts or kills interpreters, memory if it measures "
            "memory, exhaustive if it is one of a product (tests/covers.py), slow if it is none of these."
        )
    return report


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that writes the list of long tests."""
    parser.addoption(
        "--write-long-tests", action="store_true", help="measure tests that run, and list the long ones"
    )


def long_tests() -> set[str]:
    """Names of long tests."""
    return set(LONG_TESTS.read_text().splitlines())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark long tests, before any are selected by their marks."""
    names = long_tests()
    for item in items:
        if item.nodeid in names:
            item.add_marker(pytest.mark.long)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The slowest tests, by their own seconds; and the list of long tests, if it is to be written."""
    reports = [each for kind in ("passed", "failed") for each in terminalreporter.getreports(kind)]
    by_test = {report.nodeid: dict(report.user_properties).get(COST, 0.0) for report in reports}
    if not by_test:
        return
    if terminalreporter.config.option.write_long_tests:
        found = {
            name
            for name, seconds in by_test.items()
            if seconds > LONG_SECONDS and not name.startswith(ALWAYS_QUICK)
        }
        LONG_TESTS.write_text("".join(f"{name}\n" for name in sorted(found)))
    slowest = sorted(by_test.items(), key=lambda each: -each[1])[:SLOWEST]
    terminalreporter.section(f"slowest {SLOWEST} tests, {sum(by_test.values()):.0f} s of all")
    for name, seconds in slowest:
        if seconds >= 1:
            terminalreporter.line(f"{seconds:6.1f} s  {name}")
