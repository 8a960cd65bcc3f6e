"""The task of an embedding from the arguments of a caller: affinities, initial positions, and descent."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from rankfold.methods.argument import integer
from rankfold.methods.chain import Chain, Link
from rankfold.methods.embedding.arguments import INITS, PCA, SPECTRAL
from rankfold.methods.embedding.components import matrix_to_begin_at, require_matrix, start_at_components
from rankfold.methods.embedding.measured import measured_task
from rankfold.methods.embedding.searched import matrix_in, require_unsaid, search_of, searched_task
from rankfold.methods.fuzzy_graph.fuzzy_graph import FuzzyGraph
from rankfold.methods.fuzzy_graph.lists import StoredLists
from rankfold.methods.fuzzy_graph.sides import AffinitySides
from rankfold.methods.spectral.spectral import start_task
from rankfold.methods.task import Task
from rankfold.methods.tsne.request import TsneRequest
from rankfold.methods.tsne.tsne import TsneTask
from rankfold.methods.umap.start import given_positions
from rankfold.methods.umap.umap import TO_COME
from rankfold.pipeline.data.names import names_of_result
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.storage.result import Result, coordinates_hint, result_of


def tsne_task(
    neighbors: Result | str | Path,
    *,
    init: object = INITS[0],
    matrix: object = None,
    quality: object = None,
    perplexity: object = 30.0,
    metric: object = None,
    min_recall: object = None,
    **arguments: object,
) -> Task:
    """Task that embeds lists of neighbors, or a matrix, whose neighbors are found first.

    ``quality`` is a matrix by which the embedding is measured.
    """
    if (source := matrix_in(neighbors)) is not None:
        wanted = TsneRequest.of(perplexity, **arguments).neighbors(source.shape[0], source.shape[0])
        search, seed = search_of(wanted, metric, min_recall), integer("seed", arguments.get("seed", 0))
        beside = matrix_to_begin_at(init, matrix, source, metric)

        def make(lists: Result) -> Task:
            return _descent_task(lists, init, beside, perplexity, arguments)

        return searched_task(source, search, seed, make, quality)
    require_unsaid(neighbors, metric=metric, min_recall=min_recall)
    result = result_of("tsne", neighbors, "a matrix, or a result of knn, as of rf.knn(x, k=90)")
    return measured_task(_descent_task(result, init, matrix, perplexity, arguments), result, quality)


def _descent_task(
    result: Result, init: object, matrix: object, perplexity: object, arguments: dict[str, object]
) -> Task:
    """Task that embeds the lists of neighbors of a result."""
    if result.attrs["kind"] != "knn":
        raise InputError(
            f"{result.path} is the result of {result.attrs['kind']}: tsne is of one of knn, or of a matrix"
            f"{coordinates_hint(result)}"
        )
    is_name = isinstance(init, str) and (init in INITS or not Path(init).exists())
    name = str(init) if is_name else INITS[-1]
    parameters = TsneRequest.of(perplexity, init=name, **arguments)
    if is_name and name == INITS[-1]:
        raise InputError("init custom has no name: give positions, or a result of pca or spectral")
    require_matrix(name, matrix)
    graph = _affinities(result, parameters)
    given = None
    if not is_name and init is not TO_COME:
        names = names_of_result(result.path, result.attrs, 0)
        given = given_positions(init, graph.lists.rows, parameters.n_components, names)
    task = TsneTask(graph.source, graph.most_edges, parameters, graph.request(), given)
    return _chain(graph, task, matrix)


def _affinities(result: Result, parameters: TsneRequest) -> FuzzyGraph:
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
