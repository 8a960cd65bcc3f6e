"""Layouts of a matrix: neighbors are found first, in one run, and the layout is that of the two steps."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp
from typer.testing import CliRunner

import rankfold as rf
from rankfold.methods.registry import Method
from rankfold.methods.tsne.arguments import TSNE
from rankfold.methods.umap.arguments import UMAP
from rankfold.pipeline.data.names import names_of_result
from rankfold.workflows.cli import app

Array = npt.NDArray[Any]

METHODS: dict[str, tuple[int, dict[str, Any]]] = {
    "umap": (14, {"n_epochs": 20}),
    "tsne": (89, {"n_iter": 5, "early_exaggeration_iter": 5}),
    "isomap": (5, {"disconnected": "join"}),
    "spectral": (14, {}),
    "diffusion_map": (14, {"t": 2}),
}
"""Neighbors that each asks for by default of 90 rows, and arguments."""


def points() -> Array:
    return np.random.default_rng(7).standard_normal((90, 4))


def in_two_steps(name: str, x: Any, k: int, **asked: Any) -> rf.Result:
    beside = {"matrix": x} if asked.get("disconnected") == "join" else {}
    return getattr(rf, name)(rf.knn(x, k), **asked, **beside)


@pytest.mark.parametrize("name", METHODS)
def test_of_a_matrix_it_is_what_it_is_of_its_neighbors(name: str, tmp_path: Path) -> None:
    x, (k, asked) = points(), METHODS[name]
    np.save(tmp_path / "x.npy", x)
    expected = np.asarray(in_two_steps(name, x, k, **asked).embedding)
    for given in (x, tmp_path / "x.npy", rf.open(tmp_path / "x.npy"), sp.csr_array(x)):
        np.testing.assert_array_equal(getattr(rf, name)(given, **asked).embedding, expected)
    out = tmp_path / "out.zarr"
    result = getattr(rf, name)(tmp_path / "x.npy", **asked, out=out, threads=1, memory="1GiB")
    np.testing.assert_array_equal(result.embedding, expected)
    assert result.attrs["input"]["shape"] == [90, 4] and result.attrs["input"]["name"] == "x.npy"
    assert result.attrs["request"]["neighbors"]["k"] == k
    before = (out / "zarr.json").stat().st_mtime_ns
    getattr(rf, name)(tmp_path / "x.npy", **asked, out=out, overwrite=True)
    assert (out / "zarr.json").stat().st_mtime_ns == before  # it is there already


@pytest.mark.parametrize("name", METHODS)
def test_another_search_is_another_result(name: str) -> None:
    x, (_, asked) = points(), METHODS[name]
    said = {"metric": "manhattan"} | ({} if name == "tsne" else {"n_neighbors": 9})
    made = getattr(rf, name)(x, **said, **asked)
    k = made.attrs["request"]["neighbors"]["k"]
    assert k == {"tsne": 89, "isomap": 9}.get(name, 8)
    beside = {"matrix": x} if name == "isomap" else {}
    expected = getattr(rf, name)(rf.knn(x, k, metric="manhattan"), **asked, **beside)
    np.testing.assert_array_equal(made.embedding, expected.embedding)


@pytest.mark.parametrize("name", ["umap", "tsne"])
def test_a_start_at_components_takes_the_matrix_itself(name: str, tmp_path: Path) -> None:
    x, (k, asked) = points(), METHODS[name]
    np.save(tmp_path / "x.npy", x)
    lists, embed = rf.knn(x, k, out=tmp_path / "lists.zarr"), functools.partial(getattr(rf, name), **asked)
    of_scores = embed(lists, init=rf.pca(x, 2, tol=1e-2)).embedding
    of_matrix = embed(x, init="pca", matrix=tmp_path / "x.npy")
    for made in (embed(x, init="pca"), of_matrix, embed(lists, init="pca", matrix=x)):
        np.testing.assert_array_equal(made.embedding, of_scores)
    assert (
        of_matrix.attrs["request"]["matrix"] != embed(x, init="pca", matrix=x + 1).attrs["request"]["matrix"]
    )
    if name == "umap":
        made = embed(rf.fuzzy_graph(lists), init="pca", matrix=x)
        np.testing.assert_array_equal(made.embedding, of_scores)
    said = [f"--{key.replace('_', '-')}={value}" for key, value in {**asked, "init": "pca"}.items()]
    lines = "".join(f", {key}: {value}" for key, value in {**asked, "init": "pca"}.items())
    for at, (given, more) in enumerate(
        (("x.npy", []), ("lists.zarr", ["--matrix", str(tmp_path / "x.npy")]))
    ):
        out = tmp_path / f"{at}.zarr"
        run = CliRunner().invoke(app, [name, str(tmp_path / given), *said, *more, "--out", str(out)])
        assert run.exit_code == 0, run.output
        np.testing.assert_array_equal(rf.open_result(out).embedding[...], of_scores)
    (tmp_path / "maps.yaml").write_text(
        f"workflow: maps\ninputs: {{x: x.npy}}\noutputs: made\nstages:\n"
        f"  near: {{method: knn, input: x, k: {k}}}\n"
        f"  map: {{method: {name}, input: x{lines}}}\n"
        f"  other: {{method: {name}, neighbors: near, matrix: x{lines}}}\n"
    )
    run = CliRunner().invoke(app, ["run", str(tmp_path / "maps.yaml")])
    assert run.exit_code == 0, run.output
    for each in ("map", "other"):
        np.testing.assert_array_equal(
            rf.open_result(tmp_path / f"made/{each}.zarr").embedding[...], of_scores
        )


def test_quality_is_measured_in_the_same_run() -> None:
    x = points()
    made = rf.umap(x, n_epochs=10, quality=x)
    apart = rf.umap(rf.knn(x, 14), n_epochs=10, quality=x)
    np.testing.assert_array_equal(made.embedding, apart.embedding)
    assert made.attrs["trustworthiness"] == apart.attrs["trustworthiness"]


def test_new_rows_have_a_place_in_it() -> None:
    x = points()
    result = rf.umap(x, n_epochs=20)
    lists = rf.knn(x, 14, queries=x[:6])
    np.testing.assert_array_equal(
        rf.transform(result, lists).embedding,
        rf.transform(rf.umap(rf.knn(x, 14), n_epochs=20), lists).embedding,
    )


def test_names_of_rows_are_kept() -> None:
    frame = pytest.importorskip("pandas").DataFrame(points(), index=[f"r{at}" for at in range(90)])
    names = names_of_result("made", rf.umap(frame, n_epochs=5).attrs, 0)
    assert names is not None and names.labels is not None and names.labels.tolist() == list(frame.index)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: rf.umap(rf.knn(x, 5), n_neighbors=4), "n_neighbors is of a search in a matrix"),
        (lambda x: rf.tsne(rf.knn(x, 89), metric="cosine"), "metric is of a search in a matrix"),
        (lambda x: rf.umap(x, n_neighbors=1), "n_neighbors=1 counts each row itself: ask for 2"),
        (lambda x: rf.isomap(x, n_neighbors=0), "n_neighbors must be at least 1"),
        (lambda x: rf.umap(x[:1]), "has one row, which has no neighbors"),
        (lambda x: rf.umap(x, metric="inner_product"), "inner products, which are no distances"),
        (lambda x: rf.umap(x, metric="nothing"), "nothing"),
        (lambda x: rf.tsne(x, perplexity=90), "perplexity 90 is more than the 89 neighbors"),
        (lambda x: rf.umap(rf.pca(x, 2)), "is the result of pca"),
        (lambda x: rf.umap(rf.knn(x, 5), init="pca"), r"lists or graph do not have its rows: .* matrix=x"),
        (lambda x: rf.umap(rf.fuzzy_graph(rf.knn(x, 5)), init="pca"), r"do not have its rows: .* matrix=x"),
        (lambda x: rf.umap(x, matrix=x), "matrix is for init='pca'.*, but init is spectral"),
        (lambda x: rf.umap(rf.knn(x, 5), init="pca", matrix=x[:9]), "has 9 rows, but 90 are laid out"),
        (lambda x: rf.umap(x, init="pca", n_components=5), "has no 5 principal components"),
        (lambda x: rf.umap("not-there.npy"), "not-there.npy does not exist"),
        (lambda x: rf.umap(x, memory="1MiB"), "Give memory="),
    ],
)
def test_what_cannot_be_laid_out_is_told(call: Callable[[Array], Any], message: str) -> None:
    with pytest.raises(rf.RankfoldError, match=message):
        call(points())


def test_neighbors_of_many_rows_and_columns_are_nearly_all_true() -> None:
    few, many = np.ones((300, 40)), np.broadcast_to(np.float32(1), (300_000, 40))
    recall = [rf.plan("umap", rf.open(np.asarray(x))).passes[0].name for x in (few, many[:, :10], many)]
    assert recall[0] != recall[2] and recall[1] != recall[2]


def test_the_command_and_a_workflow_do_the_same(tmp_path: Path) -> None:
    x = points()
    np.save(tmp_path / "x.npy", x)
    expected = rf.umap(x, n_epochs=10, n_neighbors=8).embedding
    said = ["--n-epochs", "10", "--n-neighbors", "8", "--out", str(tmp_path / "a.zarr")]
    assert CliRunner().invoke(app, ["umap", str(tmp_path / "x.npy"), *said]).exit_code == 0
    np.testing.assert_array_equal(rf.open_result(tmp_path / "a.zarr").embedding[...], expected)
    (tmp_path / "maps.yaml").write_text(
        "workflow: maps\ninputs: {x: x.npy}\noutputs: made\nstages:\n"
        "  scores: {method: pca, input: x, rank: 4}\n"
        "  map: {method: umap, input: x, n_epochs: 10, n_neighbors: 8}\n"
        "  of_scores: {method: tsne, input: scores.scores, n_iter: 5}\n"
    )
    for said_then in ("run", "finished"):
        run = CliRunner().invoke(app, ["run", str(tmp_path / "maps.yaml")])
        assert run.exit_code == 0 and said_then in run.output
    np.testing.assert_array_equal(rf.open_result(tmp_path / "made" / "map.zarr").embedding[...], expected)
    text = (tmp_path / "maps.yaml").read_text()
    for wrong in ("method: umap, n_epochs", "method: umap, input: x, neighbors: x, n_epochs"):
        (tmp_path / "maps.yaml").write_text(text.replace("method: umap, input: x, n_epochs", wrong))
        run = CliRunner().invoke(app, ["plan", str(tmp_path / "maps.yaml")])
        assert run.exit_code != 0 and "or input: a matrix, and not both" in run.output


def test_options_of_a_matrix_are_for_a_matrix(tmp_path: Path) -> None:
    x = points().reshape(90, 2, 2)
    np.save(tmp_path / "x.npy", x)
    out = ["--n-epochs", "5", "--out", str(tmp_path / "a.zarr")]
    run = CliRunner().invoke(app, ["umap", str(tmp_path / "x.npy"), "--row-axes", "0", *out])
    assert run.exit_code == 0, run.output
    np.testing.assert_array_equal(
        rf.open_result(tmp_path / "a.zarr").embedding[...], rf.umap(points(), n_epochs=5).embedding
    )
    rf.knn(points(), 5, out=tmp_path / "lists.zarr")
    run = CliRunner().invoke(app, ["umap", str(tmp_path / "lists.zarr"), "--row-axes", "0", *out])
    assert run.exit_code != 0 and "is a result, of which all rows count" in run.output


@pytest.mark.parametrize("method", [UMAP, TSNE], ids=["umap", "tsne"])
def test_workers_get_no_matrix_with_the_parameters(method: Method) -> None:
    x = np.random.default_rng(0).random((90, 4))
    chain: Any = method.task(rf.knn(x, 89), init="pca", matrix=x, quality=x)
    tasks = [link.task for link in chain.links]
    (parameters,) = (task.parameters for task in tasks if type(task).__name__ in ("UmapTask", "TsneTask"))
    assert len(pickle.dumps(parameters)) < 10_000
