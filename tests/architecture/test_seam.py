"""What others must know of a method is declared by the method: no table elsewhere names it.

A string that equals the name of a method is counted outside of the method's folder. What is left has reasons,
which stand here; a count may only shrink.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from test_layers import assert_only_shrinks

from rankfold.methods.registry import METHODS, Method, methods
from rankfold.pipeline.law import result_law
from rankfold.pipeline.presentation import with_cells

ROOT = Path(__file__).parents[2]
OURS = [each for each in methods() if each.name in METHODS.ours]

INPUTS = {
    "methods/embedding/arguments.py": 2,
    "methods/fuzzy_graph/arguments.py": 1,
    "methods/isomap/arguments.py": 2,
    "methods/isomap/isomap.py": 1,
    "methods/knn/arguments.py": 1,
    "methods/model/arguments.py": 1,
    "methods/spectral/arguments.py": 1,
    "methods/tsne/arguments.py": 6,
    "methods/umap/arguments.py": 3,
    "methods/embedding/start.py": 6,
    "methods/umap/umap.py": 2,
    "workflows/flows/stage_models.py": 1,
}
"""Files that say which results a method takes, and that read these in different ways."""

CALLS = {
    "estimators/embeddings/isomap.py": 1,
    "estimators/samples.py": 4,
    "methods/embedding/components.py": 1,
    "methods/embedding/searched.py": 1,
    "methods/fuzzy_graph/lists.py": 2,
    "methods/growth/factors.py": 1,
    "methods/index/queries.py": 1,
    "methods/model/update.py": 2,
    "methods/nmf/nmf.py": 1,
    "methods/partitions/plan.py": 1,
    "methods/tree/search.py": 1,
}
"""Files that run a method as a part of another, or make its plan or its result."""

NEW_ROWS = {
    "methods/fuzzy_graph/new_rows.py": 1,
    "methods/isomap/transform.py": 6,
    "methods/similarity/transform.py": 4,
    "methods/spectral/transform.py": 4,
    "methods/tsne/transform.py": 3,
    "methods/umap/transform.py": 2,
}
"""Files with tasks of ``transform`` in the folder of the method whose results take new rows."""

DOORS = {
    "api/functions/models.py": 3,
    "workflows/commands/reduce.py": 2,
    "workflows/flows/stage_models.py": 2,
    "workflows/operations/command_task.py": 5,
    "scanpy/pp.py": 2,
}
"""Files with functions, commands and stages that are written by hand for one method each."""

FACTS = {
    "methods/headline.py": 3,
    "methods/parts/outputs.py": 3,
    "workflows/reports/measures.py": 2,
    "workflows/reports/tables.py": 2,
    "pipeline/planning/sweep_words.py": 1,
}
"""Files that name facts, arrays or sweeps of several methods, which are called like a method."""

WORDS = {
    "api/finished.py": 1,
    "cluster/doctor/job.py": 1,
    "estimators/embeddings/embedding.py": 1,
    "estimators/embeddings/tsne.py": 1,
    "estimators/embeddings/umap.py": 1,
    "estimators/kernels/nystroem.py": 1,
    "estimators/labels.py": 2,
    "estimators/samples.py": 1,
    "methods/embedding/arguments.py": 2,
    "methods/nystroem/arguments.py": 1,
    "methods/nystroem/nystroem.py": 1,
    "methods/partitions/merge.py": 1,
    "methods/partitions/refinement.py": 1,
    "methods/partitions/search.py": 1,
    "methods/spectral/spectral.py": 2,
    "methods/spectral/transform.py": 1,
    "methods/tsne/tsne.py": 1,
    "methods/umap/arguments.py": 1,
    "methods/umap/layout.py": 1,
    "pipeline/data/named_objects.py": 2,
    "pipeline/exporting/cells.py": 1,
    "pipeline/exporting/plots/row_columns.py": 3,
    "pipeline/exporting/plots/scatter.py": 1,
    "pipeline/formats/frames.py": 2,
    "pipeline/formats/tables/several.py": 1,
    "scanpy/pp.py": 3,
}
"""Files with words of another meaning: values of arguments, attributes of pandas, keys of dictionaries."""


def structure() -> ModuleType:
    """The script that counts."""
    spec = importlib.util.spec_from_file_location("structure", ROOT / "benchmarks" / "structure.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_methods_are_named_at_home() -> None:
    allowed: dict[str, int] = {}
    for each in (INPUTS, CALLS, NEW_ROWS, DOORS, FACTS, WORDS):
        for file, count in each.items():
            allowed[file] = allowed.get(file, 0) + count
    assert_only_shrinks(dict(structure().named_elsewhere()), allowed)


def homes(method: Method) -> Iterator[str]:
    """Functions that a method declares, as ``"module:function"``."""
    way = method.transformation
    yield from (method.home, method.loops, *([way.home, way.loops] if way is not None else []))
    yield from filter(None, (method.growth, method.pending))


@pytest.mark.parametrize("method", OURS, ids=lambda method: method.name)
def test_what_a_method_declares_is_there(method: Method) -> None:
    for home in homes(method):
        module, _, function = home.partition(":")
        assert callable(getattr(importlib.import_module(module), function)), home
    assert set(method.matrices) <= {each.rstrip("?").partition(" if ")[0] for each in method.arrays} | {
        "components"  # of an update, whose results are of the kind of the fit
    }
    law = result_law(method.name)
    if method.transformation is not None:
        assert law.of(method.matrices[0]).axes == ("row", "component")
    if method.factors is not None:
        left, right = method.matrices[:2]
        axes = (law.of(left).axes, law.of(right).axes)
        assert axes == (("row", "component"), ("component", "column"))
        assert not method.factors.spectrum or law.of(method.factors.spectrum).falling


@pytest.mark.parametrize("method", OURS, ids=lambda method: method.name)
def test_a_method_that_begins_at_a_result_can_be_planned_before_that_is_made(method: Method) -> None:
    starts = [each for each in method.parameters() if each.name == "init" and each.argument.holds]
    assert bool(starts) == bool(method.pending)


def test_no_two_methods_have_the_same_place_in_an_anndata_object() -> None:
    paths = [path for name in with_cells() for path in cells_of(METHODS[name])]
    assert len(paths) == len(set(paths))


def cells_of(method: Method) -> tuple[str, ...]:
    """Paths of the elements of an AnnData object that a result of the method has."""
    return () if method.presentation.cells is None else method.presentation.cells.paths(None)
