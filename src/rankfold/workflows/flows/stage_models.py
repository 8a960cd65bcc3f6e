"""Pydantic models of stages in a workflow file: one for each method, with the arguments of its function as
keys.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import os
import re
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    WithJsonSchema,
    create_model,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from rankfold.methods.argument import Parameter
from rankfold.methods.model.arguments import EMBEDDINGS, FITS
from rankfold.methods.registry import METHODS, Method, methods
from rankfold.settings.yaml_file import NUMERIC, WHOLE, Bytes
from rankfold.workflows.flows.record import NAME

# Values -------------------------------------------------------------------------------------------


def _name(value: str) -> str:
    if not NAME.fullmatch(value):
        raise ValueError(f"{value!r} is no name: write letters, digits, - and _, a letter first")
    return value


def _expand_path(value: str) -> str:
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


def _scalar(value: object) -> object:
    """The number, bool or None that a word stands for; other values as they are."""
    words = {"true": True, "false": False, "null": None, "~": None}
    if not isinstance(value, str) or value in words:
        return words[value] if isinstance(value, str) else value
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(value)
    return value


def _yes_or_no(value: object) -> object:
    return {True: "yes", False: "no"}.get(value, value) if isinstance(value, bool) else value


Name = Annotated[str, AfterValidator(_name)]
Where = Annotated[str, AfterValidator(_expand_path)]
"""A path, relative to the workflow file; ``~`` and ``$VARIABLES`` are expanded."""

Text = Annotated[str, WithJsonSchema({"type": ["string", "integer"]})]
"""Text that may look like a number, such as the name of an axis; the file may hold a number."""

Names = Annotated[
    tuple[str, ...],
    BeforeValidator(lambda value: (value,) if isinstance(value, str) else value),
    WithJsonSchema(
        {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": ["string", "integer"]}}]}
    ),
]
"""A list of names, or a single name."""

Range = Annotated[str, AfterValidator(_range)]
"""Range of consecutive rows, counted from 0, as START:STOP, where STOP is not included."""

RowCount = Annotated[
    int | str | None,
    BeforeValidator(_some_or_all),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 2}, {"const": "all"}, {"type": "null"}]}),
]
"""Number of rows that are sampled, or ``all`` of them."""

Scalar = Annotated[
    Any, BeforeValidator(_scalar), WithJsonSchema({"type": ["number", "boolean", "string", "null"]})
]
"""Value that a parameter of a preparation step may have."""

Count = Annotated[int, Field(ge=1), WHOLE]
Seed = Annotated[int, Field(ge=0, lt=2**64), WHOLE]
Bound = Annotated[float | str, BeforeValidator(_number_or_text)]


class StrictModel(BaseModel):
    """Model of ``key: value`` lines that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Resources(StrictModel):
    """Resources that a stage may use, and the place of execution."""

    memory: Bytes | None = None
    workers: Count | None = None
    threads: Count | None = None
    device: Literal["cpu", "gpu"] | None = None
    scratch: Where | None = None


# Stages -------------------------------------------------------------------------------------------


class Destination(StrictModel):
    """An additional file for a result: an AnnData file, a netCDF file, or a table. A path alone is
    enough.
    """

    file: Where
    like: Where | None = None
    """For netCDF: path of the data, from which coordinates and units are taken; None for none."""

    physical: bool = False
    """For netCDF: True to write mean and components in units of the data."""

    key_added: Name | None = None
    """For AnnData: the full key of the result in ``obsm``, ``varm``, ``obs`` and ``uns``, and in ``obsp`` the
    prefix of ``_distances`` and ``_connectivities``. None for the keys that scanpy uses, such as ``X_pca``.
    """

    array: Name | None = None
    """For tables: name of the array of the result to write; by default the coordinates of the rows."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """JSON Schema of both forms: a path, or keys and values."""
        return {"anyOf": [{"type": "string"}, handler(core)]}


class StagePicture(StrictModel):
    """A picture of a result: a path alone is enough. Other keys are those of ``Result.plot``."""

    file: Where
    kind: Literal[
        "auto",
        "patterns",
        "maps",
        "series",
        "scatter",
        "scree",
        "loadings",
        "sizes",
        "inertia",
        "degrees",
    ] = "auto"
    components: Annotated[tuple[Count, ...], Field(min_length=1, max_length=12)] | None = None
    color: Where | None = None
    """Labels or values of rows that color the points: ``STAGE.ARRAY``, or ``FILE::NAME``."""

    view: tuple[float, float] | None = None
    names: Where | None = None

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """JSON Schema of both forms: a path, or keys and values."""
        return {"anyOf": [{"type": "string"}, handler(core)]}

    def options(self) -> dict[str, Any]:
        """Arguments of ``Result.plot`` that are given, except the kind."""
        return self.model_dump(exclude={"file", "kind"}, exclude_none=True)


class _OneOrMore:
    """Marks a type whose JSON Schema allows a single item, or a list of them."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """JSON Schema of both forms: an item, or a list."""
        several = handler(core)
        return {"anyOf": [several["items"], several]}


def _files(value: object) -> object:
    each = value if isinstance(value, list | tuple) else [value]
    return [{"file": one} if isinstance(one, str) else one for one in each]


class BaseStage(StrictModel):
    """Model of a stage, with the keys that every stage may have."""

    MATRICES: ClassVar[tuple[str, ...]] = ()
    """Names of keys whose value names a matrix: an input, or an array of another stage."""

    RESULTS: ClassVar[dict[str, tuple[str, ...]]] = {}
    """Names of keys whose value names a result, each with the methods that may have made it."""

    method: str
    needs: Names = ()
    grows: Literal["rows", "polish"] | None = None
    """How a result is updated if its input has gained rows: ``rows`` reads these alone, ``polish`` then all.
    None if it is computed anew. See ``methods.growth``.
    """

    changed: Literal["refuse", "redo"] = "refuse"
    """What to do if rows have changed that the result of a stage with ``grows`` was computed from: ``refuse``
    raises, ``redo`` computes it anew.
    """

    resources: Resources = Resources()
    keep: Count | None = None
    into: Annotated[tuple[Destination, ...], BeforeValidator(_files), _OneOrMore] = ()
    picture: Annotated[tuple[StagePicture, ...], BeforeValidator(_files), _OneOrMore] = ()

    PARAMETERS: ClassVar[tuple[Parameter, ...]] = ()
    """Parameters of the method, if it is in the registry."""

    def input_keys(self) -> tuple[str, ...]:
        """Keys for the inputs of the method, in order: of a result, or of the matrix given in its place."""
        named = [(each.key or each.name, each.matrix_key) for each in METHODS[self.method].inputs]
        return tuple(matrix if matrix and getattr(self, key) is None else key for key, matrix in named)

    def keys_from_source(self) -> tuple[str, ...]:
        """Keys of the inputs, beginning with that whose fingerprint a result keeps."""
        method = METHODS[self.method]
        ranks = [(each.name != method.source_input, each.holds != "matrix") for each in method.inputs]
        keys = dict(zip(self.input_keys(), ranks, strict=True))
        return tuple(sorted(keys, key=keys.__getitem__))

    def arguments(self) -> dict[str, Any]:
        """Arguments of the Python function by name, except matrices and results."""
        if self.PARAMETERS:
            plain = [each for each in self.PARAMETERS if each.name not in (*self.MATRICES, *self.RESULTS)]
            return {each.name: getattr(self, each.name) for each in plain}
        shared = BaseStage.model_fields
        return self.model_dump(exclude={*shared, *self.MATRICES, *self.RESULTS})


def model_of(method: Method) -> type[BaseStage]:
    """Make the class of stages of a method, whose keys are its inputs and then its parameters."""
    parameters = method.parameters()
    keys: dict[str, Any] = {"method": (Literal[method.name], ...)}
    for each in method.inputs:
        either = (each.key or each.name, each.matrix_key) if each.matrix_key else ()
        keys |= dict.fromkeys(either, (str | None, None)) if either else {each.key or each.name: (str, ...)}
    keys |= {each.name: (_type_of(each), ... if each.is_required else each.default) for each in parameters}
    roles = [(each.key or each.name, each.holds) for each in method.inputs]
    roles += [(each.matrix_key, "matrix") for each in method.inputs if each.matrix_key]
    roles += [(each.name, each.argument.holds) for each in parameters if each.argument.holds]
    model = create_model(
        "".join(word.title() for word in method.name.split("_")),
        __base__=BaseStage,
        __doc__=f"``rankfold {method.name.replace('_', '-')}``: {method.summary}",
        **keys,
    )
    model.MATRICES = tuple(key for key, holds in roles if holds == "matrix")
    model.RESULTS = {key: holds for key, holds in roles if isinstance(holds, tuple)}
    model.PARAMETERS = parameters
    return model


def _type_of(parameter: Parameter) -> Any:
    """Annotation of a parameter's key in a model, by which pydantic and editors check values in the file."""
    argument, types = parameter.argument, parameter.types
    bounds = Field(ge=argument.least, gt=argument.above, le=argument.most, lt=argument.below)
    kind: Any = types[0]
    if types == (int,):
        kind = Annotated[int, bounds, WHOLE]
    elif types == (float,):
        kind = Annotated[float, bounds, NUMERIC]
    elif set(types) == {float, str}:
        kind = Bound
    elif set(types) == {int, str}:
        kind = RowCount
    elif types == (slice,):
        kind = Range
    elif argument.choices and not argument.holds:
        kind = Literal[argument.choices]
    return kind | None if parameter.default is None else kind


class Import(BaseStage):
    """``rankfold.import_array``: copy ``input`` into a store with well-chosen chunks."""

    MATRICES: ClassVar[tuple[str, ...]] = ("input",)

    method: Literal["import"]
    input: str
    dtype: str | None = None
    columns: Names | None = None
    without: Names | None = None
    header: Annotated[Literal["auto", "yes", "no"], BeforeValidator(_yes_or_no)] = "auto"
    decimal: Literal["auto", ".", ","] = "auto"
    thousands: Literal[",", ".", " ", "'", "_"] | None = None
    skip_lines: Annotated[int, Field(ge=0), WHOLE] = 0
    layout: Literal["auto", "dense"] = "auto"

    def keys_from_source(self) -> tuple[str, ...]:
        """The key of what is imported."""
        return self.MATRICES


class Transform(BaseStage):
    """``rankfold transform``: coordinates of ``input`` in a model, or of rows by their ``neighbors`` in an
    embedding.
    """

    MATRICES: ClassVar[tuple[str, ...]] = ("input",)
    RESULTS: ClassVar[dict[str, tuple[str, ...]]] = {
        "result": (*FITS, *EMBEDDINGS),
        "neighbors": ("knn",),
    }

    method: Literal["transform"]
    result: str
    input: str | None = None
    neighbors: str | None = None

    def input_keys(self) -> tuple[str, ...]:
        """Keys of the result, and of the new rows or their neighbors."""
        return ("result", "input" if self.neighbors is None else "neighbors")

    @model_validator(mode="after")
    def _one_of_both(self) -> Transform:
        if (self.input is None) == (self.neighbors is None):
            count = "neither is" if self.input is None else "both are"
            raise ValueError(
                f"transform takes input, a matrix of new rows, where result is of "
                f"{', '.join(FITS)}, or neighbors, a stage of knn with queries, where it is of "
                f"{', '.join(EMBEDDINGS)}: one of the two, and {count} there"
            )
        return self


STAGES: dict[str, type[BaseStage]] = {
    **{each.name: model_of(each) for each in methods()},
    "import": Import,
    "transform": Transform,
}
"""Models of stages by the name of their method."""

if TYPE_CHECKING:
    Stage = BaseStage
else:
    Stage = Annotated[functools.reduce(operator.or_, STAGES.values()), Field(discriminator="method")]
