"""Progress in Python: shown where somebody watches, in plain words, counted in what is swept."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import rankfold as rf
from rankfold.pipeline.errors import ArgumentError
from rankfold.pipeline.planning import progress as shown
from rankfold.pipeline.planning.progress import Forecast, SweepProgress, listener
from rankfold.pipeline.planning.sweep_words import words_of

X = np.random.default_rng(0).standard_normal((500, 30))
LOG = logging.getLogger("rankfold")


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        """It is."""
        return True


@contextlib.contextmanager
def stderr(stream: io.StringIO) -> Iterator[io.StringIO]:
    with contextlib.redirect_stderr(stream):
        yield stream


def test_nothing_is_shown_where_nobody_watches_or_a_call_is_short() -> None:
    for stream in (io.StringIO(), Terminal()):
        with stderr(stream):
            rf.svd(X, 3)
        assert stream.getvalue() == ""


def test_a_call_that_takes_longer_is_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "QUIET_SECONDS", 0.0)
    with stderr(Terminal()) as told:
        rf.svd(X, 3, solver="krylov")
        rf.knn(X, 3)
    assert "pass 1 of at most 2" in told.getvalue() and "comparing rows" in told.getvalue()
    assert "ritz" not in told.getvalue()
    with stderr(Terminal()) as told:
        rf.svd(X, 3, progress=False)
    assert told.getvalue() == ""


def test_true_shows_lines_where_there_is_no_terminal() -> None:
    with stderr(io.StringIO()) as told:
        rf.svd(X.T.copy(), 3, solver="krylov", progress=True)
        rf.trustworthiness(X, X[:, :3], progress=True)
    lines = told.getvalue().splitlines()
    assert lines[0].startswith("pass 1 of at most 2: 500 of 500 columns")
    assert any(line.startswith("counting nearer rows: 500 of 500 rows") for line in lines)


def test_a_function_is_called_as_it_always_was() -> None:
    calls: list[tuple[str, int, int]] = []
    rf.svd(X, 3, solver="krylov", progress=lambda *told: calls.append(told))
    assert ("pass-01", 500, 500) in calls and calls[-1] == ("rows", 500, 500)
    for wrong in ("yes", 3):
        with pytest.raises(ArgumentError, match="progress must be True, False, None, or a function"):
            rf.svd(X, 3, progress=wrong)  # type: ignore[arg-type]


def test_what_workers_and_compilers_say_is_shown_and_loggers_are_left_as_they_were() -> None:
    heard: list[str] = []

    class Earlier(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record.getMessage())

    before, earlier = (LOG.level, LOG.propagate, list(LOG.handlers)), Earlier()
    logging.getLogger().addHandler(earlier)
    try:
        with stderr(io.StringIO()) as told, listener(True, lambda: rf.plan("svd", X, 3)):
            LOG.info("compiling kernels, once after an installation")
            LOG.warning("a worker was lost")
    finally:
        logging.getLogger().removeHandler(earlier)
    assert told.getvalue().splitlines() == [
        "compiling kernels, once after an installation",
        "a worker was lost",
    ]
    assert heard == ["a worker was lost"]
    assert (LOG.level, LOG.propagate, list(LOG.handlers)) == before


def test_the_time_left_is_that_of_all_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(shown.time, "monotonic", lambda: clock[0])
    plan = rf.plan("svd", np.broadcast_to(np.float32(0), (10**6, 400)), 20, solver="krylov", passes=3)
    forecast = Forecast(plan)
    forecast.on_progress("pass-01", 0, 10**6)
    assert forecast.seconds_left() is None
    clock[0] += 10
    forecast.on_progress("pass-01", 10**6, 10**6)
    left = forecast.seconds_left()
    assert left is not None and 20 < left < 30  # two passes as long, and the narrow sweeps
    assert forecast.title("pass-01") == "pass 1 of at most 3"
    forecast.on_progress("ritz", 1, 10)
    assert forecast.title("ritz") == "combining the passes"


def test_what_an_earlier_attempt_has_done_does_not_count_as_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(shown.time, "monotonic", lambda: clock[0])
    forecast = Forecast(rf.plan("svd", np.broadcast_to(0.0, (10**6, 400)), 20, solver="krylov", passes=4))
    for name in ("pass-01", "pass-02"):
        forecast.on_progress(name, 10**6, 10**6)
    forecast.on_progress("pass-03", 5 * 10**5, 10**6)
    clock[0] += 10
    forecast.on_progress("pass-03", 6 * 10**5, 10**6)
    left = forecast.seconds_left()
    assert left is not None and 40 < left < 200  # 0.4 passes of 100 s, and the narrow sweeps
    assert forecast.title("pass-03") == "pass 3 of about 3"
    forecast.on_progress("pass-04", 1, 10**6)
    assert forecast.title("pass-04") == "pass 4 of at most 4"


def test_a_stage_is_named_before_its_sweep() -> None:
    with stderr(io.StringIO()) as told, SweepProgress() as bar:
        bar("second: pass-02", 10, 10)
    assert told.getvalue().startswith("second: pass 2: 10 of 10 rows")


@pytest.mark.parametrize(
    ("sweep", "line"),
    [
        ("lanczos", "iterating in memory: 100 %"),
        ("iterations", "iterating in memory: 40 of 40 steps"),
        ("filters", "eigenvectors of the graph: 100 %"),
    ],
)
def test_what_goes_along_no_rows_counts_none(sweep: str, line: str) -> None:
    with stderr(io.StringIO()) as told, SweepProgress() as bar:
        bar(sweep, 40, 40)
    assert told.getvalue().splitlines()[0] == line


def test_sweeps_that_come_again_in_each_round_have_one_line() -> None:
    x = np.broadcast_to(np.float32(0), (600_000, 64))
    lines = str(rf.plan("knn", x, k=10, min_recall=0.9)).splitlines()
    assert [line.split("  ")[0] for line in lines if "partitions" in line and "over matrix" in line] == [
        *("filling partitions 1 over matrix", "sending rows to other partitions 1 over matrix"),  # likely
        "filling partitions 2 to 8, each over matrix",
        "sending rows to other partitions 2 to 8, each over matrix",
    ]


@pytest.mark.parametrize(
    ("kind", "options"),
    [("svd", {"solver": name}) for name in ("gram", "krylov", "subspace", "sketch", "tsqr")]
    + [("nmf", {}), ("knn", {}), ("knn", {"solver": "approximate"}), ("qr", {}), ("index", {})],
    ids=str,
)
def test_every_sweep_of_a_plan_has_plain_words(kind: str, options: dict[str, Any]) -> None:
    ask = {} if kind in ("qr", "index") else {"k": 3} if kind == "knn" else {"rank": 3}
    for each in rf.plan(kind, np.abs(X), **ask, **options).passes:
        assert words_of(each.name) != each.name, each.name
    told = str(rf.plan(kind, np.abs(X), **ask, **options))
    assert "ritz" not in told and "pass-0" not in told


def test_a_python_on_a_terminal_says_what_it_does() -> None:
    code = (
        "import numpy as np, rankfold as rf; from rankfold.pipeline.planning import progress;"
        "progress.QUIET_SECONDS = 0.0; rf.svd(np.eye(900, 30) + 1, 3, solver='gram')"
    )
    reading, writing = pty.openpty()
    try:
        done = subprocess.run([sys.executable, "-c", code], stderr=writing, check=False)
        told = os.read(reading, 2**16).decode()
    finally:
        os.close(writing)
        os.close(reading)
    assert done.returncode == 0 and "pass 1 of 2" in told, told
