"""The command line as a user meets it: exit codes, one message each, and nothing half-written."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from command_line import PROGRESS, rankfold, refused

import rankfold as rf
from rankfold.workflows import cli

ROWS, COLUMNS = 2000, 30


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((ROWS, COLUMNS)) * np.linspace(3, 1, COLUMNS)


@pytest.fixture
def store(tmp_path: Path, x: np.ndarray) -> Path:
    path = tmp_path / "x.zarr"
    array = zarr.create_array(path, shape=x.shape, chunks=(500, COLUMNS), dtype=x.dtype, compressors=None)
    array[...] = x
    return path


def test_a_reduction_says_what_it_did(tmp_path: Path, store: Path, x: np.ndarray) -> None:
    out = tmp_path / "r.zarr"
    run = rankfold("svd", store, "--rank", 4, "--out", out)
    assert run.exit_code == 0, run.output
    assert "r.zarr: done" in run.stdout and "passes" in run.stdout and "peak memory" in run.stdout
    np.testing.assert_allclose(rf.open_result(out).s, np.linalg.svd(x, compute_uv=False)[:4], rtol=1e-6)
    again = rankfold("svd", store, "--rank", 4, "--out", out)
    assert again.exit_code == 0 and "already done" in again.stdout


def test_json_is_for_machines(tmp_path: Path, store: Path) -> None:
    planned = json.loads(rankfold("plan", "pca", store, "--rank", 4, "--memory", "1GiB", "--json").stdout)
    assert planned["shape"] == [ROWS, COLUMNS] and planned["peak_bytes"] <= 2**30
    assert planned == json.loads(json.dumps(rf.plan("pca", store, 4, memory="1GiB").as_dict())) | {
        name: planned[name] for name in ("seconds", "shares")
    }
    done = json.loads(rankfold("pca", store, "--rank", 4, "--out", tmp_path / "r.zarr", "--json").stdout)
    assert done["passes"] == planned["likely_passes"] and not done["already_done"]
    assert json.loads(rankfold("info", store, "--json").stdout)["shape"] == [ROWS, COLUMNS]


def test_neighbors_become_a_graph_and_a_picture(tmp_path: Path, store: Path) -> None:
    near, graph, picture = (tmp_path / f"{name}.zarr" for name in ("near", "graph", "picture"))
    assert rankfold("knn", store, "--k", 5, "--out", near).exit_code == 0
    weighed = rankfold("fuzzy-graph", near, "--k", 4, "--out", graph)
    assert weighed.exit_code == 0, weighed.output
    assert "fuzzy graph of 4 neighbors: " in weighed.stdout
    rankfold("pca", store, "--rank", 3, "--out", tmp_path / "pca.zarr")
    options = ("--init", tmp_path / "pca.zarr", "--n-epochs", 5, "--n-components", 3, "--out", picture)
    laid = rankfold("umap", graph, *options)
    assert laid.exit_code == 0, laid.output
    assert f"umap of {ROWS} rows in 3 dimensions, 5 epochs; loss of edges " in laid.stdout
    assert "already done" in rankfold("umap", graph, *options).stdout
    assert rf.open_result(picture).embedding.shape == (ROWS, 3)
    both = rankfold("combine-graphs", graph, graph, "--rule", "union", "--out", tmp_path / "both.zarr")
    assert both.exit_code == 0, both.output
    assert "union of two graphs: " in both.stdout
    np.save(tmp_path / "y.npy", np.arange(ROWS) % 2)
    labeled = ("fuzzy-graph", near, "--targets", tmp_path / "y.npy", "--out", tmp_path / "labeled.zarr")
    assert "fuzzy graph of 5 neighbors, with targets: " in rankfold(*labeled).stdout
    measured = rankfold("umap", graph, "--n-epochs", 5, "--quality", store, "--out", tmp_path / "m.zarr")
    assert measured.exit_code == 0, measured.output
    assert (
        "; trustworthiness 0." in measured.stdout and f" by {ROWS} rows and 15 neighbors" in measured.stdout
    )
    for name in ("spectral", "diffusion-map"):
        made = rankfold(name, graph, "--n-components", 3, "--out", tmp_path / f"{name}.zarr")
        assert made.exit_code == 0, made.output
        assert f"{name.replace('-', ' ')} of {ROWS} rows in 3 dimensions, " in made.stdout
        assert "passes over the graph of 1 component; largest estimated error" in made.stdout
    said = rankfold("umap", tmp_path / "pca.zarr", "--out", tmp_path / "no.zarr")
    assert said.exit_code == 2 and "umap lays out one of fuzzy_graph or knn" in said.stderr


def test_neighbors_are_embedded_by_paths(tmp_path: Path, store: Path) -> None:
    near, out, new = (tmp_path / f"{name}.zarr" for name in ("near", "isomap", "new"))
    assert rankfold("knn", store, "--k", 3, "--out", near).exit_code == 0
    options = (
        "--n-landmarks",
        20,
        "--landmarks",
        "random",
        "--disconnected",
        "join",
        "--matrix",
        store,
        "--out",
        out,
    )
    embedded = rankfold("isomap", near, *options)
    assert embedded.exit_code == 0, embedded.output
    assert f"isomap of {ROWS} rows in 2 dimensions by 20 landmarks; residual variance " in embedded.stdout
    assert "already done" in rankfold("isomap", near, *options).stdout
    assert rankfold("knn", store, "--k", 3, "--queries", store, "--out", new).exit_code == 0
    placed = rankfold("transform", out, new, "--out", tmp_path / "placed.zarr")
    assert placed.exit_code == 0, placed.output
    assert f"{ROWS} rows in 2 components of isomap; residual variance " in placed.stdout
    said = rankfold("transform", out, near, "--out", tmp_path / "no.zarr")
    assert said.exit_code == 2 and "has no neighbors of queries: transform takes" in said.stderr
    said = rankfold("isomap", out, "--out", tmp_path / "no.zarr")
    assert said.exit_code == 2 and "isomap takes one of knn or radius_neighbors" in said.stderr


def test_import_and_info(tmp_path: Path, x: np.ndarray) -> None:
    np.save(tmp_path / "x.npy", x)
    assert rankfold("import", tmp_path / "x.npy", tmp_path / "new.zarr").exit_code == 0
    assert "float64" in rankfold("info", tmp_path / "new.zarr").stdout
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "new.zarr")[...], x)


def test_qr_says_how_orthonormal_q_is(tmp_path: Path, store: Path, x: np.ndarray) -> None:
    run = rankfold("qr", store, "--out", tmp_path / "qr.zarr")
    assert run.exit_code == 0, run.output
    assert "qr by tsqr, rank 30, " in run.stdout and "; Q is orthonormal to " in run.stdout
    result = rf.open_result(tmp_path / "qr.zarr")
    np.testing.assert_allclose(result.Q[...] @ result.R, x, atol=1e-12)
    assert rankfold("qr", store, "--no-rows", "--out", tmp_path / "r.zarr").exit_code == 0
    assert "2 likely, at most 4" in rankfold("plan", "qr", store).stdout


def test_check_asks_the_matrix(tmp_path: Path, store: Path) -> None:
    assert rankfold("svd", store, "--rank", 3, "--out", tmp_path / "r.zarr").exit_code == 0
    run = rankfold("check", tmp_path / "r.zarr", store)
    assert run.exit_code == 0, run.output
    assert "largest residual" in run.stdout and "left factor orthonormal to" in run.stdout
    facts = json.loads(rankfold("check", tmp_path / "r.zarr", store, "--json").stdout)
    assert 0 < facts["largest_residual"] < 1e-2


def test_bad_requests_exit_2(tmp_path: Path, store: Path) -> None:
    out = ("--out", tmp_path / "r.zarr")
    (tmp_path / "a file").write_text("in the way")
    cases: list[tuple[str, tuple[object, ...]]] = [
        ("does not exist. Did you mean", ("svd", tmp_path / "y.zarr", "--rank", 3, *out)),
        ("rank must be at least 1, not 0", ("svd", store, "--rank", 0, *out)),
        ("at most 30", ("svd", store, "--rank", 31, *out)),
        ("without either all are found, by solver tsqr", ("pca", store, "--solver", "gram", *out)),
        ("'2' has no unit: write 2GiB or 2MiB", ("svd", store, "--memory", "2", *out)),
        ("does not exist. Make it: mkdir -p", ("svd", store, "--out", tmp_path / "no" / "r.zarr")),
        ("/ is the root of the file system. Name a folder", ("svd", store, "--rank", 3, "--out", "/")),
        ("exists and is not a result of rankfold", ("svd", store, "--rank", 3, "--out", ".")),
        (
            "a file is a file, and intermediates need a folder",
            ("svd", store, "--scratch", tmp_path / "a file", *out),
        ),
        ("is a name that is not UTF-8", ("nmf", store, "--rank", 3, "--out", "\udcff")),
        ("is a name that is not UTF-8", ("svd", store, "--rank", 3, "--scratch", "\udcff", *out)),
        ("tol must be above 0 and below 1, not 2.0", ("pca", store, "--rank", 3, "--tol", 2, *out)),
        ("passes must be at least 1", ("pca", store, "--rank", 3, "--passes", 0, *out)),
        ("solver must be one of auto, gram,", ("svd", store, "--rank", 3, "--solver", "jacobi", *out)),
        ("not a size in bytes", ("svd", store, "--rank", 3, "--memory", "much", *out)),
        ("cannot write", ("svd", store, "--rank", 3, "--out", tmp_path / "a file" / "r.zarr")),
        ("plan 'svd', 'pca', 'qr', 'nmf', ", ("plan", "transform", store, "--rank", 3)),
        ("a plan of umap takes no rank", ("plan", "umap", store, "--rank", 3)),
    ]
    for message, arguments in cases:
        refused(tmp_path, 2, message, *arguments)


@pytest.mark.parametrize("shape", [(0, 5), (5, 0)], ids=str)
def test_an_empty_matrix_is_refused(tmp_path: Path, shape: tuple[int, int]) -> None:
    zarr.create_array(tmp_path / "e.zarr", shape=shape, chunks=(1, 1), dtype="f8")
    refused(
        tmp_path, 2, "cannot be reduced", "svd", tmp_path / "e.zarr", "--rank", 1, "--out", tmp_path / "r"
    )


def test_one_row_has_an_svd_and_no_components(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.array([[3.0, 4.0]]))
    refused(
        tmp_path, 2, "at least 2 samples", "pca", tmp_path / "one.npy", "--rank", 1, "--out", tmp_path / "p"
    )
    assert rankfold("svd", tmp_path / "one.npy", "--rank", 1, "--out", tmp_path / "r.zarr").exit_code == 0
    np.testing.assert_allclose(rf.open_result(tmp_path / "r.zarr").s, [5.0])


def test_wrong_types_are_refused(tmp_path: Path) -> None:
    for i, dtype in enumerate(("complex256", "U4", "datetime64[s]")):
        np.save(tmp_path / f"{i}.npy", np.zeros((4, 4), dtype))
        refused(
            tmp_path, 2, "supported are", "svd", tmp_path / f"{i}.npy", "--rank", 1, "--out", tmp_path / "r"
        )


def test_too_little_memory_exits_3_and_says_how_much(tmp_path: Path, store: Path) -> None:
    command = ("svd", store, "--rank", 4, "--out", tmp_path / "r.zarr", "--memory")
    refused(tmp_path, 3, "--memory gives 10 MiB", *command, "10MiB")
    need = rankfold(*command, "10MiB").stderr.partition("Give --memory ")[2].split(",")[0].split("MiB")[0]
    assert rankfold(*command, f"{need}MiB").exit_code == 0


def test_a_chunk_too_tall_for_the_memory_names_the_import(tmp_path: Path) -> None:
    array = zarr.create_array(tmp_path / "t.zarr", shape=(40_000, 100), chunks=(40_000, 100), dtype="f8")
    array[...] = np.random.default_rng(0).standard_normal(array.shape)
    out = ("--rank", 3, "--memory", "80MiB", "--out", tmp_path / "r.zarr")
    refused(tmp_path, 3, "rankfold import STORE NEW.zarr", "svd", tmp_path / "t.zarr", *out)
    imported = rankfold("import", tmp_path / "t.zarr", tmp_path / "new.zarr", "--memory", "256MiB")
    assert imported.exit_code == 0, imported.output
    assert rankfold("svd", tmp_path / "new.zarr", *out).exit_code == 0


@pytest.mark.parametrize("method", ["gram", "krylov"])
@pytest.mark.parametrize("shape", [(900, 20), (20, 900)], ids=str)
def test_nan_and_inf_exit_4_counted_with_the_first_place(
    tmp_path: Path, shape: tuple[int, int], method: str
) -> None:
    x = np.random.default_rng(1).standard_normal(shape)
    places = [(7, 15), (7, 16), (3, 19), (19, 2), (11, 11)]
    for row, column in places:
        x[row, column] = np.nan
    x[3, 19] = -np.inf
    path = tmp_path / "x.zarr"
    zarr.create_array(path, shape=shape, chunks=(100, 20) if shape[0] > 20 else (20, 100), dtype="f8")[
        ...
    ] = x
    for kind in ("svd", "pca"):
        refused(
            tmp_path,
            4,
            "holds 5 NaN or Inf, the first at row 3, column 19",
            kind,
            path,
            "--rank",
            2,
            "--solver",
            method,
            "--out",
            tmp_path / "r.zarr",
        )


def test_constant_columns_alone_exit_4(tmp_path: Path) -> None:
    np.save(tmp_path / "c.npy", np.full((50, 6), 2.5))
    refused(tmp_path, 4, "no variance", "pca", tmp_path / "c.npy", "--rank", 2, "--out", tmp_path / "r.zarr")
    np.save(tmp_path / "w.npy", np.full((6, 50), 2.5))
    refused(tmp_path, 4, "no variance", "pca", tmp_path / "w.npy", "--rank", 2, "--out", tmp_path / "r.zarr")


def test_a_missing_or_truncated_chunk_exits_4(tmp_path: Path, store: Path) -> None:
    chunk = store / "c" / "2" / "0"
    whole = chunk.read_bytes()
    chunk.write_bytes(whole[:-100])
    command = ("svd", store, "--rank", 3, "--out", tmp_path / "r.zarr")
    refused(tmp_path, 4, "c/2/0", *command)
    chunk.unlink()
    refused(tmp_path, 4, "--missing-chunks fill", *command, "--missing-chunks", "error")
    assert rankfold(*command).exit_code == 0


def test_another_result_is_not_overwritten_unless_asked(tmp_path: Path, store: Path) -> None:
    out = tmp_path / "r.zarr"
    assert rankfold("svd", store, "--rank", 4, "--out", out).exit_code == 0
    refused(tmp_path, 2, "--overwrite", "svd", store, "--rank", 5, "--out", out)
    (tmp_path / "notes").mkdir()
    refused(tmp_path, 2, "not a result", "svd", store, "--rank", 5, "--out", tmp_path / "notes")
    assert rankfold("svd", store, "--rank", 5, "--out", out, "--overwrite").exit_code == 0
    assert rf.open_result(out).s.shape == (5,)


def test_nothing_but_results_is_ever_replaced(tmp_path: Path, store: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "thesis.txt").write_text("years")
    refused(tmp_path, 2, "never replaced", "svd", store, "--rank", 2, "--out", notes, "--overwrite")
    for place in (store, store / "inside.zarr", tmp_path):
        refused(tmp_path, 2, "its own input", "svd", store, "--rank", 2, "--out", place, "--overwrite")


def test_a_listener_that_leaves_does_not_stop_the_work(tmp_path: Path, store: Path) -> None:
    out = tmp_path / "r.zarr"
    command = f"{sys.executable} -m rankfold svd {store} --rank 4 --out {out} 2>&1 | true"
    assert subprocess.run(command, shell=True, check=False).returncode == 0
    for _ in range(100):  # `true` ends the pipeline first
        if out.exists():
            break
        time.sleep(0.1)
    assert rf.open_result(out).s.shape == (4,)


def test_changed_data_are_another_request(tmp_path: Path, store: Path) -> None:
    out = tmp_path / "r.zarr"
    assert rankfold("svd", store, "--rank", 4, "--out", out).exit_code == 0
    zarr.open_array(store, mode="r+")[0, 0] = 9.0
    refused(tmp_path, 2, "data that has changed since", "svd", store, "--rank", 4, "--out", out)


def test_a_full_disk_keeps_what_was_finished(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, write, written = tmp_path / "r.zarr", os.pwrite, []

    def full(file: int, data: Any, offset: int) -> int:
        written.append(len(data))
        if len(written) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data, offset)

    command = ("svd", store, "--rank", 4, "--solver", "krylov", "--out", out)
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        run = rankfold(*command)
    assert run.exit_code == 3 and "the disk is full" in run.stderr and len(run.stderr.splitlines()) < 9
    assert not out.exists()
    assert rankfold(*command).exit_code == 0
    np.testing.assert_array_equal(rf.open_result(out).U[...], rf.svd(store, 4, solver="krylov").U[...])


def test_too_small_a_disk_is_seen_before_the_first_read(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    refused(tmp_path, 3, "free", "svd", store, "--rank", 4, "--out", tmp_path / "r.zarr")


@pytest.mark.process
def test_an_interrupt_while_the_command_loads_ends_it_without_a_word() -> None:
    interrupt = """
import os, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
from rankfold.__main__ import main
main()
"""
    run = subprocess.run([sys.executable, "-c", interrupt], capture_output=True, text=True)
    assert (run.returncode, run.stdout, run.stderr) == (-signal.SIGINT, "", "")


@pytest.mark.process
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_signals_end_a_run_in_order_and_it_goes_on(tmp_path: Path, number: int, code: int) -> None:
    path = tmp_path / "x.zarr"
    array = zarr.create_array(path, shape=(400_000, 100), chunks=(20_000, 100), dtype="f4", compressors=None)
    rng = np.random.default_rng(0)
    for start in range(0, 400_000, 20_000):
        array[start : start + 20_000] = rng.standard_normal((20_000, 100), dtype=np.float32)
    command = [
        sys.executable,
        "-m",
        "rankfold",
        "svd",
        str(path),
        "--rank",
        "20",
        "--solver",
        "krylov",
        "--tol",
        "1e-12",
        "--passes",
        "20",
        "--out",
        str(tmp_path / "r.zarr"),
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        child.stderr.readline()  # the first pass is through
        child.send_signal(number)
        _, told = child.communicate()
        assert child.returncode == code
    assert "the same command goes on" in told and "Traceback" not in told
    began = time.monotonic()
    assert (
        subprocess.run([*command[:-2], "--out", str(tmp_path / "r.zarr")], capture_output=True).returncode
        == 0
    )
    assert time.monotonic() - began < 60
    assert rf.open_result(tmp_path / "r.zarr").attrs["passes"] > 1


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("pca", "x.npy", "--n-components", 3), "No such option: --n-components (Possible options: --rank)"),
        (("submit", "pca", "x.npy", "--rank", 3), "after two dashes: rankfold submit -- COMMAND --rank"),
        (("knn", "x.npy", "--n-neighbors", 3), "(Possible options: --k)"),
        (("pca", "x.npy", "--rank", 3, "--solver", "grm"), "not 'grm' (did you mean 'gram'?)"),
        (("knn", "x.npy", "--k", 3, "--metric", "euclidian"), "(did you mean 'euclidean'?)"),
        (("pca", "x.npy", "--rank", 3, "--prepare", "normalise_total"), "(did you mean 'normalize_total'?)"),
        (("pca", "x.npy", "--rank", 3, "--prepare", "scale(max_val=9)"), "(did you mean 'max_value'?)"),
        (("nmf", "x.npy", "--rank", 3, "--loss", "frobenus"), "(did you mean 'frobenius'?)"),
        (("umap", "x.npy", "--init", "spectal"), "(did you mean 'spectral'?)"),
        (("kmeans", "x.npy", "--k", 3, "--init", "sampel"), "(did you mean 'sample'?)"),
    ],
)
def test_what_is_misspelt_is_answered_with_what_is_meant(
    words: tuple[object, ...], hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.random.default_rng(0).random((300, 8)))
    run = rankfold(*words, "--out", "o.zarr")
    assert run.exit_code == 2 and hint in run.output, run.output


def test_quiet_shows_no_progress(tmp_path: Path, store: Path) -> None:
    run = rankfold("pca", store, "--rank", 3, "--out", tmp_path / "r.zarr", "--quiet")
    assert run.exit_code == 0 and not run.stderr and "done" in run.stdout
    loud = rankfold("pca", store, "--rank", 2, "--out", tmp_path / "q.zarr")
    assert PROGRESS.match(loud.stderr.splitlines()[0])


def test_help_names_every_command() -> None:
    help_text = rankfold("--help").stdout
    assert "\nReduce a matrix:\n  svd " in help_text and "\nUse a result:\n  transform " in help_text
    for command in ("svd", "pca", "plan", "transform", "reconstruct", "import", "info", "demo"):
        assert command in help_text
        assert rankfold(command, "--help").exit_code == 0
    assert rankfold("--version").stdout.strip() == f"rankfold {rf.__version__}"


def test_an_output_elsewhere_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.eye(9))
    found = rankfold("svd", tmp_path / "x.npy", "--rank", 2, "--out", "s3://bucket/r.zarr")
    assert found.exit_code == 2 and "is not on a file system" in found.stderr


def test_the_tolerance_alone_finds_the_rank(tmp_path: Path, store: Path) -> None:
    out = ("--out", tmp_path / "r.zarr")
    run = rankfold("svd", store, "--tol", 0.3, *out)
    rank = rf.open_result(tmp_path / "r.zarr").attrs["rank"]
    assert run.exit_code == 0 and f"rank {rank}, " in run.stdout and 1 <= rank < COLUMNS
    assert (
        f"rank {COLUMNS} at most, " in rankfold("plan", "svd", store, "--tol", 0.3, "--solver", "gram").stdout
    )
    assert f"leaves out {rf.open_result(tmp_path / 'r.zarr').attrs['approximation_error']:.2g}" in run.stdout


def test_all_components_are_found_where_nothing_is_said(tmp_path: Path, store: Path, x: np.ndarray) -> None:
    run = rankfold("svd", store, "--out", tmp_path / "r.zarr", "--memory", "1g")
    assert run.exit_code == 0 and f"svd by tsqr, rank {COLUMNS}, " in run.stdout, run.output
    np.testing.assert_allclose(rf.open_result(tmp_path / "r.zarr").s, np.linalg.svd(x, compute_uv=False))


def test_progress_counts_what_is_swept_in_plain_words(tmp_path: Path, x: np.ndarray) -> None:
    np.save(tmp_path / "wide.npy", x.T)
    run = rankfold(
        "svd", tmp_path / "wide.npy", "--rank", 3, "--solver", "krylov", "--out", tmp_path / "r.zarr"
    )
    assert run.exit_code == 0, run.output
    told = run.stderr.splitlines()
    assert told[0].startswith("pass 1 of at most 2: 2,000 of 2,000 columns")
    assert told[-1].startswith("writing the result: 2,000 of 2,000 columns")
    assert all(PROGRESS.match(line) for line in told) and not re.search("ritz|pass-0", run.stderr)


def test_passes_that_no_plan_knows_are_said_to_be_so(store: Path) -> None:
    command = ("plan", "svd", store, "--rank", 3, "--solver", "krylov")
    made = json.loads(rankfold(*command, "--json").stdout)
    note = f"up to {made['most_passes']}; depends on the spectrum"
    assert made["passes_note"].startswith(note) and note in rankfold(*command).stdout
    assert "passes over the matrix   2\n" in rankfold(*command[:-1], "gram").stdout


def test_more_samples_are_added_to_a_result(tmp_path: Path, store: Path) -> None:
    first, both = tmp_path / "first.zarr", tmp_path / "both.zarr"
    rankfold("pca", store, "--select-rows", "0:600", "--rank", COLUMNS, "--out", first, "--no-rows")
    run = rankfold("pca", "--update", first, store, "--select-rows", f"600:{ROWS}", "--out", both)
    assert run.exit_code == 0 and "pca by update" in run.stdout, run.output
    fit = rf.pca(store, COLUMNS, solver="tsqr", with_rows=False)
    np.testing.assert_allclose(rf.open_result(both).singular_values, fit.singular_values, rtol=1e-9)
    arguments = ("pca", "--update", first, store, "--scale", "--out", tmp_path / "n.zarr")
    refused(tmp_path, 2, "--scale has no place beside --update", *arguments)


def test_nonnegative_factors(tmp_path: Path, x: np.ndarray) -> None:
    np.save(tmp_path / "x.npy", np.abs(x))
    out = tmp_path / "nmf.zarr"
    run = rankfold("nmf", tmp_path / "x.npy", "--rank", 3, "--out", out)
    assert run.exit_code == 0 and "nmf by hals, rank 3, " in run.stdout, run.output
    found = rf.open_result(out)
    assert found.W.shape == (ROWS, 3) and found.H.shape == (3, COLUMNS)
    assert "up to 8, typically 4" in rankfold("plan", "nmf", tmp_path / "x.npy", "--rank", 3).stdout
    np.save(tmp_path / "y.npy", x)
    arguments = ("nmf", tmp_path / "y.npy", "--rank", 3, "--out", tmp_path / "n.zarr")
    refused(tmp_path, 4, "negative numbers, the first at row", *arguments)


def test_neighbors_their_graph_and_rows_that_are_added(tmp_path: Path, store: Path, x: np.ndarray) -> None:
    run = rankfold("knn", store, "--k", 4, "--symmetric", "union", "--out", tmp_path / "r.zarr")
    assert run.exit_code == 0, run.output
    assert "knn by exact, k 4, euclidean; 100 % of shortlists were certain at once" in run.stdout
    lists = rf.knn(x, 4)
    assert np.array_equal(rf.open_result(tmp_path / "r.zarr").indices[...], lists.indices)
    few = rankfold("knn", store, "--k", 4, "--solver", "approximate", "--out", tmp_path / "few.zarr")
    told = r"knn by approximate, k 4, euclidean, \d rounds?; recall [01]\.\d{4}, from .* by 400 rows"
    assert re.search(told, few.stdout)
    assert rankfold("info", f"{tmp_path / 'r.zarr'}::graph").exit_code == 0
    np.save(tmp_path / "all.npy", np.concatenate([x, x[:50] + 0.1]))
    more, base = tmp_path / "more.zarr", ("--base", tmp_path / "r.zarr")
    run = rankfold("knn", tmp_path / "all.npy", "--k", 4, *base, "--out", more, "--json")
    assert run.exit_code == 0 and json.loads(run.stdout)["recall"] == 1.0
    assert rf.open_result(more).indices.shape == (ROWS + 50, 4)
    np.save(tmp_path / "q.npy", x[:3])
    near, queries = tmp_path / "q.zarr", ("--queries", tmp_path / "q.npy")
    run = rankfold("knn", store, "--k", 2, *queries, "--metric", "l1", "--out", near)
    assert run.exit_code == 0 and rf.open_result(near).indices[:, 0].tolist() == [0, 1, 2]


def test_neighbors_in_an_index(tmp_path: Path, store: Path, x: np.ndarray) -> None:
    index, out = tmp_path / "i.zarr", tmp_path / "r.zarr"
    run = rankfold("index", store, "--partition-rows", 100, "--out", index)
    assert run.exit_code == 0, run.output
    assert "index by partitions, euclidean; " in run.stdout
    assert "2 likely" not in rankfold("plan", "index", store).stdout
    np.save(tmp_path / "q.npy", x[:700] + 0.01)
    asked = ("knn", tmp_path / "q.npy", "--k", 3, "--index", index)
    run = rankfold(*asked, "--min-recall", 0.5, "--out", out)
    assert run.exit_code == 0, run.output
    assert re.search(
        r"knn by index, k 3, euclidean, \d+ probes?; recall 0\.\d+, from .* by 400 rows", run.stdout
    )
    assert "partitions" in rankfold("plan", *asked).stdout
    refused(tmp_path, 2, "--metric euclidean", *asked, "--metric", "cosine", "--out", tmp_path / "c.zarr")
    refused(tmp_path, 2, "give one of index", *asked[:-1], out, "--out", tmp_path / "c.zarr")


def test_neighbors_are_planned_and_wrong_requests_refused(tmp_path: Path, store: Path) -> None:
    run = rankfold("plan", "knn", store, "--k", 5)
    assert run.exit_code == 0 and "k 5, every pair of rows once" in run.stdout
    assert json.loads(rankfold("plan", "knn", store, "--json").stdout)["groups"] >= 1
    out = ("--out", tmp_path / "r.zarr")
    refused(tmp_path, 2, "knn has no rank", "plan", "knn", store, "--rank", 3)
    refused(tmp_path, 2, "ask for 1 to 1999", "knn", store, "--k", 2000, *out)
    refused(tmp_path, 2, "not 'cosinus' (did you mean 'cosine'?)", "knn", store, "--metric", "cosinus", *out)
    refused(tmp_path, 2, "symmetric must be", "knn", store, "--symmetric", "yes", *out)
    refused(tmp_path, 2, "there is no result at", "knn", store, "--base", tmp_path / "no.zarr", *out)
    refused(tmp_path, 3, "Give --memory", "knn", store, "--memory", "10MiB", *out)


@pytest.mark.parametrize(
    "words",
    [
        *(["svd", "--help"], ["import", "--help"], ["fuzzy-graph", "--help"], ["svdd", "--help"]),
        *([], ["--version"], ["--help"], ["check", "no.zarr"]),
        ["submit", "--print", "--", "pca", "x.npy", "--rank", "2", "--memory", "200MiB", "--out", "s.zarr"],
        ["submit", "--", "transform", "x.npy"],
        ["submit", "--", "doctor"],
        ["mpi", "--", "info", "x.npy"],
        ["pca", "x.npy", "--rank", "2", "--cluster", "slurm", "--print", "--out", "s.zarr"],
    ],
    ids=" ".join,
)
def test_a_command_made_alone_says_what_it_says_among_all(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.random.default_rng(0).random((300, 8)))
    said = []
    for start in (cli.main, cli.app):
        monkeypatch.setattr(sys, "argv", ["rankfold", *words])
        with pytest.raises(SystemExit) as ended:
            start()
        said.append((ended.value.code, *capsys.readouterr()))
    assert said[0] == said[1]
    assert len(cli.app.registered_commands) > 30
