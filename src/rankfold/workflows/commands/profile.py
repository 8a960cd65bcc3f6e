"""``rankfold profile``: profiles of sites to start from."""

from __future__ import annotations

from typing import Annotated

import typer

from rankfold.pipeline.text import Lines
from rankfold.workflows.options import command
from rankfold.workflows.reporting import say


@command()
def profile(
    name: Annotated[str | None, typer.Argument(help="leave it out for a list")] = None,
) -> None:
    """Print a profile of a cluster to begin with."""
    from rankfold.cluster.profiles import shipped_profiles, summary
    from rankfold.pipeline.errors import InputError
    from rankfold.settings.yaml_file import no_such

    profiles = shipped_profiles()
    if name is None:
        width = max(map(len, profiles))
        say(Lines(*(f"{one:<{width}}  {summary(path)}" for one, path in profiles.items())))
        return
    if name not in profiles:
        raise InputError(no_such("profile", name, profiles))
    say(Lines.of(profiles[name].read_text()), end="")
