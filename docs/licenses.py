"""Licenses of what rankfold is declared to need, as its packages state them, into ``docs/licenses.md``.

``python docs/licenses.py`` looks at what is installed beside it; a package that is not keeps its row.
"""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "licenses.md"
BEGIN, END = "<!-- licenses: begin -->", "<!-- licenses: end -->"
SHORT = 40
"""Characters of a license field that is a name; longer ones are the text itself."""


def name_of(requirement: str) -> str:
    """The package that a requirement names."""
    return re.split(r"[\s\[<>=!~;]", requirement, maxsplit=1)[0]


def declared() -> dict[str, list[str]]:
    """Each package of the declared dependencies, and the extras that it belongs to: none if all need it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras: dict[str, list[str]] = {name_of(need): [] for need in project["dependencies"]}
    for extra, needs in project["optional-dependencies"].items():
        for need in needs:
            extras.setdefault(name_of(need), []).append(extra)
    return dict(sorted(extras.items(), key=lambda item: item[0].lower()))


def license_of(package: str) -> str | None:
    """What the metadata of an installed package say: expression, field, classifier, or head of its text."""
    try:
        distribution = importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError:
        return None
    about = distribution.metadata
    expression, stated = about.get("License-Expression"), about.get("License") or ""
    if expression or 0 < len(stated) <= SHORT:
        return expression or stated
    for classifier in about.get_all("Classifier") or ():
        if classifier.startswith("License ::"):
            return classifier.rpartition(" :: ")[2]
    texts = [file for file in distribution.files or () if "licen" in file.name.lower()]
    heads = [line.strip() for file in texts for line in file.read_text().splitlines() if line.strip()]
    return heads[0] if heads else "not stated"


def earlier_rows(page: str) -> dict[str, str]:
    """Rows of the page as it is, by package."""
    return {row.split("`")[1]: row for row in page.splitlines() if row.startswith("| `")}


def table(page: str) -> list[str]:
    """A row for each declared package."""
    rows, earlier = ["| package | needed by | version | license |", "|---|---|---|---|"], earlier_rows(page)
    for package, extras in declared().items():
        stated = license_of(package)
        if stated is None and package not in earlier:
            raise SystemExit(
                f"{package} is neither installed nor on the page: pip install --no-deps {package}"
            )
        needed_by = ", ".join(f"`{extra}`" for extra in extras) or "all"
        version, license_ = (
            earlier[package].strip("| ").split(" | ")[2:]
            if stated is None
            else (importlib.metadata.version(package), stated)
        )
        rows.append(f"| `{package}` | {needed_by} | {version} | {license_} |")
    return rows


def main() -> None:
    """Write the table into the page."""
    page = PAGE.read_text()
    before, after = page.partition(BEGIN)[0], page.partition(END)[2]
    PAGE.write_text("\n".join([before + BEGIN, "", *table(page), "", END + after]))


if __name__ == "__main__":
    main()
