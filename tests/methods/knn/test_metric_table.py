"""What the table of ``docs/neighbors.md`` says of each metric, and what its page says of inner products."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import rankfold as rf
from rankfold.methods.knn.arguments import HAVERSINE, NAMES, SET_NAMES
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.formats.arrays import SparseSource

PAGE = Path(__file__).parents[3] / "docs" / "neighbors.md"


def table() -> list[tuple[str, str, str]]:
    """Metric, rows, and what is done with sparse ones."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| `") or "a function" in line]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.count("|") == 6]
    return [
        (name, kinds, sparse)
        for names, kinds, _, _, sparse in cells
        for name in re.findall("`([a-z_]+)`", names) or ["a function"]
    ]


def test_the_table_names_every_metric() -> None:
    assert {name for name, _, _ in table()} == {*NAMES, *SET_NAMES, HAVERSINE, "a function"}


def city(a: Any, b: Any) -> float:
    total = 0.0
    for t in range(len(a)):
        total += abs(a[t] - b[t])
    return total


@pytest.mark.parametrize(("metric", "kinds", "said"), table())
@pytest.mark.parametrize("columns", [2, 40])
def test_sparse_rows_are_met_as_the_table_says(
    metric: str, kinds: str, said: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if metric == HAVERSINE and columns > 2:
        pytest.skip("places have two columns")
    x = np.random.default_rng(0).random((200, columns)) * (
        np.random.default_rng(1).random((200, columns)) < 0.1
    )
    x = x != 0 if kinds.startswith("booleans") else x
    dense = []
    read = SparseSource.read_into
    monkeypatch.setattr(SparseSource, "read_into", lambda *a: dense.append(a) or read(*a))
    function: Any = city if metric == "a function" else metric
    if said == "refused":
        with pytest.raises(InputError, match="is sparse"):
            rf.knn(sp.csr_array(x.astype(np.uint8)), 3, metric=function)
        return
    # Sets of few columns are packed, with the same lists.
    monkeypatch.setattr("rankfold.methods.bits.choice.are_packed", lambda *sides: False)
    result = rf.knn(sp.csr_array(x), 3, metric=function)
    without_zeros = said.startswith("without zeros") and not ("below 16" in said and columns < 16)
    assert bool(dense) == (not without_zeros)
    expected = rf.knn(x, 3, metric=function)
    np.testing.assert_allclose(result.distances[...], expected.distances[...], rtol=1e-13, atol=1e-13)


def test_largest_products_of_queries_are_nearest_with_one_more_column() -> None:
    rng = np.random.default_rng(0)
    x, queries = rng.standard_normal((500, 6)), rng.standard_normal((40, 6))
    norms = np.sqrt((x**2).sum(axis=1))
    longer = np.column_stack([x, np.sqrt(norms.max() ** 2 - norms**2)])
    asked = np.column_stack([queries, np.zeros(40)])
    largest = rf.knn(x, 7, metric="inner_product", queries=queries)
    nearest = rf.knn(longer, 7, queries=asked, solver="tree")
    np.testing.assert_array_equal(largest.indices[...], nearest.indices[...])


def test_inner_products_are_compared_in_pairs_alone() -> None:
    x = np.random.default_rng(0).standard_normal((60, 20))
    for solver, message in (("tree", "not by inner_product"), ("approximate", "rows of large norm")):
        with pytest.raises(InputError, match=message):
            rf.knn(x, 3, metric="inner_product", solver=solver)
    with pytest.raises(InputError, match="inner_product"):
        rf.radius_neighbors(x[:, :3], 1.0, metric="inner_product")
    assert "#inner-products" in PAGE.read_text() and "### Inner products" in PAGE.read_text()
