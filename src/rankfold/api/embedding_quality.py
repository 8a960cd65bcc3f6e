"""How well an embedding keeps neighborhoods, of matrices that may be larger than memory."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankfold.api.arguments import public
from rankfold.api.execute import execute
from rankfold.cluster.place import choose_place
from rankfold.methods.embedding.trust_request import FaithfulnessRequest
from rankfold.methods.embedding.trustworthiness import Faithfulness, with_lists
from rankfold.methods.svd.request import integer
from rankfold.pipeline.engine.run import Progress
from rankfold.pipeline.errors import InputError
from rankfold.pipeline.formats import open_source
from rankfold.pipeline.planning.progress import listener
from rankfold.pipeline.storage.result import Result
from rankfold.pipeline.storage.run_directory import digest
from rankfold.pipeline.storage.temporary import TemporaryFolder

DEFAULT_K = 5

COMPARED_BYTES = 8 * 2**20
"""Of lists that are compared at a time."""

EUCLIDEAN = "euclidean"


@dataclass(frozen=True, slots=True)
class Quality:
    """A share between 0 and 1, and how well it is known: ``float(q)`` is the share."""

    kind: str
    value: float
    standard_error: float
    """Of the value: 0.0 where all rows were looked at, unless it says how much rows differ."""

    rows: int
    """That were looked at."""

    of_rows: int
    k: int
    runs: tuple[dict[str, Any], ...] = field(default=(), repr=False, compare=False)
    """What it took: the search for neighbors, then the counting; as in ``Result.run``."""

    def __float__(self) -> float:
        return self.value

    def __repr__(self) -> str:
        known = f" ± {self.standard_error:.1g}" if self.standard_error else ""
        looked = (
            f"all {self.rows} rows" if self.rows == self.of_rows else f"{self.rows} of {self.of_rows} rows"
        )
        return f"<{self.kind} {self.value:.6g}{known}, {looked}, k={self.k}>"


@public
def trustworthiness(
    x: object,
    embedding: object,
    k: int = DEFAULT_K,
    *,
    metric: str = EUCLIDEAN,
    rows: int | str | None = None,
    seed: int = 0,
    memory: str | int | None = None,
    scratch: str | Path | None = None,
    on: str | Path | None = None,
    workers: int | None = None,
    threads: int | None = None,
    client: Any = None,
    progress: Progress | bool | None = None,
) -> Quality:
    """To what extent neighbors in an embedding are neighbors in the data.

    Parameters
    ----------
    x, embedding : path, array or Source, (m, n) and (m, d)
        The same rows in the same order; anything ``svd`` takes.
    k : int, default 5
        Neighbors of each row in the embedding, by Euclidean distance; fewer than half of the rows.
    metric : str
        By which the rows of ``x`` are ranked: as for ``knn``.
    rows : {None, int, "all"}
        How many rows are looked at: all of at most 5000, else 5000 that ``seed`` chooses.
    others
        As for ``svd``. Workers on other machines need a folder that they share, ``scratch``.

    Returns
    -------
    Quality
        Over all rows the value of ``sklearn.manifold.trustworthiness``, to the last bit where no distances
        are equal; of rows that are equally far the one of smaller index is the nearer.

    Notes
    -----
    A search for the neighbors of r rows, then ``2 r m n`` flops in one pass over ``x``, of which at most as
    much is read once more: see ``methods/embedding/trustworthiness.py``.
    """
    how = {"on": on, "workers": workers, "threads": threads, "memory": memory, "client": client}
    ask = {"k": k, "metric": metric, "rows": rows, "seed": seed}
    return _measured("trustworthiness", x, embedding, EUCLIDEAN, ask, how, scratch, progress)


@public
def continuity(
    x: object,
    embedding: object,
    k: int = DEFAULT_K,
    *,
    metric: str | Callable[..., float] = EUCLIDEAN,
    rows: int | str | None = None,
    seed: int = 0,
    memory: str | int | None = None,
    scratch: str | Path | None = None,
    on: str | Path | None = None,
    workers: int | None = None,
    threads: int | None = None,
    client: Any = None,
    progress: Progress | bool | None = None,
) -> Quality:
    """To what extent neighbors in the data are neighbors in an embedding.

    It is trustworthiness with the roles exchanged: neighbors are found in ``x``, by ``metric``, and ranked
    in the embedding. Parameters and result are those of ``trustworthiness``; the metric may be a function, as
    for ``knn``.
    """
    how = {"on": on, "workers": workers, "threads": threads, "memory": memory, "client": client}
    ask = {"k": k, "metric": EUCLIDEAN, "rows": rows, "seed": seed}
    return _measured("continuity", embedding, x, metric, ask, how, scratch, progress)


def _measured(
    kind: str,
    ranked: object,
    listed: object,
    metric: str | Callable[..., float],
    ask: dict[str, Any],
    how: dict[str, Any],
    scratch: str | Path | None,
    progress: Progress | bool | None,
) -> Quality:
    """Neighbors on one side, then their ranks on the other."""
    x, y = open_source(ranked), open_source(listed)
    asked = FaithfulnessRequest.of(kind, x, y, **ask)
    task, place = Faithfulness.of(x, asked), choose_place(**how)
    search = task.search(y, metric)
    task.plan(place.budget)  # what does not fit is refused before anything runs
    if place.is_remote and scratch is None:
        raise InputError("workers on other machines need a folder that they share: say scratch=")
    temporary = TemporaryFolder()
    folder = temporary.path
    if scratch is not None:
        named = digest([asked.as_dict(), x.fingerprint(), y.fingerprint(), search.asked.as_dict()])
        folder = Path(scratch).absolute() / f"rankfold-{kind}-{named}"
    with listener(progress, lambda: search.plan(place.budget)) as listen:
        options: dict[str, Any] = {"scratch": None, "overwrite": True, "progress": listen}
        found = execute(search, place, out=folder / "neighbors.zarr", **options)
        result = execute(with_lists(task, found.path), place, out=folder / "ranks.zarr", **options)
    runs, facts = (found.run, result.run), result.attrs
    shutil.rmtree(folder, ignore_errors=True)
    known = (facts["value"], facts["standard_error"])
    return Quality(kind, *known, asked.rows, asked.of_rows, asked.k, runs)


@public
def neighborhood_preservation(
    first: Result | str | Path, second: Result | str | Path, k: int | None = None
) -> Quality:
    """Share of neighbors that two searches have in common, in the mean over all rows.

    Parameters
    ----------
    first, second : Result or path
        Of ``knn``, of the same rows in the same order; for instance of a matrix and of an embedding.
    k : int, default the most that both have
        Nearest neighbors of each row that are compared.

    Returns
    -------
    Quality
        ``standard_error`` is that of the mean, with the rows as a sample of all there could be.

    Notes
    -----
    Lists are read once, some MiB at a time: work m k log k.
    """
    results = [found if isinstance(found, Result) else Result(found) for found in (first, second)]
    for found in results:
        if found.attrs["kind"] != "knn":
            raise InputError(f"{found.path} is the result of {found.attrs['kind']}: give two of knn")
    shapes = [found.indices.shape for found in results]
    if shapes[0][0] != shapes[1][0]:
        raise InputError(
            f"the first result has neighbors of {shapes[0][0]} rows, the second of {shapes[1][0]}. Give two "
            "of the same rows, in the same order"
        )
    rows, most = shapes[0][0], min(shapes[0][1], shapes[1][1])
    count = most if k is None else integer("k", k)
    if not 1 <= count <= most:
        raise InputError(f"k {count} was asked for, but both results have {most}: ask for 1 to {most}")
    total = squares = 0
    for common in _in_common(results, rows, count):
        total += int(common.sum())
        squares += int(np.square(common).sum())
    variance = (rows * squares - total * total) / (rows * max(1, rows - 1))
    error = math.sqrt(variance / rows) / count
    return Quality("neighborhood preservation", total / (rows * count), error, rows, rows, count)


def _in_common(results: list[Result], rows: int, k: int) -> Iterator[npt.NDArray[np.int64]]:
    """How many neighbors the lists of each row share, some rows at a time."""
    height = results[0].indices.shape[1] + results[1].indices.shape[1]
    step = max(1, COMPARED_BYTES // (8 * height))
    for start in range(0, rows, step):
        both = [np.asarray(found.indices[start : start + step])[:, :k] for found in results]
        merged = np.sort(np.concatenate(both, axis=1), axis=1)
        yield (merged[:, 1:] == merged[:, :-1]).sum(axis=1)
