"""Run the tests that peers ship against rankfold, and say how many pass.

    python tests/peers/run.py            every suite
    python tests/peers/run.py dask ...   some

Fails where a test fails, or where fewer than 95 % of those that run pass.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
import venv
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from suites import SUITES, Suite

HERE = Path(__file__).parent
WANTED = 0.95
"""Share of the tests that run which must pass."""

TIMEOUT_SECONDS = 3600
FETCH_SECONDS = 300
FINISHED = (0, 1)
"""Exit codes of a pytest that ran all its tests."""


class FetchError(Exception):
    """The tests of a peer cannot be had."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the tests of one suite."""

    suite: str
    passed: int
    failed: tuple[str, ...]
    skipped: int
    """By the suite itself, for want of a library or a device."""

    excluded: dict[str, int]
    """By reason."""

    calls: int
    """Of methods of rankfold: see ``plugin.py``."""

    seconds: float
    output: str

    @property
    def run(self) -> int:
        """Tests that passed or failed."""
        return self.passed + len(self.failed)

    @property
    def good(self) -> bool:
        """Whether tests ran, on rankfold, and none failed."""
        return self.run > 0 and self.calls > 0 and not self.failed and self.passed >= WANTED * self.run


def run_suite(suite: Suite, source: Path | None = None, python: str = sys.executable) -> Outcome:
    """One suite, in a process of its own; ``source`` holds the peer where it is not the one installed."""
    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder) / "counts.json"
        command = [
            python,
            "-m",
            "pytest",
            "-p",
            "plugin",
            "-c",
            os.devnull,
            "-o",
            f"cache_dir={folder}/cache",
        ]
        command += ["-q", "--tb=short", "--disable-warnings", "--suite", suite.name, "--counts", str(counts)]
        command += [part for plugin in suite.plugins for part in ("-p", plugin)]
        command += ["--pyargs", suite.tests, *(["-k", suite.select] if suite.select else [])]
        start = time.monotonic()
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment(source) | {"TMPDIR": folder},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
        )
        seconds = time.monotonic() - start
        output = done.stdout + done.stderr
        if done.returncode not in FINISHED:
            raise RuntimeError(f"the tests of {suite.name} did not run to their end:\n{output}")
        facts = json.loads(counts.read_text())
    by_outcome = Counter(facts["outcomes"].values())
    failed = tuple(test for test, outcome in facts["outcomes"].items() if outcome == "failed")
    return Outcome(
        suite=suite.name,
        passed=by_outcome["passed"],
        failed=failed,
        skipped=by_outcome["skipped"],
        excluded=facts["excluded"],
        calls=facts["calls"],
        seconds=seconds,
        output=output,
    )


def run_anywhere(suite: Suite) -> Outcome:
    """One suite, from what is installed or else from its source; raises where neither has its tests."""
    reason = suite.missing()
    if not reason:
        return run_suite(suite)
    if not suite.source:
        raise FetchError(reason)
    with tempfile.TemporaryDirectory() as folder:
        python = install(suite.requirements, Path(folder)) if suite.requirements else sys.executable
        return run_suite(suite, fetch(suite.source, Path(folder)), python)


def install(requirements: tuple[str, ...], folder: Path) -> str:
    """The interpreter of an environment that has these packages beside, or before, those of this one."""
    place = folder / "environment"
    venv.create(place, with_pip=True, symlinks=True)
    python = str(place / "bin" / "python")
    (own,) = (place / "lib").glob("python*/site-packages")
    # A line that begins so is run: it takes in what is installed for editing, which has lines of its own.
    (own / "present.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    call_pip(python, "install", "--quiet", *requirements, folder=folder)
    return python


def call_pip(python: str, *arguments: str, folder: Path) -> None:
    """Call pip in a folder; raises where it cannot do what it is asked."""
    command = [python, "-m", "pip", *arguments]
    try:
        subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=FETCH_SECONDS, check=True)
    except subprocess.SubprocessError as error:
        words = getattr(error, "stderr", "")
        raise FetchError(f"pip {arguments[0]} {arguments[-1]}: {error}\n{words}") from error


def fetch(source: str, folder: Path) -> Path:
    """A source distribution, unpacked in a folder and not installed; raises where pip cannot get it."""
    # Of the peer alone: what builds it may come as a wheel.
    package = source.partition("==")[0]
    call_pip(
        sys.executable, "download", "--quiet", "--no-deps", f"--no-binary={package}", source, folder=folder
    )
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


def environment(source: Path | None = None) -> dict[str, str]:
    """One thread for every library, the same random numbers each time, and no options of another pytest."""
    threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    places = [str(HERE), str(source or ""), inherited.get("PYTHONPATH")]
    path = os.pathsep.join(filter(None, places))
    return {**inherited, **dict.fromkeys(threads, "1"), "SKLEARN_SEED": "0", "PYTHONPATH": path}


def table(outcomes: list[Outcome]) -> str:
    """Tests of each suite, then what was left out and why."""
    lines = [f"{'suite':<30}{'passed':>8}{'run':>8}{'excluded':>10}{'skipped':>9}{'seconds':>9}"]
    for each in outcomes:
        excluded = sum(each.excluded.values())
        numbers = f"{each.passed:>8}{each.run:>8}{excluded:>10}{each.skipped:>9}{each.seconds:>9.0f}"
        lines.append(f"{each.suite:<30}{numbers}")
    lines += ["", "Excluded:"]
    for each in outcomes:
        lines += [f"{count:>6}  {each.suite}: {reason}" for reason, count in each.excluded.items()]
    lines += ["", "Skipped tests are skipped by the suites themselves."]
    return "\n".join(lines)


def main(names: list[str]) -> int:
    """Run, print, and give the exit code."""
    unknown = [name for name in names if name not in SUITES]
    if unknown:
        print(f"there is no suite {unknown[0]!r}; there are: {', '.join(SUITES)}", file=sys.stderr)
        return 2
    outcomes, missing = [], []
    for suite in [SUITES[name] for name in names or SUITES]:
        try:
            outcomes.append(run_anywhere(suite))
        except FetchError as error:
            missing.append(f"{suite.name} did not run: {error}")
            continue
        if outcomes[-1].failed:
            print(outcomes[-1].output)
    print(table(outcomes))
    print(*missing, sep="\n", end="\n" if missing else "")
    bad = [f"FAILED {each.suite}{test}" for each in outcomes for test in each.failed]
    print(*bad, sep="\n", end="\n" if bad else "")
    return int(bool(missing) or not all(each.good for each in outcomes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
