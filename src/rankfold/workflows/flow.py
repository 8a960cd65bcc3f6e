"""A workflow as people write it: one YAML file of inputs, stages and where it all goes.

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
What could be wrong with the file itself is found here and in ``graph``; what may be wrong with the data, when
they are planned.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    WithJsonSchema,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from rankfold.cluster.profile import find_profile
from rankfold.cluster.yaml_file import Bytes, Document, filled, read_document
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.sources.locate import is_address, require_path

# Values --------------------------------------------------------------------------------------------


def _name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", value):
        raise ValueError(f"{value!r} is no name: write letters, digits, - and _, a letter first")
    return value


def _expanded(value: str) -> str:
    full = os.path.expanduser(os.path.expandvars(value))
    if unknown := re.search(r"\$(\w+|\{\w+\})", full):
        raise ValueError(f"there is no variable {unknown[0]} in the environment: set it, or write the path")
    return full


def _number_or_text(value: object) -> object:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return value


def _yes_or_no(value: object) -> object:
    return {True: "yes", False: "no"}.get(value, value) if isinstance(value, bool) else value


Name = Annotated[str, AfterValidator(_name)]
Where = Annotated[str, AfterValidator(_expanded)]
"""A path, relative to the file; ``~`` and ``$VARIABLES`` are expanded."""

Text = Annotated[str, WithJsonSchema({"type": ["string", "integer"]})]
"""Text that may look like a number, such as the name of an axis."""

Names = Annotated[
    tuple[str, ...],
    BeforeValidator(lambda value: (value,) if isinstance(value, str) else value),
    WithJsonSchema(
        {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": ["string", "integer"]}}]}
    ),
]
"""A list of names, or one."""

Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, lt=2**64)]
NotNegative = Annotated[float, Field(ge=0)]
Bound = Annotated[float | str, BeforeValidator(_number_or_text)]
Algorithm = Literal["auto", "gram", "krylov", "subspace", "sketch", "tsqr"]


class Part(BaseModel):
    """A list of ``key: value`` lines."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Input(Part):
    """A matrix, and what of it is seen: arguments of ``rankfold.open``. Its path alone will do."""

    store: Where
    rows: Text | None = None
    select_rows: Text | None = None
    select_columns: Text | None = None
    drop_missing_columns: bool = False
    missing: Literal["error", "fill"] = "error"

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Either form."""
        return {"anyOf": [{"type": "string"}, handler(core)]}

    def view(self) -> dict[str, Any]:
        """For ``rankfold.open``."""
        return self.model_dump(exclude={"store"})


class Resources(Part):
    """Within what a stage works."""

    memory: Bytes | None = None
    workers: Count | None = None
    threads: Count | None = None
    scratch: Where | None = None


# Stages --------------------------------------------------------------------------------------------


class BaseStage(Part):
    """What every stage may say."""

    MATRICES: ClassVar[tuple[str, ...]] = ("input",)
    """Keys that name a matrix: an input, or an array of another stage."""

    RESULTS: ClassVar[dict[str, tuple[str, ...]]] = {}
    """Keys that name a result, and the methods that it may be of."""

    method: str
    input: str
    needs: Names = ()
    resources: Resources = Resources()

    def asked(self) -> dict[str, Any]:
        """Arguments of the Python function, but for matrices and results."""
        apart = {"method", "needs", "resources", "algorithm", *self.MATRICES, *self.RESULTS}
        found = self.model_dump(exclude=apart)
        algorithm = getattr(self, "algorithm", None)
        return found if algorithm is None else {**found, "method": algorithm}


class Svd(BaseStage):
    """``rankfold.svd``; its argument ``method`` is here called ``algorithm``."""

    method: Literal["svd"]
    rank: Count | None = None
    tol: float | None = None
    algorithm: Algorithm = "auto"
    passes: Count | None = None
    oversampling: int | None = None
    seed: Seed = 0
    rows: bool = True


class Pca(BaseStage):
    """``rankfold.pca``; its argument ``method`` is here called ``algorithm``."""

    method: Literal["pca"]
    rank: Count | None = None
    tol: float | None = None
    algorithm: Algorithm = "auto"
    passes: Count | None = None
    oversampling: int | None = None
    seed: Seed = 0
    center: bool = True
    scale: bool = False
    whiten: bool = False
    rows: bool = True


class Qr(BaseStage):
    """``rankfold.qr``."""

    method: Literal["qr"]
    passes: Count | None = None
    seed: Seed = 0
    rows: bool = True


class Nmf(BaseStage):
    """``rankfold.nmf``; ``init`` may name an earlier stage."""

    RESULTS = {"init": ("nmf",)}

    method: Literal["nmf"]
    rank: Count
    loss: Literal["frobenius", "kullback-leibler"] = "frobenius"
    solver: Literal["auto", "hals", "bpp", "mu", "admm"] = "auto"
    init: str = "auto"
    alpha_W: NotNegative = 0.0
    alpha_H: Bound = "same"
    l1_ratio: NotNegative = 0.0
    constraint_W: Bound = "nonnegative"
    constraint_H: Bound = "nonnegative"
    tol: NotNegative = 1e-3
    gradient: NotNegative = 0.0
    seconds: NotNegative = 0.0
    passes: Count | None = None
    seed: Seed = 0


class Knn(BaseStage):
    """``rankfold.knn``."""

    MATRICES = ("input", "queries")
    RESULTS = {"base": ("knn",)}

    method: Literal["knn"]
    k: Count = 15
    queries: str | None = None
    base: str | None = None
    metric: Literal[
        "euclidean",
        "sqeuclidean",
        "cosine",
        "inner_product",
        "manhattan",
        "chebyshev",
        "l2",
        "l1",
        "cityblock",
        "linf",
    ] = "euclidean"
    symmetric: Literal["union", "mutual"] | None = None


class Transform(BaseStage):
    """``rankfold.transform``: ``input`` in the components of ``result``."""

    RESULTS = {"result": ("svd", "pca", "nmf")}

    method: Literal["transform"]
    result: str


class Update(BaseStage):
    """``rankfold.update``: the rows of ``input`` added to those of ``result``."""

    RESULTS = {"result": ("pca", "update")}

    method: Literal["update"]
    result: str
    rank: Count | None = None


class Check(BaseStage):
    """``rankfold.check``: how far ``result`` is from ``input``."""

    RESULTS = {"result": ("svd", "pca")}

    method: Literal["check"]
    result: str


class Import(BaseStage):
    """``rankfold.import_array``: ``input`` as a well-cut store."""

    method: Literal["import"]
    dtype: str | None = None
    columns: Names | None = None
    without: Names | None = None
    header: Annotated[Literal["auto", "yes", "no"], BeforeValidator(_yes_or_no)] = "auto"
    layout: Literal["auto", "dense"] = "auto"


Stage = Annotated[
    Svd | Pca | Qr | Nmf | Knn | Transform | Update | Check | Import, Field(discriminator="method")
]


class Sweep(BaseModel):
    """One stage over a list of values of one of its keys."""

    model_config = ConfigDict(
        frozen=True,
        extra="allow",
        json_schema_extra={"additionalProperties": {"type": "array", "minItems": 1}},
    )

    stage: str


class Flow(Part):
    """A workflow."""

    workflow: Name
    inputs: dict[Name, Annotated[Input, BeforeValidator(lambda v: {"store": v} if isinstance(v, str) else v)]]
    outputs: Where
    profile: Where = "local"
    resources: Resources = Resources()
    stages: Annotated[dict[Name, Stage], Field(min_length=1)]
    sweep: Sweep | None = None


HERE = ("local", "allocation")
"""Places that need no profile: this machine, and the job of SLURM that a command runs in."""


# Reading -------------------------------------------------------------------------------------------


def is_flow(name: str) -> bool:
    """Whether an argument of a command is a workflow, by its name."""
    return name.endswith((".yaml", ".yml"))


def read_flow(path: Path) -> tuple[Flow, Document]:
    """Read a workflow; every mistake in it is one line that says where."""
    require_path(str(path))
    document = read_document(path, "workflow")
    flow = filled(document, Flow)
    folder = path.absolute().parent
    inputs = {
        name: each.model_copy(update={"store": located(each.store, folder)})
        for name, each in flow.inputs.items()
    }
    profile = flow.profile
    if profile not in HERE and (is_flow(profile) or (folder / f"{profile}.yaml").is_file()):
        profile = located(profile if is_flow(profile) else f"{profile}.yaml", folder)
    if profile not in HERE:
        try:
            find_profile(profile)
        except InputError as error:
            raise InputError(document.told(("profile",), str(error))) from None
    places = {"inputs": inputs, "outputs": located(flow.outputs, folder), "profile": profile}
    return flow.model_copy(update=places), document


def located(path: str, folder: Path) -> str:
    """A path as it is from everywhere; one within a store stays as it is."""
    return path if is_address(path) else os.path.normpath(os.path.join(folder, path))


def schema() -> dict[str, Any]:
    """What an editor needs to complete and check a workflow."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Flow.model_json_schema()}
