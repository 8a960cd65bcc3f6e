"""Presentation of results and sweeps of a method in plots, exports and plans, as the method declares it.

The pipeline imports no methods: their registry adds itself to ``DECLARED``, and is asked here by the kind of
a result or of a plan.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from rankfold.pipeline.errors import InputError


@dataclass(frozen=True, slots=True)
class CellElements:
    """Names of the parts of a result in an AnnData object, as scanpy names them; empty for parts it lacks."""

    key: str
    """Name of the facts of the result, in ``uns``."""

    observations: str = ""
    """Name of the coordinates of rows, in ``obsm``."""

    variables: str = ""
    """Name of the factor with a row for each column of the matrix, in ``varm``."""

    labels: str = ""
    """Name of the labels of rows, in ``obs``."""

    graphs: tuple[str, ...] = ()
    """Names of matrices of pairs of rows, in ``obsp``."""

    scale: str = ""
    """Array of the result by which coordinates of rows are multiplied; empty for none."""

    def paths(self, key: str | None) -> tuple[str, ...]:
        """Paths of all elements, such as ``obsm/X_pca``, that of the facts last; ``key`` replaces the names.

        >>> CellElements("pca", "X_pca", "PCs").paths(None)
        ('obsm/X_pca', 'varm/PCs', 'uns/pca')
        >>> CellElements("neighbors", graphs=("distances",)).paths("mine")
        ('obsp/mine_distances', 'uns/mine')
        """
        start = f"{key}_" if key else ""
        parts = (("obsm", self.observations), ("varm", self.variables), ("obs", self.labels))
        graphs = (f"obsp/{start}{name}" for name in self.graphs)
        return (*graphs, *(f"{part}/{key or name}" for part, name in parts if name), f"uns/{key or self.key}")


@dataclass(frozen=True, slots=True)
class Presentation:
    """Ways in which results and sweeps of a method are shown or exported, other than the usual ones."""

    cells: CellElements | None = None
    """Elements of an AnnData object that hold a result; None if there is no place for it."""

    like_fit: bool = False
    """True if a result is exported like one of the method that is named by ``of`` in its request."""

    plots: tuple[str, ...] = ()
    """Kinds of plots that ``auto`` prefers to all others: it takes the first of these that a result has."""

    quick_plot: str = ""
    """Kind of plot that reads little, which the page of a run shows; empty for none."""

    counts_passes: bool = False
    """True if its sweeps over the matrix are shown by number, as "pass 2 of about 5"."""

    sweeps: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Plain words for a sweep, by its name, which replace the usual ones of ``planning/sweep_words.py``."""

    size: str = ""
    """Template for the size of a result in a plan, with the fields ``{rank}`` and ``{orientation}``.

    If it is empty, the plan states the rank.
    """


class Presented(Protocol):
    """Protocol of a method, as far as the pipeline shows and exports its results."""

    @property
    def matrices(self) -> tuple[str, ...]:
        """Names of the matrices in its result, the one for the rows first."""

    @property
    def presentation(self) -> Presentation:
        """Presentation of its results and sweeps."""


class Declarations(Protocol):
    """Protocol of a registry of methods."""

    def names(self) -> tuple[str, ...]:
        """Names of all methods, in the order of lists in messages."""

    def __contains__(self, name: object) -> bool: ...

    def __getitem__(self, name: str) -> Presented: ...


DECLARED: list[Declarations] = []
"""Registries of methods; that of rankfold adds itself here."""


def presented(kind: str) -> Presented | None:
    """Look up the method of results or plans of a kind; None if none is declared."""
    return next((each[kind] for each in DECLARED if kind in each), None)


def with_cells() -> tuple[str, ...]:
    """Names of all methods whose results have a place in an AnnData object."""
    found = list[str]()
    for registry in DECLARED:
        for name in registry.names():
            with contextlib.suppress(InputError):  # one of another package that cannot be loaded
                found += [name] * (registry[name].presentation.cells is not None)
    return tuple(found)


def presentation_of(kind: str) -> Presentation:
    """Look up how results and sweeps of a kind are shown; the defaults for a kind that no method declares."""
    method = presented(kind)
    return Presentation() if method is None else method.presentation
