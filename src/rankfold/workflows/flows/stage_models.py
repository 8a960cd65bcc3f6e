"""Stages as people write them: a model for each method, with the arguments of its Python function as keys."""

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
from rankfold.methods.model.arguments import EMBEDDINGS, TRANSFORM
from rankfold.methods.registry import Method, methods
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
    """A word, or the number or flag that it stands for."""
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

RowCount = Annotated[
    int | str | None,
    BeforeValidator(_some_or_all),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 2}, {"const": "all"}, {"type": "null"}]}),
]
"""How many rows are looked at."""

Scalar = Annotated[
    Any, BeforeValidator(_scalar), WithJsonSchema({"type": ["number", "boolean", "string", "null"]})
]
"""What a parameter of a step may be."""

Count = Annotated[int, Field(ge=1), WHOLE]
Seed = Annotated[int, Field(ge=0, lt=2**64), WHOLE]
Bound = Annotated[float | str, BeforeValidator(_number_or_text)]


class StrictModel(BaseModel):
    """A list of ``key: value`` lines."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Resources(StrictModel):
    """Within what a stage works."""

    memory: Bytes | None = None
    workers: Count | None = None
    threads: Count | None = None
    device: Literal["cpu", "gpu"] | None = None
    scratch: Where | None = None


# Stages -------------------------------------------------------------------------------------------


class Destination(StrictModel):
    """Where a result is put besides: a file of AnnData, a netCDF file, or a table. Its path alone will do."""

    file: Where
    like: Where | None = None
    """For netCDF: the data, for coordinates and units."""

    physical: bool = False
    """For netCDF: mean and components in units of the data."""

    key_added: Name | None = None
    """For AnnData: in place of scanpy's names."""

    array: Name | None = None
    """For tables: which array, in place of coordinates of the rows."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The schema of both forms: a path, or keys and values."""
        return {"anyOf": [{"type": "string"}, handler(core)]}


class StagePicture(StrictModel):
    """A picture of a result: its file alone will do. Other keys are those of ``Result.plot``."""

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
    """``STAGE.ARRAY``, or a file with ``::NAME``."""

    view: tuple[float, float] | None = None
    names: Where | None = None

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The schema of both forms: a path, or keys and values."""
        return {"anyOf": [{"type": "string"}, handler(core)]}

    def options(self) -> dict[str, Any]:
        """Arguments of ``Result.plot`` that are given, but for the kind."""
        return self.model_dump(exclude={"file", "kind"}, exclude_none=True)


class _OneOrMore:
    """In a schema: an item, or a list of them."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Both forms."""
        several = handler(core)
        return {"anyOf": [several["items"], several]}


def _files(value: object) -> object:
    each = value if isinstance(value, list | tuple) else [value]
    return [{"file": one} if isinstance(one, str) else one for one in each]


class BaseStage(StrictModel):
    """What every stage may say."""

    MATRICES: ClassVar[tuple[str, ...]] = ()
    """Keys that name a matrix: an input, or an array of another stage."""

    RESULTS: ClassVar[dict[str, tuple[str, ...]]] = {}
    """Keys that name a result, and the methods that it may be of."""

    method: str
    needs: Names = ()
    grows: Literal["rows", "polish"] | None = None
    """What is read when the input has gained rows: see ``methods.growth``."""

    changed: Literal["refuse", "redo"] = "refuse"
    """What is done about a stage that grows where rows have changed that it stands on."""

    resources: Resources = Resources()
    keep: Count | None = None
    into: Annotated[tuple[Destination, ...], BeforeValidator(_files), _OneOrMore] = ()
    picture: Annotated[tuple[StagePicture, ...], BeforeValidator(_files), _OneOrMore] = ()

    PARAMETERS: ClassVar[tuple[Parameter, ...]] = ()
    """What the method may be asked, where it is in the registry."""

    def arguments(self) -> dict[str, Any]:
        """Arguments of the Python function, but for matrices and results."""
        if self.PARAMETERS:
            plain = [each for each in self.PARAMETERS if each.name not in (*self.MATRICES, *self.RESULTS)]
            return {each.name: getattr(self, each.name) for each in plain}
        shared = BaseStage.model_fields
        return self.model_dump(exclude={*shared, *self.MATRICES, *self.RESULTS})


def model_of(method: Method) -> type[BaseStage]:
    """The stage of a method: what it is of, then what it may be asked, as keys."""
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
    """How a value is read and checked, in YAML and by editors."""
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
    """``rankfold.import_array``: ``input`` as a well-cut store."""

    MATRICES: ClassVar[tuple[str, ...]] = ("input",)

    method: Literal["import"]
    input: str
    dtype: str | None = None
    columns: Names | None = None
    without: Names | None = None
    header: Annotated[Literal["auto", "yes", "no"], BeforeValidator(_yes_or_no)] = "auto"
    decimal: Literal["auto", ".", ","] = "auto"
    thousands: Literal[",", ".", " ", "'", "_"] | None = None
    layout: Literal["auto", "dense"] = "auto"


class Transform(BaseStage):
    """``rankfold transform``: ``input`` in a model, or rows by their ``neighbors`` in an embedding."""

    MATRICES: ClassVar[tuple[str, ...]] = ("input",)
    RESULTS: ClassVar[dict[str, tuple[str, ...]]] = {
        "result": (*TRANSFORM.results, *EMBEDDINGS),
        "neighbors": ("knn",),
    }

    method: Literal["transform"]
    result: str
    input: str | None = None
    neighbors: str | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Transform:
        if (self.input is None) == (self.neighbors is None):
            count = "neither is" if self.input is None else "both are"
            raise ValueError(
                f"transform takes input, a matrix of new rows, where result is of "
                f"{', '.join(TRANSFORM.results)}, or neighbors, a stage of knn with queries, where it is of "
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
