"""Profiles that come with rankfold, to copy and change: ``rankfold profile perlmutter > perlmutter.yaml``.

A user's own file of the same name is found before these.
"""

from __future__ import annotations

from pathlib import Path


def shipped_profiles() -> dict[str, Path]:
    """Files of the profiles that come with rankfold, by name."""
    return {path.stem: path for path in sorted(Path(__file__).parent.glob("*.yaml"))}


def summary(path: Path) -> str:
    """First line of a profile's file, a comment that describes it."""
    return path.read_text().splitlines()[0].removeprefix("# ")
