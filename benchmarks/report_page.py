"""The page of a workflow that lost a worker and its driver: a picture of it for the documentation.

    python benchmarks/report_page.py --folder /tmp/report-page --figure docs/figures/report.png

Writes 480 MB under the folder, takes a minute or two, and needs Chromium for the picture.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import zarr

from rankfold.pipeline.storage.journal import lines_of

ROWS, COLUMNS, PARTS = 300_000, 400, 12

FLOW = """\
workflow: single-cells
inputs:
  counts: cells.zarr::X
  some: {store: "cells.zarr::X", select_rows: "0:20000"}
outputs: results
resources: {memory: 300MiB, workers: 2, threads: 1}
stages:
  components: {method: pca, input: counts, rank: 20, solver: krylov, tol: 1.0e-6, passes: 8}
  parts: {method: nmf, input: counts, rank: 12}
  near: {method: knn, input: some, k: 15}
"""


def main() -> None:
    """Run, kill, go on, and take the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--figure", type=Path)
    arguments = parser.parse_args()
    folder = arguments.folder.absolute()
    write_counts(folder)
    (folder / "flow.yaml").write_text(FLOW)
    shutil.rmtree(folder / "results", ignore_errors=True)
    interrupted(folder)
    page = folder / "report.html"
    rankfold(folder, "report", "flow.yaml", "--out", str(page)).wait()
    if arguments.figure:
        take_picture(page, arguments.figure)


def write_counts(folder: Path) -> None:
    """Nonnegative data of a few parts, in chunks of 10 000 rows."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    store = zarr.create_group(folder / "cells.zarr", overwrite=True).create_array(
        "X", shape=(ROWS, COLUMNS), chunks=(10_000, COLUMNS), dtype="f4"
    )
    parts = rng.gamma(0.5, size=(PARTS, COLUMNS)) * np.geomspace(1, 0.05, PARTS)[:, None]
    for first in range(0, ROWS, 10_000):
        store[first : first + 10_000] = rng.poisson(3 * rng.gamma(0.5, size=(10_000, PARTS)) @ parts)


def interrupted(folder: Path) -> None:
    """Kill a worker in the first stage, the driver in the second, and go on."""
    results = folder / "results"
    driver = rankfold(folder, "run", "flow.yaml")
    os.kill(a_worker(results / "components.zarr.run", driver), signal.SIGKILL)
    a_worker(results / "parts.zarr.run", driver)
    time.sleep(2)
    driver.kill()
    driver.wait()
    time.sleep(5)
    rankfold(folder, "run", "flow.yaml").wait()


def a_worker(run: Path, driver: subprocess.Popen[bytes]) -> int:
    """Process that has folded a few segments, once there is one."""
    while driver.poll() is None:
        ended = [line["process"] for line in lines_of(run) if line["what"] == "end"]
        if len(ended) > 5:
            return int(ended[-1].rpartition("-")[2].partition(".")[0])
        time.sleep(0.1)
    raise SystemExit("the workflow ended before anything was killed")


def rankfold(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    """A command, begun."""
    return subprocess.Popen([sys.executable, "-m", "rankfold", *words], cwd=folder)


def take_picture(page: Path, figure: Path) -> None:
    """The upper part of the page, as a browser 1280 pixels wide shows it."""
    command = [
        "chromium",
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--hide-scrollbars",
    ]
    command += ["--disable-background-networking", "--window-size=1280,2300", f"--screenshot={figure}"]
    subprocess.run([*command, page.as_uri()], check=True, capture_output=True)
    print(json.dumps({"page": str(page), "figure": str(figure)}))


if __name__ == "__main__":
    main()
