"""Results in words: the lines that commands and stages print at the end, and descriptions of finished
results.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankfold.methods.headline import headline_of_factors
from rankfold.methods.registry import METHODS
from rankfold.pipeline.errors import in_command
from rankfold.pipeline.law import is_of_step
from rankfold.pipeline.text import Lines

if TYPE_CHECKING:
    from rankfold.pipeline.storage.result import Result


def summary(result: Result, *, already_done: bool) -> Lines:
    """Lines that a command prints at its end: the result, its quality and its cost.

    ``already_done`` is True if the command has found the result finished.
    """
    how = "already done" if already_done else "done"
    return Lines(f"{result.path}: {how}", headline(result), *took(result))


def headline(result: Result) -> str:
    """Method and quality of a result, in one line."""
    facts, attempts = result.attrs, result.run.get("attempts") or [{}]
    kind = facts["kind"]
    return (METHODS[kind].headline if kind in METHODS else headline_of_factors)(facts, attempts[-1])


def took(result: Result) -> list[str]:
    """A list with one line on time and peak memory of a result, with its intermediate results, or empty.

    The time is that of all attempts, the memory that of finished ones. It is empty if they are not recorded.
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
    """Start time of the last attempt at the output ``out``, as text from the record of its run.

    It is empty if no attempt is recorded, and None if there is no output.

    A command that leaves this time unchanged has found its output done; the output itself need not be read
    again.
    """
    from rankfold.pipeline.storage.journal import load_record

    attempts = load_record(Path(f"{out.absolute()}.run") / "run.json")["attempts"]
    return str(attempts[-1].get("started") if attempts else "") if out.exists() else None


def is_unchanged(out: Path, before: str | None, *, overwrite: bool) -> bool:
    """True if a command left the output as it was; ``before`` is its ``last_attempt`` before the command."""
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
    if "indices" in shapes:
        shapes["graph"] = (shapes["indices"][0], result.attrs["input"]["shape"][0])
    return shapes


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "one number"


def _when(result: Result) -> str:
    """Time when a result was finished: that of the file written last."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime((result.path / "zarr.json").stat().st_mtime))
