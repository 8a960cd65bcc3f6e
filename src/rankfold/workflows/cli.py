"""The command line. Every error that rankfold raises on purpose is one message and an exit code.

0 done    2 bad input or configuration    3 plan refused    4 bad data    75 more to do    130 interrupted
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

# One thread for every library below, before any is loaded: parallelism is that of the sweeps.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"

import typer

from rankfold._version import __version__
from rankfold.pipeline.errors import InputError, Interrupted, RankfoldError

app = typer.Typer(
    name="rankfold",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="SVD and PCA of matrices larger than memory: planned memory, few passes, resumable.",
)

Store = Annotated[str, typer.Argument(help="STORE.zarr, STORE.zarr::array, or a .npy file")]
Rank = Annotated[int | None, typer.Option(help="number of components; always needed")]
Out = Annotated[Path, typer.Option(help="where the result goes; the same command again resumes")]
Tol = Annotated[float | None, typer.Option(help="estimated relative error to stop at; 1e-4 by default")]
Method = Annotated[str, typer.Option(help="auto, gram, krylov, subspace or sketch")]
Passes = Annotated[int | None, typer.Option(help="most passes over the matrix; 8 by default")]
Seed = Annotated[int, typer.Option(help="key of the random start")]
Memory = Annotated[
    str | None, typer.Option(help="working memory, such as 2GiB; by default half of what is free")
]
Threads = Annotated[int | None, typer.Option(help="threads of this process; all cores by default")]
Scratch = Annotated[Path | None, typer.Option(help="folder for intermediates; beside OUT by default")]
Rows = Annotated[bool, typer.Option("--rows/--no-rows", help="write U or scores")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="replace another output or unfinished run")]
Json = Annotated[bool, typer.Option("--json", help="print JSON")]
Missing = Annotated[str, typer.Option("--missing-chunks", help="error, or fill to read the fill value")]
Center = Annotated[bool, typer.Option("--center/--no-center", help="subtract column means")]
Scale = Annotated[bool, typer.Option("--scale", help="divide columns by their standard deviation")]
Whiten = Annotated[bool, typer.Option("--whiten", help="scores of unit variance")]
Debug = Annotated[bool, typer.Option("--debug", help="show the traceback of an error")]


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="print the version and exit")] = False,
) -> None:
    if version:
        typer.echo(f"rankfold {__version__}")
        raise typer.Exit


@app.command()
def svd(
    store: Store,
    out: Out,
    rank: Rank = None,
    tol: Tol = None,
    method: Method = "auto",
    passes: Passes = None,
    seed: Seed = 0,
    memory: Memory = None,
    threads: Threads = None,
    scratch: Scratch = None,
    rows: Rows = True,
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
        threads=threads,
        scratch=scratch,
        rows=rows,
        out=out,
        overwrite=overwrite,
    )


@app.command()
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
    threads: Threads = None,
    scratch: Scratch = None,
    rows: Rows = True,
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
        threads=threads,
        scratch=scratch,
        rows=rows,
        out=out,
        overwrite=overwrite,
        center=center,
        scale=scale,
        whiten=whiten,
    )


@app.command("plan")
def plan_command(
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
    threads: Threads = None,
    rows: Rows = True,
    missing: Missing = "error",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Passes, memory, time of a reduction, not run."""
    with _reported(debug):
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
            threads=threads,
            rows=rows,
            rates=cached_rates(),
        )
        typer.echo(json.dumps(made.as_dict(), indent=1) if as_json else str(made))


@app.command("import")
def import_command(
    source: Annotated[str, typer.Argument(metavar="SRC", help="a .npy file, or a Zarr array to cut anew")],
    store: Annotated[Path, typer.Argument(metavar="STORE.zarr", help="the store to write")],
    memory: Memory = "256MiB",
    missing: Missing = "error",
    overwrite: Overwrite = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Copy a matrix into a Zarr store with well-cut chunks."""
    with _reported(debug):
        from rankfold.pipeline.ingest import import_array
        from rankfold.pipeline.sources import open_source
        from rankfold.pipeline.units import format_bytes, parse_bytes
        from rankfold.workflows.progress import SweepProgress

        with SweepProgress("bytes") as bar:
            report = import_array(
                open_source(source, missing=missing),
                store,
                memory_bytes=parse_bytes(memory or "256MiB"),
                overwrite=overwrite,
                progress=lambda done, total: bar("import", done, total),
            )
        if as_json:
            typer.echo(json.dumps(dataclasses.asdict(report), indent=1, default=str))
        else:
            rows, columns = report.shape
            typer.echo(
                f"{store}: {rows} x {columns} {report.dtype} in chunks of {report.chunks[0]} x "
                f"{report.chunks[1]}, {report.codec}, {format_bytes(report.bytes_written)} on disk"
            )


@app.command()
def info(store: Store, as_json: Json = False, debug: Debug = False) -> None:
    """Shape, type, chunks and size of a matrix."""
    with _reported(debug):
        from rankfold.pipeline.info import describe
        from rankfold.pipeline.sources import open_source

        found = describe(open_source(store))
        typer.echo(json.dumps(dataclasses.asdict(found), indent=1) if as_json else str(found))


@app.command()
def demo(
    folder: Annotated[Path, typer.Option("--out", help="folder for data, result and pictures")] = Path(
        "demo-output"
    ),
    memory: Memory = "256MiB",
    threads: Threads = None,
    debug: Debug = False,
) -> None:
    """Components of half a million image patches."""
    with _reported(debug):
        from rankfold.workflows.demo import run_demo
        from rankfold.workflows.progress import SweepProgress

        with SweepProgress() as bar:
            run_demo(folder, memory=memory or "256MiB", threads=threads, progress=bar)


def _reduce(kind: str, store: str, missing: str, as_json: bool, debug: bool, **options: Any) -> None:
    with _reported(debug):
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


@contextlib.contextmanager
def _reported(debug: bool) -> Iterator[None]:
    """Turn errors into one message on stderr and an exit code; signals into orderly ends."""
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, _drain)
    try:
        yield
    except RankfoldError as error:
        _fail(str(error), error.exit_code, error if debug else None)
    except KeyboardInterrupt:
        _fail("interrupted; what was finished is kept, and the same command goes on from there", 130, None)
    except BrokenPipeError:
        # Only closing lines are written to stdout: what they tell of is done.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
    except (OSError, MemoryError) as error:
        _fail(
            f"{type(error).__name__}: {error} (--debug shows where)",
            InputError.exit_code,
            error if debug else None,
        )


def _drain(number: int, frame: object) -> None:
    raise Interrupted(
        f"stopped by {signal.Signals(number).name}; what was finished is kept, and the same command goes on "
        "from there"
    )


def _fail(message: str, code: int, error: BaseException | None) -> None:
    if error is not None:
        raise error
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"rankfold: {message}\n")
    raise SystemExit(code) from None


def main() -> None:
    """Entry point of the ``rankfold`` command."""
    if sys.stderr is None:  # closed by the caller
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    app()


if __name__ == "__main__":
    main()
