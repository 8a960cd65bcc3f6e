"""Results changed with care: no manifest tells of it, and one array or attribute is not what it was.

A command that reads such a result refuses it in one message, or answers with numbers that are finite.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import numpy as np
import zarr
from forgeries import forgeries
from trials import ANSWERED, FAULT, SAME, THEN, Bench, Trial, chance, judge, turn

NOT_FINITE = re.compile(r"\b(?:NaN|nan|Infinity|inf)\b")


def forged(bench: Bench, seed: int, number: int) -> Trial:
    """One trial: a finished result, one thing in it that is changed, and a command that reads it."""
    draw, began = chance("forged", seed, number), time.monotonic()
    case = turn(None, number, seed, processes=False)
    # Stores that are imported have no facts of a result.
    while "r.zarr" not in case.outputs or not case.consumers or case.arguments[0] == "import":
        case = turn(None, draw.randrange(1000), seed, processes=False)
    bench.clear()
    bench.command(case)
    result = bench.trial / "r.zarr"
    (result / "manifest.json").unlink()
    forgery, consumer = draw.choice(forgeries(result)), draw.choice(case.consumers)
    forgery.apply(result)
    outcome = bench.consume(consumer)
    verdict, words = judge(outcome, None)
    if verdict == SAME:
        verdict, words = ANSWERED, ""
        if NOT_FINITE.search(outcome.out) or not _is_finite(bench.trial / "t.zarr"):
            verdict, words = FAULT, "exit 0 with numbers that are not finite"
    name, seconds = f"{case.name}{THEN}{consumer}", time.monotonic() - began
    return Trial(
        "forged", seed, number, name, forgery.way, forgery.field, verdict, outcome.code, words, seconds
    )


def _is_finite(store: Path) -> bool:
    """Whether all arrays of a store, if there is one, hold finite numbers."""
    for path in store.rglob("zarr.json"):
        if json.loads(path.read_text())["node_type"] == "array":
            values = np.asarray(zarr.open_array(path.parent, mode="r")[...])
            if values.dtype.kind in "fc" and not np.isfinite(values).all():
                return False
    return True
