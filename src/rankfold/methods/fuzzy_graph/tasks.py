"""From arguments of a caller to the task of a graph: from lists, lists and targets, or two graphs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rankfold.methods.argument import number
from rankfold.methods.chain import Chain, Link
from rankfold.methods.fuzzy_graph.arguments import (
    CATEGORICAL,
    GRAPHS,
    ONE_SIDED,
    CombineArguments,
    FuzzyArguments,
)
from rankfold.methods.fuzzy_graph.combination import (
    MOST_RIGHT,
    CombinedGraph,
    Intersection,
    Rule,
    SameLabel,
    Union,
    digest_of,
    label_codes,
    least_weight,
    most_edges,
    target_matrix,
)
from rankfold.methods.fuzzy_graph.fuzzy_graph import FuzzyGraph
from rankfold.methods.fuzzy_graph.lists import StoredLists, imagined_lists, metric_of
from rankfold.methods.fuzzy_graph.stored_rows import StoredRows
from rankfold.methods.knn.arguments import KnnArguments
from rankfold.methods.knn.knn import Neighbors
from rankfold.methods.knn.request import NeighborRequest
from rankfold.methods.task import Task
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.storage.result import Result, result_of


def fuzzy_graph_task(neighbors: Result | str | Path, arguments: FuzzyArguments) -> FuzzyGraph | Chain:
    """Make the task of a graph from a result of knn, or its path; a chain of tasks if there are targets."""
    result = result_of("fuzzy_graph", neighbors, "a result of knn, as of rf.knn(x, k=14)")
    graph = FuzzyGraph.of(
        StoredLists.of(result, arguments.k),
        arguments.set_op_mix_ratio,
        arguments.local_connectivity,
        radii=arguments.radii,
    )
    weight = _share("target_weight", arguments.target_weight)
    if arguments.targets is None:
        return graph
    rows = graph.lists.rows
    if arguments.target_metric == CATEGORICAL:
        return _labeled(graph, label_codes(arguments.targets, rows), weight)
    return _beside_targets(graph, target_matrix(arguments.targets, rows), weight)


def _labeled(graph: FuzzyGraph, labels: Any, weight: float) -> Chain:
    """Chain of tasks: make the graph of stored lists, then lower weights between rows of different labels.

    ``labels`` (rows,) are integer codes, ``weight`` is that of the labels, between 0 and 1.
    """
    identity = {**graph.request(), "targets": digest_of(labels), "target_weight": weight}
    identity["target_metric"] = CATEGORICAL
    rule = SameLabel(labels, weight)
    last = CombinedGraph(graph.source, graph.most_edges, identity, lambda _: rule, radii=graph.radii)
    return Chain(identity, (Link("graph", graph), Link("labeled", last, _with_graphs(last, "graph"))))


def _beside_targets(graph: FuzzyGraph, targets: Source, weight: float) -> Chain:
    """Chain of tasks: the graph of stored lists, that of neighbors by targets, and their intersection.

    ``targets`` (rows, d) are numbers, ``weight`` is that of their graph, between 0 and 1.
    """
    rows, k = graph.lists.rows, graph.lists.k
    search = Neighbors.of(targets, None, NeighborRequest.of(KnnArguments(k)))
    of_targets = FuzzyGraph.of(StoredLists.of(imagined_lists(rows, k), None), ONE_SIDED, 1.0)
    identity = {**graph.request(), "targets": targets.fingerprint(), "target_weight": weight}
    identity["target_metric"] = "euclidean"
    edges = graph.most_edges + of_targets.most_edges
    last = CombinedGraph(graph.source, edges, identity, _intersection(weight), radii=graph.radii)

    def weigh_targets(results: Mapping[str, Path]) -> FuzzyGraph:
        return FuzzyGraph.of(StoredLists.of(Result(results["target-lists"]), None), ONE_SIDED, 1.0)

    links = (
        Link("graph", graph),
        Link("target-lists", search),
        Link("target-graph", of_targets, weigh_targets),
        Link("intersection", last, _with_graphs(last, "graph", "target-graph")),
    )
    return Chain(identity, links)


def _with_graphs(task: CombinedGraph, *names: str) -> Callable[[Mapping[str, Path]], Task]:
    """Function that copies ``task`` with the graphs in the results of the named links of its chain."""

    def ready(results: Mapping[str, Path]) -> Task:
        graphs = tuple(results[name] for name in names)
        facts = Result(graphs[0]).attrs
        return dataclasses.replace(
            task, graphs=graphs, facts={name: facts[name] for name in ("mean_distance", "metric", "matrix")}
        )

    return ready


def combine_graphs_task(
    first: Result | str | Path, second: Result | str | Path, arguments: CombineArguments
) -> CombinedGraph:
    """Make the task that combines two graphs of the same rows, each a result or its path, into one."""
    wanted = "a result of fuzzy_graph, as of rf.fuzzy_graph(rf.knn(x, k=14))"
    results = [result_of("combine_graphs", each, wanted) for each in (first, second)]
    for each in results:
        if each.attrs["kind"] not in GRAPHS:
            kind, able = each.attrs["kind"], " and ".join(GRAPHS)
            raise InputError(f"{each.path} is the result of {kind}: graphs are those of {able}")
    one, two = (each.matrix("graph") for each in results)
    if one.shape != two.shape:
        raise InputError(
            f"the first graph is of {one.shape[0]} rows, the second of {two.shape[0]}. Give two of the same "
            "rows, in the same order"
        )
    rule, share = arguments.rule, _share("weight", arguments.weight)
    edges = sum(most_edges(each) for each in results)
    make = _intersection(share) if rule == "intersection" else _union
    identity: dict[str, Any] = {"kind": "combine_graphs", "rule": rule, "second": two.fingerprint()}
    if rule == "intersection":
        identity["weight"] = share
    paths = tuple(each.path for each in results) if all(map(_is_there, results)) else ()
    facts = {"metric": metric_of(results[0])}
    return CombinedGraph(one, edges, identity, make, resized=True, graphs=paths, facts=facts)


def _is_there(result: Result) -> bool:
    return (result.path / "zarr.json").exists()


def _intersection(weight: float) -> Callable[[list[StoredRows]], Rule]:
    def rule(graphs: list[StoredRows]) -> Rule:
        left, right = map(least_weight, graphs)
        return Intersection(left, min(right, MOST_RIGHT), weight)

    return rule


def _union(graphs: list[StoredRows]) -> Rule:
    return Union(*map(least_weight, graphs))


def _share(name: str, value: object) -> float:
    share = number(name, value)
    if not 0 <= share <= 1:
        raise InputError(f"{name} must lie between 0 (the first graph alone) and 1, not {share}")
    return share
