"""What every method is asked to obey, by one line each: see ``test_laws.py``."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from reference import to_zarr

import rankfold as rf
from rankfold.api.method_function import function_of

TOY = Path(__file__).parent / "toy"
sys.path.insert(0, str(TOY))

COLUMN_SUMS = importlib.import_module("column_sums").COLUMN_SUMS

Call = Callable[..., rf.Result]


@dataclass(frozen=True)
class Law:
    """A method, and how it is called."""

    call: Call
    """Of a matrix, and of where and how."""

    asked: dict[str, Any]
    fit: Call | None = None
    """What makes the result that it is of, if it is of one."""

    name: str = ""
    """Of the method, where it can be planned by name."""

    tolerance: float = 1e-9
    """Of its arrays, relative to the largest, on the same data in other chunks."""

    is_half_zero: bool = False
    """Whether half of its matrix is zero."""

    is_complex: bool = False
    """Whether its matrix is."""

    device: str = "cpu"
    reads_matrix: bool = True
    """Whether it is of a matrix at all, or of a result alone."""

    def matrix(self) -> npt.NDArray[Any]:
        """What it is called of."""
        x = complex_matrix() if self.is_complex else matrix()
        return np.where(x > np.median(x), x, 0) if self.is_half_zero else x

    def store(
        self, folder: Path, chunks: tuple[int, int] = (100, 40), x: npt.NDArray[Any] | None = None
    ) -> str:
        """That, or another matrix, on disk."""
        return store(folder, chunks, self.matrix() if x is None else x)

    @property
    def where(self) -> dict[str, Any]:
        """Where it runs, unless that is the host."""
        return {} if self.device == "cpu" else {"device": self.device}

    def __call__(self, x: object, folder: Path, out: str = "r.zarr", **how: Any) -> rf.Result:
        """Call it; the result of ``fit`` lies beside."""
        first: tuple[object, ...] = (x,)
        if self.fit is not None:
            first = (self.fit(x, 4, out=folder / "fit.zarr", threads=1), x)
        if not self.reads_matrix:
            first = first[:1]
        return self.call(*first, **self.asked, out=folder / out, **self.where, **how)


def reconstructed(result: rf.Result, **how: Any) -> Any:
    """The whole matrix, whose facts are its attributes."""
    rf.reconstruct(result, **how)
    return rf.open_result(how["out"])


def graph_and_layout(result: rf.Result, *, out: Path, **how: Any) -> rf.Result:
    """The layout of a graph that lies beside it, from coordinates that are given."""
    graph = rf.fuzzy_graph(result, out=out.with_name("graph.zarr"))
    start = np.random.default_rng(8).standard_normal((1500, 3))
    return rf.umap(graph, init=start, out=out, **how)


def measured_layout(result: rf.Result, x: object, **how: Any) -> rf.Result:
    """A layout, and how well it keeps neighborhoods of the matrix."""
    return rf.umap(result, quality=x, **how)


def measured_tsne(result: rf.Result, x: object, **how: Any) -> rf.Result:
    """An embedding from principal components, and how well it keeps neighborhoods of the matrix."""
    return rf.tsne(result, init="pca", matrix=x, quality=x, **how)


def ninety_neighbors(x: object, _: int, **how: Any) -> rf.Result:
    """As many as the perplexity of t-SNE takes."""
    return rf.knn(x, 90, **how)


def two_graphs(result: rf.Result, *, out: Path, **how: Any) -> rf.Result:
    """A graph of some of the neighbors and one of all, as one."""
    few, all_ = (rf.fuzzy_graph(result, k, out=out.with_name(f"graph{k}.zarr")) for k in (2, 4))
    return rf.combine_graphs(few, all_, out=out, **how)


def narrow(call: Call) -> Call:
    """The same of three of the columns, of which one may hold what is wrong."""
    return lambda x, **how: call(rf.open(x, select_columns=slice(6, 9)), **how)


def index_of(x: object, _: int, **how: Any) -> rf.Result:
    """An index of some partitions."""
    return rf.index(x, partition_rows=60, **how)


def many_neighbors(x: object, _: int, **how: Any) -> rf.Result:
    """So many that there is a path from any row to any other."""
    return rf.knn(x, 15, **how)


def all_within(x: object, _: int, **how: Any) -> rf.Result:
    """The same by a radius, of some columns."""
    return rf.radius_neighbors(rf.open(x, select_columns=slice(6, 9)), 4.0, **how)


def weights() -> npt.NDArray[np.float32]:
    """For the matrix below; a tenth of its entries counts nothing."""
    rng = np.random.default_rng(6)
    values = rng.random((1500, 40)) * (rng.random((1500, 40)) > 0.1)
    values[1234, 7] = 1  # where NaN is to be refused
    return values.astype(np.float32)


def first_centers() -> npt.NDArray[np.float64]:
    """For the matrix below; three are so far away that no row is near."""
    centers = np.random.default_rng(7).random((9, 40))
    centers[2:5] += 1e4
    return centers


def other_points() -> npt.NDArray[np.float64]:
    """As many as the rows of the matrix below, near some of its columns."""
    return np.random.default_rng(9).standard_normal((1500, 3))


LAWS = {
    "svd": Law(rf.svd, {"rank": 4, "solver": "krylov", "tol": 1e-10}, name="svd"),
    "svd by gram": Law(rf.svd, {"rank": 4, "solver": "gram"}, name="svd"),
    "svd by subspace": Law(rf.svd, {"rank": 4, "solver": "subspace", "tol": 1e-10, "passes": 30}, name="svd"),
    "svd by sketch": Law(rf.svd, {"rank": 4, "solver": "sketch"}, name="svd", tolerance=1e-5),
    "svd by lanczos": Law(rf.svd, {"rank": 4, "solver": "lanczos", "tol": 1e-10}, name="svd"),
    "svd by tsqr": Law(rf.svd, {"rank": 4, "solver": "tsqr"}, name="svd"),
    "pca": Law(rf.pca, {"tol": 1e-3, "scale": True}, name="pca", tolerance=1e-6),
    "qr": Law(rf.qr, {}, name="qr"),
    "nmf": Law(rf.nmf, {"rank": 3}, name="nmf", tolerance=1e-3),
    "nmf with weights": Law(rf.nmf, {"rank": 3, "weights": weights()}, name="nmf", tolerance=1e-3),
    "nmf with weights by ratios": Law(
        rf.nmf, {"rank": 3, "weights": weights(), "loss": "kullback-leibler"}, name="nmf", tolerance=1e-3
    ),
    "knn": Law(rf.knn, {"k": 5, "symmetric": "union"}, name="knn"),
    "knn of sets": Law(rf.knn, {"k": 5, "metric": "jaccard"}, name="knn", is_half_zero=True),
    "knn by partitions": Law(
        rf.knn, {"k": 5, "solver": "approximate", "partition_rows": 60, "min_recall": 0.99}, name="knn"
    ),
    "knn in an index": Law(
        lambda index, x, **how: rf.knn(x, index=index, **how), {"k": 5, "min_recall": 0.9}, fit=index_of
    ),
    "knn of all that an index has": Law(
        lambda index, x, **how: rf.knn(x, index=index, **how), {"k": 5}, fit=index_of
    ),
    "index": Law(rf.index, {"partition_rows": 60}, name="index"),
    "knn of points": Law(narrow(rf.knn), {"k": 5, "solver": "tree", "box": "9,0,7"}),
    "radius_neighbors": Law(narrow(rf.radius_neighbors), {"radius": 0.3, "metric": "manhattan"}),
    "kernel_sum": Law(narrow(rf.kernel_sum), {"tol": 0.05, "softening": 0.1}, tolerance=0.05),
    "kernel_sum at targets": Law(
        narrow(rf.kernel_sum),
        {"tol": 0.0, "kernel": "cauchy", "targets": other_points(), "weights": other_points()[:, :1]},
    ),
    "density": Law(narrow(rf.density), {"bandwidth": 0.3}, tolerance=1e-3),
    "density by weights": Law(
        narrow(rf.density), {"bandwidth": 0.3, "weights": np.arange(1500.0) % 3}, tolerance=1e-3
    ),
    "kmeans": Law(rf.kmeans, {"k": 7}, name="kmeans"),
    "kmeans of a few": Law(rf.kmeans, {"k": 30, "init": "sample", "tol": 0.0}, name="kmeans"),
    "kmeans by batches": Law(rf.kmeans, {"k": 7, "batch_rows": 70}, name="kmeans"),
    "kmeans with centers": Law(rf.kmeans, {"init": first_centers()}, name="kmeans"),
    "transform": Law(rf.transform, {}, fit=rf.pca),
    "update": Law(rf.update, {}, fit=rf.pca),
    "check": Law(rf.check, {}, fit=rf.svd),
    "reconstruct": Law(reconstructed, {}, fit=rf.svd, reads_matrix=False),
    "fuzzy_graph": Law(rf.fuzzy_graph, {"set_op_mix_ratio": 0.7}, fit=rf.knn, reads_matrix=False),
    "fuzzy_graph with labels": Law(
        rf.fuzzy_graph, {"targets": np.arange(1500) % 3, "radii": True}, fit=rf.knn, reads_matrix=False
    ),
    "fuzzy_graph with numbers": Law(
        rf.fuzzy_graph,
        {"targets": np.arange(1500.0) % 97, "target_metric": "euclidean"},
        fit=rf.knn,
        reads_matrix=False,
    ),
    "combine_graphs": Law(two_graphs, {"rule": "union"}, fit=rf.knn, reads_matrix=False),
    "umap": Law(rf.umap, {"n_epochs": 20}, fit=rf.knn, reads_matrix=False),
    "umap by density": Law(
        rf.umap, {"n_epochs": 20, "density": 2.0, "density_share": 0.6}, fit=rf.knn, reads_matrix=False
    ),
    "umap that is measured": Law(measured_layout, {"n_epochs": 20}, fit=rf.knn),
    "umap of a graph": Law(
        graph_and_layout, {"n_epochs": 20, "n_components": 3}, fit=rf.knn, reads_matrix=False
    ),
    "tsne": Law(
        rf.tsne,
        {"n_iter": 20, "early_exaggeration_iter": 10, "init": "random"},
        fit=ninety_neighbors,
        reads_matrix=False,
    ),
    "tsne that is measured": Law(
        measured_tsne, {"n_iter": 5, "early_exaggeration_iter": 5, "perplexity": "1,1.3"}, fit=rf.knn
    ),
    "isomap": Law(rf.isomap, {"n_landmarks": 40}, fit=many_neighbors, reads_matrix=False),
    "isomap of a radius": Law(
        rf.isomap, {"n_landmarks": 40, "landmarks": "random"}, fit=all_within, reads_matrix=False
    ),
    "umap from random places": Law(
        rf.umap, {"n_epochs": 20, "init": "random"}, fit=rf.knn, reads_matrix=False
    ),
    "spectral": Law(rf.spectral, {"n_components": 3}, fit=rf.knn, reads_matrix=False),
    "diffusion_map": Law(rf.diffusion_map, {"alpha": 0.5, "t": 2}, fit=rf.knn, reads_matrix=False),
    "kernel_pca": Law(rf.kernel_pca, {"rank": 4, "gamma": 0.02}, name="kernel_pca", tolerance=1e-6),
    "kernel_pca of a polynomial": Law(
        rf.kernel_pca, {"rank": 3, "kernel": "polynomial", "gamma": 0.02}, name="kernel_pca", tolerance=1e-6
    ),
    "nystroem": Law(rf.nystroem, {"rank": 12, "gamma": 0.02}, name="nystroem", tolerance=1e-6),
    "nystroem by pivots": Law(
        rf.nystroem, {"rank": 40, "gamma": 0.02, "landmarks": "rpcholesky"}, name="nystroem", tolerance=1e-6
    ),
    "nystroem of any rows": Law(
        rf.nystroem, {"rank": 12, "kernel": "laplacian", "landmarks": "uniform"}, name="nystroem"
    ),
    "transform of kernel_pca": Law(rf.transform, {}, fit=rf.kernel_pca, tolerance=1e-6),
    "transform of nystroem": Law(rf.transform, {}, fit=rf.nystroem),
    "column_sums": Law(function_of(COLUMN_SUMS), {"powers": 3}),
}
"""A line for each method, and for each solver."""

COMPLEX = ("svd", "svd by gram", "svd by subspace", "svd by tsqr", "pca", "qr", "transform", "check")
LAWS |= {f"{name} of complex numbers": replace(LAWS[name], is_complex=True) for name in COMPLEX}
LAWS["reconstruct of complex numbers"] = replace(LAWS["reconstruct"], is_complex=True)


def matrix() -> npt.NDArray[np.float64]:
    """No number below zero, and singular values that decay: fit for all methods."""
    rng = np.random.default_rng(5)
    left, right = (np.abs(rng.standard_normal(shape)) for shape in ((1500, 12), (12, 40)))
    x: npt.NDArray[np.float64] = left * 0.5 ** np.arange(12) @ right
    return x


def complex_matrix() -> npt.NDArray[np.complex128]:
    """The same with a phase for each number of either factor."""
    rng = np.random.default_rng(6)
    left, right = (
        rng.standard_normal(shape) + 1j * rng.standard_normal(shape) for shape in ((1500, 12), (12, 40))
    )
    x: npt.NDArray[np.complex128] = left * 0.5 ** np.arange(12) @ right
    return x


def store(folder: Path, chunks: tuple[int, int] = (100, 40), x: npt.NDArray[Any] | None = None) -> str:
    """That matrix, or another, on disk."""
    return to_zarr(folder / f"x{chunks[0]}.zarr", matrix() if x is None else x, chunks)
