"""Results with coordinates that a test chooses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import rankfold as rf
from rankfold.pipeline.law import result_law
from rankfold.pipeline.storage.result import write_group, write_small


def result_with(folder: Path, kind: str = "umap", **arrays: np.ndarray) -> rf.Result:
    """A result of these arrays; those of rows are ``embedding``, ``scores`` and ``W``."""
    axes = {"embedding": ("row", "component"), "scores": ("row", "component"), "W": ("row", "component")}
    axes |= {"components": ("component", "column"), "H": ("component", "column"), "labels": ("row",)}
    folder.mkdir(parents=True)
    rows = len(next(iter(arrays.values())))
    law, lengths = result_law(kind), {"row": rows, "column": 9}
    for name, values in arrays.items():
        lengths |= dict(zip(law.of(name).axes or (), values.shape, strict=False))
    for name in law.needed.keys() - arrays.keys():
        if axes_of := law.of(name).axes:
            zeros = np.zeros([lengths.get(axis, 2) for axis in axes_of], law.of(name).types[-1])
            arrays[name] = zeros.real if "float64" in law.of(name).types else zeros
    for name, values in arrays.items():
        write_small(folder, {name: values}, *axes.get(name, ("component",) * values.ndim))
    facts: dict[str, Any] = {"kind": kind, "method": "a test", "passes": 1, "request": {"kind": kind}}
    facts |= {"version": rf.__version__, "warnings": []}
    of = {"name": "x.npy", "shape": [rows, 9], "dtype": "float32", "fingerprint": "of a test"}
    write_group(folder, facts | {"input": of})
    return rf.open_result(folder)
