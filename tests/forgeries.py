"""A result with one thing changed in it: an array, in ten ways, or an attribute, in eight."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr

GONE = object()
FACT_WAYS: dict[str, object] = {
    "gone": GONE,
    "null": None,
    "word": "forged",
    "nan": math.nan,
    "negative": -7,
    "huge": 10**30,
    "list": [],
    "facts": {},
}
ARRAY_WAYS = ("nan", "infinite", "negative", "huge", "short", "typed", "gone", "reversed", "largest", "zeros")

NUMBERS = {"nan": np.nan, "infinite": np.inf, "negative": -5, "huge": 1e300}
WHOLE_NUMBERS = {"nan": -(2**31), "infinite": 2**31 - 1, "negative": -5, "huge": 10**8}


@dataclass(frozen=True)
class Forgery:
    """One change of an array or of an attribute."""

    field: str
    """``"scores"``, ``"graph/indices"`` or ``"attrs request.k"``."""

    way: str

    def __str__(self) -> str:
        return f"{self.field}, {self.way}"

    def apply(self, result: Path) -> None:
        """Change a result that has no manifest."""
        if self.field.startswith("attrs "):
            forge_fact(result, self.field[6:].split("."), FACT_WAYS[self.way])
        else:
            forge_array(result / self.field, self.way)


def forgeries(result: Path) -> list[Forgery]:
    """Every array in every way, every attribute likewise."""
    document = json.loads((result / "zarr.json").read_text())
    facts = document["attributes"]["rankfold"]
    nodes = {
        path.parent: json.loads(path.read_text())["node_type"] for path in sorted(result.rglob("zarr.json"))
    }
    arrays = [folder.relative_to(result).as_posix() for folder, node in nodes.items() if node == "array"]
    names = [f"attrs {name}" for name in facts]
    names += [f"attrs {group}.{name}" for group in ("request", "input") for name in facts[group]]
    found = [Forgery(name, way) for name in arrays for way in ARRAY_WAYS if (name, way) != (".", "gone")]
    return found + [Forgery(name, way) for name in names for way in FACT_WAYS]


def forge_fact(result: Path, names: list[str], value: object) -> None:
    """Set an attribute, or take it away."""
    file = result / "zarr.json"
    document = json.loads(file.read_text())
    within = document["attributes"]["rankfold"]
    for name in names[:-1]:
        within = within[name]
    if value is GONE:
        del within[names[-1]]
    else:
        within[names[-1]] = value
    file.write_text(json.dumps(document))


def forge_array(folder: Path, way: str) -> None:
    """Change one number of an array, or all of it."""
    if way == "gone":
        shutil.rmtree(folder)
        return
    array = zarr.open_array(folder, mode="r+")
    values = np.array(array[...])
    whole = values.dtype.kind in "iu"
    if way == "short":
        write_again(folder, values[:-1])
    elif way == "typed":
        write_again(folder, values.astype(np.float64 if whole else np.int64))
    elif way in ("largest", "zeros"):  # each number is one that the law allows
        write_again(folder, np.full_like(values, values.max() if way == "largest" and values.size else 0))
    elif way == "reversed":
        write_again(folder, values[..., ::-1])
    elif values.size:
        with np.errstate(over="ignore"):
            values.reshape(-1)[values.size // 3] = (WHOLE_NUMBERS if whole else NUMBERS)[way]
        array[...] = values


def write_again(folder: Path, values: np.ndarray[Any, Any]) -> None:
    """An array with other numbers, as a method would have written it."""
    about = json.loads((folder / "zarr.json").read_text())
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    array = zarr.create_array(
        folder,
        data=np.ascontiguousarray(values),
        compressors=None,
        dimension_names=about.get("dimension_names"),
        overwrite=True,
    )
    array.attrs.update(about.get("attributes", {}))
