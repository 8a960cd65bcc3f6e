"""Arrays of a result by attribute and by name, in memory and on disk."""

from __future__ import annotations

import errno
import os
import re
import warnings
from pathlib import Path

import numpy as np
import pytest

import rankfold as rf
from rankfold.pipeline import regular

X = np.random.default_rng(0).standard_normal((60, 8))


@pytest.mark.parametrize("stored", [False, True])
def test_arrays_are_found_by_name(tmp_path: Path, stored: bool) -> None:
    result = rf.svd(X, 3, out=tmp_path / "r.zarr" if stored else None)
    for name in result:
        np.testing.assert_array_equal(result[name][...], getattr(result, name)[...])
    with pytest.raises(KeyError, match="has no 'scores'; it has U, Vt"):
        result["scores"]
    with pytest.raises(AttributeError, match="has no 'scores'"):
        _ = result.scores
    assert result.matrix("Vt").shape == (3, 8)


def test_notebooks_show_arrays_and_what_is_said_of_them(tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((30, 5))
    for result in (rf.pca(x, 2), rf.pca(x, 2, out=tmp_path / "<r>.zarr")):
        page = result._repr_html_()
        facts, _, arrays = re.sub(r"<wbr>| style=\"[^\"]*\"", "", page).partition("</table>")
        assert "<b>pca</b>" in facts
        assert '<th scope="row">input</th><td>array float64 (30, 5)</td>' in facts
        assert '<th scope="row">shape</th><td>30 × 5</td>' in facts
        assert "<td>scores</td><td>30 × 2</td><td>float64</td><td>row, component</td>" in arrays
        assert arrays.count("<tr>") == arrays.count("</tr>") == 1 + len(list(result))
    rf.pca(rf.open(x, prepare="scale"), 2)._repr_html_().index(">scale(")
    name = str(tmp_path / "<b>.npy")
    np.save(name, x)
    assert "&lt;b&gt;.npy" in rf.svd(name, 2)._repr_html_()


def test_a_result_is_a_table_of_names_and_not_a_tuple() -> None:
    """There are more arrays than factors: what ``U, s, Vt = result`` got would depend on their number."""
    result = rf.svd(X, 3)
    assert list(result) == ["U", "Vt", "error_estimates", "residuals", "s"]
    u, s, vt = (result[name] for name in ("U", "s", "Vt"))
    np.testing.assert_allclose((u * s) @ vt, rf.reconstruct(result), rtol=0, atol=1e-12)


def test_what_is_offered_is_of_use() -> None:
    """No name that only the package itself calls."""
    names = {name for name in dir(rf.pca(X, 3)) if not name.startswith("_")}
    assert {"scores", "components", "attrs", "run", "plot", "to_pandas"} <= names
    assert not names & {"damage", "lacking"}


@pytest.mark.parametrize("name", ["zarr.json", "manifest.json"])
def test_what_may_not_be_read_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Told by the system: a test that takes the right away says nothing where root runs it."""
    x, opens = np.eye(30, 5), regular.open_descriptor
    rf.pca(x, rank=2, out=tmp_path / "r.zarr")

    def refuses(path: str, *flags: int) -> int:
        if Path(path) == tmp_path / "r.zarr" / name:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return opens(path, *flags)

    monkeypatch.setattr(regular, "open_descriptor", refuses)
    with pytest.raises(PermissionError, match=name):
        rf.transform(tmp_path / "r.zarr", x)


def test_metadata_of_a_group_are_those_that_zarr_writes(tmp_path: Path) -> None:
    import zarr

    path = rf.knn(np.eye(20), 3, symmetric="union", out=tmp_path / "r.zarr", threads=1).path
    written = (path / "zarr.json").read_bytes()
    facts = zarr.open_group(path, mode="r").attrs["rankfold"]
    (path / "zarr.json").unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zarr.open_group(path, mode="a", zarr_format=3).attrs["rankfold"] = facts
        zarr.consolidate_metadata(path, zarr_format=3)
    assert (path / "zarr.json").read_bytes() == written
