"""Steps inside the pass: what they make is what writing it out would have made, and nothing is written."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse
from reference import same_bytes, to_group, to_zarr

import rankfold as rf
from rankfold.pipeline.data.source import compressed
from rankfold.pipeline.prepare.parse import STEPS, parse_steps

Array = npt.NDArray[Any]

CHAIN = "normalize_total(1e4), log1p"


def counts(rows: int, columns: int, dtype: Any = np.float32, *, seed: int = 0) -> Array:
    """Counts of some kinds of rows, of all sizes, with empty rows and columns."""
    rng = np.random.default_rng(seed)
    kinds = rng.gamma(0.3, 0.3, (5, columns))
    x = rng.poisson(kinds[rng.integers(0, 5, rows)] * rng.gamma(1, 1, (rows, 1)))
    x[rng.random(rows) < 0.05] = 0
    x[:, rng.random(columns) < 0.05] = 0
    return x.astype(dtype)


def chain(x: Array) -> Array:
    """``CHAIN`` written out."""
    wide = x.astype(np.float64)
    sums = wide.sum(axis=1, keepdims=True)
    return np.log1p(np.divide(1e4 * wide, sums, out=wide.copy(), where=sums > 0))


def read(source: Any) -> Array:
    out = np.empty(source.shape, source.dtype)
    source.read_into(out, (0, out.shape[0]), (0, out.shape[1]))
    return out


# What they make -----------------------------------------------------------------------------------


EXAMPLES: dict[str, Any] = {
    "normalize_total(1e4)": lambda x: np.divide(
        1e4 * x, x.sum(axis=1, keepdims=True), out=x.copy(), where=x.sum(axis=1, keepdims=True) > 0
    ),
    "log1p": np.log1p,
    "log1p(base=2)": lambda x: np.log2(1 + x),
    "sqrt": np.sqrt,
    "arcsinh(5)": lambda x: np.arcsinh(x / 5),
    "binarize(1)": lambda x: (x > 1).astype(float),
    CHAIN: chain,
    "sqrt, normalize_total(10)": lambda x: EXAMPLES["normalize_total(1e4)"](np.sqrt(x)) / 1e3,
}


@pytest.mark.parametrize("steps", EXAMPLES)
@pytest.mark.parametrize("kind", ["array", "zarr", "csr", "group"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.uint8, ">f4"])
def test_numbers_are_those_written_out(tmp_path: Path, kind: str, dtype: Any, steps: str) -> None:
    x = counts(301, 40, dtype)
    native = x.astype(x.dtype.newbyteorder("="))
    where: Any = {
        "array": lambda: x,
        "zarr": lambda: to_zarr(tmp_path / "x.zarr", native, (64, 17)),
        "csr": lambda: scipy.sparse.csr_array(native),
        "group": lambda: to_group(tmp_path / "x.zarr", scipy.sparse.csr_array(native)),
    }[kind]()
    source: Any = rf.open(where, prepare=steps)
    expected = EXAMPLES[steps](native.astype(np.float64))
    assert source.dtype == (np.float64 if native.dtype in (np.float64, np.int32) else np.float32)
    rounding = 20 * float(np.finfo(source.dtype).eps)
    np.testing.assert_allclose(read(source), expected, rtol=rounding, atol=rounding)
    part = np.empty((50, 9), source.dtype)
    source.read_into(part, (100, 150), (20, 29))
    assert np.array_equal(part, read(source)[100:150, 20:29])
    stored = compressed(source)
    assert (stored is not None) == (kind in ("csr", "group"))
    if stored is not None:
        lines = stored.read_sparse((10, 200))
        rows = scipy.sparse.csr_array((lines.data, lines.indices, lines.indptr), shape=(190, 40))
        np.testing.assert_allclose(rows.toarray(), expected[10:200], rtol=rounding, atol=rounding)


def test_steps_are_said_in_several_ways() -> None:
    steps = parse_steps(CHAIN)
    assert parse_steps(["normalize_total(1e4)", "log1p"]) == steps
    assert parse_steps([{"normalize_total": {"target_sum": 10_000}}, "log1p"]) == steps
    assert parse_steps(list(steps)) == steps
    assert parse_steps(None) == parse_steps([]) == ()
    x = counts(100, 20)
    once, twice = (
        rf.open(x, prepare=CHAIN),
        rf.open(rf.open(x, prepare="normalize_total(1e4)"), prepare="log1p"),
    )
    assert np.array_equal(read(once), read(twice)) and once.fingerprint() == twice.fingerprint()
    assert once.fingerprint() != rf.open(x, prepare="normalize_total(1e3), log1p").fingerprint()
    assert once.name.endswith("[normalize_total(target_sum=10000), log1p]")


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (
            "log2p",
            "no step 'log2p' .did you mean 'log1p'.*; there are normalize_total, log1p, sqrt, arcsinh",
        ),
        ("take_colums", "no step 'take_colums'; there are .*coslat, sample_weight, mark_missing$"),
        ("log1p(2, 3)", "log1p takes base"),
        ("log1p(bas=2)", "log1p takes base"),
        ("normalize_total(-1)", "target_sum must be a number above 0, not -1"),
        ("normalize_total('a')", "target_sum must be a number above 0, not 'a'"),
        ("normalize_total(float('inf'))", "cannot be read"),
        ("normalize_total(True)", "must be a number above 0"),
        ("log1p(1)", "base must be a number above 1"),
        ("binarize(-1)", "threshold must be a number of at least 0"),
        ("arcsinh(0)", "cofactor must be a number above 0"),
        ("log1p; sqrt", "cannot be read"),
        ("log1p(", "cannot be read"),
        ("weights(w.npy)", "cannot be read; .*text in quotes, as in 'weights(\"w.npy\")'"),
        ("__import__('os').system('true')", "cannot be read"),
        ([1], "prepare holds 1"),
        ([{"log1p": 2}], "takes parameters by name"),
    ],
)
def test_wrong_steps_are_one_clear_message(prepare: Any, message: str) -> None:
    with pytest.raises(rf.RankfoldError, match=message.replace("(", r"\(").replace(")", r"\)")):
        rf.open(np.ones((3, 3)), prepare=prepare)


@pytest.mark.parametrize("by", ["dense", "csr"])
def test_numbers_without_a_value_are_refused(by: str) -> None:
    x = counts(200, 30)
    x[150, 7] = -3
    given = x if by == "dense" else scipy.sparse.csr_array(x)
    for step in ("log1p", "sqrt"):
        with pytest.raises(rf.RankfoldError, match=f"{step} takes numbers .*, and there is -3"):
            rf.pca(rf.open(given, prepare=step), 2)
    x[150, 7] = np.nan
    given = x if by == "dense" else scipy.sparse.csr_array(x)
    for step in STEPS:
        if step in ("weights", "sample_weight", "coslat", "take_columns", "impute_mean", "patterson"):
            continue  # an array is to be given; the others take NaN for what is missing
        if step in ("mark_missing", "impute_low_rank"):
            continue  # which are for it
        said = f"{step}(7)" if step in ("normalize_total", "highly_variable") else step
        with pytest.raises(rf.RankfoldError, match="1 NaN or Inf, the first at row 150, column 7"):
            rf.pca(rf.open(given, prepare=said), 2)


def test_columns_that_lie_together_have_no_rows(tmp_path: Path) -> None:
    where = to_group(tmp_path / "x.zarr", scipy.sparse.csc_array(counts(60, 20)))
    with pytest.raises(rf.RankfoldError, match=r"normalize_total needs whole rows\. Write it by rows"):
        rf.open(where, prepare=CHAIN)
    np.testing.assert_allclose(read(rf.open(where, prepare="log1p")), np.log1p(counts(60, 20)), rtol=1e-6)


def test_places_twice_are_what_they_add_up_to(tmp_path: Path) -> None:
    x = scipy.sparse.csr_array(counts(200, 30))
    halves = (np.repeat(x.data / 2, 2), np.repeat(x.indices, 2), 2 * x.indptr)
    twice = scipy.sparse.csr_array(halves, shape=x.shape)
    one, other = (to_group(tmp_path / f"{i}.zarr", each) for i, each in enumerate((x, twice)))
    a, b = (rf.pca(rf.open(each, prepare=CHAIN), 3, solver="krylov") for each in (one, other))
    np.testing.assert_allclose(a.singular_values[...], b.singular_values[...], rtol=1e-6)


# Methods ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["tall", "wide", "csr", "group"])
@pytest.mark.parametrize("solver", ["auto", "krylov", "gram", "lanczos"])
def test_components_are_those_of_the_matrix_written_out(tmp_path: Path, kind: str, solver: str) -> None:
    x = counts(*((90, 260) if kind == "wide" else (500, 80)), np.float64)
    where: Any = x
    if kind in ("csr", "group"):
        where = scipy.sparse.csr_array(x)
    if kind == "group":
        where = to_group(tmp_path / "x.zarr", where)
    asked = {"solver": solver, "tol": 1e-8}
    result, written = (rf.pca(each, 4, **asked) for each in (rf.open(where, prepare=CHAIN), chain(x)))
    np.testing.assert_allclose(result.singular_values[...], written.singular_values[...], rtol=1e-7)
    projectors = [each.components[...].T @ each.components[...] for each in (result, written)]
    np.testing.assert_allclose(*projectors, atol=1e-3)


@pytest.mark.parametrize("sparse", [False, True])
def test_other_methods_take_them(tmp_path: Path, sparse: bool) -> None:
    x = counts(400, 60, np.float64)
    source = rf.open(scipy.sparse.csr_array(x) if sparse else x, prepare=CHAIN)
    out = chain(x)
    start = np.random.default_rng(0).random((400, 3)), np.random.default_rng(1).random((3, 60))
    warnings.simplefilter("ignore", rf.RankfoldWarning)
    factors = [rf.nmf(each, 3, init=start, tol=0, passes=4).H[...] for each in (source, out)]
    np.testing.assert_allclose(*factors, rtol=1e-6, atol=1e-9)
    near = [np.sort(rf.knn(each, 5).distances[...]) for each in (source, out)]
    np.testing.assert_allclose(*near, rtol=1e-6, atol=1e-6)
    result = rf.pca(source, 3, out=tmp_path / "r.zarr")
    scores = rf.transform(result, source).scores[...]
    np.testing.assert_allclose(scores, result.scores[...], atol=1e-6 * np.abs(scores).max())
    assert rf.check(result, source).left_residuals[...].max() < 1e-4


@pytest.mark.parametrize("kind", ["zarr", "group"])
def test_threads_memory_and_chunks_change_no_byte(tmp_path: Path, kind: str) -> None:
    x = counts(3000, 64)

    def store(name: str, chunk: int) -> str:
        if kind == "zarr":
            return to_zarr(tmp_path / name, x, (chunk, 16))
        return to_group(tmp_path / name, scipy.sparse.csr_array(x), chunk)

    source = rf.open(store("x.zarr", 500), prepare=CHAIN)
    asked: dict[str, Any] = {"rank": 4, "solver": "krylov"}
    whole = same_bytes(rf.pca(source, **asked, threads=1))
    assert same_bytes(rf.pca(source, **asked, threads=3, memory="200MiB")) == whole
    other = rf.pca(rf.open(store("y.zarr", 300), prepare=CHAIN), **asked)
    values = rf.pca(source, **asked).singular_values[...]
    np.testing.assert_allclose(other.singular_values[...], values, rtol=1e-5)

    def interrupt(name: str, done: int, _: int) -> None:
        if name == "pass-02" and done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rf.pca(source, **asked, out=tmp_path / "r.zarr", progress=interrupt)
    assert same_bytes(rf.pca(source, **asked, out=tmp_path / "r.zarr")) == whole


@pytest.mark.process
@pytest.mark.parametrize("kind", ["zarr", "group"])
def test_processes_change_no_byte(tmp_path: Path, kind: str) -> None:
    x = counts(3000, 64)
    sparse = scipy.sparse.csr_array(x)
    where = to_zarr(tmp_path / "x", x, (500, 16)) if kind == "zarr" else to_group(tmp_path / "x", sparse)
    source = rf.open(where, prepare=CHAIN)
    for result in (
        lambda **place: rf.pca(source, 4, solver="krylov", **place),
        lambda **p: rf.knn(source, 5, **p),
    ):
        assert same_bytes(result(workers=2, threads=1)) == same_bytes(result())


def test_steps_are_part_of_what_was_asked(tmp_path: Path) -> None:
    x, out = counts(300, 40), tmp_path / "r.zarr"
    rf.pca(rf.open(x, prepare="log1p"), 3, out=out)
    rf.pca(rf.open(x, prepare="log1p"), 3, out=out)
    with pytest.raises(rf.RankfoldError, match="exists and is the answer to another request"):
        rf.pca(rf.open(x, prepare="sqrt"), 3, out=out)
    assert rf.open_result(out).attrs["input"]["name"].endswith("[log1p]")


@pytest.mark.parametrize("sparse", [False, True])
def test_raw_rows_go_through_the_steps_of_the_result(tmp_path: Path, sparse: bool) -> None:
    x = counts(400, 60, np.float64)
    raw: Any = scipy.sparse.csr_array(x) if sparse else x
    result = rf.pca(rf.open(raw, prepare=CHAIN), 3, solver="krylov", tol=1e-8)
    for rows in (raw, rf.open(raw, prepare=CHAIN)):
        scores = rf.transform(result, rows).scores[...]
        np.testing.assert_allclose(scores, result.scores[...], atol=1e-6 * np.abs(scores).max())
    assert rf.check(result, raw).left_residuals[...].max() < 1e-4
    assert rf.update(result, raw[:50]).attrs["input"]["prepare"] == result.attrs["input"]["prepare"]
    with pytest.raises(rf.RankfoldError, match=r"this one went through sqrt\. Open it without prepare"):
        rf.transform(result, rf.open(raw, prepare="sqrt"))


COMMAND = """
import json, sys
import rankfold as rf
source = rf.open(sys.argv[1], prepare="normalize_total(1e4), log1p")
r = rf.pca(source, 10, out=sys.argv[2], memory="1GiB", threads=2, solver="krylov", passes=2)
last = r.run["attempts"][-1]
print(json.dumps([last["planned_bytes"], last["measured_bytes"]]))
"""


@pytest.mark.memory
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dense", "wide", "sparse"])
def test_the_peak_is_planned(tmp_path: Path, kind: str) -> None:
    rng = np.random.default_rng(0)
    if kind == "sparse":
        x = scipy.sparse.random_array((200_000, 2000), density=0.02, rng=rng, dtype=np.float32, format="csr")
        store = to_group(tmp_path / "x.zarr", x, 2**18)
    else:
        shape = (60_000, 500) if kind == "dense" else (3000, 12_000)
        values = rng.integers(0, 9, shape, dtype=np.uint16)
        store = to_zarr(tmp_path / "x.zarr", values, (1000, 500))
    command = [sys.executable, "-W", "ignore", "-c", COMMAND, store, str(tmp_path / "r.zarr")]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    planned, peak = json.loads(run.stdout)
    if peak is None:
        pytest.skip("this system does not report anonymous memory (RssAnon is Linux)")
    assert peak <= planned
