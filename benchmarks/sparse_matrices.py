"""Sparse matrices like those that people have, drawn from a seed: SciPy's CSR, float32, rows sorted.

cells       counts of genes in cells, of some types, by rows 1e4 in sum and log(1 + x): 2700 x 13 714, 6 %
documents   counts of words in documents, words by Zipf's law: 20 000 x 93 000, 3.9 million nonzeros
graph       who knows whom, new ones those who are known already: 36 692 squared, 0.37 million nonzeros
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.sparse as sp

SEED = 7


def counts_of_cells(rows: int = 2700, columns: int = 13_714) -> sp.csr_array:
    """Counts of genes, raw."""
    rng = np.random.default_rng(SEED)
    shares = rng.lognormal(0, 2.2, columns)
    types = shares * rng.lognormal(0, 0.5, (8, columns))
    types /= types.sum(axis=1, keepdims=True)
    depths, kinds = rng.lognormal(np.log(2300), 0.4, rows), rng.integers(0, len(types), rows)
    blocks = [
        sp.csr_array(rng.poisson(depths[i : i + 300, None] * types[kinds[i : i + 300]]))
        for i in range(0, rows, 300)
    ]
    return sp.vstack(blocks, format="csr")


def cells() -> sp.csr_array:
    """Counts of genes, normalized and in logarithms."""
    return normalized(counts_of_cells())


def normalized(counts: sp.csr_array) -> sp.csr_array:
    """Rows of 10 000 in sum, then log(1 + x)."""
    x = sp.csr_array(counts, dtype=np.float64)
    x.data *= np.repeat(1e4 / np.maximum(x.sum(axis=1), 1), np.diff(x.indptr))
    return _float32(x.log1p())


def documents(rows: int = 20_000, columns: int = 93_000, words: int = 6_500_000) -> sp.csr_array:
    """Counts of words, which stand in no order of frequency."""
    rng = np.random.default_rng(SEED)
    chances = 1 / (np.arange(columns) + 8.0) ** 1.05
    drawn = rng.permutation(columns)[rng.choice(columns, words, p=chances / chances.sum())]
    lengths = rng.lognormal(0, 1, rows)
    owners = rng.choice(rows, words, p=lengths / lengths.sum())
    return _float32(sp.csr_array((np.ones(words), (owners, drawn)), shape=(rows, columns)))


def graph(nodes: int = 36_692, edges: int = 5) -> sp.csr_array:
    """Each new node is joined to ends of edges that are there, so that few have very many."""
    rng = np.random.default_rng(SEED)
    ends = np.empty((nodes - 1) * 2 * edges, np.int64)
    ends[: 2 * edges] = np.tile((0, 1), edges)
    for node in range(2, nodes):
        count = 2 * edges * (node - 1)
        others = ends[rng.integers(0, count, edges)]
        ends[count : count + 2 * edges] = np.column_stack([others, np.full(edges, node)]).ravel()
    a, b = ends[::2], ends[1::2]
    both = sp.csr_array(
        (np.ones(2 * len(a)), (np.concatenate([a, b]), np.concatenate([b, a]))), shape=(nodes, nodes)
    )
    both.sum_duplicates()
    both.data[:] = 1
    return _float32(both)


KINDS: dict[str, Callable[[], sp.csr_array]] = {"cells": cells, "documents": documents, "graph": graph}


def matrix(kind: str, folder: Path) -> sp.csr_array:
    """One of ``KINDS``, kept in a folder."""
    path = folder / f"{kind}.npz"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        sp.save_npz(path, KINDS[kind](), compressed=False)
    return sp.csr_array(sp.load_npz(path))


def _float32(x: sp.csr_array) -> sp.csr_array:
    x = sp.csr_array(x, dtype=np.float32)
    x.sum_duplicates()
    return x
