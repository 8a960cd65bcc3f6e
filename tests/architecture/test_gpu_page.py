"""The guide on GPUs shows what its script makes of the stored results, which are of a GPU and whole."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

ROOT = Path(__file__).parents[2]
RESULTS = json.loads((ROOT / "benchmarks" / "results" / "gpu.json").read_text())


def test_the_tables_are_made_of_the_results() -> None:
    spec = importlib.util.spec_from_file_location("gpu_page", ROOT / "benchmarks" / "gpu_page.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    text = (ROOT / "docs" / "gpu.md").read_text()
    assert text == script.page(text, RESULTS)
    told = script.section(RESULTS)
    assert all(row["name"].split(", plain")[0].split(", host")[0] in told for row in RESULTS["rows"])


def test_the_results_are_of_a_device_and_nothing_is_left_out() -> None:
    assert RESULTS["facts"]["device"].startswith("NVIDIA")
    assert not RESULTS["left_out"]
    for row in RESULTS["rows"]:
        assert row["limit"] is None or row["limit"] <= row["seconds"], row["name"]
        assert row["error"] is None or row["error"] < 1e-6, row["name"]


def test_neighbors_take_the_share_of_time_that_is_told() -> None:
    seconds = {row["name"]: row["seconds"] for row in RESULTS["rows"]}
    theirs = seconds["torch.cdist + topk, 262144 x 128, k = 15"]
    assert round(theirs / seconds["neighbors, 262144 x 128, k = 15"]) == 7
