"""Registry of all methods by name, including those of other packages.

A method is looked up by name, and its code is loaded when a task is made: reading its arguments imports next
to nothing. Other packages register theirs under the entry point ``rankfold.methods``::

    [project.entry-points."rankfold.methods"]
    column_sums = "their_package.sums:COLUMN_SUMS"
"""

from __future__ import annotations

import functools
import importlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from rankfold.methods.argument import Parameter, parameters_of
from rankfold.methods.headline import headline_of_factors
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.law import Law
from rankfold.pipeline.presentation import DECLARED, Presentation
from rankfold.pipeline.text import suggest_name

if TYPE_CHECKING:
    import numpy as np

    from rankfold.methods.growth.growth import Step
    from rankfold.methods.task import Task
    from rankfold.pipeline.data.source import Source
    from rankfold.pipeline.storage.result import Result

LOG = logging.getLogger("rankfold")


class RegistryEntry(Protocol):
    """Protocol of an object that can be registered: it has a name."""

    @property
    def name(self) -> str:
        """Name by which the entry is looked up."""


T = TypeVar("T", bound=RegistryEntry)


@dataclass(frozen=True)
class Registry(Generic[T]):
    """Entries of one kind by name, ours and those of other packages, each loaded on first use."""

    kind: str
    """Word for one entry in messages, such as ``"method"``."""

    group: str
    """Name of the group of entry points under which other packages register entries."""

    ours: dict[str, str]
    """``"module:attribute"`` of the entries of rankfold itself, by name."""

    entries: dict[str, T] = field(default_factory=dict, init=False, repr=False)
    """Entries loaded so far, by name."""

    def names(self) -> tuple[str, ...]:
        """Names of all entries: those of rankfold first, then those of other packages."""
        return (*self.ours, *(name for name in self.theirs if name not in self.ours))

    def __contains__(self, name: object) -> bool:
        return name in self.ours or name in self.theirs

    def __getitem__(self, name: str) -> T:
        """Look up an entry by its name.

        Raises
        ------
        InputError
            There is no entry of that name, or that of another package cannot be loaded or is of another kind.
        """
        if name not in self.entries:
            self.entries[name] = self._load(name)
        return self.entries[name]

    def _load(self, name: str) -> T:
        if name not in self:
            raise InputError(
                f"there is no {self.kind} {name!r}"
                f"{suggest_name(name, self.names())}; there are {', '.join(self.names())}"
            )
        home = self.ours.get(name) or self.theirs[name]
        module, _, attribute = home.partition(":")
        try:
            entry = getattr(importlib.import_module(module), attribute)
        except Exception as error:  # whatever their code raises
            if name in self.ours:
                raise
            raise InputError(f"{self.kind} {name} of another package cannot be loaded: {error}") from error
        if getattr(entry, "name", None) != name:
            reason = f"calls itself {entry.name!r}" if hasattr(entry, "name") else f"is no {self.kind}"
            raise InputError(f"{home} {reason}, and its entry point in {self.group} says {name!r}")
        return entry  # type: ignore[no-any-return]

    @functools.cached_property
    def theirs(self) -> dict[str, str]:
        """``"module:attribute"`` of entries of other packages by name, in alphabetical order."""
        return {each.name: each.value for each in sorted(entry_points(group=self.group))}


@dataclass(frozen=True, slots=True)
class Input:
    """An input of a method: a matrix, or a result."""

    name: str
    """Name of the argument of the Python function."""

    holds: str | tuple[str, ...] = "matrix"
    """``"matrix"``, or names of the methods whose results are accepted."""

    key: str = ""
    """Key of the input in a stage of a workflow, if it differs from the name; else empty."""

    matrix_key: str = ""
    """Key in a stage of a workflow for a matrix given in place of the result; empty if none is accepted."""

    needs_rows: bool = False
    """True if the result must hold its factor for the rows, which ``with_rows=False`` leaves out."""


X = Input("x", key="input")
"""Input of most methods: a matrix, argument ``x`` in Python and key ``input`` in a workflow."""


@dataclass(frozen=True, slots=True)
class Transformation:
    """Way in which new rows get coordinates in a result of a method: see ``rankfold.transform``."""

    home: str
    """``"module:function"`` that makes the task from the result and the new rows."""

    loops: str = "rankfold.methods.warm:warm_columns"
    """``"module:function"`` that runs each compiled loop of that task once, as ``Method.loops`` does."""

    by_neighbors: bool = False
    """True if new rows are given by their neighbors among the rows of the result, False if as a matrix."""

    def task(self, result: object, new: object, *others: object) -> Task:
        """Make the checked task for new rows, by the function of ``home``.

        Parameters
        ----------
        result : Result
            Result in which new rows get coordinates.
        new : object
            The new rows as a matrix, or a result with their neighbors: see ``by_neighbors``.
        *others : object
            Further arguments that the function of ``home`` takes.
        """
        task: Task = _function(self.home)(result, new, *others)
        return task

    def warm(self, dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> None:
        """Compile and load the loops that ``task`` uses, for new rows of this type and shape."""
        _function(self.loops)(dtype, request, shape)


@dataclass(frozen=True, slots=True)
class Factors:
    """Two factors whose product is the matrix of a result, named by the first two ``Method.matrices``."""

    spectrum: str = ""
    """Name of the array of singular values, by which components are ordered; empty if they have no order."""

    left_is_unit: bool = False
    """True if columns of the left factor have length 1, so that the product is left * spectrum * right."""


PLAIN = Presentation()
"""Presentation of methods that declare none: defaults everywhere."""

SEARCH, LAYOUT = "Find neighbors, densities and clusters", "Lay rows out in few dimensions"
"""Headings in the list of commands, for methods that search or lay out rows; see ``Method.topic``."""


@dataclass(frozen=True, slots=True)
class Method:
    """Description of a method for planning, running, the command line, workflows and results."""

    name: str
    """Name of the Python function, and of the command on the command line, with dashes for underscores."""

    summary: str
    """Description in one line for the command line."""

    arguments: type
    """Frozen dataclass that declares the arguments, one a field: see ``argument.py``."""

    home: str
    """``"module:function"`` that makes a task from the ``inputs``, in order, and an instance of
    ``arguments``."""

    inputs: tuple[Input, ...] = (X,)
    source_input: str = ""
    """Name of the input whose fingerprint a result keeps; empty for the first matrix among the inputs, or for
    the first result if none is a matrix."""

    matrices: tuple[str, ...] = ()
    """Names of the matrices in a result, the one with a row for each row of the input first."""

    arrays: tuple[str, ...] = ()
    """Names of all arrays in its result, such as ``"s"``. An array that depends on the request is written
    ``"U if rows"`` or ``"W if of=nmf"``, one that only some results have ``"residuals?"``. See
    ``rankfold.methods.parts.outputs``."""

    laws: Mapping[str, Law] = field(default_factory=dict, hash=False)
    """Rules (axes, type, bounds) for arrays of a result, by name of array; only those that differ from the
    rules of other methods for an array of this name."""

    in_process: bool = False
    """True if the calling process does all the work, even where there are workers."""

    pending: str = ""
    """``"module:function"`` that makes a task whose ``init`` is a result still to be made, for a plan: see
    ``pending_task``. Empty if the method does not begin at results."""

    unsaid: Callable[[Mapping[str, Any]], str] | None = None
    """Function that takes the arguments of a stage in a workflow by name, and returns a message if a workflow
    must say what Python has a default for; "" if nothing is missing. None if there is no such argument."""

    growth: str = ""
    """``"module:function"`` that extends a result by rows that the matrix has gained: see ``grow``. Empty if
    results cannot be extended."""

    loops: str = "rankfold.methods.warm:warm_columns"
    """``"module:function"`` that runs each compiled loop of the method once, to compile it before the data is
    read. It is in a module whose sweeps call these loops, or that chooses between sweeps: see ``warm.py``."""

    transformation: Transformation | None = None
    """Way in which new rows get coordinates in a result; the array is named as the first of ``matrices``.
    None if new rows get none."""

    factors: Factors | None = None
    """Two factors of a result whose product approximates the matrix; None if it has none."""

    by_shape: tuple[str, ...] = ()
    """Names of entries of the request whose defaults follow from the shape of the matrix. A result that was
    extended by rows may hold other values than a fit of all rows."""

    presentation: Presentation = PLAIN
    """Presentation of results and sweeps of the method in plots, exports and plans."""

    edition: int = 1
    """Increased when the same request gives other bytes: results of an earlier edition are recomputed."""

    headline: Callable[[Mapping[str, Any], Mapping[str, Any]], str] = headline_of_factors
    """Function that returns one line of text on a result, from its facts and those of its last run."""

    topic: str = "Reduce a matrix"
    """Heading of the group of commands that the command of the method is listed in."""

    @property
    def of_matrix(self) -> bool:
        """True if the method has a single input, a matrix."""
        return self.inputs == (X,)

    @property
    def of_neighbors(self) -> bool:
        """True if the method has a single input, lists of neighbors or their graph."""
        return len(self.inputs) == 1 and "knn" in self.inputs[0].holds and not self.of_matrix

    @property
    def is_matrix(self) -> bool:
        """True if a result of the method is itself a matrix, without named arrays."""
        return self.arrays == ("X",)

    @property
    def results(self) -> tuple[str, ...]:
        """Names of the methods whose results are accepted as input."""
        return tuple(name for each in self.inputs if each.holds != "matrix" for name in each.holds)

    def parameters(self) -> tuple[Parameter, ...]:
        """Declarations of the arguments of the method, in order."""
        return parameters_of(self.arguments)

    def task(self, *inputs: object, **arguments: Any) -> Task:
        """Make the checked task for its inputs (matrices, sources, results, or paths) and arguments."""
        values = self.checked(arguments)
        for each in self.parameters():
            if each.is_required and each.name not in values:
                raise InputError(f"{self.name} needs {each.name}: {each.argument.help}")
        task: Task = _function(self.home)(*inputs, self.arguments(**values))
        return task

    def pending_task(
        self, inputs: Sequence[object], arguments: dict[str, Any], start: Mapping[str, Source] | None
    ) -> Task:
        """Make the task that begins at a result still to be made, for a plan.

        Parameters
        ----------
        inputs : sequence
            Inputs of the method, in order.
        arguments : dict
            Arguments of the method by name, without ``init``.
        start : mapping or None
            Matrices that the result will have, by name, for their shapes and types; None if not known.
        """
        task: Task = _function(self.pending)(inputs, arguments, start)
        return task

    def checked(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Check values from a caller, by name, against their declarations; see ``Parameter.checked``."""
        declared = {each.name: each for each in self.parameters()}
        return {
            name: declared[name].checked(value) if name in declared else value
            for name, value in arguments.items()
        }

    def grow(self, task: Task, earlier: Result | None, first: int, grows: str) -> Step:
        """Make the task that extends an earlier result to all rows, with the number of rows that it reads.

        Parameters
        ----------
        task : Task
            Task on all rows of the matrix.
        earlier : Result or None
            Result of the first rows; None only to check that a result of ``task`` could be extended later.
        first : int
            Number of rows that ``earlier`` was made from.
        grows : str
            One of ``rankfold.methods.growth.growth.GROWS``.
        """
        step: Step = _function(self.growth)(task, earlier, first, grows)
        return step

    def warm(self, dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> None:
        """Compile and load the loops that ``request`` uses on a matrix of this type and shape."""
        _function(self.loops)(dtype, request, shape)


def _function(home: str) -> Callable[..., Any]:
    module, _, name = home.partition(":")
    return getattr(importlib.import_module(module), name)  # type: ignore[no-any-return]


METHODS: Registry[Method] = Registry(
    "method",
    "rankfold.methods",
    {
        "svd": "rankfold.methods.svd.arguments:SVD",
        "pca": "rankfold.methods.svd.arguments:PCA",
        "qr": "rankfold.methods.svd.arguments:QR",
        "nmf": "rankfold.methods.nmf.arguments:NMF",
        "knn": "rankfold.methods.knn.arguments:KNN",
        "radius_neighbors": "rankfold.methods.radius.arguments:RADIUS",
        "kernel_sum": "rankfold.methods.sums.arguments:KERNEL_SUM",
        "density": "rankfold.methods.sums.arguments:DENSITY",
        "index": "rankfold.methods.index.arguments:INDEX",
        "kmeans": "rankfold.methods.kmeans.arguments:KMEANS",
        "fuzzy_graph": "rankfold.methods.fuzzy_graph.arguments:FUZZY_GRAPH",
        "combine_graphs": "rankfold.methods.fuzzy_graph.arguments:COMBINE_GRAPHS",
        "umap": "rankfold.methods.umap.arguments:UMAP",
        "tsne": "rankfold.methods.tsne.arguments:TSNE",
        "isomap": "rankfold.methods.isomap.arguments:ISOMAP",
        "spectral": "rankfold.methods.spectral.arguments:SPECTRAL",
        "diffusion_map": "rankfold.methods.spectral.arguments:DIFFUSION_MAP",
        "kernel_pca": "rankfold.methods.kernel_pca.arguments:KERNEL_PCA",
        "nystroem": "rankfold.methods.nystroem.arguments:NYSTROEM",
        "transform": "rankfold.methods.model.arguments:TRANSFORM",
        "update": "rankfold.methods.model.arguments:UPDATE",
        "check": "rankfold.methods.model.arguments:CHECK",
        "reconstruct": "rankfold.methods.model.arguments:RECONSTRUCT",
        "trustworthiness": "rankfold.methods.embedding.arguments:TRUSTWORTHINESS",
        "continuity": "rankfold.methods.embedding.arguments:CONTINUITY",
        "neighborhood_preservation": "rankfold.methods.embedding.arguments:PRESERVATION",
    },
)
"""All methods by name; each is declared in the ``arguments`` module of its folder."""

DECLARED.append(METHODS)


@functools.cache
def methods() -> tuple[Method, ...]:
    """All methods that can be loaded. One of another package that fails is left out, with a warning."""
    available = []
    for name in METHODS.names():
        try:
            each = METHODS[name]
            each.parameters()
            available.append(each)
        except Exception as error:  # whatever their code raises
            if name in METHODS.ours:
                raise
            LOG.warning("%s: it is left out", error)
    return tuple(available)


def edition_of(name: str) -> int:
    """Current ``Method.edition`` of the method ``name``; 1 for unknown names."""
    return METHODS[name].edition if name in METHODS else 1
