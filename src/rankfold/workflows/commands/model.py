"""Commands on results: ``transform``, ``reconstruct``, ``check``, and methods on nearest neighbors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from rankfold.methods.fuzzy_graph.arguments import COMBINE_GRAPHS, FUZZY_GRAPH
from rankfold.methods.headline import residuals
from rankfold.methods.isomap.arguments import ISOMAP
from rankfold.methods.registry import Method
from rankfold.methods.spectral.arguments import DIFFUSION_MAP, SPECTRAL
from rankfold.methods.tsne.arguments import TSNE
from rankfold.methods.umap.arguments import UMAP
from rankfold.pipeline.text import Lines, json_text, shell_words
from rankfold.workflows.options import Json, arguments, command, output, place, view
from rankfold.workflows.reporting import say, say_warning
from rankfold.workflows.results import headline, is_unchanged, last_attempt, took


def fit(result: Annotated[Path, typer.Argument(metavar="RESULT", help="what svd or pca wrote")]) -> Path:
    """Path of the result of an earlier command that is used."""
    return result


def samples(
    new: Annotated[
        str,
        typer.Argument(
            metavar="NEW", help="samples with the columns that were fitted; for an embedding their knn"
        ),
    ],
) -> str:
    """Path or address of the matrix of new samples, or path of their result of knn, that is transformed."""
    return new


@command(fit, samples, view, output, place)
def transform(
    fit: Path,
    samples: str,
    view: dict[str, Any],
    output: dict[str, Any],
    place: dict[str, Any],
    as_json: Json = False,
) -> None:
    """Coordinates of new samples in a result: scores or U, or places in a layout."""
    import rankfold
    from rankfold.methods.model.transform import embedding_of

    earlier = last_attempt(output["out"])
    new = samples if embedding_of(fit) is not None else rows_of(samples, view)
    with _show_progress() as bar:
        result = rankfold.transform(fit, new, progress=bar, **output, **place)
    there = is_unchanged(output["out"], earlier, overwrite=output["overwrite"])
    line = _relative_error(result.attrs) if "relative_error" in result.attrs else headline(result)
    _close(result, line, already_done=there, as_json=as_json)


@command(fit, output, place)
def reconstruct(
    fit: Path,
    output: dict[str, Any],
    place: dict[str, Any],
    rank: Annotated[int | None, typer.Option(help="leading components to use; all by default")] = None,
    select_rows: Annotated[
        str | None, typer.Option(metavar="START:STOP", help="rows to write; all by default")
    ] = None,
    physical: Annotated[
        bool, typer.Option("--physical", help="in units of the data, without what --prepare did to columns")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write the matrix as its leading components have it."""
    import rankfold

    earlier, part = last_attempt(output["out"]), window(select_rows)
    with _show_progress() as bar:
        array = rankfold.reconstruct(
            fit, rank=rank, row_range=part, physical=physical, progress=bar, **output, **place
        )
    result = rankfold.open_result(output["out"])
    there = is_unchanged(output["out"], earlier, overwrite=output["overwrite"])
    line = (
        f"{array.shape[0]} x {array.shape[1]} {array.dtype} of rank {result.attrs['request']['rank']}; "
        f"over all rows it leaves out {_share(result.attrs)} of the norm of the "
        f"{'matrix' if result.attrs['request']['of'] == 'svd' else 'matrix as it was fitted'}"
        f"{_of_what(rankfold.open_result(fit).attrs['input'], physical)}"
    )
    _close(result, line, already_done=there, as_json=as_json)


def _of_what(facts: Mapping[str, Any], physical: bool) -> str:
    """Part of a message: how a reconstructed matrix differs from the original array.

    It names the preparation steps that still apply, unless ``physical`` has undone them, and the number of
    columns that were left out. ``facts`` describe the input of the fit.
    """
    steps, columns = facts.get("prepare"), facts["shape"][1]
    whole = facts.get("layout", {}).get("shape", facts["shape"])[1]
    words = f"; numbers are those after {steps}" if steps and not physical else ""
    return words + (f"; {whole - columns} of {whole} columns were left out" if whole != columns else "")


def fitted(
    store: Annotated[
        str | None, typer.Argument(metavar="STORE", help="the matrix that it was made of")
    ] = None,
) -> str | None:
    """Path or address of the matrix that a result was computed from; None if it is not given."""
    return store


@command(fit, fitted, view, place, reads_results=True)
def check(
    fit: Path, fitted: str | None, view: dict[str, Any], place: dict[str, Any], as_json: Json = False
) -> None:
    """Residuals and orthogonality of a result, by one more pass over its matrix."""
    import rankfold
    from rankfold.pipeline.errors import InputError

    if fitted is None:
        made_of = rankfold.open_result(fit).attrs["input"]["name"]
        raise InputError(
            f"say which matrix to compare with: rankfold check {shell_words([str(fit)])} STORE. It was made "
            f"of {made_of}"
        )
    with _show_progress() as bar:
        facts = rankfold.check(fit, rows_of(fitted, view), progress=bar, **place).attrs
    if as_json:
        say(json_text(dict(facts), indent=1))
        return
    for message in facts["warnings"]:
        say_warning(message)
    say(f"{fit}: {residuals(facts)}")


def lists(
    neighbors: Annotated[Path, typer.Argument(metavar="RESULT", help="what knn wrote")],
) -> tuple[Path, ...]:
    """Path of the knn result whose neighbors are weighted."""
    return (neighbors,)


def matrix_or_lists(
    neighbors: Annotated[str, typer.Argument(metavar="STORE", help="a matrix, or what knn wrote")],
) -> tuple[str, ...]:
    """Path of the matrix, or of the knn result, that is embedded."""
    return (neighbors,)


def lists_or_graph(
    neighbors: Annotated[
        str, typer.Argument(metavar="STORE", help="a matrix, or what knn or fuzzy-graph wrote")
    ],
) -> tuple[str, ...]:
    """Path of the matrix, or of the result of knn or fuzzy-graph, that is embedded."""
    return (neighbors,)


def lists_or_radius(
    neighbors: Annotated[
        str, typer.Argument(metavar="STORE", help="a matrix, or what knn or radius-neighbors wrote")
    ],
) -> tuple[str, ...]:
    """Path of the matrix, or of the result of knn or radius-neighbors, whose graph
    gives the shortest paths.
    """
    return (neighbors,)


def two_graphs(
    first: Annotated[Path, typer.Argument(metavar="FIRST", help="what fuzzy-graph wrote")],
    second: Annotated[Path, typer.Argument(metavar="SECOND", help="another, of the same rows")],
) -> tuple[Path, ...]:
    """Paths of the two graphs that are combined."""
    return first, second


INPUTS: dict[Method, Callable[..., tuple[str | Path, ...]]] = {
    FUZZY_GRAPH: lists,
    COMBINE_GRAPHS: two_graphs,
    UMAP: lists_or_graph,
    TSNE: matrix_or_lists,
    SPECTRAL: lists_or_graph,
    DIFFUSION_MAP: lists_or_graph,
    ISOMAP: lists_or_radius,
}


def command_of_neighbors(method: Method) -> Callable[..., None]:
    """Make the command of a method whose input are nearest neighbors or a graph of them."""

    def body(
        inputs: tuple[str | Path, ...],
        of_matrix: dict[str, Any],
        output: dict[str, Any],
        method_arguments: dict[str, Any],
        place: dict[str, Any],
        as_json: Json = False,
    ) -> None:
        import rankfold

        earlier = last_attempt(output["out"])
        with _show_progress() as bar:
            call = getattr(rankfold, method.name)
            of = [matrix_of(each, of_matrix) for each in inputs] if method.inputs[0].matrix_key else inputs
            result = call(*of, **method_arguments, progress=bar, **output, **place)
        there = is_unchanged(output["out"], earlier, overwrite=output["overwrite"])
        _close(result, headline(result), already_done=there, as_json=as_json)

    body.__name__, body.__doc__ = method.name.replace("_", "-"), method.summary
    of_matrix = view if method.inputs[0].matrix_key else no_view
    return command(INPUTS[method], of_matrix, output, arguments(method), place)(body)


def no_view() -> dict[str, Any]:
    """No arguments for opening a matrix, since the inputs of a command are results, used with all rows."""
    return {}


def matrix_of(neighbors: str | Path, options: dict[str, Any]) -> object:
    """Input of a method on neighbors: the path as it is, or a matrix opened with ``options`` if any is given.

    ``options`` are as ``view`` returns them. Raises if they are given for a result.
    """
    import rankfold
    from rankfold.methods.embedding.searched import is_result
    from rankfold.pipeline.errors import InputError

    if options == view():
        return neighbors
    if is_result(neighbors):
        raise InputError(f"{neighbors} is a result, of which all rows count: leave out options of a matrix")
    return rankfold.open(str(neighbors), **options)


def rows_of(store: str, options: dict[str, Any]) -> object:
    """Matrix of new rows for a result, opened with ``options``, which are as ``view`` returns them.

    If no option is given, its path, so that it is opened in the same way as the result's own matrix.
    """
    import rankfold

    return store if options == view() else rankfold.open(store, **options)


def embeddings() -> dict[Method, Callable[..., None]]:
    """Make a command for each method in ``INPUTS``, whose input are neighbors or a graph; by method."""
    return {each: command_of_neighbors(each) for each in INPUTS}


def window(text: str | None) -> slice | None:
    """Slice for a text START:STOP, as in Python without brackets; None for None."""
    from rankfold.pipeline.errors import InputError

    if text is None:
        return None
    try:
        start, stop = (int(end) if end.strip() else None for end in text.split(":"))
    except ValueError:
        raise InputError(f"--select-rows {text!r} is not START:STOP, such as 0:1000, 5000: or :100") from None
    return slice(start, stop)


@contextmanager
def _show_progress() -> Iterator[Callable[[str, int, int], None]]:
    """Show progress on stderr in the block; yields the function that is told of it.

    Warnings are not shown here: they are printed from the result.
    """
    import warnings

    import rankfold
    from rankfold.pipeline.planning.progress import SweepProgress

    with warnings.catch_warnings(), SweepProgress() as bar:
        warnings.simplefilter("ignore", rankfold.RankfoldWarning)
        yield bar


def _relative_error(facts: dict[str, Any]) -> str:
    rows, columns = facts["input"]["shape"]
    return (
        f"{rows} x {columns} in {facts['request']['rank']} components of {facts['request']['of']}; "
        f"the components leave out {_share(facts)} of the norm"
    )


def _share(facts: dict[str, Any]) -> str:
    """Relative error, from the attributes of a result, as text.

    It begins with "at most" if the error is not above the smallest that can be determined.
    """
    error = facts["relative_error"]
    return ("at most " if 0 < error <= facts["relative_error_floor"] else "") + f"{error:.2g}"


def _close(result: Any, line: str, *, already_done: bool, as_json: bool) -> None:
    """Print the warnings and the outcome of a command, or all facts of its result as JSON.

    ``line`` describes the result; ``already_done`` is True if the command has found it finished.
    """
    facts = result.attrs
    if as_json:
        say(json_text({"out": str(result.path), "already_done": already_done, **facts}, indent=1))
        return
    for message in facts["warnings"]:
        say_warning(message)
    say(Lines(f"{result.path}: {'already done' if already_done else 'done'}", line, *took(result)))
