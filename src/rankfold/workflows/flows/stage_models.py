"""Stages as people write them: a model for each method, with the arguments of its Python function as keys."""

from __future__ import annotations

import os
import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from rankfold.settings.yaml_file import NUMERIC, WHOLE, Bytes

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
    if value is None or isinstance(value, bool | list | dict):
        raise ValueError("takes a number or a word")
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return value


def _range(value: str) -> str:
    if not re.fullmatch(r"(-?\d+)?:(-?\d+)?", value):
        raise ValueError(f"{value!r} is no range: write START:STOP, such as 0:1000, 5000: or :100")
    return value


def _some_or_all(value: object) -> object:
    if value is None or value == "all":
        return value
    if isinstance(value, bool) or not str(value).isdigit():
        raise ValueError(f"{value!r} is neither a number of rows nor the word all")
    return int(str(value))


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

Range = Annotated[str, AfterValidator(_range)]
"""Consecutive rows, counted from 0; the last is not among them."""

Looked = Annotated[
    int | str | None,
    BeforeValidator(_some_or_all),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 2}, {"const": "all"}, {"type": "null"}]}),
]
"""How many rows are looked at."""

Whole = Annotated[int, WHOLE]
Count = Annotated[int, Field(ge=1), WHOLE]
Seed = Annotated[int, Field(ge=0, lt=2**64), WHOLE]
Number = Annotated[float, NUMERIC]
NotNegative = Annotated[float, Field(ge=0), NUMERIC]
Bound = Annotated[float | str, BeforeValidator(_number_or_text)]
Algorithm = Literal["auto", "gram", "krylov", "subspace", "sketch", "tsqr"]
Metric = Literal[
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
]


class Part(BaseModel):
    """A list of ``key: value`` lines."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Resources(Part):
    """Within what a stage works."""

    memory: Bytes | None = None
    workers: Count | None = None
    threads: Count | None = None
    scratch: Where | None = None


# Stages --------------------------------------------------------------------------------------------


class BaseStage(Part):
    """What every stage may say."""

    MATRICES: ClassVar[tuple[str, ...]] = ()
    """Keys that name a matrix: an input, or an array of another stage."""

    RESULTS: ClassVar[dict[str, tuple[str, ...]]] = {}
    """Keys that name a result, and the methods that it may be of."""

    method: str
    needs: Names = ()
    resources: Resources = Resources()

    def asked(self) -> dict[str, Any]:
        """Arguments of the Python function, but for matrices and results."""
        apart = {"method", "needs", "resources", "algorithm", *self.MATRICES, *self.RESULTS}
        found = self.model_dump(exclude=apart)
        algorithm = getattr(self, "algorithm", None)
        return found if algorithm is None else {**found, "method": algorithm}


class OfMatrix(BaseStage):
    """A stage that reads a matrix."""

    MATRICES: ClassVar[tuple[str, ...]] = ("input",)

    input: str


class Svd(OfMatrix):
    """``rankfold.svd``; its argument ``method`` is here called ``algorithm``."""

    method: Literal["svd"]
    rank: Count | None = None
    tol: Number | None = None
    algorithm: Algorithm = "auto"
    passes: Count | None = None
    oversampling: Whole | None = None
    seed: Seed = 0
    rows: bool = True


class Pca(OfMatrix):
    """``rankfold.pca``; its argument ``method`` is here called ``algorithm``."""

    method: Literal["pca"]
    rank: Count | None = None
    tol: Number | None = None
    algorithm: Algorithm = "auto"
    passes: Count | None = None
    oversampling: Whole | None = None
    seed: Seed = 0
    center: bool = True
    scale: bool = False
    whiten: bool = False
    rows: bool = True


class Qr(OfMatrix):
    """``rankfold.qr``."""

    method: Literal["qr"]
    passes: Count | None = None
    seed: Seed = 0
    rows: bool = True


class Nmf(OfMatrix):
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


class Knn(OfMatrix):
    """``rankfold.knn``."""

    MATRICES = ("input", "queries")
    RESULTS = {"base": ("knn",)}

    method: Literal["knn"]
    k: Count = 15
    queries: str | None = None
    base: str | None = None
    metric: Metric = "euclidean"
    symmetric: Literal["union", "mutual"] | None = None


class Transform(OfMatrix):
    """``rankfold.transform``: ``input`` in the components of ``result``."""

    RESULTS = {"result": ("svd", "pca", "nmf")}

    method: Literal["transform"]
    result: str


class Update(OfMatrix):
    """``rankfold.update``: the rows of ``input`` added to those of ``result``."""

    RESULTS = {"result": ("pca", "update")}

    method: Literal["update"]
    result: str
    rank: Count | None = None


class Check(OfMatrix):
    """``rankfold.check``: how far ``result`` is from ``input``."""

    RESULTS = {"result": ("svd", "pca")}

    method: Literal["check"]
    result: str


class Reconstruct(BaseStage):
    """``rankfold.reconstruct``: the matrix as the components of ``result`` have it."""

    RESULTS = {"result": ("svd", "pca", "nmf")}

    method: Literal["reconstruct"]
    result: str
    rank: Count | None = None
    rows: Range | None = None


class Compared(OfMatrix):
    """The rows of ``input`` and of ``embedding`` are the same, in the same order."""

    MATRICES = ("input", "embedding")

    embedding: str
    k: Count = 5
    metric: Metric = "euclidean"
    rows: Looked = None
    seed: Seed = 0


class Trustworthiness(Compared):
    """``rankfold.trustworthiness``: whether neighbours in ``embedding`` are neighbours in ``input``."""

    method: Literal["trustworthiness"]


class Continuity(Compared):
    """``rankfold.continuity``: whether neighbours in ``input`` are neighbours in ``embedding``."""

    method: Literal["continuity"]


class NeighbourhoodPreservation(BaseStage):
    """``rankfold.neighbourhood_preservation``: what two stages of knn have in common."""

    RESULTS = {"first": ("knn",), "second": ("knn",)}

    method: Literal["neighbourhood_preservation"]
    first: str
    second: str
    k: Count | None = None


class Import(OfMatrix):
    """``rankfold.import_array``: ``input`` as a well-cut store."""

    method: Literal["import"]
    dtype: str | None = None
    columns: Names | None = None
    without: Names | None = None
    header: Annotated[Literal["auto", "yes", "no"], BeforeValidator(_yes_or_no)] = "auto"
    layout: Literal["auto", "dense"] = "auto"


Stage = Annotated[
    Svd
    | Pca
    | Qr
    | Nmf
    | Knn
    | Transform
    | Update
    | Check
    | Reconstruct
    | Trustworthiness
    | Continuity
    | NeighbourhoodPreservation
    | Import,
    Field(discriminator="method"),
]
