"""Pages and tables as a browser lays them out: on a phone, a laptop and a large screen nothing is cut.

One start of Chromium shows each page in frames of all widths. A script in each looks at every element: what
leaves the window or its own box, what can only be seen by scrolling, and values without a label.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import rankfold as rf
from rankfold.workflows.cli import app

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed, which shows the pages"),
]

WIDTHS = (400, 1000, 1600)

NAME = "measurements-of-one-long-winter-in-a-file-whose-name-has-no-room"

FLOW = f"""\
workflow: parts
inputs: {{table: {NAME}.csv}}
outputs: results
resources: {{memory: 1GiB, threads: 1}}
stages:
  x: {{method: import, input: table}}
  components-of-all-columns: {{method: pca, input: x, rank: 3, solver: krylov, passes: 3, tol: 1.0e-9}}
  near: {{method: knn, input: components-of-all-columns.scores, k: 5}}
  layout: {{method: umap, neighbors: near, n_epochs: 5}}
  groups: {{method: kmeans, input: components-of-all-columns.scores, k: 3}}
"""

LOOK = """
<script>
function visible(e) { const r = e.getBoundingClientRect(); return r.width > 0 && r.height > 0; }
function text(e) { return e.textContent.trim(); }
function labeled(cell) {
  const before = getComputedStyle(cell, "::before").content;
  if (before && !["none", "normal", '""'].includes(before)) return true;
  const row = cell.parentElement, heads = [...row.children].filter(e => e.tagName == "TH" && text(e));
  const head = cell.closest("table").querySelectorAll("thead th")[cell.cellIndex];
  return heads.some(visible) || !!(head && text(head) && visible(head));
}
addEventListener("load", () => {
  const found = [];
  const say = (what, e) => found.push(`${what}: <${e.tagName.toLowerCase()}> ${text(e).slice(0, 60)}`);
  if (document.documentElement.scrollWidth > innerWidth) found.push("the page is wider than the window");
  for (const e of document.body.querySelectorAll("*:not(script)")) {
    if (!visible(e)) continue;
    const box = e.getBoundingClientRect();
    if (box.right > innerWidth + 1 || box.left < -1) say("leaves the window", e);
    if (e.clientWidth && e.scrollWidth > e.clientWidth + 1) say("leaves its box", e);
    if (e.tagName == "TD" && text(e) && !labeled(e)) say("no label", e);
    if (e.tagName == "IMG" && !e.naturalWidth) say("not shown", e);
  }
  const cells = [...document.querySelectorAll("td")].filter(visible).length;
  parent.postMessage({name: window.name, found, cells, width: innerWidth}, "*");
});
</script>
"""

FRAMES = """<!DOCTYPE html><meta charset="utf-8"><body><pre id="all"></pre>
<script>
const all = {};
addEventListener("message", event => {
  all[event.data.name] = event.data;
  document.getElementById("all").textContent = JSON.stringify(all);
});
</script>
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Each page as HTML: a report, results and matrices as notebooks show them."""
    folder = tmp_path_factory.mktemp("pages")
    x = np.random.default_rng(0).random((400, 12))
    np.savetxt(
        folder / f"{NAME}.csv", x, delimiter=",", header=",".join(f"v{i}" for i in range(12)), comments=""
    )
    (folder / "flow.yaml").write_text(FLOW)
    for command in ("run", "report"):
        done = CliRunner().invoke(app, [command, str(folder / "flow.yaml")])
        assert done.exit_code == 0, done.output
    rows = folder / f"{NAME}.npy"
    np.save(rows, x)
    result = rf.open_result(folder / "results" / "components-of-all-columns.zarr")
    matrix = rf.open(rows, prepare="log1p, scale")
    return {
        "report": (folder / "results" / "report.html").read_text(),
        "result": notebook(result),
        "matrix": notebook(matrix),
    }


def notebook(shown: Any) -> str:
    """A page with what a notebook shows, and the styles of JupyterLab that matter to tables."""
    style = "table { table-layout: fixed; font-size: 12px; } "
    style += "td, th { text-align: right; padding: 0.5em; max-width: none; }"
    return f"<!DOCTYPE html><meta charset='utf-8'><style>{style}</style><body>{shown._repr_html_()}</body>"


@pytest.fixture(scope="module")
def seen(pages: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What the script found on each page at each width."""
    folder = tmp_path_factory.mktemp("browser")
    frames = FRAMES
    for name, page in pages.items():
        (folder / f"{name}.html").write_text(page.replace("</body>", f"{LOOK}</body>"))
        for width in WIDTHS:
            frames += (
                f'<iframe name="{name} {width}" src="{name}.html" width="{width}" height="900"></iframe>\n'
            )
    (folder / "all.html").write_text(frames)
    assert CHROMIUM is not None
    command = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--window-size=1700,1000",
    ]
    command += ["--disable-background-networking", "--host-resolver-rules=MAP * ~NOTFOUND"]
    command += [f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=20000", "--dump-dom"]
    done = subprocess.run(
        [*command, (folder / "all.html").as_uri()], check=True, capture_output=True, text=True, timeout=120
    )
    told = re.search(r'<pre id="all">(.*?)</pre>', done.stdout, re.S)
    assert told and told[1], done.stderr
    facts: dict[str, dict[str, Any]] = json.loads(html.unescape(told[1]))
    return facts


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("page", ["report", "result", "matrix"])
def test_nothing_is_cut_and_every_value_has_its_label(
    seen: dict[str, dict[str, Any]], page: str, width: int
) -> None:
    facts = seen[f"{page} {width}"]
    assert abs(facts["width"] - width) <= 20  # a bar to scroll downwards takes a little
    assert facts["cells"] > 3
    assert not facts["found"]


def test_the_report_has_every_stage_where_it_ran_and_names_of_the_workflow(pages: dict[str, str]) -> None:
    report = pages["report"]
    assert "Timeline of" in report and "of 5 stages" in report
    asked = re.search(r'data-label="asked"[^>]*>(rank 3[^<]*)<', report)
    assert asked and "solver krylov" in asked[1] and "with_rows yes" in asked[1] and "method" not in asked[1]
