"""``rankfold transform`` and ``reconstruct``: into the components of a result, and out of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from rankfold.workflows.options import (
    Debug,
    Json,
    Memory,
    Missing,
    On,
    Out,
    Overwrite,
    Scratch,
    Threads,
    Workers,
)
from rankfold.workflows.reporting import reported

Fit = Annotated[Path, typer.Argument(metavar="RESULT", help="what svd or pca wrote")]
Leading = Annotated[int | None, typer.Option("--rank", help="leading components to use; all by default")]
Window = Annotated[str | None, typer.Option(metavar="START:STOP", help="rows to write; all by default")]
New = Annotated[str, typer.Argument(metavar="NEW", help="samples with the columns that were fitted")]


def transform(
    result: Fit,
    new: New,
    out: Out,
    memory: Memory = None,
    on: On = None,
    workers: Workers = None,
    threads: Threads = None,
    scratch: Scratch = None,
    missing: Missing = "error",
    overwrite: Overwrite = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Coordinates of new samples in a result: scores or U."""
    with reported(debug):
        import rankfold

        there = out.exists() and not overwrite
        with _watched() as bar:
            made = rankfold.transform(
                result,
                rankfold.open(new, missing=missing),
                out=out,
                memory=memory,
                on=on,
                workers=workers,
                threads=threads,
                scratch=scratch,
                overwrite=overwrite,
                progress=bar,
            )
        _close(made, _relative_error(made.attrs), already_done=there, as_json=as_json)


def reconstruct(
    result: Fit,
    out: Out,
    rank: Leading = None,
    rows: Window = None,
    memory: Memory = None,
    on: On = None,
    workers: Workers = None,
    threads: Threads = None,
    scratch: Scratch = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """The matrix as its leading components have it."""
    with reported(debug):
        import rankfold

        there = out.exists() and not overwrite
        with _watched() as bar:
            array = rankfold.reconstruct(
                result,
                rank=rank,
                rows=_rows(rows),
                out=out,
                memory=memory,
                on=on,
                workers=workers,
                threads=threads,
                scratch=scratch,
                overwrite=overwrite,
                progress=bar,
            )
        made = rankfold.open_result(out)
        line = (
            f"{array.shape[0]} x {array.shape[1]} {array.dtype} of rank {made.attrs['request']['rank']}; "
            f"over all rows it leaves out {_share(made.attrs)} of the norm of the "
            f"{'matrix' if made.attrs['request']['of'] == 'svd' else 'matrix as it was fitted'}"
        )
        _close(made, line, already_done=there, as_json=as_json)


def _rows(text: str | None) -> slice | None:
    """A slice as one writes it in Python, without brackets."""
    from rankfold.pipeline.errors import InputError

    if text is None:
        return None
    try:
        start, stop = (int(end) if end.strip() else None for end in text.split(":"))
    except ValueError:
        raise InputError(f"--rows {text!r} is not START:STOP, such as 0:1000, 5000: or :100") from None
    return slice(start, stop)


@contextmanager
def _watched() -> Iterator[Callable[[str, int, int], None]]:
    """Progress on stderr; warnings are printed at the end, from the result."""
    import warnings

    import rankfold
    from rankfold.workflows.progress import SweepProgress

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
    """The relative error, which is told down to a floor and not further."""
    error = facts["relative_error"]
    return ("at most " if 0 < error <= facts["relative_error_floor"] else "") + f"{error:.2g}"


def _close(made: Any, line: str, *, already_done: bool, as_json: bool) -> None:
    """Say what was made, or all its facts for a machine."""
    facts = made.attrs
    if as_json:
        typer.echo(json.dumps({"out": str(made.path), "already_done": already_done, **facts}, indent=1))
        return
    for message in facts["warnings"]:
        typer.echo(f"warning: {message}", err=True)
    typer.echo(f"{made.path}: {'already done' if already_done else 'done'}\n{line}")
    if took := _took(made.run):
        typer.echo(took)


def _took(run: dict[str, Any]) -> str:
    """Time and memory of the attempt that finished."""
    from rankfold.pipeline.units import format_bytes

    last = (run.get("attempts") or [{}])[-1]
    if not last.get("finished"):
        return ""
    measured = last["measured_bytes"]
    peak = "not measured" if measured is None else format_bytes(measured)
    return f"{last['seconds']:.3g} s, peak memory {peak} of {format_bytes(last['planned_bytes'])} planned"
