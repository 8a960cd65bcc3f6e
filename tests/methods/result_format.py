"""Whether a result lies as ``docs/result-format.md`` says: its schemas are read from that page."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

import jsonschema

PAGE = Path(__file__).parents[2] / "docs" / "result-format.md"
TYPES = {"float32", "float64", "complex64", "complex128", "int32", "int64"}


@functools.cache
def validators() -> dict[str, Any]:
    """The schemas of the page by title."""
    schemas = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)]
    for schema in schemas:
        jsonschema.Draft202012Validator.check_schema(schema)
    return {schema["title"]: jsonschema.Draft202012Validator(schema) for schema in schemas}


@functools.cache
def dimensions() -> set[str]:
    """Names of axes that the page explains."""
    table = PAGE.read_text().partition("| dimension |")[2].partition("\n\n")[0]
    return {name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}


def require_format(result: Path, *, names: set[str] = frozenset()) -> None:  # type: ignore[assignment]
    """Fail where a result lies otherwise; ``names`` are axes of a method that is not ours."""
    document = json.loads((result / "zarr.json").read_text())
    assert document["zarr_format"] == 3
    facts = document["attributes"]["rankfold"]
    validators()["facts"].validate(facts)
    assert facts["request"]["kind"] == facts["kind"]
    if document["node_type"] == "array":
        _require_array(result, names)
    else:
        for path in sorted(result.glob("*/zarr.json")):
            if path.parent.name == "graph":
                _require_graph(path.parent)
            else:
                _require_array(path.parent, names)
                assert path.parent.name in document["consolidated_metadata"]["metadata"]
    manifest = json.loads((result / "manifest.json").read_text())
    validators()["manifest"].validate(manifest)
    there = {path.relative_to(result).as_posix() for path in result.rglob("*") if path.is_file()}
    assert set(manifest["files"]) == there - {"manifest.json"}
    record = json.loads(Path(f"{result}.run", "run.json").read_text())
    validators()["run"].validate(record)
    assert record["attempts"][-1]["finished"] and record["attempts"][-1]["run"] == manifest["request"]


def _require_array(folder: Path, names: set[str]) -> None:
    about = json.loads((folder / "zarr.json").read_text())
    assert about["data_type"] in TYPES, folder
    own = {f"column before {folder.name}", f"component of {folder.name}"}  # of what a step has measured
    axes = set(about["dimension_names"])
    assert axes <= dimensions() | names | (own if folder.name.startswith("prepare_") else set()), (
        folder,
        axes,
    )
    assert [codec["name"] for codec in about["codecs"]] == ["bytes"], folder
    assert about["chunk_key_encoding"]["configuration"]["separator"] == "/", folder
    chunks = about["chunk_grid"]["configuration"]["chunk_shape"]
    count = 1
    for n, chunk in zip(about["shape"], chunks, strict=True):
        count *= -(-n // chunk)
    assert len([path for path in folder.glob("c/**/*") if path.is_file()]) == count, folder


def _require_graph(folder: Path) -> None:
    facts = json.loads((folder / "zarr.json").read_text())["attributes"]
    assert facts["encoding-type"] == "csr_matrix" and facts["encoding-version"] == "0.1.0"
    lengths = {path.parent.name: json.loads(path.read_text())["shape"] for path in folder.glob("*/zarr.json")}
    assert set(lengths) == {"data", "indices", "indptr"}
    assert lengths["indptr"] == [facts["shape"][0] + 1] and lengths["data"] == lengths["indices"]
