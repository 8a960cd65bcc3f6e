"""Results in words: the lines that commands and stages print at the end, and descriptions of finished
results.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankfold.pipeline.law import is_of_step
from rankfold.pipeline.text import Lines
from rankfold.pipeline.wording import in_command

if TYPE_CHECKING:
    from rankfold.pipeline.storage.result import Result


PICTURED = ("fuzzy_graph", "combine_graphs", "umap", "tsne", "spectral", "diffusion_map")
"""Methods whose results are graphs of neighbors, or embeddings made from them."""


def summary(result: Result, *, already_done: bool) -> Lines:
    """Lines that a command prints at its end: the result, its quality and its cost."""
    how = "already done" if already_done else "done"
    return Lines(f"{result.path}: {how}", headline(result), *took(result))


def headline(result: Result) -> str:
    """Method and quality of a result, in one line."""
    facts = result.attrs
    last = (result.run.get("attempts") or [{}])[-1]
    line = f"{facts['kind']} by {facts['method']}"
    if facts["kind"] == "knn":
        line += f", k {facts['request']['k']}, {facts['request']['metric']}"
        if "recall_interval" in facts:
            low, high = facts["recall_interval"]
            what = "rounds" if "rounds" in facts else "probes"
            effort = f"{facts[what]} {what if facts[what] != 1 else what[:-1]}"
            line += f", {effort}; recall {facts['recall']:.4f}, from {low:.4f} to "
            line += f"{high:.4f} by {facts['recall_rows']} rows"
        elif "certain" in last:
            line += f"; {100 * last['certain']:.4g} % of shortlists were certain at once"
    elif facts["kind"] == "index":
        line += f", {facts['request']['metric']}; {facts['partitions']} partitions, the largest of "
        line += f"{facts['largest_partition']} rows"
    elif facts["kind"] == "kmeans":
        passes, empty = facts["passes"], facts["empty_clusters"]
        line += f", k {facts['request']['k']}, {passes} pass{'es' * (passes != 1)}"
        line += f"; inertia {facts['final_inertia']:.6g}" + f", {empty} clusters without rows" * (empty > 0)
    elif _kind_of_rows(facts) in PICTURED:
        line = _picture(facts)
    elif "residual_variance" in facts or "error_bound" in facts:
        line = line + _sums(facts) if "error_bound" in facts else _paths(facts)
    elif "value" in facts:
        error = f" ± {facts['standard_error']:.1g}" if facts["standard_error"] else ""
        line = f"{facts['kind'].replace('_', ' ')} {facts['value']:.6g}{error}, k {facts['request']['k']}"
    else:
        line += _effort(facts) + _of_pairs(facts)
    if "edges" in facts:
        line = f"neighbors within {facts['request']['radius']:g}, {facts['request']['metric']}: "
        line += f"{facts['edges']} edges, at most {facts['most_neighbors']} of a row"
    if facts["request"].get("adaptive"):
        line += (
            f"; leaves out {facts['approximation_error']:.2g} of the norm, tol {facts['request']['tol']:g}"
        )
    if "captured" in facts:
        line += f"; largest estimated error {facts['largest_error_estimate']:.1e}, "
        line += f"captured {100 * facts['captured']:.4g} %"
    elif "relative_error" in facts:
        line += f"; relative error {facts['relative_error']:.4g}"
    elif "largest_residual" in facts:
        line += f"; {residuals(facts)}"
    elif facts.get("orthogonality") is not None:
        line += f"; Q is orthonormal to {facts['orthogonality']:.1e}"
    return line


def _sums(facts: dict[str, Any]) -> str:
    """Text on kernel sums, and their error."""
    line = f", {facts['request']['kernel']}; {facts['pairs']} pairs and {facts['nodes']} nodes"
    if facts["error_bound"] > 0:
        line += f", error of 99 of 100 targets below {facts['error_bound']:.2g}"
    return line


def _kind_of_rows(facts: dict[str, Any]) -> str:
    """Kind of a result; for transformed rows, the kind of the result that they were transformed into."""
    return str(facts["request"].get("of") if facts["kind"] == "transform" else facts["kind"])


def _picture(facts: dict[str, Any]) -> str:
    """Line of text on a graph of weights, or on its embedding."""
    if facts["kind"] == "transform":
        rows, k, of = facts["input"]["shape"][0], facts["request"]["k"], facts["request"]["of"]
        if of in ("spectral", "diffusion_map"):
            line = f"{rows} rows placed by {k} neighbors each among {facts['rows_of_the_fit']} rows of "
            line += of.replace("_", " ")
            return f"{line}; relative standard error {facts['standard_error']:.2g}"
        return f"{rows} rows placed in a layout by {k} neighbors each, {facts['epochs']} epochs"
    if facts["kind"] == "fuzzy_graph":
        beside = ", with targets" * ("targets" in facts["request"])
        return f"fuzzy graph of {facts['request']['k']} neighbors{beside}: {facts['weights']} weights"
    if facts["kind"] == "combine_graphs":
        return f"{facts['request']['rule']} of two graphs: {facts['weights']} weights"
    rows = facts["input"]["shape"][0]
    if facts["kind"] == "tsne":
        line = (
            f"tsne of {rows} rows in {facts['request']['n_components']} dimensions, {facts['steps']} steps; "
        )
        line += f"divergence {facts['kl_divergence']:.4f}, repulsion off by {facts['repulsion_error']:.1e}"
        return line + _neighborhoods(facts)
    if facts["kind"] != "umap":
        passes, parts, error = (
            facts[name] for name in ("passes", "connected_components", "largest_error_estimate")
        )
        line = f"{facts['kind'].replace('_', ' ')} of {rows} rows in "
        line += f"{facts['request']['n_components']} dimensions, "
        line += f"{passes} pass{'es' * (passes != 1)} over the graph of {parts} component{'s' * (parts != 1)}"
        return f"{line}; largest estimated error of an eigenvalue {error:.1e}" + _neighborhoods(facts)
    losses = facts["edge_loss"], facts["pair_loss"]
    line = f"umap of {rows} rows in {facts['request']['n_components']} dimensions, {facts['epochs']} epochs; "
    line += "loss of edges {:.4g}, of pairs {:.4g}".format(*losses)
    return line + _neighborhoods(facts)


def _effort(facts: dict[str, Any]) -> str:
    """Text on the number of components and of passes."""
    passes, rank = facts["passes"], facts.get("rank", facts["request"].get("rank"))
    return f", rank {rank}" * (rank is not None) + f", {passes} pass{'es' * (passes != 1)}"


def _of_pairs(facts: dict[str, Any]) -> str:
    """Text on the accuracy of kernel features (share of the trace that they leave out) or of kernel PCA.

    Empty for other kinds of results.
    """
    if "trace_error" in facts:
        return f"; leaves out {facts['trace_error']:.3g} of the trace"
    if facts["kind"] != "kernel_pca":
        return ""
    return (
        f"; largest estimated error {facts['largest_error_estimate']:.1e}, "
        f"{facts['explained_share']:.3g} of the trace"
    )


def _neighborhoods(facts: dict[str, Any]) -> str:
    """Text on how well an embedding preserves neighborhoods; empty if not measured."""
    if "trustworthiness" not in facts:
        return ""
    told = (f"{name} {facts[name]:.4f}" for name in ("trustworthiness", "continuity", "preservation"))
    return f"; {', '.join(told)} by {facts['quality_rows']} rows and {facts['quality_k']} neighbors"


def _paths(facts: dict[str, Any]) -> str:
    """Line of text on an embedding by shortest paths, or on new rows in one."""
    (rows, _), request = facts["input"]["shape"], facts["request"]
    if facts["kind"] == "isomap":
        line = f"isomap of {rows} rows in {request['n_components']} dimensions by {request['n_landmarks']} "
        line += "landmarks"
    else:
        line = f"{rows} rows in {request['rank']} components of isomap"
    error = f" ± {facts['standard_error']:.1g}" if facts["standard_error"] else ""
    line = f"{line}; residual variance {facts['residual_variance']:.3g}{error}"
    return line + _neighborhoods(facts)


def residuals(facts: dict[str, Any]) -> str:
    """Text on the residuals and the orthogonality that a check has found."""
    return (
        f"largest residual {facts['largest_residual']:.1e} of the largest singular value; left factor "
        f"orthonormal to {facts['left_orthogonality']:.1e}, right to {facts['right_orthogonality']:.1e}"
    )


def took(result: Result) -> list[str]:
    """Line on the time of all attempts, and peak memory of finished ones, including intermediate results;
    empty if not recorded.
    """
    from rankfold.pipeline.units import format_bytes
    from rankfold.workflows.reports.history import History, preparation

    last = (result.run.get("attempts") or [{}])[-1]
    if not last.get("finished"):
        return []
    history = History.of(result.path)
    attempts = f" in {len(history.attempts)} attempts" if len(history.attempts) > 1 else ""
    seconds = history.seconds or last.get("seconds", 0.0)
    attempts += preparation(history.compile_seconds, history.load_seconds, "{:.3g} s".format)
    peak = history.peak
    measured = "not measured" if peak is None else format_bytes(peak.measured_bytes)
    planned_bytes = last.get("planned_bytes", 0) if peak is None else peak.planned_bytes
    base = last.get("baseline_bytes") if peak is None else peak.baseline_bytes
    above = "" if base is None else f" above a baseline of {format_bytes(base)}"
    return [
        f"{seconds:.3g} s{attempts}, peak memory {measured} of {format_bytes(planned_bytes)} planned{above}"
    ]


def last_attempt(out: Path) -> str | None:
    """Start time of the last attempt at an output, from the record of its run; None if there is no output.

    A command that leaves this time unchanged has found its output done; the output itself need not be read
    again.
    """
    from rankfold.pipeline.storage.journal import load_record

    attempts = load_record(Path(f"{out.absolute()}.run") / "run.json")["attempts"]
    return str(attempts[-1].get("started") if attempts else "") if out.exists() else None


def is_unchanged(out: Path, before: str | None, *, overwrite: bool) -> bool:
    """True if a command left an output as it was; ``before`` is its ``last_attempt`` before the command."""
    return not overwrite and before is not None and before == last_attempt(out)


def result_at(path: Path | str) -> Result | None:
    """The finished result at a path; None for anything else, such as an imported matrix."""
    from rankfold.pipeline.errors import InputError
    from rankfold.pipeline.storage.result import Result

    try:
        result = Result(path) if Path(path).is_dir() else None
    except InputError:
        return None
    return None if result is None or "kind" not in result.attrs or [*result] == ["X"] else result


def description(result: Result) -> Lines:
    """Description of a finished result: its input, quality, arrays, and when it was made."""
    result.require_whole()
    facts = result.attrs
    rows, columns = facts["input"]["shape"]
    shown = (f"{name} {_shape(shape)}" for name, shape in _shapes(result).items() if not is_of_step(name))
    lines = [
        f"{result.path}: finished, {headline(result)}",
        f"input     {facts['input']['name']}, {rows} x {columns} {facts['input']['dtype']}",
        f"arrays    {', '.join(shown)}",
        f"made      {_when(result)}, by rankfold {facts['version']}",
    ]
    lines += [f"took      {line}" for line in took(result)]
    return Lines(*lines, *(f"warning   {in_command(message)}" for message in facts["warnings"]))


def description_facts(result: Result) -> dict[str, Any]:
    """The facts of a finished result, for JSON."""
    result.require_whole()
    arrays = {name: list(shape) for name, shape in _shapes(result).items()}
    return {"out": str(result.path), "made": _when(result), "arrays": arrays, **result.attrs}


def _shapes(result: Result) -> dict[str, tuple[int, ...]]:
    """Shapes of the arrays of a result by name, including its graph of neighbors. No array is read."""
    from rankfold.pipeline.chunks.regular_store import zarr_group

    shapes = {name: array.shape for name, array in sorted(zarr_group(result.path).arrays())}
    if result.attrs["kind"] == "knn":
        shapes["graph"] = (shapes["indices"][0], result.attrs["input"]["shape"][0])
    return shapes


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "one number"


def _when(result: Result) -> str:
    """Time when a result was finished: that of the file written last."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime((result.path / "zarr.json").stat().st_mtime))
