"""The YAML file of a workflow: inputs, stages, and the folder of results.

    workflow: cells
    inputs:
      counts: cells.zarr::X
    outputs: cells-results
    stages:
      components:
        method: pca
        input: counts
        rank: 50
      near:
        method: knn
        input: components.scores

Stages have the arguments of the Python functions as keys, under the same names and with the same defaults.
Mistakes in the file itself are found here and in ``graph``; those in the data are found when the stages are
planned.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from rankfold.cluster.slurm.profile import absolute_profile, find_profile
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.formats.locate import is_address
from rankfold.settings.yaml_file import Document, fill_model, read_document, require_file
from rankfold.workflows.flows.stage_models import (
    Count,
    Name,
    Resources,
    Scalar,
    Stage,
    StrictModel,
    Text,
    Where,
)
from rankfold.workflows.messages import in_file
from rankfold.workflows.operations.timetable import Schedule

# The file ----------------------------------------------------------------------------------------


class MatrixInput(StrictModel):
    """An input of a workflow: a matrix, and the part of it that is used, as for ``rankfold.open``.

    A path alone is enough.
    """

    store: Where
    row_axes: Text | None = None
    select_rows: Text | None = None
    select_columns: Text | None = None
    drop_missing_columns: bool = False
    drop_missing_rows: bool = False
    missing_chunks: Literal["fill", "error"] | None = None
    prepare: Text | list[Text | dict[Text, dict[Text, Scalar] | None]] | None = None
    mask_var: Text | None = None
    mask_obs: Text | None = None
    numeric: bool = False
    index_col: Text | None = None

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """JSON Schema of both forms: a path, or keys and values."""
        return {"anyOf": [{"type": "string"}, handler(core)]}

    def view(self) -> dict[str, Any]:
        """Arguments of ``rankfold.open`` other than the path."""
        return self.model_dump(exclude={"store"})


def _input(value: object) -> object:
    if not isinstance(value, str | dict | MatrixInput):
        raise ValueError("takes a path, or `key: value` lines with the key store")
    return {"store": value} if isinstance(value, str) else value


class ParameterGrid(BaseModel):
    """A parameter sweep: one stage, run for each value in a list for one of its keys."""

    model_config = ConfigDict(
        frozen=True,
        extra="allow",
        json_schema_extra={"additionalProperties": {"type": "array", "minItems": 1}},
    )

    stage: str


class Flow(StrictModel):
    """Checked content of a file that describes a workflow."""

    workflow: Name
    inputs: dict[Name, Annotated[MatrixInput, BeforeValidator(_input)]]
    outputs: Where
    profile: Where = "local"
    resources: Resources = Resources()
    keep: Count = 1
    stages: Annotated[dict[Name, Stage], Field(min_length=1)]
    sweep: ParameterGrid | None = None
    schedule: Schedule | None = None


HERE = ("local", "allocation", "mpi")
"""Values of ``profile`` in a workflow, or of ``--cluster``, that name no profile: this machine, or the job or
the processes that a command runs in.
"""


MOST_STAGES = 256
"""Largest number of stages of one workflow; a parameter sweep may run a stage several times."""

# Reading ------------------------------------------------------------------------------------------


def is_flow(name: str) -> bool:
    """True if the name of a file ends like that of a workflow."""
    return name.endswith((".yaml", ".yml"))


def read_flow(path: Path) -> tuple[Flow, Document]:
    """Read a workflow file: its checked content, with absolute paths, and the document with its lines.

    Raises with a line for each mistake, which begins with its place.
    """
    document = read_document(require_file(path, "workflow"), "workflow")
    stages = document.values.get("stages") if isinstance(document.values, dict) else None
    if isinstance(stages, dict) and len(stages) > MOST_STAGES:
        raise InputError(
            document.message_at(
                ("stages",),
                f"there are {len(stages)}, and at most {MOST_STAGES} are run. Divide the workflow",
            )
        )
    flow = fill_model(document, Flow)
    folder = path.absolute().parent
    inputs = {
        name: each.model_copy(update={"store": resolve_path(each.store, folder)})
        for name, each in flow.inputs.items()
    }
    profile = flow.profile
    if profile not in HERE:
        profile = absolute_profile(profile, folder)
        try:
            find_profile(profile)
        except InputError as error:
            raise InputError(document.message_at(("profile",), in_file(error.message))) from None
    outputs = resolve_path(flow.outputs, folder)
    _require_folder(outputs, document)
    places = {"inputs": inputs, "outputs": outputs, "profile": profile}
    return flow.model_copy(update=places), document


def _require_folder(outputs: str, document: Document) -> None:
    """Raise if the path ``outputs`` for the folder of results is a file, or one of its parents is."""
    place = Path(outputs)
    standing = next(each for each in (place, *place.parents) if each.exists())
    if not is_address(outputs) and not standing.is_dir():
        raise InputError(
            document.message_at(("outputs",), f"{standing} is a file, not a folder. Choose other outputs")
        )


def resolve_path(path: str, folder: Path) -> str:
    """The path made absolute, if it is relative to ``folder``; an address such as s3://... as it is."""
    return path if is_address(path) else os.path.normpath(os.path.join(folder, path))


def schema() -> dict[str, Any]:
    """JSON Schema by which an editor completes and checks a workflow."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Flow.model_json_schema()}
