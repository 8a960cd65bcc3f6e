"""Arrays of a result by attribute and by name, in memory and on disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import rankfold as rf

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
