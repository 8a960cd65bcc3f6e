"""Editions of methods: a number that rises when a method would give other bytes for the same request.

It is part of what a result is the answer to, so that a result of an earlier edition is made anew instead of
being taken for finished.
"""

from __future__ import annotations

EDITIONS: dict[str, int] = {}
"""By kind of request, where it is not the first."""


def edition_of(kind: str) -> int:
    """The edition that answers requests of a kind today."""
    return EDITIONS.get(kind, 1)
