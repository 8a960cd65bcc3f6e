"""The task of an embedding from the arguments of a caller: affinities, initial positions, and descent."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rankfold.methods.argument import is_word
from rankfold.methods.chain import Chain, Link
from rankfold.methods.embedding.arguments import INITS, PCA, SPECTRAL
from rankfold.methods.embedding.components import matrix_to_begin_at, require_matrix, start_at_components
from rankfold.methods.embedding.quality_chain import measured_task
from rankfold.methods.embedding.searched import matrix_in, require_unsaid, search_of, searched_task
from rankfold.methods.fuzzy_graph.fuzzy_graph import FuzzyGraph
from rankfold.methods.fuzzy_graph.lists import StoredLists
from rankfold.methods.fuzzy_graph.sides import AffinitySides
from rankfold.methods.spectral.spectral import start_task
from rankfold.methods.task import Task
from rankfold.methods.tsne.arguments import TSNE, TsneArguments
from rankfold.methods.tsne.tsne import TsneTask
from rankfold.methods.umap.start import given_positions
from rankfold.methods.umap.umap import PENDING_START
from rankfold.pipeline.data.names import names_of_result
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.storage.result import Result, coordinates_hint, result_of


def tsne_task(neighbors: Result | str | Path, arguments: TsneArguments) -> Task:
    """Task that embeds lists of neighbors, or a matrix, whose neighbors are found first."""
    if (source := matrix_in(neighbors)) is not None:
        rows = source.shape[0]
        search = search_of(arguments.neighbors(rows, rows), arguments)
        beside = matrix_to_begin_at(arguments.init, arguments.matrix, source, arguments.metric)
        make = functools.partial(_descent_task, matrix=beside, arguments=arguments)
        return searched_task(source, search, arguments.seed, make, arguments.quality)
    require_unsaid(neighbors, arguments)
    result = result_of("tsne", neighbors, "a matrix, or a result of knn, as of rf.knn(x, k=90)")
    return measured_task(_descent_task(result, arguments.matrix, arguments), result, arguments.quality)


def _descent_task(result: Result, matrix: object, arguments: TsneArguments) -> Task:
    """Task that embeds the lists of neighbors of a result."""
    if result.attrs["kind"] not in TSNE.results:
        raise InputError(
            f"{result.path} is the result of {result.attrs['kind']}: tsne is of one of knn, or of a matrix"
            f"{coordinates_hint(result)}"
        )
    init: object = arguments.init
    is_name = is_word(init, INITS)
    name = str(init) if is_name else INITS[-1]
    # Workers get the parameters: no matrix is among them.
    parameters = dataclasses.replace(arguments, init=name, matrix=None, quality=None)
    parameters.check()
    if is_name and name == INITS[-1]:
        raise InputError("init custom has no name: give positions, or a result of pca or spectral")
    require_matrix(name, matrix)
    graph = _affinities(result, parameters)
    given = None
    if not is_name and init is not PENDING_START:
        names = names_of_result(result.path, result.attrs, 0)
        given = given_positions(init, graph.lists.rows, parameters.n_components, names)
    task = TsneTask(graph.source, graph.most_edges, parameters, graph.request(), given)
    return _chain(graph, task, matrix)


def _affinities(result: Result, parameters: TsneArguments) -> FuzzyGraph:
    """Task that makes the affinity graph of as many neighbors as the perplexity needs."""
    rows, most = result.matrix("indices").shape
    lists = StoredLists.of(result, parameters.neighbors(rows, most))
    return FuzzyGraph(lists, AffinitySides(parameters.perplexities, rows))


def _chain(graph: FuzzyGraph, task: TsneTask, matrix: object) -> Chain:
    """Chain of tasks: make the graph of affinities, find initial positions if needed, and descend."""
    links, parameters = [Link("graph", graph)], task.parameters
    if parameters.init == SPECTRAL:
        start = start_task(graph, parameters.n_components, parameters.seed)
        links.append(Link("start", start, start.when_made))
    if parameters.init == PCA:
        link, of = start_at_components(matrix, task.rows, parameters.n_components, parameters.seed)
        links, task = [*links, link], dataclasses.replace(task, matrix=of)

    def ready(results: Mapping[str, Path]) -> TsneTask:
        edges = int(Result(results["graph"]).attrs["weights"])
        return dataclasses.replace(task, edges=edges, graph=results["graph"], start=results.get("start"))

    return Chain(task.request(), (*links, Link("descent", task, ready)))


def pending_task(inputs: Sequence[object], arguments: Mapping[str, Any], start: object) -> Task:
    """Make a task that begins at a result still to be made: see ``Method.pending_task``."""
    return TSNE.task(*inputs, init=PENDING_START, **arguments)
