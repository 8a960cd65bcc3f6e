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
        """Name by which it is looked up."""


T = TypeVar("T", bound=RegistryEntry)


@dataclass(frozen=True)
class Registry(Generic[T]):
    """Entries of one kind by name, ours and those of other packages, each loaded on first use."""

    kind: str
    """Word for one entry in messages."""

    group: str
    """Name of the group of entry points."""

    ours: dict[str, str]
    """``"module:attribute"`` of our own entries, by name."""

    entries: dict[str, T] = field(default_factory=dict, init=False, repr=False)
    """Entries loaded so far, by name."""

    def names(self) -> tuple[str, ...]:
        """Names of all entries: our own first, then those of other packages."""
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
    """Name of the argument."""

    holds: str | tuple[str, ...] = "matrix"
    """``"matrix"``, or the methods whose results are accepted."""

    key: str = ""
    """Key in a workflow, if it differs from the name."""

    matrix_key: str = ""
    """Key in a workflow for a matrix given in place of the result; empty if none is accepted."""

    needs_rows: bool = False
    """True if the result must have its factor of the rows."""


X = Input("x", key="input")
"""The matrix of most methods."""


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
        """Make the checked task for new rows; ``others`` is what the function of ``home`` takes besides."""
        task: Task = _function(self.home)(result, new, *others)
        return task

    def warm(self, dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> None:
        """Compile and load the loops that a request for new rows of this type and shape uses."""
        _function(self.loops)(dtype, request, shape)


@dataclass(frozen=True, slots=True)
class Factors:
    """Kind of the two factors whose product is the matrix of a result: the first two of ``matrices``."""

    spectrum: str = ""
    """Name of its array of singular values, which order the components; empty if these have no order."""

    left_is_unit: bool = False
    """True if columns of the left factor have length 1, so that the spectrum stands between both factors."""


PLAIN = Presentation()
"""Presentation of a method that has nothing to say on it."""

SEARCH, LAYOUT = "Find neighbors, densities and clusters", "Lay rows out in few dimensions"
"""Headings in the list of commands, for methods that search or lay out rows; see ``Method.topic``."""


@dataclass(frozen=True, slots=True)
class Method:
    """Description of a method for planning, running, the command line, workflows and results."""

    name: str
    """Name of its function, and of its command on the command line, there with dashes for underscores."""

    summary: str
    """Description in one line for the command line."""

    arguments: type
    """Frozen dataclass that declares the arguments: see ``argument.py``."""

    home: str
    """``"module:function"`` that makes a task from the ``inputs`` in order, and the ``arguments``."""

    inputs: tuple[Input, ...] = (X,)
    source_input: str = ""
    """Name of the input whose fingerprint its result keeps; empty for the first matrix, or for the first
    result if no input is a matrix."""

    matrices: tuple[str, ...] = ()
    """Names of the matrices in its result, the one for the rows first."""

    arrays: tuple[str, ...] = ()
    """Names of all arrays in its result, such as ``"s"``. An array that depends on the request is written
    ``"U if rows"`` or ``"W if of=nmf"``, one that only some results have ``"residuals?"``. See
    ``rankfold.methods.parts.outputs``."""

    laws: Mapping[str, Law] = field(default_factory=dict, hash=False)
    """Rules (axes, type, bounds) for arrays, by name, where they differ from those of other methods' arrays
    of this name."""

    in_process: bool = False
    """True if the calling process does all the work, even where there are workers."""

    pending: str = ""
    """``"module:function"`` that makes a task whose ``init`` is a result still to be made, for a plan: see
    ``pending_task``. Empty if it begins at no result."""

    unsaid: Callable[[Mapping[str, Any]], str] | None = None
    """Function that says what arguments in a workflow leave open, though Python has a default; empty text if
    nothing. None if there is no such argument."""

    growth: str = ""
    """``"module:function"`` that extends a result by rows added since: see ``grow``. Empty if none does."""

    loops: str = "rankfold.methods.warm:warm_columns"
    """``"module:function"`` that runs each compiled loop of the method once, to compile it before the data is
    read. It is in a module whose sweeps call these loops, or that chooses between sweeps: see ``warm.py``."""

    transformation: Transformation | None = None
    """Way in which new rows get coordinates in its result, named as the first of ``matrices``; None if they
    get none."""

    factors: Factors | None = None
    """Kind of the factors in its result; None if it has none."""

    by_shape: tuple[str, ...] = ()
    """Entries of its request whose defaults follow from the shape of the matrix. A result that grows may have
    others than a fit of all rows."""

    presentation: Presentation = PLAIN
    """Presentation of its results and sweeps in plots, exports and plans."""

    edition: int = 1
    """Increased when the same request gives other bytes: results of an earlier edition are recomputed."""

    headline: Callable[[Mapping[str, Any], Mapping[str, Any]], str] = headline_of_factors
    """Function that says in one line what a result is, from its facts and those of its last run."""

    topic: str = "Reduce a matrix"
    """Heading over its command, which groups methods by use."""

    @property
    def of_matrix(self) -> bool:
        """True if its only input is one matrix."""
        return self.inputs == (X,)

    @property
    def of_neighbors(self) -> bool:
        """True if its only input is lists of neighbors or their graph."""
        return len(self.inputs) == 1 and "knn" in self.inputs[0].holds and not self.of_matrix

    @property
    def is_matrix(self) -> bool:
        """True if its result is itself a matrix, without named arrays."""
        return self.arrays == ("X",)

    @property
    def results(self) -> tuple[str, ...]:
        """Methods whose results it accepts as input."""
        return tuple(name for each in self.inputs if each.holds != "matrix" for name in each.holds)

    def parameters(self) -> tuple[Parameter, ...]:
        """Declarations of its arguments, in order."""
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
        """Make the task that begins at a result still to be made.

        ``arguments`` are those besides ``init``; ``start`` has the matrices that the result will have, by
        name, or is None if they are not known.
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
        """Make the task that extends an ``earlier`` result, of the ``first`` rows, to all rows of ``task``.

        Returns that task with the number of rows that it reads. Without an earlier result this only checks if
        a result could be extended later. ``grows`` is one of ``rankfold.methods.growth.growth.GROWS``.
        """
        step: Step = _function(self.growth)(task, earlier, first, grows)
        return step

    def warm(self, dtype: np.dtype[Any], request: dict[str, Any], shape: tuple[int, int]) -> None:
        """Compile and load the loops that a request on a matrix of this type and shape uses."""
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
"""All methods; each is declared in its own ``arguments`` module."""

DECLARED.append(METHODS)


@functools.cache
def methods() -> tuple[Method, ...]:
    """All methods that can be loaded. One of another package that fails is left out with a warning."""
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
    """Current edition of a method by name; 1 for unknown names."""
    return METHODS[name].edition if name in METHODS else 1
