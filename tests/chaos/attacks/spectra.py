"""Matrices whose values come many times, in clusters or close below the ones that are wanted.

Each trial draws one matrix, solver and tolerance, and compares what the result claims with LAPACK: a value
that is off by more than ten times the largest claim of a result that says it has converged is a fault.
"""

from __future__ import annotations

import time

from drawn_spectra import WORST, compare, draw
from trials import ANSWERED, FAULT, SAME, Bench, Trial

SPREAD = 100_000
"""Draws between seeds."""


def spectra(bench: Bench, seed: int, number: int) -> Trial:
    """One trial."""
    began, asked = time.monotonic(), draw(SPREAD * seed + number)
    found = compare(asked)
    verdict, said = SAME, ""
    if not found.converged:
        verdict, said = ANSWERED, f"an estimate of {found.claim:.1e}"
    elif found.over > 1:
        verdict = FAULT if found.over > WORST else ANSWERED
        said = f"converged at a claim of {found.claim:.1e}, and is off by {found.error:.1e}"
    seconds = time.monotonic() - began
    name = f"svd by {asked.solver}"
    return Trial("spectra", seed, number, name, asked.kind, str(asked), verdict, 0, said, seconds)
