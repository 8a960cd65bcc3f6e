"""Measures of how well an embedding preserves neighborhoods of a matrix that may be larger than memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from rankfold.api.execute import execute, executor_of
from rankfold.api.method_function import method_function, options_of, where_of
from rankfold.api.where import VIEW, RunOptions
from rankfold.methods.embedding.arguments import CONTINUITY, PRESERVATION, TRUSTWORTHINESS
from rankfold.methods.embedding.preservation import Comparison, share_in_common
from rankfold.methods.task import Task
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.removal import remove
from rankfold.pipeline.storage.result import Result
from rankfold.pipeline.storage.run_directory import digest
from rankfold.pipeline.storage.temporary import TemporaryFolder


@dataclass(frozen=True, slots=True)
class Quality:
    """A share between 0 and 1, with its standard error: ``float(q)`` is the share."""

    kind: str
    value: float
    standard_error: float
    """Standard error of the value; 0.0 if all rows were sampled, except in ``neighborhood_preservation``."""

    rows: int
    """Number of rows sampled."""

    of_rows: int
    k: int
    runs: tuple[dict[str, Any], ...] = field(default=(), repr=False, compare=False)
    """Records of the runs, as in ``Result.run``: the search for neighbors, then the count."""

    def __float__(self) -> float:
        return self.value

    def __repr__(self) -> str:
        error = f" ± {self.standard_error:.1g}" if self.standard_error else ""
        sample = (
            f"all {self.rows} rows" if self.rows == self.of_rows else f"{self.rows} of {self.of_rows} rows"
        )
        return f"<{self.kind} {self.value:.6g}{error}, {sample}, k={self.k}>"


OF_MATRICES_AND_OUTPUTS = (*VIEW, "out", "overwrite")
"""Names of arguments that open a matrix or name an output, which functions that return a number lack."""


@method_function(TRUSTWORTHINESS, without=OF_MATRICES_AND_OUTPUTS)
def trustworthiness(x: object, embedding: object, **arguments: Any) -> Quality:
    """To what extent neighbors in an embedding are neighbors in the data.

    Parameters
    ----------
    x, embedding : path, array or Source, (m, n) and (m, d)
        The same rows in the same order; anything ``svd`` takes.
    k : int, default 5
        Neighbors of each row in the embedding, by Euclidean distance; fewer than half of the rows.
    metric : str
        Metric by which the rows of ``x`` are ranked: as for ``knn``.
    sample_rows : {None, int, "all"}
        Number of rows to sample: by default all of at most 5000, else 5000 that ``seed`` chooses.
    others
        As for ``svd``. Workers on other machines need a folder that they share, ``scratch``.

    Returns
    -------
    Quality
        Over all rows the value of ``sklearn.manifold.trustworthiness``, to the last bit where no distances
        are equal; of rows that are equally far the one of smaller index is the nearer.

    Raises
    ------
    InputError, PlanError, DataError
        As for ``svd``.

    Notes
    -----
    A search for the neighbors of r rows, then ``2 r m n`` flops in one pass over ``x``, of which at most as
    much is read once more: see ``rankfold.methods.embedding``. Nothing of size m^2 is held or written.

    References
    ----------
    Venna, Kaski, Neighborhood preservation in nonlinear projection methods: an experimental study, ICANN
    2001, LNCS 2130. Of a sample of rows the value comes with its standard error.

    Examples
    --------
    >>> import numpy as np
    >>> import rankfold as rf
    >>> x = np.random.default_rng(0).normal(size=(60, 2))
    >>> rf.trustworthiness(x, x, k=5).value
    1.0
    """
    return _quality(TRUSTWORTHINESS.task(x, embedding, **options_of(arguments)), where_of(arguments))


@method_function(CONTINUITY, without=OF_MATRICES_AND_OUTPUTS)
def continuity(x: object, embedding: object, **arguments: Any) -> Quality:
    """To what extent neighbors in the data are neighbors in an embedding.

    It is trustworthiness with the roles exchanged: neighbors are found in ``x``, by ``metric``, and ranked
    in the embedding.

    Parameters
    ----------
    x, embedding : path, array or Source, (m, n) and (m, d)
        The same rows in the same order; anything ``svd`` takes.
    k : int, default 5
        Neighbors of each row in ``x``; fewer than half of the rows.
    metric : str or function
        Metric by which these are found, as for ``knn``.
    sample_rows, seed, others
        As for ``trustworthiness``.

    Returns
    -------
    Quality
        A share between 0 and 1, and its standard error.

    Raises
    ------
    InputError, PlanError, DataError
        As for ``svd``.

    Notes
    -----
    A search for the neighbors of r rows, ``2 r m n`` flops, then one pass over the embedding.

    References
    ----------
    Venna, Kaski, ICANN 2001, LNCS 2130: see ``trustworthiness``.

    Examples
    --------
    >>> import numpy as np
    >>> import rankfold as rf
    >>> x = np.random.default_rng(0).normal(size=(60, 2))
    >>> rf.continuity(x, x, k=5).value
    1.0
    """
    return _quality(CONTINUITY.task(x, embedding, **options_of(arguments)), where_of(arguments))


def _quality(task: Task, where: RunOptions) -> Quality:
    """Run a chain of tasks that finds neighbors and ranks them; returns the quality, and removes all files.

    Files lie in a folder under ``scratch``, or else in a temporary one.
    """
    executor, request, scratch = executor_of(where), task.request(), where.get("scratch")
    if executor.is_remote and scratch is None:
        raise InputError("workers on other machines need a folder that they share: say scratch=")
    temporary = TemporaryFolder()
    folder = temporary.path
    if scratch is not None:
        key = digest([request, task.source.fingerprint()])
        folder = Path(scratch).absolute() / f"rankfold-{request['kind']}-{key}"
    options: dict[str, Any] = {"scratch": None, "overwrite": True, "progress": where.get("progress")}
    result = execute(task, executor, out=folder / "ranks.zarr", **options)
    record, facts = result.run, result.attrs
    remove(folder)
    rows, values = facts["input"]["shape"][0], (facts["value"], facts["standard_error"])
    runs = ({"attempts": record["steps"]["neighbors"]}, record)
    return Quality(request["kind"], *values, request["rows"], rows, request["k"], runs)


@method_function(PRESERVATION, without=RunOptions.__annotations__)
def neighborhood_preservation(
    first: Result | str | Path, second: Result | str | Path, **arguments: Any
) -> Quality:
    """Share of neighbors that two searches have in common, in the mean over all rows.

    Parameters
    ----------
    first, second : Result or path
        Results of ``knn`` for the same rows in the same order; for instance of a matrix and of an embedding.
    k : int, default the most that both have
        Nearest neighbors of each row that are compared.

    Returns
    -------
    Quality
        ``standard_error`` is that of the mean, with the rows as a sample of all there could be.

    Raises
    ------
    InputError
        Results of another kind, or of other rows.

    Notes
    -----
    Neighbors are read once, some MiB at a time, in ``m k log k`` steps.

    Examples
    --------
    >>> import numpy as np
    >>> import rankfold as rf
    >>> x = np.random.default_rng(0).normal(size=(60, 2))
    >>> near = rf.knn(x, 5)
    >>> rf.neighborhood_preservation(near, near).value
    1.0
    """
    task = cast("Comparison", PRESERVATION.task(first, second, **arguments))
    rows = task.source.shape[0]
    share, error = share_in_common(task.first, task.second, task.k)
    return Quality("neighborhood preservation", share, error, rows, rows, task.k)
