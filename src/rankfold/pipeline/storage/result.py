"""Results: Zarr groups that xarray opens, with what it takes to trust and repeat them."""

from __future__ import annotations

import contextlib
import functools
import html
import json
import math
import os
import warnings
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.data.dtypes import require_chunks
from rankfold.pipeline.errors import ArgumentError, DataError, InputError, SourceNotFoundError
from rankfold.pipeline.exporting.exports import Exports
from rankfold.pipeline.removal import remove
from rankfold.pipeline.storage.checkpoint import atomic_file, make_folder
from rankfold.pipeline.storage.chunk_writer import arrays_of, read_array, write_whole_chunks
from rankfold.pipeline.storage.journal import load_record
from rankfold.pipeline.storage.manifest import NAME as MANIFEST
from rankfold.pipeline.storage.manifest import require_whole
from rankfold.pipeline.storage.temporary import TemporaryFolder

if TYPE_CHECKING:
    import zarr

    from rankfold.pipeline.data.source import Source

SCHEMA = 1
TOLD = ("method", "passes", "rank", "captured", "largest_error_estimate", "relative_error", "converged")
"""Facts that notebooks show."""
LAZY_BYTES = 64 * 2**20
"""Arrays above this stay on disk until sliced."""


def create_array(
    group: Path,
    name: str,
    shape: tuple[int, ...],
    dtype: npt.DTypeLike,
    chunks: tuple[int, ...],
    dimensions: tuple[str, ...],
) -> Path:
    """An empty, uncompressed array with named dimensions; chunks that an earlier attempt wrote are kept."""
    return _describe(group / name, shape, dtype, chunks, dimensions)


def create_vector(path: Path, length: int, dtype: npt.DTypeLike, chunk: int) -> None:
    """An empty, uncompressed vector; chunks of an earlier attempt are kept."""
    _describe(path, (length,), dtype, (min(chunk, length),), None)


def create_matrix(path: Path, shape: tuple[int, int], dtype: npt.DTypeLike, chunks: tuple[int, int]) -> None:
    """An empty, uncompressed array that is a store of its own; chunks of an earlier attempt are kept."""
    _describe(path, shape, dtype, chunks, ("row", "column"))


def _describe(
    path: Path,
    shape: tuple[int, ...],
    dtype: npt.DTypeLike,
    chunks: tuple[int, ...],
    names: tuple[str, ...] | None,
) -> Path:
    """Say what an array is, in its folder, unless that is there as it has to be."""
    text, file = _description(shape, np.dtype(dtype).str, chunks, names), path / "zarr.json"
    with contextlib.suppress(OSError):
        if file.read_bytes() == text:
            return path
    make_folder(path)
    with atomic_file(file, durable=False) as out:
        out.write(text)
    return path


@functools.lru_cache(maxsize=256)
def _description(
    shape: tuple[int, ...], dtype: str, chunks: tuple[int, ...], names: tuple[str, ...] | None
) -> bytes:
    """The metadata of an array as Zarr writes it; to a file, it would also look for what is there."""
    import zarr

    memory: dict[str, Any] = {}
    zarr.create_array(
        zarr.storage.MemoryStore(memory),
        shape=shape,
        dtype=dtype,
        chunks=chunks,
        compressors=None,
        fill_value=0,
        dimension_names=names,
        zarr_format=3,
        config={"write_empty_chunks": True},
    )
    return bytes(memory["zarr.json"].to_bytes())


def open_to_write(path: Path) -> zarr.Array[Any]:
    """An array of a result, every chunk of which is written: one that is missing tells of damage."""
    import zarr

    # The trap: what an array is created with is forgotten when it is opened again.
    return zarr.open_array(path, mode="r+").with_config({"write_empty_chunks": True})


def write_small(group: Path, arrays: Mapping[str, npt.NDArray[Any]], *dimensions: str) -> None:
    """Write arrays that are in memory, each as one chunk; all have these ``dimensions``."""
    for name, values in arrays.items():
        remove(group / name)
        path = create_array(
            group, name, values.shape, values.dtype, tuple(max(1, n) for n in values.shape), dimensions
        )
        if values.size:
            write_whole_chunks(path, values, *((0, n) for n in values.shape))


def write_group(group: Path, facts: Mapping[str, Any]) -> None:
    """Make the folder a group that carries the reproducible facts of the result, in one step."""
    import zarr
    from zarr.buffer.cpu import Buffer

    remove(group / MANIFEST)  # of an earlier attempt
    nodes = (path for pattern in ("*/zarr.json", "*/*/zarr.json") for path in group.glob(pattern))
    files: dict[str, Any] = {str(p.relative_to(group)): Buffer.from_bytes(p.read_bytes()) for p in nodes}
    store = zarr.storage.MemoryStore(files)
    zarr.open_group(store, mode="a", zarr_format=3).attrs["rankfold"] = {"schema": SCHEMA, **facts}
    with warnings.catch_warnings(), atomic_file(group / "zarr.json", durable=False) as file:
        warnings.simplefilter("ignore")  # consolidated metadata are no standard yet, but xarray looks there
        zarr.consolidate_metadata(store, zarr_format=3)
        file.write(files["zarr.json"].to_bytes())


def write_matrix_facts(path: Path, facts: Mapping[str, Any]) -> None:
    """Let an array carry the reproducible facts of how it was made."""
    import zarr

    zarr.open_array(path, mode="r+").attrs["rankfold"] = {"schema": SCHEMA, **facts}


ESTIMATES = ("largest_error_estimate", "relative_error")
"""Facts that short descriptions tell."""

_NO_RESULT = (KeyError, ValueError, OSError, TypeError, AttributeError, RecursionError, OverflowError)
"""What opening something else, or a result that is damaged, can raise."""


def _require_facts(facts: dict[str, Any]) -> None:
    """Raise what is among ``_NO_RESULT`` for facts that no result has."""
    texts = [facts["kind"], facts["method"], facts["input"]["name"]]
    numbers = [facts["passes"], *(facts[name] for name in ESTIMATES if name in facts)]
    shape = facts["input"]["shape"]
    if not all(isinstance(text, str) for text in texts) or not isinstance(facts["request"], dict):
        raise TypeError("its facts are of other types")
    rows, columns = shape
    if not all(isinstance(number, int) and 0 < number < 2**63 for number in (rows, columns)):
        raise TypeError("what it was made of is no matrix")
    [math.fabs(number) for number in numbers]


def _has_rows(array: zarr.Array[Any]) -> bool:
    """Whether it grows with the rows of the matrix."""
    names: tuple[str | None, ...] | None = getattr(array.metadata, "dimension_names", None)
    return names is not None and names[:1] == ("row",)


def result_of(name: str, value: object, wanted: str) -> Result:
    """A result, or that of a path; raises ``ArgumentError`` for what is neither, such as a matrix.

    Parameters
    ----------
    name : str
        Of the function or the argument that takes it.
    wanted : str
        What it takes.
    """
    if isinstance(value, Result):
        return value
    if not isinstance(value, (str, os.PathLike)):
        raise ArgumentError(
            f"{name} takes {wanted}, or its path, not an object of type {type(value).__name__}"
        )
    return Result(Path(value))


class Result(Exports):
    """Arrays of a reduction and the facts about it.

    Arrays are attributes, ``r.s``, ``r.components``, or found by name, ``r["s"]``. Row outputs of a stored
    result, and whatever exceeds 64 MiB, are Zarr arrays, read when sliced; the rest are NumPy arrays. A
    result without ``out=`` lives in a temporary store, which goes when the result and every array taken
    from it are gone. A reconstructed matrix is a plain Zarr array, and here a result of one array, ``X``.
    """

    attrs: dict[str, Any]
    _arrays: dict[str, Any]

    def __init__(
        self,
        path: Path | str,
        *,
        temporary: TemporaryFolder | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        self._path = Path(path)
        self._temporary = temporary
        self._memory: dict[str, npt.NDArray[Any]] = {}
        self._whole: set[str] = set()
        self._in_memory = False
        if facts is not None and not (self._path / "zarr.json").exists():
            self._in_memory = True
            self.attrs = json.loads(json.dumps({"schema": SCHEMA, **facts}))
            self._arrays = {
                file.parent.name: read_array(file.parent) for file in self._path.glob("*/zarr.json")
            }
        else:
            self._open()

    def _open(self) -> None:
        import zarr

        if not self._path.exists():
            raise SourceNotFoundError(f"there is no result at {self._path}")
        try:
            store = zarr.open(self._path, mode="r")
            self.attrs = dict(store.attrs["rankfold"])  # type: ignore[arg-type]
            _require_facts(self.attrs)
        except PermissionError:
            raise
        except _NO_RESULT as error:
            raise InputError(f"{self._path} is not a result of rankfold") from error
        try:
            self._arrays = {"X": store} if isinstance(store, zarr.Array) else arrays_of(self._path, store)
            for name, array in self._arrays.items():
                require_chunks(name, array.shape, array.shards or array.chunks, array.dtype)
        except _NO_RESULT as error:
            raise DataError(f"{self._path} is damaged: {error}. Restore the result") from error

    def __getattr__(self, name: str) -> npt.NDArray[Any] | zarr.Array[Any]:
        arrays = self.__dict__.get("_arrays", {})
        if name not in arrays:
            raise AttributeError(f"this result has no {name!r}; it has {', '.join(sorted(arrays))}")
        array = arrays[name]
        if isinstance(array, np.ndarray):
            return array
        if array.nbytes > LAZY_BYTES or (_has_rows(array) and self._temporary is None):
            self._require_whole(name)
            if self._temporary is not None:
                # Without its store an array would read as zeros, and say nothing.
                weakref.finalize(array, _let_go, self._temporary).atexit = False
            return array  # type: ignore[no-any-return]
        if name not in self._memory:
            self._require_whole(name, sums=True)
            try:
                self._memory[name] = np.asarray(array[...])
            except _NO_RESULT as error:
                raise DataError(f"{self._path / name} cannot be read: {error}. Restore the result") from error
        return self._memory[name]

    def __getitem__(self, name: str) -> npt.NDArray[Any] | zarr.Array[Any]:
        """An array by a name that is not known before."""
        if name not in self._arrays:
            raise KeyError(f"this result has no {name!r}; it has {', '.join(self)}")
        array: npt.NDArray[Any] | zarr.Array[Any] = getattr(self, name)
        return array

    def matrix(self, name: str) -> Source:
        """An array as something to sweep."""
        from rankfold.pipeline.formats import open_source

        return open_source(getattr(self, name) if self._in_memory else f"{self._path}::{name}")

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._arrays))

    def __dir__(self) -> list[str]:
        return [*(name for name in super().__dir__() if not name.startswith("require")), *self._arrays]

    def __repr__(self) -> str:
        facts = self.attrs
        arrays = ", ".join(f"{name} {self._arrays[name].shape}" for name in self)
        quality = ""
        if "largest_error_estimate" in facts:
            quality = f"; largest error estimate {facts['largest_error_estimate']:.1e}"
        elif "relative_error" in facts:
            quality = f"; relative error {facts['relative_error']:.1e}"
        return (
            f"<{facts['kind']} of {facts['input']['name']} by {facts['method']} in {facts['passes']} "
            f"pass{'es' if facts['passes'] != 1 else ''}: {arrays}{quality}>"
        )

    def _repr_html_(self) -> str:
        """The same for notebooks: arrays, and what the result says of itself."""
        rows = [
            f"<tr><td><code>{html.escape(name)}</code></td>"
            f"<td>{' &times; '.join(map(str, self._arrays[name].shape))}</td>"
            f"<td>{self._arrays[name].dtype}</td>"
            f"<td>{html.escape(', '.join(self.dimensions(name)))}</td></tr>"
            for name in self
        ]
        facts = {"input": self.attrs["input"]["name"], "shape": self.attrs["input"]["shape"]}
        facts |= {name.replace("_", " "): self.attrs[name] for name in TOLD if name in self.attrs}
        if "prepare" in self.attrs["input"]:
            facts["prepare"] = self.attrs["input"]["prepare"]
        said = "; ".join(
            f"{name} {html.escape(f'{value:.3g}' if isinstance(value, float) else str(value))}"
            for name, value in facts.items()
        )
        head = "<tr><th>array</th><th>shape</th><th>type</th><th>axes</th></tr>"
        kind = html.escape(self.attrs["kind"])
        return f"<p><b>{kind}</b>: {said}</p><table>{head}{''.join(rows)}</table>"

    def require_whole(self, *, sums: bool = False) -> None:
        """Raise ``DataError`` if files have gone, have another length, or with ``sums`` hold other bytes."""
        if self._temporary is None:
            require_whole(self._path, sums=sums)

    def _require_whole(self, name: str, *, sums: bool = False) -> None:
        """Look once at the files of an array: loops slice it again and again."""
        if self._temporary is None and name not in self._whole:
            require_whole(self._path, sums=sums, below="" if name == "X" else name)
            self._whole.add(name)

    @property
    def path(self) -> Path:
        """Where it lies; one that is in memory is put there when it is first asked for."""
        if self._in_memory and not (self._path / "zarr.json").exists():
            write_group(self._path, {name: fact for name, fact in self.attrs.items() if name != "schema"})
        return self._path

    @property
    def graph(self) -> Any:
        """Neighbors of a knn as a SciPy CSR array of distances, or of a fuzzy_graph of weights, in memory.

        On disk it is ``PATH::graph``.
        """
        import scipy.sparse

        from rankfold.pipeline.formats.csr import csr_source

        if not (self._path / "graph").exists():
            kind = self.attrs["kind"]
            raise InputError(
                f"{self._path} has no graph: it is the result of {kind}, not of knn or fuzzy_graph"
            )
        graph = csr_source(str(self._path), "graph")
        graph.check()
        values, columns = graph.data.take(0, graph.nnz), graph.places(0, graph.nnz)
        return scipy.sparse.csr_array((values, columns, graph.pointers(0, graph.shape[0])), graph.shape)

    def dimensions(self, name: str) -> tuple[str, ...]:
        """What each axis of an array counts: ``row``, ``column``, ``component``, ``neighbor``."""
        folder = self._path if name == "X" else self._path / name
        try:
            document = json.loads((folder / "zarr.json").read_bytes())
            return tuple(map(str, document.get("dimension_names") or ()))
        except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise DataError(f"{folder}/zarr.json is not whole, so nothing can be said of its axes") from error

    @property
    def run(self) -> dict[str, Any]:
        """What the attempts that made it took: time, memory, machine. Empty if that was not kept."""
        record = load_record(self._path.with_name(self._path.name + ".run") / "run.json")
        return record if record["attempts"] else {}


def _let_go(temporary: object) -> None:
    """Called when an array goes: the reference to its store goes with it."""


def open_result(path: Path | str) -> Result:
    """Open a result that ``--out`` or ``out=`` wrote.

    Parameters
    ----------
    path : path
        Its folder.

    Returns
    -------
    Result
        Arrays by name: small ones as NumPy, those above 64 MiB and those of rows as Zarr, read when they are
        sliced; ``attrs``, the reproducible facts; ``run``, what it took.

    Raises
    ------
    InputError
        What is there is no result; ``SourceNotFoundError`` if nothing is there.

    Notes
    -----
    Reads metadata alone. Whether an array is whole is looked at when it is first used.
    """
    return Result(path)
