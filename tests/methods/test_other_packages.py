"""A method that another package adds under an entry point: found everywhere, and named by no line of ours."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import zarr

import rankfold as rf

TOY = Path(__file__).parent / "toy"
PAGE = Path(__file__).parents[2] / "docs" / "own-methods.md"
X = np.random.default_rng(3).standard_normal((500, 6))
SUMS = np.stack([X.sum(0), (X**2).sum(0)])

pytestmark = pytest.mark.process


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of installed packages, with a matrix and a workflow beside it."""
    written = tomllib.loads("\n".join(re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)))
    for group, entries in written["project"]["entry-points"].items():
        ((name, place),) = entries.items()
        package(tmp_path, name, f"[{group}]\n{name} = {place}\n")
    np.save(tmp_path / "x.npy", X)
    return tmp_path


def package(site: Path, name: str, entry_points: str) -> None:
    about = site / "site" / f"{name}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(entry_points)


def python(site: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(site / "site"), str(TOY), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=site,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def rankfold(site: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return python(site, "-m", "rankfold", *arguments)


def test_it_is_called_from_python(site: Path) -> None:
    code = """
import numpy as np, rankfold as rf
x = np.load("x.npy")
result = rf.column_sums(x, powers=2)
np.testing.assert_allclose(result.sums, np.stack([x.sum(0), (x**2).sum(0)]), rtol=1e-12)
assert rf.plan("column_sums", x, powers=2).most_passes == 1
for wrong, message in (({"power": 2}, "say powers="), ({"powers": 9}, "must lie in 1 .. 8")):
    try:
        rf.column_sums(x, **wrong)
    except rf.RankfoldError as error:
        assert message in str(error), error
    else:
        raise AssertionError(wrong)
"""
    done = python(site, "-c", code)
    assert done.returncode == 0, done.stderr


def test_it_is_a_command_with_a_plan_and_a_result(site: Path) -> None:
    asked = ("x.npy", "--powers", 2, "--out", "r.zarr")
    done = rankfold(site, "column-sums", *asked)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(rf.open_result(site / "r.zarr").sums, SUMS, rtol=1e-12)
    assert "already done" in rankfold(site, "column-sums", *asked).stdout
    assert rf.verify(site / "r.zarr") == []
    made = json.loads(rankfold(site, "plan", "column_sums", "x.npy", "--powers", 2, "--json").stdout)
    assert (made["kind"], made["most_passes"]) == ("column_sums", 1)
    helped = rankfold(site, "column-sums", "--help").stdout
    assert "--powers" in helped and "powers of each number" in helped
    assert rankfold(site, "column-sums", "x.npy", "--powers", 9, "--out", "n.zarr").returncode == 2


def test_it_goes_on_after_a_kill_and_is_the_same_on_processes(site: Path) -> None:
    code = """
import os, signal, sys, column_sums
column_sums.write_small = lambda *arguments: os.kill(os.getpid(), signal.SIGKILL)
sys.argv = ["rankfold", "column-sums", "x.npy", "--powers", "2", "--out", "r.zarr"]
from rankfold.__main__ import main
main()
"""
    assert python(site, "-c", code).returncode == -signal.SIGKILL
    done = rankfold(site, "column-sums", "x.npy", "--powers", 2, "--out", "r.zarr")
    assert done.returncode == 0, done.stderr
    first, second = rf.open_result(site / "r.zarr").run["attempts"][-2:]
    assert not first.get("finished") and second["finished"]
    other = rankfold(site, "column-sums", "x.npy", "--powers", 2, "--out", "p.zarr", "--workers", 1)
    assert other.returncode == 0, other.stderr
    one, two = (rf.open_result(site / name).sums for name in ("r.zarr", "p.zarr"))
    assert one.tobytes() == two.tobytes()


def test_it_is_a_stage_of_a_workflow(site: Path) -> None:
    (site / "flow.yaml").write_text(
        "workflow: sums\ninputs: {x: x.npy}\noutputs: results\n"
        "resources: {memory: 1GiB, threads: 1}\nstages:\n"
        "  totals: {method: column_sums, input: x, powers: 3}\n"
        "  leading: {method: svd, input: totals.sums, rank: 1}\n"
    )
    planned = rankfold(site, "plan", "flow.yaml")
    assert planned.returncode == 0, planned.stderr
    done = rankfold(site, "run", "flow.yaml")
    assert done.returncode == 0, done.stderr
    sums = rf.open_result(site / "results" / "totals.zarr").sums
    np.testing.assert_allclose(sums[:2], SUMS, rtol=1e-12)
    s = rf.open_result(site / "results" / "leading.zarr").s
    np.testing.assert_allclose(s, np.linalg.svd(sums, compute_uv=False)[:1], rtol=1e-8)
    text = (site / "flow.yaml").read_text()
    (site / "flow.yaml").write_text(text.replace("powers: 3", "powers: 0"))
    refused = rankfold(site, "plan", "flow.yaml")
    assert refused.returncode == 2 and "flow.yaml:6: stages.totals.powers" in refused.stderr


def test_editors_know_it(site: Path) -> None:
    schema = json.loads(rankfold(site, "schema").stdout)
    stage = schema["$defs"]["ColumnSums"]["properties"]
    assert stage["powers"] == {
        "default": 1,
        "exclusiveMaximum": 9,
        "minimum": 1,
        "title": "Powers",
        "type": "integer",
    }
    assert stage["method"]["const"] == "column_sums"
    assert "column_sums" not in json.dumps(json.loads(_without(site).stdout))


def test_one_that_is_broken_harms_no_other(site: Path) -> None:
    (site / "site" / "broken.py").write_text("raise ImportError('no such library')\n")
    both = "[rankfold.methods]\nbroken = broken:BROKEN\n[rankfold.svd_solvers]\nshattered = broken:BROKEN\n"
    package(site, "broken", both)
    done = rankfold(site, "column-sums", "x.npy", "--out", "r.zarr")
    assert done.returncode == 0, done.stderr
    assert "method broken of another package cannot be loaded: no such library: it is left out" in done.stderr
    assert "Traceback" not in done.stderr
    assert rankfold(site, "svd", "x.npy", "--rank", 2, "--out", "s.zarr").returncode == 0
    asked = rankfold(site, "svd", "x.npy", "--rank", 2, "--solver", "shattered", "--out", "n.zarr")
    assert asked.returncode == 2 and "solver shattered of another package cannot be loaded" in asked.stderr


def test_a_solver_of_svd_is_added_likewise(site: Path) -> None:
    asked = ("wide.npy", "--rank", 2, "--solver", "power")
    wide = np.random.default_rng(4).standard_normal((400, 60)) * 0.5 ** np.arange(60)
    np.save(site / "wide.npy", wide)
    planned = json.loads(rankfold(site, "plan", "pca", *asked, "--json").stdout)
    assert (planned["method"], planned["most_passes"]) == ("power", 3)
    for kind, values in (("svd", "s"), ("pca", "singular_values")):
        done = rankfold(site, kind, *asked, "--out", f"{kind}.zarr")
        assert done.returncode == 0, done.stderr
        result = rf.open_result(site / f"{kind}.zarr")
        assert (result.attrs["method"], result.attrs["passes"]) == ("power", 3)
        exact = np.linalg.svd(wide - wide.mean(axis=0) * (kind == "pca"), compute_uv=False)[:2]
        np.testing.assert_allclose(getattr(result, values), exact, rtol=1e-9)
    schema = json.loads(rankfold(site, "schema").stdout)
    assert "power" in schema["$defs"]["Pca"]["properties"]["solver"]["enum"]
    assert "power" in rankfold(site, "pca", "--help").stdout
    no_rank = rankfold(site, "svd", "x.npy", "--tol", 0.1, "--solver", "power", "--out", "n.zarr")
    assert no_rank.returncode == 2 and "power does not find the rank" in no_rank.stderr


def test_its_plan_does_not_depend_on_what_is_free(site: Path) -> None:
    code = """
import numpy as np, rankfold as rf
x = np.random.default_rng(0).standard_normal((3000, 400)).astype("float32")
one = rf.svd(x, rank=5, solver="power", memory="64 MiB")
two = rf.svd(x, rank=5, solver="power", memory="2 GiB")
assert one.U[:].tobytes() == two.U[:].tobytes()
try:
    rf.svd(x, rank=5, solver="power", memory="4 MiB")
except rf.RankfoldError as error:
    assert "Give memory=" in str(error), error
else:
    raise AssertionError("4 MiB were enough")
"""
    done = python(site, "-c", code)
    assert done.returncode == 0, done.stderr


def _without(site: Path) -> subprocess.CompletedProcess[str]:
    (site / "site" / "column_sums-1.0.dist-info" / "entry_points.txt").unlink()
    return rankfold(site, "schema")


MARKED = """\
import dataclasses, os, pathlib
import column_sums

def mark(*of_what):
    pathlib.Path("marks", str(os.getpid())).touch()
    column_sums.warm_powers(*of_what)

METHOD = dataclasses.replace(column_sums.COLUMN_SUMS, loops="marked:mark")
"""


@pytest.mark.parametrize(("where", "processes"), [(("--threads", 1), 1), (("--workers", 2), 3)])
def test_its_loops_are_run_in_every_process_that_computes(
    site: Path, where: tuple[object, ...], processes: int
) -> None:
    (site / "site" / "marked.py").write_text(MARKED)
    (site / "site" / "column_sums-1.0.dist-info" / "entry_points.txt").write_text(
        "[rankfold.methods]\ncolumn_sums = marked:METHOD\n"
    )
    (site / "marks").mkdir()
    rows = np.random.default_rng(0).standard_normal((40_000, 8))
    zarr.create_array(site / "x.zarr", data=rows, chunks=(1000, 8))
    done = rankfold(site, "column-sums", "x.zarr", "--out", "r.zarr", "--memory", "256MiB", *where)
    assert done.returncode == 0, done.stderr
    assert 1 + (processes > 1) <= len([*(site / "marks").iterdir()]) <= processes
