"""How many examples a property is tried on: some in the quick tests, more where all tests run."""

from __future__ import annotations

from hypothesis import settings

QUICK = 20
"""Examples of the quick profile: see ``conftest``."""


def examples(full: int, *, quick: int = QUICK) -> settings:
    """Settings of a property: ``full`` examples, or ``quick`` ones under the quick profile."""
    return settings(max_examples=min(quick, full) if settings().max_examples == QUICK else full)
