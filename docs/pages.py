"""Pages of the site: guides as they lie, and those that are made: reference, commands, gallery, notes.

``make docs`` runs it, then Sphinx on what it has laid out. Pictures of the gallery are drawn by the examples.
"""

from __future__ import annotations

import os
import re
import runpy
import shutil
import sys
from pathlib import Path
from typing import Any

import typer

import rankfold
from rankfold.workflows.cli import app

ROOT = Path(__file__).parents[1]

TREE = {
    "Guides": (
        "choosing",
        "every-command",
        "data",
        "results",
        "result-format",
        "accuracy",
        "neighbors",
        "clustering",
        "sums",
        "embeddings",
        "kernels",
        "pictures",
        "cells",
        "fields",
        "genotypes",
        "workflows",
        "growing",
        "reports",
        "slurm",
        "queues",
        "mpi",
        "sites",
        "scaling",
        "gpu",
        "reliability",
        "security",
        "own-methods",
        "glossary",
    ),
    "Gallery": ("gallery",),
    "Python": ("python",),
    "Command line": ("commands",),
    "Peers": (
        "benchmarks",
        "defaults-benchmark",
        "nmf",
        "neighbors-benchmark",
        "approximate-benchmark",
        "queries-benchmark",
    ),
    "Design": ("notes",),
    "Project": ("changelog", "stability", "contributing", "licenses"),
}
"""Pages of each tab; the first stands for the tab where there are several."""

NAMES = {
    "Matrices": ("open", "import_array"),
    "Methods": (
        "svd",
        "pca",
        "qr",
        "nmf",
        "knn",
        "index",
        "radius_neighbors",
        "kmeans",
        "kernel_sum",
        "density",
    ),
    "What is done with a result": ("open_result", "transform", "update", "check", "reconstruct", "verify"),
    "Before a run": ("plan",),
    "Embeddings": (
        "fuzzy_graph",
        "combine_graphs",
        "umap",
        "tsne",
        "isomap",
        "spectral",
        "diffusion_map",
        "kernel_pca",
        "nystroem",
        "trustworthiness",
        "continuity",
        "neighborhood_preservation",
    ),
    "Results and errors": ("Result", "RankfoldError", "RankfoldWarning"),
}
"""All that ``import rankfold`` offers."""


def first_line(text: str | None) -> str:
    """What a docstring says in one line."""
    return (text or "").strip().partition("\n")[0]


def contents(pages: list[str], *, hidden: bool = True) -> str:
    """The tree of contents below a page."""
    return "\n".join(["```{toctree}", ":hidden:" if hidden else ":maxdepth: 1", "", *pages, "```", ""])


# Python ---------------------------------------------------------------------------------------------


def python_pages(folder: Path) -> None:
    """A page for each public name, and one that lists them."""
    listed = {name for names in NAMES.values() for name in names}
    if listed != set(rankfold.__all__) - {"__version__"}:
        raise SystemExit(f"{__file__} lists other names than rankfold has: {listed ^ set(rankfold.__all__)}")
    lines = ["# Python", "", "```python", "import rankfold as rf", "```", ""]
    for title, names in NAMES.items():
        lines += [f"## {title}", "", "| | |", "|---|---|"]
        for name in names:
            kind = "autoclass" if isinstance(getattr(rankfold, name), type) else "autofunction"
            block = ["```{eval-rst}", f".. {kind}:: rankfold.{name}", "```", ""]
            (folder / f"python-{name}.md").write_text("\n".join([f"# {name}", "", *block]))
            lines.append(f"| [`{name}`](python-{name}.md) | {first_line(getattr(rankfold, name).__doc__)} |")
        lines.append("")
    pages = [f"python-{name}" for names in NAMES.values() for name in names]
    (folder / "python.md").write_text("\n".join([*lines, contents(pages)]))


# Command line ---------------------------------------------------------------------------------------


def option_row(parameter: Any, context: Any) -> str:
    """An argument or option of a command as a line of a table."""
    name, text = parameter.get_help_record(context) or (parameter.human_readable_name, parameter.help)
    return f"| `{name}` | {(text or '').replace('|', '/').replace('[', chr(92) + '[')} |"


def command_pages(folder: Path) -> None:
    """A page for each command, with its options, and one that lists them."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    lines = ["# Command line", "", "| | |", "|---|---|"]
    for name, command in sorted(commands.items()):
        context = typer.Context(command, info_name=f"rankfold {name}")
        usage = command.get_usage(context).removeprefix("Usage: ")
        rows = [option_row(parameter, context) for parameter in command.get_params(context)]
        text = [f"# rankfold {name}", "", command.help or "", "", "```console", f"$ {usage}", "```", ""]
        (folder / f"command-{name}.md").write_text("\n".join([*text, "| | |", "|---|---|", *rows, ""]))
        lines.append(f"| [`rankfold {name}`](command-{name}.md) | {first_line(command.help)} |")
    pages = [f"command-{name}" for name in sorted(commands)]
    (folder / "commands.md").write_text("\n".join([*lines, "", contents(pages)]))


# Gallery ----------------------------------------------------------------------------------------------


def gallery(folder: Path) -> None:
    """Every example, with the picture that it draws now."""
    os.environ.setdefault("MPLBACKEND", "Agg")
    lines = ["# Gallery", "", "Each picture was drawn by the example below it when this page was made.", ""]
    for path in sorted((ROOT / "examples").glob("*.py")):
        _, told, code = path.read_text().split('"""', 2)
        title, _, about = told.strip().partition("\n")
        picture = folder / "figures" / f"example-{path.stem}.png"
        runpy.run_path(str(path))["main"](picture)
        lines += [f"## {title.rstrip('.')}", "", about.strip(), "", f"![{title}](figures/{picture.name})", ""]
        lines += [f"`examples/{path.name}`", "", "```python", code.strip(), "```", ""]
    (folder / "gallery.md").write_text("\n".join(lines))


# What lies there already ----------------------------------------------------------------------------------


def documents(folder: Path) -> None:
    """Guides, design notes, README and changelog, with links as pages see them."""
    shutil.copytree(ROOT / "docs", folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    notes = sorted((folder / "design").glob("0*.md"))
    lines = ["# Design notes", "", "What was weighed, and why it was decided so.", ""]
    (folder / "notes.md").write_text(
        "\n".join([*lines, contents([f"design/{n.stem}" for n in notes], hidden=False)])
    )
    for name in ("README", "CHANGELOG", "CONTRIBUTING"):
        text = (ROOT / f"{name}.md").read_text()
        text = re.sub(r"\]\(docs/design\)", "](notes.md)", text).replace("](docs/", "](")
        text = re.sub(r"\]\((CHANGELOG|CONTRIBUTING)\.md\)", lambda link: link[0].lower(), text)
        page = "index" if name == "README" else name.lower()
        tabs = [f"{tab} <{pages[0]}>" for tab, pages in TREE.items()] if page == "index" else []
        (folder / f"{page}.md").write_text("\n".join([text, contents(tabs)]) if tabs else text)
    for _, (first, *others) in TREE.items():
        if others:
            page = folder / f"{first}.md"
            page.write_text("\n".join([page.read_text(), contents(others)]))


if __name__ == "__main__":
    target = Path(sys.argv[1])
    shutil.rmtree(target, ignore_errors=True)
    documents(target)
    python_pages(target)
    command_pages(target)
    gallery(target)
