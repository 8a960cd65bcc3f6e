"""``rankfold svd``, ``pca`` and ``plan``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from rankfold.workflows.options import (
    Center,
    Debug,
    Json,
    Memory,
    Method,
    Missing,
    NoRows,
    On,
    Out,
    Overwrite,
    Passes,
    Rank,
    Scale,
    Scratch,
    Seed,
    Store,
    Threads,
    Tol,
    Whiten,
    Workers,
)
from rankfold.workflows.reporting import reported


def svd(
    store: Store,
    out: Out,
    rank: Rank = None,
    tol: Tol = None,
    method: Method = "auto",
    passes: Passes = None,
    seed: Seed = 0,
    memory: Memory = None,
    on: On = None,
    workers: Workers = None,
    threads: Threads = None,
    scratch: Scratch = None,
    no_rows: NoRows = False,
    missing: Missing = "error",
    overwrite: Overwrite = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Leading singular triplets: U, s, Vt."""
    _reduce(
        "svd",
        store,
        missing,
        as_json,
        debug,
        rank=rank,
        tol=tol,
        method=method,
        passes=passes,
        seed=seed,
        memory=memory,
        on=on,
        workers=workers,
        threads=threads,
        scratch=scratch,
        rows=not no_rows,
        out=out,
        overwrite=overwrite,
    )


def pca(
    store: Store,
    out: Out,
    rank: Rank = None,
    tol: Tol = None,
    method: Method = "auto",
    passes: Passes = None,
    seed: Seed = 0,
    center: Center = True,
    scale: Scale = False,
    whiten: Whiten = False,
    memory: Memory = None,
    on: On = None,
    workers: Workers = None,
    threads: Threads = None,
    scratch: Scratch = None,
    no_rows: NoRows = False,
    missing: Missing = "error",
    overwrite: Overwrite = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Principal components: scores, components, mean."""
    _reduce(
        "pca",
        store,
        missing,
        as_json,
        debug,
        rank=rank,
        tol=tol,
        method=method,
        passes=passes,
        seed=seed,
        memory=memory,
        on=on,
        workers=workers,
        threads=threads,
        scratch=scratch,
        rows=not no_rows,
        out=out,
        overwrite=overwrite,
        center=center,
        scale=scale,
        whiten=whiten,
    )


def plan(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="svd or pca")],
    store: Store,
    rank: Rank = None,
    tol: Tol = None,
    method: Method = "auto",
    passes: Passes = None,
    center: Center = True,
    scale: Scale = False,
    whiten: Whiten = False,
    memory: Memory = None,
    on: On = None,
    workers: Workers = None,
    threads: Threads = None,
    no_rows: NoRows = False,
    missing: Missing = "error",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Passes, memory, time of a reduction, not run."""
    with reported(debug):
        import rankfold
        from rankfold.cluster.calibration import cached_rates

        made = rankfold.plan(
            kind,
            rankfold.open(store, missing=missing),
            rank,
            tol=tol,
            method=method,
            passes=passes,
            center=center and kind == "pca",
            scale=scale,
            whiten=whiten,
            memory=memory,
            on=on,
            workers=workers,
            threads=threads,
            rows=not no_rows,
            rates=cached_rates(),
        )
        typer.echo(json.dumps(made.as_dict(), indent=1) if as_json else str(made))


def _reduce(kind: str, store: str, missing: str, as_json: bool, debug: bool, **options: Any) -> None:
    with reported(debug):
        import warnings

        import rankfold
        from rankfold.workflows.progress import SweepProgress

        source = rankfold.open(store, missing=missing)
        there = Path(options["out"]).exists() and not options["overwrite"]
        with warnings.catch_warnings(), SweepProgress() as bar:
            warnings.simplefilter("ignore", rankfold.RankfoldWarning)  # printed below, from the result
            result = getattr(rankfold, kind)(source, progress=bar, **options)
        if as_json:
            typer.echo(json.dumps({"out": str(result.path), "already_done": there, **result.attrs}, indent=1))
            return
        for message in result.attrs["warnings"]:
            typer.echo(f"warning: {message}", err=True)
        typer.echo(summary(result, already_done=there))


def summary(result: Any, *, already_done: bool) -> str:
    """The closing lines of a reduction."""
    from rankfold.pipeline.units import format_bytes

    facts = result.attrs
    lines = [f"{result.path}: already done" if already_done else f"{result.path}: done"]
    lines.append(
        f"{facts['kind']} by {facts['method']}, rank {facts['request']['rank']}, {facts['passes']} passes; "
        f"largest estimated error {facts['largest_error_estimate']:.1e}, "
        f"captured {100 * facts['captured']:.4g} %"
    )
    attempts = result.run.get("attempts", [])
    if attempts and attempts[-1].get("finished"):
        last = attempts[-1]
        measured = last["measured_bytes"]
        peak = "not measured" if measured is None else format_bytes(measured)
        base = (
            ""
            if last["baseline_bytes"] is None
            else f" above a baseline of {format_bytes(last['baseline_bytes'])}"
        )
        planned = format_bytes(last["planned_bytes"])
        lines.append(f"{last['seconds']:.3g} s, peak memory {peak} of {planned} planned{base}")
    return "\n".join(lines)
