"""Graphs of which eigenvalues are known, or hard to tell apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.datasets import make_moons
from sklearn.neighbors import kneighbors_graph, radius_neighbors_graph

Array = npt.NDArray[Any]
Graph = Any


def path(n: int) -> Graph:
    return sp.diags_array([np.ones(n - 1)] * 2, offsets=[-1, 1]).tocsr()


def ring(n: int) -> Graph:
    return path(n) + sp.coo_array(([1.0, 1.0], ([0, n - 1], [n - 1, 0])), shape=(n, n)).tocsr()


def grid(n: int, m: int) -> Graph:
    return (sp.kron(path(n), sp.eye_array(m)) + sp.kron(sp.eye_array(n), path(m))).tocsr()


def star(n: int) -> Graph:
    ends = np.arange(1, n)
    half = sp.coo_array((np.ones(n - 1), (np.zeros(n - 1, int), ends)), shape=(n, n))
    return (half + half.T).tocsr()


def complete(n: int) -> Graph:
    return sp.csr_array(np.ones((n, n)) - np.eye(n))


def near(x: Array, k: int) -> Graph:
    """Rows joined to k others, with random weights."""
    a = kneighbors_graph(x, k).astype(float)
    a = sp.csr_array(a.maximum(a.T))
    a.data = np.random.default_rng(0).random(a.nnz)
    return ((a + a.T) / 2).tocsr()


def gaussian(rows: int, columns: int, k: int, seed: int = 0) -> Graph:
    return near(np.random.default_rng(seed).standard_normal((rows, columns)), k)


def moons(rows: int = 700) -> Graph:
    return near(make_moons(rows, noise=0.1, random_state=0)[0], 10)


def geometric(rows: int = 700) -> Graph:
    x = np.random.default_rng(3).random((rows, 2))
    return sp.csr_array(radius_neighbors_graph(x, 0.1).astype(float))


def beside(*graphs: Graph) -> Graph:
    return sp.block_diag(graphs, format="csr")


def joined(a: Graph, b: Graph, weight: float) -> Graph:
    """Two graphs with one edge between them."""
    n = a.shape[0] + b.shape[0]
    edge = sp.coo_array(([weight] * 2, ([0, a.shape[0]], [a.shape[0], 0])), shape=(n, n))
    return (beside(a, b) + edge).tocsr()


def walk_matrix(graph: Graph, alpha: float = 0.0) -> tuple[Array, Array]:
    """The symmetric matrix of the walk, dense, and the degrees; 0 for vertices without edges."""
    w = graph.toarray().astype(float)
    q = w.sum(axis=1)
    q = np.where(q > 0, q, 1) ** -alpha
    w *= q[:, None] * q
    d = w.sum(axis=1)
    s = np.where(d > 0, d, 1) ** -0.5
    return w * s[:, None] * s, d
