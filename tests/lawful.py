"""Results that tests make without ``out`` are held to their laws, as those on disk are when opened."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


def require_lawful(result: Any) -> None:
    """Raise ``DataError`` for a result with an array or a fact that its method does not declare so."""
    from rankfold.pipeline.law import require_arrays, require_facts, result_law
    from rankfold.pipeline.storage.manifest import graph_shape
    from rankfold.pipeline.storage.result import LAZY_BYTES

    path, facts, arrays = result._path, result._facts, result._arrays
    require_facts(path, {"version": "none, for it has no manifest", **facts})
    lengths = require_arrays(path, facts, arrays, graph_shape(path))
    for name, array in arrays.items():
        if array.nbytes <= LAZY_BYTES:
            result_law(facts["kind"]).of(name).require_all(name, array, lengths)


@pytest.fixture(autouse=True, scope="module")
def _laws(request: pytest.FixtureRequest) -> Iterator[None]:
    """In tests of methods and estimators, where every option of every method is asked for."""
    if not {"methods", "estimators"} & set(request.path.parts):
        yield
        return
    from rankfold.pipeline.storage.result import Result

    make = Result.__init__

    def make_lawful(self: Result, path: Path | str, **how: Any) -> None:
        make(self, path, **how)
        if how.get("temporary") is not None and how.get("facts") is not None:
            require_lawful(self)

    Result.__init__ = make_lawful  # type: ignore[method-assign]
    yield
    Result.__init__ = make  # type: ignore[method-assign]
