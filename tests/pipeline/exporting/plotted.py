"""Results with coordinates that a test chooses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import rankfold as rf
from rankfold.pipeline.storage.result import write_group, write_small


def result_with(folder: Path, kind: str = "umap", **arrays: np.ndarray) -> rf.Result:
    """A result of these arrays; those of rows are ``embedding``, ``scores`` and ``W``."""
    axes = {"embedding": ("row", "component"), "scores": ("row", "component"), "W": ("row", "component")}
    axes |= {"components": ("component", "column"), "H": ("component", "column"), "labels": ("row",)}
    folder.mkdir(parents=True)
    for name, values in arrays.items():
        write_small(folder, {name: values}, *axes.get(name, ("component",)))
    rows = len(next(iter(arrays.values())))
    facts: dict[str, Any] = {"kind": kind, "method": "a test", "passes": 1, "request": {"kind": kind}}
    write_group(folder, facts | {"input": {"name": "x.npy", "shape": [rows, 9], "dtype": "float32"}})
    return rf.open_result(folder)
