"""Results: Zarr groups that xarray opens, with the facts that are needed to check and repeat them."""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rankfold.pipeline.chunks.edition import Edition
from rankfold.pipeline.data.dtypes import require_chunks
from rankfold.pipeline.errors import ArgumentError, DataError, InputError, SourceNotFoundError
from rankfold.pipeline.exporting.exports import Exports
from rankfold.pipeline.exporting.glance import html_table, one_line
from rankfold.pipeline.law import Facts, MissingError, axis_names, require_arrays, require_facts, result_law
from rankfold.pipeline.outputs import require_finished
from rankfold.pipeline.regular import read_json
from rankfold.pipeline.removal import remove
from rankfold.pipeline.storage.checkpoint import atomic_file
from rankfold.pipeline.storage.chunk_writer import (
    create_array,
    nodes_of,
    read_array,
    write_whole_chunks,
)
from rankfold.pipeline.storage.journal import load_record
from rankfold.pipeline.storage.manifest import NAME as MANIFEST
from rankfold.pipeline.storage.manifest import graph_shape, require_whole
from rankfold.pipeline.storage.temporary import TemporaryFolder
from rankfold.pipeline.text import printable

if TYPE_CHECKING:
    from rankfold.pipeline.chunks.edition_array import EditionArray
    from rankfold.pipeline.chunks.lazy_array import LazyArray
    from rankfold.pipeline.data.source import Source

SCHEMA = 1
LAZY_BYTES = 64 * 2**20
"""Largest number of bytes of an array that is read whole, as a NumPy array; larger ones are lazy.

Lazy arrays (``LazyArray``) are read when they are used.
"""


def write_small(group: Path, arrays: Mapping[str, npt.NDArray[Any]], *dimensions: str) -> None:
    """Write arrays by name into the folder of a group, each as one chunk, with axes named ``dimensions``."""
    for name, values in arrays.items():
        remove(group / name)
        path = create_array(
            group, name, values.shape, values.dtype, tuple(max(1, n) for n in values.shape), dimensions
        )
        if values.size:
            write_whole_chunks(path, values, *((0, n) for n in values.shape))


def write_group(group: Path, facts: Mapping[str, Any]) -> None:
    """Write the metadata of the result in the folder ``group``, with a copy of those of all its arrays.

    ``facts`` are its reproducible facts, without times and machines.
    """
    remove(group / MANIFEST)  # of an earlier attempt
    files = (path for pattern in ("*/zarr.json", "*/*/zarr.json") for path in group.glob(pattern))
    nodes = {path.parent.relative_to(group).as_posix(): read_json(path) for path in files}
    for node in nodes.values():
        if node["node_type"] == "group":
            node["consolidated_metadata"] = {"kind": "inline", "must_understand": False, "metadata": {}}
            node["node_type"] = node.pop("node_type")
    # No standard yet, but xarray looks there. Zarr writes the same bytes, and takes ten times as long.
    document = {
        "attributes": {"rankfold": {"schema": SCHEMA, **facts}},
        "zarr_format": 3,
        "consolidated_metadata": {
            "kind": "inline",
            "must_understand": False,
            "metadata": {name: nodes[name] for name in sorted(nodes, key=_place_in_summary)},
        },
        "node_type": "group",
    }
    with atomic_file(group / "zarr.json", durable=False) as file:
        file.write(json.dumps(document, indent=2).encode())


def _place_in_summary(name: str) -> tuple[int, str]:
    """Sort key of an array or group in consolidated metadata: outer ones come first."""
    return name.count("/"), name.casefold()


def write_matrix_facts(path: Path, facts: Mapping[str, Any]) -> None:
    """Store facts on how a single array, such as a reconstructed matrix, was made in its attributes."""
    from rankfold.pipeline.chunks.regular_store import zarr_array

    zarr_array(path, mode="r+").attrs["rankfold"] = {"schema": SCHEMA, **facts}


_NO_RESULT = (KeyError, ValueError, OSError, TypeError, AttributeError, RecursionError, OverflowError)
"""Errors of opening something that is no result, or a damaged one."""


def _no_result(path: Path) -> InputError | DataError:
    """Make the error for a folder that holds no metadata of a result: it is none, or a damaged one."""
    if (path / MANIFEST).is_file() and not (path / "zarr.json").exists():
        return DataError(
            f"{path} is damaged: zarr.json is missing. Give the command that made it once more: it makes it "
            "again"
        )
    return InputError(f"{path} is not a result of rankfold")


def result_of(name: str, value: object, wanted: str) -> Result:
    """The result that an argument is, or whose path it is; ``ArgumentError`` for anything else, as a matrix.

    Parameters
    ----------
    name : str
        Name of the function or the argument that takes it, for the message.
    value : Result or path
        What the caller gave.
    wanted : str
        Description of what it takes, for the message.
    """
    if isinstance(value, Result):
        return value
    if not isinstance(value, (str, os.PathLike)):
        raise ArgumentError(
            f"{name} takes {wanted}, or its path, not an object of type {type(value).__name__}"
        )
    return Result(Path(value))


def coordinates_hint(result: Result) -> str:
    """End of a message that asks for a matrix: names the coordinates of rows of a result, if it has any."""
    for name in result:
        if result.dimensions(name) == ("row", "component"):
            return f". Such a matrix is {result.path}::{name}, in Python r.{name}"
    return ""


class Result(Exports, Mapping[str, Any]):
    """Arrays of a reduction and the facts about it.

    Arrays are attributes, ``r.s``, ``r.components``, or found by name, ``r["s"]``. Row outputs of a stored
    result, and whatever exceeds 64 MiB, are Zarr arrays, which are read when they are used and can be asked
    what NumPy's can (``LazyArray``); the rest are NumPy arrays. A
    result without ``out=`` lives in a temporary store, which goes when the result and every array taken
    from it are gone. A reconstructed matrix is a plain Zarr array, and here a result of one array, ``X``.

    It reads only the files that it was opened on. Once the stored result has been removed, moved or replaced,
    every use of this object, and of arrays taken from it, raises ``DataError``.
    """

    _facts: dict[str, Any]
    _arrays: dict[str, Any]
    _edition: Edition | None = None
    """Edition of the files that it was opened on; None if its arrays are in memory."""

    _groups: tuple[str, ...] = ()
    """Names of the groups that it had when it was opened."""

    def __init__(
        self,
        path: Path | str,
        *,
        temporary: TemporaryFolder | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(path, str | os.PathLike):
            raise ArgumentError(
                f"a result, or its path, is asked for here, not an object of type {type(path).__name__}"
            )
        self._path = Path(path)
        self._temporary = temporary
        self._memory: dict[str, npt.NDArray[Any]] = {}
        self._whole: set[str] = set()
        self._lawful: set[str] = set()
        self._in_memory = False
        if facts is not None and not (self._path / "zarr.json").exists():
            self._in_memory = True
            self._facts = json.loads(json.dumps({"schema": SCHEMA, **facts}))
            self._arrays = {
                file.parent.name: read_array(file.parent) for file in self._path.glob("*/zarr.json")
            }
        else:
            self._open()

    def _open(self) -> None:
        import zarr

        from rankfold.pipeline.chunks.edition_array import EditionArray, open_edition

        if not self._path.exists():
            require_finished(self._path)
            raise SourceNotFoundError(f"there is no result at {self._path}")
        self._edition = Edition.of(self._path)
        try:
            store = open_edition(self._edition, consolidated=(self._path / MANIFEST).is_file())
            facts = store.attrs["rankfold"]
        except (PermissionError, InputError):
            raise
        except _NO_RESULT as error:
            raise _no_result(self._path) from error
        if self._temporary is None:  # else it was made by this process
            require_facts(self._path, facts)
        self._facts = Facts.of(self._path, facts)  # type: ignore[arg-type]
        try:
            nodes = nodes_of(self._path, store)
            arrays = {name: node for name, node in nodes.items() if isinstance(node, zarr.Array)}
            for name, array in arrays.items():
                require_chunks(name, array.shape, array.shards or array.chunks, array.dtype)
        except _NO_RESULT as error:
            raise DataError(f"{self._path} is damaged: {error}. Restore the result") from error
        self._arrays = {name: EditionArray.of(array, self._edition) for name, array in arrays.items()}
        self._groups = tuple(name for name in nodes if name not in arrays)
        if self._temporary is None:
            self._lengths = require_arrays(self._path, self._facts, self._arrays, graph_shape(self._path))
            law = result_law(self._facts["kind"])
            for name, array in self._arrays.items():
                if array.nbytes > LAZY_BYTES:
                    array.check = partial(law.of(name).require_some, f"{self._path}: {name}", self._lengths)
        self._edition.require()

    @property
    def attrs(self) -> dict[str, Any]:
        """Reproducible facts: the request, the input, and how accurate the result is."""
        self.require_edition()
        return self._facts

    def __getattr__(self, name: str) -> npt.NDArray[Any] | LazyArray:
        arrays = self.__dict__.get("_arrays", {})
        if name not in arrays:
            raise self._missing(name, AttributeError)
        array: npt.NDArray[Any] | EditionArray = arrays[name]
        if isinstance(array, np.ndarray):
            return array
        self.require_edition()
        if array.nbytes > LAZY_BYTES or (axis_names(array)[:1] == ("row",) and self._temporary is None):
            self._require_whole(name)
            array.require_files()
            if self._temporary is not None:
                # Without its store an array would read as zeros, and say nothing.
                weakref.finalize(array, _let_go, self._temporary).atexit = False
            return array
        if name not in self._memory:
            self._require_whole(name, sums=True)
            self._memory[name] = np.asarray(array[...])
        array.require_files()
        return self._memory[name]

    def _missing(self, name: str, kind: type[Exception]) -> Exception:
        """Make the error for a missing array: ``kind``, or damage if its method declares such an array."""
        arrays = self.__dict__.get("_arrays", {})
        declared = arrays and name in result_law(self._facts["kind"]).arrays
        error = MissingError if declared else kind
        return error(printable(f"this result has no {name!r}; it has {', '.join(sorted(arrays))}"))

    def __getitem__(self, name: str) -> npt.NDArray[Any] | LazyArray:
        """An array by name."""
        if name not in self._arrays:
            raise self._missing(name, KeyError)
        array: npt.NDArray[Any] | LazyArray = getattr(self, name)
        return array

    def matrix(self, name: str) -> Source:
        """An array of the result as a ``Source``, which methods read like any input matrix."""
        from rankfold.pipeline.formats import open_source

        self.require_lawful(*{name} & self._arrays.keys())
        source = open_source(getattr(self, name) if self._in_memory else f"{self.path}::{name}")
        self.require_edition()
        return source

    def __iter__(self) -> Iterator[str]:
        self.require_edition()
        return iter(sorted(self._arrays))

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __len__(self) -> int:
        return len(self._arrays)

    def __bool__(self) -> bool:
        return True

    def __contains__(self, name: object) -> bool:
        return name in self._arrays

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """The only array of a result; ``TypeError`` if it has several."""
        if len(self) != 1:
            raise TypeError(
                f"a result has several arrays, {', '.join(self)}: say which one, as "
                f"numpy.asarray(r.{next(iter(self), 'name')})"
            )
        return np.asarray(self[next(iter(self))], dtype)

    def __dir__(self) -> list[str]:
        own = (name for name in super().__dir__() if not name.startswith(("require", "_")))
        return [*own, *self._arrays]

    def __repr__(self) -> str:
        return one_line(self._facts, self._arrays)

    def _repr_html_(self) -> str:
        """Arrays and facts as HTML tables for notebooks."""
        return html_table(self._facts, {name: self._arrays[name] for name in self}, self.dimensions)

    def require_whole(self, *, sums: bool = False) -> None:
        """Raise ``DataError`` if files are missing, or differ in length or, with ``sums``, in checksum."""
        self.require_edition()
        if self._temporary is None:
            require_whole(self._path, sums=sums)
            self.require_lawful(*self._arrays)

    def require_lawful(self, *names: str) -> None:
        """Raise ``DataError`` if one of the named arrays breaks its law (``law.py``); each is checked once.

        Arrays above ``LAZY_BYTES`` are not read; their parts are checked when they are used.
        """
        law = result_law(self.attrs["kind"])
        mine = set(names) & self._arrays.keys() - self._lawful
        for name in mine if self._temporary is None else ():
            if (array := self._arrays[name]).nbytes <= LAZY_BYTES:
                law.of(name).require_all(f"{self._path}: {name}", array, self._lengths)
            self._lawful.add(name)

    def _require_whole(self, name: str, *, sums: bool = False) -> None:
        """Check the files and values of an array, once only, since loops slice it again and again.

        ``sums`` as in ``require_whole``.
        """
        if self._temporary is None and name not in self._whole:
            require_whole(self._path, sums=sums, below="" if name == "X" else name)
            self.require_lawful(name)
            self._whole.add(name)

    def require_edition(self) -> None:
        """Raise ``DataError`` unless the files that it was opened on are still there."""
        if self._edition is not None:
            self._edition.require()

    @property
    def path(self) -> Path:
        """Path of the result; one in memory is written there when the path is first requested."""
        self.require_edition()
        if self._in_memory and not (self._path / "zarr.json").exists():
            if not self._path.is_dir():
                raise DataError(f"{self._path}, where this result lay, was removed. Make it once more")
            write_group(self._path, {name: fact for name, fact in self._facts.items() if name != "schema"})
        return self._path

    @property
    def graph(self) -> Any:
        """Neighbors of a knn as a SciPy CSR array of distances, or of a fuzzy_graph of weights, in memory.

        On disk it is ``PATH::graph``.
        """
        import scipy.sparse

        from rankfold.pipeline.formats.csr import csr_source

        if "graph" not in self._groups and not (self.path / "graph").exists():
            kind = self._facts["kind"]
            raise InputError(
                f"{self._path} has no graph: it is the result of {kind}, not of knn or fuzzy_graph"
            )
        self._require_whole("graph")
        graph = csr_source(str(self.path), "graph")
        graph.check()
        values, columns = graph.data.take(0, graph.nnz), graph.places(0, graph.nnz)
        return scipy.sparse.csr_array((values, columns, graph.pointers(0, graph.shape[0])), graph.shape)

    def dimensions(self, name: str) -> tuple[str, ...]:
        """Name of each axis of the array ``name``, such as ``row``, ``column`` or ``component``."""
        folder = self.path if name == "X" else self.path / name
        try:
            document = read_json(folder / "zarr.json")
            return tuple(map(str, document.get("dimension_names") or ()))
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise DataError(f"{folder}/zarr.json is not whole, so nothing can be said of its axes") from error

    @property
    def run(self) -> dict[str, Any]:
        """Record of the attempts that made the result: times, memory, machines; empty if it was not kept."""
        record = load_record(self.path.with_name(self._path.name + ".run") / "run.json")
        return record if record["attempts"] else {}


def _let_go(temporary: object) -> None:
    """No-op, called when an array is garbage collected: until then its argument, the store, stays alive."""


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
        The folder holds no result; ``SourceNotFoundError`` if it does not exist.

    Notes
    -----
    Reads only metadata. Each array is checked when it is first used.

    Examples
    --------
    >>> import numpy as np
    >>> import tempfile
    >>> import rankfold as rf
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = rf.svd(np.ones((60, 8)), 1, out=f"{folder}/r.zarr")
    ...     rf.open_result(f"{folder}/r.zarr").s.shape
    (1,)
    """
    return Result(path)
