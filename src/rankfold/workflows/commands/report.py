"""``rankfold report``: the page about a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rankfold.workflows.options import Json, command
from rankfold.workflows.reporting import say


@command(reads_results=True)
def report(
    where: Annotated[
        Path, typer.Argument(metavar="FLOW.yaml", help="a workflow, its folder of results, or one result")
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="PAGE.html", help="report.html among the results, by default")
    ] = None,
    beside: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="OTHER", help="the same on other numbers of workers, to see how it scales; repeat"
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="replace a page of something else; its own is always")
    ] = False,
    as_json: Json = False,
) -> None:
    """A page that opens offline: plan and measurement, timeline, convergence, limits, how to repeat it."""
    from rankfold.workflows.reports.page import page_output, write_page
    from rankfold.workflows.reports.run_page import TEMPLATE, run_page, subject
    from rankfold.workflows.reports.run_page import as_json as to_json

    about = subject(where)
    own = str(about.folder.absolute())
    path = out or about.folder / "report.html"
    output = None if as_json else page_output(path, own, overwrite=overwrite or out is None)
    others = [stage for path in beside or [] for stage in subject(path).stages]
    page = run_page(about, others)
    if output is None:
        say(to_json(page.facts))
        return
    write_page(page, output, own, TEMPLATE)
    say(str(path))
