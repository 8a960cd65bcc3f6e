"""Write a result into a ``.h5ad`` file or a Zarr store of AnnData, next to existing elements: all or nothing.

A file is copied first, since HDF5 cannot undo changes; the complete copy then replaces it by a rename. In a
Zarr store, elements are written into a work folder there and renamed into place. ``X`` is never opened.

The trap: a Zarr store that AnnData wrote has consolidated metadata, and refuses changes unless it is opened
without them. They are consolidated again at the end, since readers that use them would see nothing new.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rankfold.pipeline.data.names import Axis, distinct
from rankfold.pipeline.durable import flush, flush_tree, rename, rename_durably
from rankfold.pipeline.errors import DiskSpaceError, InputError, OutputError, SourceNotFoundError
from rankfold.pipeline.exporting.cells import FACTS, Cells, Claim, cells_of, mark_of, require_free
from rankfold.pipeline.exporting.outcome import Outcome
from rankfold.pipeline.formats.frame_columns import index_of, is_records
from rankfold.pipeline.formats.hdf5 import close
from rankfold.pipeline.formats.locate import node_kind
from rankfold.pipeline.formats.open_files import library, open_hdf5, refuse_damage
from rankfold.pipeline.outputs import head_of, lock_folder
from rankfold.pipeline.regular import open_descriptor, read_json
from rankfold.pipeline.removal import remove, remove_empty
from rankfold.pipeline.units import format_bytes

WORK = ".rankfold-export"
"""Suffix of an unfinished file, or name of the folder of unfinished elements in a store."""

WORK_MARK: dict[str, Any] = {"rankfold": "unfinished elements"}
"""Attributes of the group of unfinished elements, by which it is recognized if a process was killed."""

HDF5_MARK = b"\x89HDF"
"""First bytes of each HDF5 file."""

DICT = {"encoding-type": "dict", "encoding-version": "0.1.0"}

ARRAY = {"encoding-type": "array", "encoding-version": "0.2.0"}

Elements = Callable[[Cells], Mapping[str, Any]]
"""Function that makes the elements of a result, by path, for the object or file that is to take them."""


class Added(NamedTuple):
    """Elements that ``write_into`` has added to a file or store, or found there."""

    elements: tuple[str, ...]
    """Paths of the elements, such as ``obsm/X_pca``."""

    already_there: bool = False
    """True if an earlier call wrote them, so that nothing was left to do."""


def write_into(path: Path, result: Outcome, key: str | None, *, overwrite: bool, in_place: bool) -> Added:
    """Add a result to a file or store.

    Parameters
    ----------
    path : Path
        A ``.h5ad`` file, or the folder of a Zarr store.
    result, key
        The result to add, and the name that replaces scanpy's names, as for ``cells_of``.
    overwrite : bool
        True to replace elements of these names. Without it, those of the same result are left as they are.
    in_place : bool
        True to change a file itself, without a copy: a kill may then leave it damaged.

    Returns
    -------
    Added
        Elements that were written, or existed already.

    Raises
    ------
    SourceNotFoundError, InputError, OutputError, DiskSpaceError
        The path does not exist; AnnData did not write it; it holds such elements, or is being written to; no
        room for a copy.
    """
    library("anndata", extra="cells", what=f"writing into {path}")
    path = Path(os.path.realpath(path))  # write the target of a link, not the link
    require_cells(path)
    elements = functools.partial(cells_of, result, key=key)
    if path.is_dir():
        return _write_into_store(path, elements, overwrite=overwrite)
    return _write_into_file(path, elements, overwrite=overwrite, in_place=in_place)


def subscripted(element: str) -> str:
    """Python expression that follows the name of an AnnData object to access an element.

    >>> subscripted("obsm/X_pca"), subscripted("uns/rankfold/pca")
    ("obsm['X_pca']", "uns['rankfold']['pca']")
    """
    part, *names = element.split("/")
    return part + "".join(f"[{name!r}]" for name in names)


def require_cells(path: Path) -> None:
    """Raise ``SourceNotFoundError`` if nothing exists at the path."""
    if not path.exists():
        raise SourceNotFoundError(
            f"{path} does not exist. Results are added to a .h5ad file or Zarr store that AnnData wrote, or "
            "written as a new .nc, .csv, .tsv or .parquet file"
        )


def _cells_in(root: Any, name: str) -> Cells:
    """Observations and variables of an open file or store, called ``name``, with the names in their index."""
    if any(is_records(root.get(part)) for part in ("obs", "var")):
        raise InputError(
            f"{name} was written by AnnData before version 0.7, and takes nothing new. Write it anew: "
            "anndata.read_h5ad(old).write_h5ad(new)"
        )
    axes = []
    for part in ("obs", "var"):
        try:
            names = index_of(root[part])
            axes.append(distinct(Axis.of(part, int(names.shape[0]), names)))
        except (KeyError, ValueError) as error:
            raise InputError(f"{name} was not written by AnnData: it has no index of {part}") from error
    return Cells(name, (axes[0], axes[1]), lambda path: _look(root, path))


def _look(root: Any, path: str) -> Any:
    """Element at a path of an open file or store; None if it is missing. Implements ``Cells.look``."""
    if path not in root:
        return None
    node = root[path]
    if path.startswith(FACTS):
        return {name: _text(node[name]) for name in node} if hasattr(node, "keys") else _text(node)
    return list(node) if "/" not in path else node


def _text(node: Any) -> str:
    return str(node.asstr()[()] if hasattr(node, "asstr") else node[()])


class Held(NamedTuple):
    """State of a result of rankfold in a file: its digest, and its elements that exist or have changed."""

    digest: str | None
    """Digest of the attributes of the result; None if the file holds no result of rankfold under this key."""

    present: frozenset[str]
    """Paths of elements that exist in the file, among those asked for and those of the result."""

    changed: frozenset[str]
    """Paths of elements of the result whose values have changed since rankfold wrote them."""


def held_in_cells(path: Path, key: str, paths: Sequence[str] = ()) -> Held:
    """Look up, in the file or store at ``path``, the result under ``key``, and which of ``paths`` exist."""
    with refuse_damage(str(path)), _reading(path) as root:
        return _held(root, key, paths)


def _held(root: Any, key: str, paths: Sequence[str]) -> Held:
    claim = Claim.of(_look(root, f"{FACTS}{key}"))
    marks = {} if claim is None else claim.marks
    present = frozenset(each for each in (*paths, *marks) if each in root)
    changed = frozenset(each for each in marks if each in present and mark_of(root[each]) != marks[each])
    return Held(None if claim is None else claim.digest, present, changed)


def _is_written(root: Any, elements: Mapping[str, Any]) -> bool:
    """True if all these elements exist in an open file, are of the same result, and were not changed."""
    (facts,) = (name for name in elements if name.startswith(FACTS))
    held = _held(root, facts.removeprefix(FACTS), sorted(elements))
    same = Claim.of(_look(root, facts)) == Claim.of(elements[facts])
    return same and set(elements) <= held.present and not held.changed


def _require_ours(root: Any, elements: Mapping[str, Any], path: Path) -> None:
    """Raise ``OutputError`` if the file at ``path``, open as ``root``, holds such elements of others.

    These are elements that rankfold did not write, or that have changed since.
    """
    (key,) = (name.removeprefix(FACTS) for name in elements if name.startswith(FACTS))
    own = {name for name in elements if not name.startswith(FACTS)}
    held = _held(root, key, sorted(own))
    if foreign := sorted(own & (held.present if held.digest is None else held.changed)):
        raise OutputError(
            f"{path} holds {', '.join(foreign)}, which rankfold did not write: it is never replaced. "
            "Remove it, or say key_added= (--key-added) for another name"
        )


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[Any]:
    if path.is_dir():
        from rankfold.pipeline.chunks.regular_store import zarr_group

        yield zarr_group(path, consolidated=False)
        return
    with _opened(path, "r") as file:
        yield file


# HDF5 ---------------------------------------------------------------------------------------------


def _write_into_file(path: Path, elements: Elements, *, overwrite: bool, in_place: bool) -> Added:
    if in_place:
        close(path)
    with _locked(path, os.O_RDWR, fcntl.LOCK_EX if in_place else fcntl.LOCK_SH) as held:
        unlocked = {"locking": False} if in_place else {}  # else HDF5 would be blocked by our own lock
        with _opened(path, "r", **unlocked) as file, refuse_damage(str(path)):
            found = elements(_cells_in(file, str(path)))
            if not overwrite and _is_written(file, found):
                return Added(tuple(found), already_there=True)
            require_free(found, lambda part, name: part in file and name in file[part], overwrite=overwrite)
            _require_ours(file, found, path)
        if in_place:
            with _opened(path, "r+", locking=False) as file:
                _write_elements(file, found)
            flush(path)
            return Added(tuple(found))
        copy = path.with_name(f".{path.name}{WORK}")
        _require_room(path)
        _require_own_copy(copy)
        with _locked(copy, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, fcntl.LOCK_EX):
            try:
                if not os.path.samestat(os.fstat(held), os.stat(path)):
                    raise OutputError(f"{path} was replaced while it was read. Give the command again")
                shutil.copyfile(path, copy)
                shutil.copymode(path, copy)
                with _opened(copy, "r+", locking=False) as file:
                    _write_elements(file, found)
                flush(copy)
            except BaseException:
                remove(copy)
                raise
            rename_durably(copy, path)  # from then on, that name may be the copy of another process
    return Added(tuple(found))


def _require_own_copy(copy: Path) -> None:
    """Raise ``OutputError`` if there is a file at ``copy`` that no killed process can have left.

    Such a process leaves an empty file, or one that begins as HDF5 files do.
    """
    if os.path.lexists(copy):
        if copy.is_file() and not copy.is_symlink() and head_of(copy)[:4] in (b"", HDF5_MARK):
            return
        raise OutputError(
            f"{copy} is where a copy has to be while elements are added, and was not made by rankfold. Move "
            "it away"
        )


@contextlib.contextmanager
def _opened(path: Path, mode: str, **flags: bool) -> Iterator[Any]:
    try:
        file = open_hdf5(path, mode, **flags)
    except OSError as error:
        raise InputError(f"{path} is not an HDF5 file that can be opened: {error}") from error
    with file:
        yield file


@contextlib.contextmanager
def _locked(path: Path, flags: int, lock: int) -> Iterator[int]:
    """Hold a lock on a file within the block: a shared one excludes writers, an exclusive one everybody.

    ``flags`` are those of ``os.open``, ``lock`` is one of ``fcntl``. Yields the descriptor of the file. HDF5
    locks each file that it opens, so ``OutputError`` is raised for one that is open elsewhere.
    """
    try:
        descriptor = open_descriptor(path, flags)
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, lock | fcntl.LOCK_NB)
        yield descriptor
    except BlockingIOError as error:
        raise OutputError(
            f"{path} is open elsewhere. Close it there, as with adata.file.close(), and run again"
        ) from error
    finally:
        os.close(descriptor)


def _require_room(path: Path) -> None:
    size, free = path.stat().st_size, shutil.disk_usage(path.parent).free
    if free < size:
        raise DiskSpaceError(
            f"{path} is {format_bytes(size)} and is copied before it is changed, but {path.parent} has "
            f"{format_bytes(free)} left. Free some, or say in_place=True (--in-place): a kill may then leave "
            "it damaged"
        )


# Zarr ---------------------------------------------------------------------------------------------


def _write_into_store(path: Path, elements: Elements, *, overwrite: bool) -> Added:
    import zarr

    from rankfold.pipeline.chunks.regular_store import RegularStore

    if node_kind(str(path)) != "group":
        raise InputError(f"{path} is no Zarr group, so AnnData did not write it")
    with refuse_damage(str(path)):
        root = zarr.open_group(RegularStore(path), mode="r+", use_consolidated=False)
        if is_consolidated := _is_consolidated(path):
            list(root.members(max_depth=None))  # so that it can be consolidated again
        found = elements(_cells_in(root, str(path)))
        if not overwrite and _is_written(root, found):
            return Added(tuple(found), already_there=True)
        require_free(found, lambda part, name: f"{part}/{name}" in root, overwrite=overwrite)
        _require_ours(root, found, path)
    with _work_folder(path) as work:
        group = zarr.open_group(
            RegularStore(work), mode="w", zarr_format=root.metadata.zarr_format, attributes=WORK_MARK
        )
        _write_elements(group, found)
        flush_tree(work)
        for element in found:
            _ensure_group(root, element)
            _replace(work / element, path / element, work)
            _list_column(root, element)
    if is_consolidated:
        zarr.consolidate_metadata(RegularStore(path), zarr_format=root.metadata.zarr_format)
        flush(path)
    return Added(tuple(found))


@contextlib.contextmanager
def _work_folder(store: Path) -> Iterator[Path]:
    """Path in a store for unfinished elements, of this process alone; removed at the end of the block.

    One that a killed process left is removed first; one that rankfold did not make is refused.
    """
    work, lock = store / WORK, None
    try:
        lock = lock_folder(store)
    except BlockingIOError as error:
        raise OutputError(f"another process adds to {store}. Wait for it") from error
    except OSError:  # a file system without locks on folders
        pass
    try:
        if os.path.lexists(work) and not (remove_empty(work) or _is_work(work)):
            raise OutputError(
                f"{work} is where elements have to be while they are written, and was not made by rankfold. "
                "Move it away"
            )
        remove(work)
        try:
            yield work
        finally:
            remove(work)
    finally:
        if lock is not None:
            os.close(lock)


def _is_work(work: Path) -> bool:
    """True for a group of unfinished elements, which a killed process left."""
    from rankfold.pipeline.chunks.regular_store import zarr_group

    try:
        return not work.is_symlink() and dict(zarr_group(work, consolidated=False).attrs) == WORK_MARK
    except (InputError, OSError, KeyError, ValueError, TypeError, AttributeError):
        return False


def _replace(source: Path, target: Path, work: Path) -> None:
    """Rename the folder ``source`` to ``target``; an existing one is moved into ``work``, and removed."""
    if target.exists():
        aside = work / f"{target.name}.old"
        rename(target, aside)
        remove(aside)
    rename_durably(source, target)


def _is_consolidated(path: Path) -> bool:
    if (path / ".zmetadata").exists():
        return True
    try:
        return bool(read_json(path / "zarr.json").get("consolidated_metadata"))
    except (OSError, ValueError):
        return False


# Elements -----------------------------------------------------------------------------------------


def _write_elements(root: Any, elements: Mapping[str, Any]) -> None:
    """Write each element, by path, into an open file or store in AnnData's encoding; large ones by chunks."""
    write_elem = library("anndata.io", extra="cells", what="writing elements").write_elem
    for path, value in elements.items():
        _ensure_group(root, path)
        parent, _, name = path.rpartition("/")
        group = root[parent]
        if name in group:
            del group[name]
        if hasattr(value, "chunks"):
            _write_by_chunks(group, name, value)
        else:
            write_elem(group, name, value)
        _list_column(root, path)


def _list_column(root: Any, path: str) -> None:
    """Add the column at ``path``, as ``obs/kmeans``, to the ``column-order`` of its frame in an open file.

    Without it, AnnData does not read the column. Other elements are left as they are.
    """
    part, _, name = path.partition("/")
    order = list(root[part].attrs.get("column-order", ())) if part in ("obs", "var") else [name]
    if name not in order:
        root[part].attrs["column-order"] = [str(each) for each in (*order, name)]


def _write_by_chunks(group: Any, name: str, values: Any) -> None:
    """Write ``values``, an array on disk, as ``name`` of an open group, the rows of one chunk at a time."""
    create = getattr(group, "create_array", None) or group.create_dataset
    array = create(name, shape=values.shape, dtype=values.dtype, chunks=values.chunks)
    array.attrs.update(ARRAY)
    for start in range(0, values.shape[0], values.chunks[0]):
        part = slice(start, min(start + values.chunks[0], values.shape[0]))
        array[part] = values[part]


def _ensure_group(root: Any, path: str) -> None:
    """Create the groups above the element at ``path`` of an open file, marked as AnnData marks them."""
    parts = path.split("/")[:-1]
    for depth in range(1, len(parts) + 1):
        name = "/".join(parts[:depth])
        if name not in root:
            root.create_group(name).attrs.update(DICT)
