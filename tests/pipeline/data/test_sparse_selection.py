"""Parts of a sparse matrix keep what is stored, and nothing of what is left out."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import to_group

import rankfold as rf
from rankfold.pipeline.data import selection
from rankfold.pipeline.data.source import compressed, sum_places
from rankfold.pipeline.errors import ChunkError, DataError
from rankfold.pipeline.formats import open_source

Array = np.ndarray[Any, Any]
ROWS, COLUMNS = 60, 45


def counts(rows: int = ROWS, columns: int = COLUMNS, *, seed: int = 0, share: float = 0.1) -> Array:
    """Whole numbers, with empty rows and columns."""
    rng = np.random.default_rng(seed)
    x = rng.poisson(rng.gamma(0.5, 2 * share, columns), (rows, columns)).astype(np.float32)
    x[rng.random(rows) < 0.1] = 0
    x[:, rng.random(columns) < 0.1] = 0
    return x


@pytest.fixture(scope="module", params=["csr", "csc", "scipy"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    if request.param == "scipy":
        return scipy.sparse.csr_array(counts())
    stored = getattr(scipy.sparse, f"{request.param}_array")(counts())
    return to_group(tmp_path_factory.mktemp("store") / "x.zarr", stored, 37)


def some(length: int) -> st.SearchStrategy[Any]:
    """Distinct places in any order, a slice, or all."""
    places = st.lists(st.integers(0, length - 1), min_size=1, max_size=length, unique=True)
    return st.one_of(st.none(), places.map(np.array), st.integers(0, length - 2).map(lambda a: f"{a}::3"))


def part_of(x: Array, rows: Any, columns: Any) -> Array:
    def index(picks: Any, length: int) -> Array:
        if picks is None:
            return np.arange(length)
        return picks if isinstance(picks, np.ndarray) else np.arange(int(picks.partition(":")[0]), length, 3)

    return x[index(rows, x.shape[0])][:, index(columns, x.shape[1])]


@pytest.mark.parametrize("small", [False, True])
@settings(max_examples=60, derandomize=True, deadline=None)
@given(data=st.data(), rows=some(ROWS), columns=some(COLUMNS))
def test_any_selection_is_what_scipy_makes_of_it(
    place: Any, small: bool, data: st.DataObject, rows: Any, columns: Any
) -> None:
    expected = part_of(counts(), rows, columns)
    with pytest.MonkeyPatch.context() as patch:
        if small:
            patch.setattr(selection, "PIECE_NUMBERS", 20)
            patch.setattr(selection, "GAP_NUMBERS", 3)
            patch.setattr(selection, "POINTER_LINES", 7)
        source = pickle.loads(pickle.dumps(open_source(place, select_rows=rows, select_columns=columns)))
        stored = compressed(source)
        assert stored is not None and source.shape == expected.shape
        assert stored.nnz == np.count_nonzero(expected)
        lines = expected if stored.by == "rows" else expected.T
        start = data.draw(st.integers(0, len(lines) - 1))
        stop = data.draw(st.integers(start + 1, len(lines)))
        found = sum_places(stored.read_sparse((start, stop)), lines.shape[1])
        shape = (stop - start, lines.shape[1])
        dense = scipy.sparse.csr_array((found.data, found.indices, found.indptr), shape).toarray()
        np.testing.assert_array_equal(dense, lines[start:stop])
        ends = stored.pointers(start, stop)
        np.testing.assert_array_equal(np.diff(ends), np.count_nonzero(lines[start:stop], axis=1))


@pytest.mark.parametrize(
    ("call", "form"),
    [
        (c, f)
        for c in ("krylov", "gram", "svd", "nmf", "knn")
        for f in ("csr", "csc")
        if (c, f) != ("knn", "csc")
    ],
)
def test_methods_take_a_selection_as_they_take_the_part_written_out(
    tmp_path: Path, call: str, form: str
) -> None:
    x = counts(900, 400, share=0.05)
    rng = np.random.default_rng(1)
    columns, rows = np.sort(rng.permutation(400)[:150]), np.sort(rng.permutation(900)[:700])
    whole = to_group(tmp_path / "x.zarr", getattr(scipy.sparse, f"{form}_array")(x), 997)
    part = getattr(scipy.sparse, f"{form}_array")(x[rows][:, columns])
    results = []
    chosen = rf.open(whole, select_rows=rows, select_columns=columns)
    for name, source in (("chosen", chosen), ("written", to_group(tmp_path / "y.zarr", part, 997))):
        out = tmp_path / name
        if call == "nmf":
            results.append(rf.nmf(source, 3, out=out, seed=0))
        elif call == "knn":
            results.append(rf.knn(source, 5, out=out))
        elif call in ("gram", "krylov"):
            results.append(rf.pca(source, 4, out=out, solver=call, seed=0))
        else:
            results.append(rf.svd(source, 4, out=out, seed=0))
    a, b = results
    for name in a:
        np.testing.assert_array_equal(a[name][...], b[name][...], err_msg=name)


def test_damage_is_found_where_places_are_counted(tmp_path: Path) -> None:
    place = to_group(tmp_path / "x.zarr", scipy.sparse.csr_array(counts()), 37)
    zarr.open_group(place)["indices"][5] = COLUMNS
    with pytest.raises(ChunkError, match=r"indices\[5\] is 45, but the matrix has 45 columns"):
        open_source(place, select_columns=":20")


def test_a_store_that_is_written_to_after_it_was_counted_is_refused(tmp_path: Path) -> None:
    place = to_group(tmp_path / "x.zarr", scipy.sparse.csr_array(counts()), 37)
    source = compressed(open_source(place, select_columns=":20"))
    assert source is not None
    zarr.open_group(place)["indices"][:] = 5
    with pytest.raises(ChunkError, match="other places than when they were counted"):
        source.read_sparse((0, ROWS))


def test_a_bad_number_is_named_by_its_place_in_the_whole(tmp_path: Path) -> None:
    x = counts(300, 80, share=0.05)
    x[250, 61] = np.nan
    place = to_group(tmp_path / "x.zarr", scipy.sparse.csr_array(x), 997)
    source = rf.open(place, select_rows="50:", select_columns="1::2")
    with pytest.raises(DataError, match="row 250, column 61"):
        rf.svd(source, 3, out=tmp_path / "out")


def test_a_selection_of_many_columns_fills_nothing_in(tmp_path: Path) -> None:
    rows, columns = 3000, 10**6
    rng = np.random.default_rng(0)
    at = rng.integers(0, 5, (rows, 4)) + 2 * rng.integers(0, columns // 2 - 5, (rows, 1))
    x = scipy.sparse.csr_array(
        (rng.random(4 * rows).astype("f4"), (np.repeat(np.arange(rows), 4), at.ravel())), (rows, columns)
    )
    source = rf.open(to_group(tmp_path / "x.zarr", x, 997), select_columns="::2")
    result = rf.svd(source, 3, out=tmp_path / "out", memory="700MiB", seed=0)
    expected = scipy.sparse.linalg.svds(x[:, ::2].astype("f8"), 3, return_singular_vectors=False)
    np.testing.assert_allclose(result.s[:], np.sort(expected)[::-1], rtol=1e-4)
