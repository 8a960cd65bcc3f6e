"""Principal components of a matrix as initial positions of an embedding: one link of its chain.

With ``init="pca"``, rows begin at the first scores of ``pca``, to a loose tolerance. Lists of neighbors and
their graph do not hold rows, so the matrix is given in addition. If a matrix itself is laid out, it is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rankfold.methods.chain import Link
from rankfold.methods.embedding.arguments import PCA
from rankfold.methods.knn.arguments import PRECOMPUTED
from rankfold.methods.registry import METHODS
from rankfold.methods.task import Output, Task
from rankfold.pipeline.data.source import Source
from rankfold.pipeline.engine.run import Run
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import InputError, NoVarianceError
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.planning.plan import Plan

START_TOL = 1e-2
"""Tolerance of the principal components that are only initial positions of a layout."""


def matrix_to_begin_at(init: object, matrix: object, source: Source, metric: object) -> object:
    """Find the matrix whose components are initial positions, if a matrix itself is laid out.

    Parameters
    ----------
    init : object
        Initial positions, as a caller gives them.
    matrix : object
        Matrix for initial positions that the caller gives, or None.
    source : Source
        The matrix that is laid out, of rows or of distances.
    metric : object
        Name of the metric, or None.

    Raises
    ------
    InputError
        The matrix holds distances, whose components are not those of rows.
    """
    if matrix is not None or not (isinstance(init, str) and init == PCA):
        return matrix
    if metric == PRECOMPUTED:
        raise InputError(
            f"init pca takes rows of numbers, but {source.name} holds distances: give the rows, "
            "matrix=x (--matrix), or another start, init='random' (--init random)"
        )
    return source


def require_matrix(init: str, matrix: object) -> None:
    """Raise ``InputError`` if ``init`` is pca and there is no matrix, or if there is one for another init."""
    if init == PCA and matrix is None:
        raise InputError(
            "init pca is of the matrix that neighbors are of, and their lists or graph do not have its rows: "
            "give it too, matrix=x (--matrix), or lay out the matrix itself, or take another start, "
            "init='spectral' (--init spectral)"
        )
    if init != PCA and matrix is not None:
        raise InputError(
            f"matrix is for init='pca' (--init pca), but init is {init}: ask for that, or leave it out"
        )


def start_at_components(matrix: object, rows: int, n_components: int, seed: int) -> tuple[Link, str]:
    """Make the link ``start`` of a chain, which finds first principal components of a matrix.

    Returns the link, and the fingerprint of the matrix.

    Parameters
    ----------
    matrix : array, path or Source, (rows, n)
    rows : int
        Rows that are laid out.
    n_components : int
        Dimensions of the embedding.
    seed : int
        Key of random numbers.

    Raises
    ------
    InputError
        The matrix has another number of rows, or too few components.
    """
    source = open_source(matrix)
    if source.shape[0] != rows:
        raise InputError(f"{source.name} has {source.shape[0]} rows, but {rows} are laid out")
    if min(source.shape) < n_components:
        raise InputError(
            f"{source.name} is {source.shape[0]} x {source.shape[1]}, which has no "
            f"{n_components} principal components: begin at another start"
        )
    task = METHODS["pca"].task(source, rank=n_components, tol=START_TOL, seed=seed)
    return Link("start", FirstComponents(task)), source.fingerprint()


@dataclass(frozen=True, slots=True)
class FirstComponents:
    """Task of the principal components that rows begin at; it wraps a task of ``pca``."""

    task: Task

    @property
    def source(self) -> Source:
        """The matrix whose components are computed."""
        return self.task.source

    def request(self) -> dict[str, Any]:
        """Return the request of the wrapped task."""
        return self.task.request()

    def outputs(self) -> tuple[Output, ...]:
        """Declare the arrays of the wrapped task."""
        return self.task.outputs()

    def plan(self, budget: Budget) -> Plan:
        """Plan of the wrapped task."""
        return self.task.plan(budget)

    def work(self, run: Run, fingerprint: str) -> dict[str, Any]:
        """Run the wrapped task; if all rows are equal, the error says what that means for the embedding."""
        try:
            return self.task.work(run, fingerprint)
        except NoVarianceError as error:
            raise NoVarianceError(equal_rows(self.source.name)) from error


def equal_rows(name: str) -> str:
    """Text of an error: rows of the matrix ``name`` are all the same, and have no principal components."""
    return (
        f"all rows of {name} are equal, so that they have no principal components to begin at, and an "
        "embedding nothing to show. Give rows that differ, or begin at random places, init='random' "
        "(--init random)"
    )
