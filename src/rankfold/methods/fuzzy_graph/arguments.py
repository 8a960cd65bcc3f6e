"""Arguments of fuzzy_graph: types, defaults and limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rankfold.methods.argument import Argument
from rankfold.methods.registry import Input, Method

ONE_SIDED = 1.0
"""Share of the union: an edge that one of two rows is sure of is sure."""


@dataclass(frozen=True, slots=True)
class FuzzyArguments:
    """See ``rankfold.fuzzy_graph``."""

    k: Annotated[
        int | None, Argument("nearest neighbors of each row that count; all by default", least=1)
    ] = None
    set_op_mix_ratio: Annotated[
        float, Argument("1 for the union of what both rows of a pair say, 0 for the intersection", least=0)
    ] = ONE_SIDED
    local_connectivity: Annotated[
        float, Argument("neighbors of each row that are sure to be joined to it", least=0)
    ] = 1.0


FUZZY_GRAPH = Method(
    "fuzzy_graph",
    "Neighbors as a graph of weights between 0 and 1, as UMAP makes it.",
    FuzzyArguments,
    "rankfold.methods.fuzzy_graph.fuzzy_graph:fuzzy_graph_task",
    inputs=(Input("neighbors", ("knn",)),),
    matrices=("graph",),
    in_process=True,
    loops="rankfold.methods.fuzzy_graph.warm:warm_weights",
)
