"""The commands of an application are built once, not anew by each call of Typer's test runner.

So is each that is made alone. To build all takes 60 ms, several times what most commands take. To import this
is enough.
"""

from __future__ import annotations

import functools
from typing import Any

import typer.testing

_make = typer.testing._get_command


@functools.cache
def _made(app: Any, commands: tuple[Any, ...]) -> Any:
    return _make(app)


def _of(app: Any) -> Any:
    return _made(app, tuple(app.registered_commands))


typer.testing._get_command = _of
