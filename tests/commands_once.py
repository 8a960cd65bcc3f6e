"""The commands of an application are built once, not anew by each call of Typer's test runner.

That takes 60 ms, several times what most commands take. Importing this is all.
"""

from __future__ import annotations

import functools

import typer.testing

typer.testing._get_command = functools.cache(typer.testing._get_command)
