"""Example workflows to copy and change: ``rankfold example climate > climate.yaml``."""

from __future__ import annotations

from importlib.resources import files


def example_names() -> list[str]:
    """Names of the example workflows of the package, sorted."""
    names = [entry.name for entry in files(__name__).iterdir()]
    return sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml"))


def example_text(name: str) -> str:
    """The text of the example workflow ``name``, a YAML file."""
    return (files(__name__) / f"{name}.yaml").read_text()
