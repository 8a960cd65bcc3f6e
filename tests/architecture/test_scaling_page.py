"""The guide on scaling is what its script makes of the stored results, and these hold what they promise."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = json.loads((ROOT / "benchmarks" / "results" / "scale.json").read_text())


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("scale_page", ROOT / "benchmarks" / "scale_page.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_made_of_the_results(script: ModuleType) -> None:
    assert (ROOT / "docs" / "scaling.md").read_text() == script.page(RESULTS)


def test_the_simulated_run_is_of_512_workers_and_100_terabytes() -> None:
    most = max(RESULTS["simulations"].values(), key=lambda run: run["workers"])
    rows, columns = most["shape"]
    assert most["workers"] == 512 and 4 * rows * columns == 10**14
    for sweep in most["sweeps"]:
        assert sweep["tasks"] <= 100_000
        assert sweep["peak_bytes"] < 2 * 2**30
        assert sweep["efficiency"] >= 0.9
        assert sweep["scheduler_seconds_of_a_task"] < 1e-3
        assert sweep["predicted_seconds"] == pytest.approx(sweep["seconds"], rel=0.1)


def test_no_time_of_the_model_is_below_what_reading_takes() -> None:
    for case in RESULTS["model"]:
        for point in case.get("points", ()):
            assert point["total"] >= max(point["reading"], point["products"])
            assert 0 < point["efficiency"] <= 1.001


@pytest.mark.process
def test_workers_that_sleep_fold_each_row_once(tmp_path: Path) -> None:
    """The script asserts it, by the sum of a real sweep on real workers of Dask."""
    command = [sys.executable, str(ROOT / "benchmarks" / "scale.py"), "--workers", "4", "--rows", "4000000"]
    options = ["--scale", "100", "--idle", "5", "--only", "pass-01", "--out", str(tmp_path / "scale.json")]
    subprocess.run([*command, *options], check=True, timeout=300, stdout=subprocess.DEVNULL)
    (run,) = json.loads((tmp_path / "scale.json").read_text())["simulations"].values()
    made: dict[str, Any] = run["sweeps"][0]
    assert made["tasks"] == made["streams"] + sum(merges(made["streams"]))
    assert run["worker_calls"]["rename"] == made["tasks"]


def merges(streams: int) -> list[int]:
    """Of each level of a tree that merges eight."""
    return [] if streams == 1 else [-(-streams // 8), *merges(-(-streams // 8))]
