"""Copy results of stages into files of AnnData or netCDF, or tables: once, and again when they have changed.

Only what a workflow has written is replaced. Files of AnnData and netCDF state which result they hold, and
hold a digest by which it is recognized. A table has no room for that, so the record of the workflow keeps
size and time of the tables that it wrote.

Pictures of results of stages: drawn when all stages are done, and again when their content has changed.

A picture contains a digest of what it shows, by which it is recognized. Other files are never replaced.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rankfold.pipeline.errors import InputError, OutputError, RankfoldError
from rankfold.pipeline.exporting.cell_files import held_in_cells, require_cells
from rankfold.pipeline.exporting.cells import digest_of_facts, key_of, kind_of, paths_of
from rankfold.pipeline.exporting.fields import facts_in_dataset
from rankfold.pipeline.exporting.frames import TABLES, Table
from rankfold.pipeline.exporting.outcome import exported_facts
from rankfold.pipeline.exporting.plots.canvas import picture_output, write_picture
from rankfold.pipeline.formats.locate import require_path, split_location
from rankfold.pipeline.formats.open_files import file_version, library
from rankfold.pipeline.outputs import FileOutput, carries, file_output, head_of
from rankfold.pipeline.storage.result import Result
from rankfold.workflows.flows.flow_file import resolve_path
from rankfold.workflows.flows.graph import StageNode, resolve
from rankfold.workflows.flows.record import Record
from rankfold.workflows.flows.stage_models import Destination, StagePicture
from rankfold.workflows.messages import with_place

NEW_FILES = (".nc", *TABLES)
"""Suffixes of files that hold one result and nothing else."""

KINDS = {"key_added": "files of AnnData", "like": ".nc files", "physical": ".nc files", "array": "tables"}
"""Kind of file that a key of ``Destination`` is for, by key; for other files it is refused."""


def require_distinct(steps: Iterable[StageNode], folder: Path) -> None:
    """Raise ``InputError`` if two results would be written to one file, or to one key of an AnnData file.

    ``folder`` is that of the workflow file, from which paths are relative.
    """
    places: dict[tuple[str, str], str] = {}
    for step in steps:
        for path, into in _destinations(step, folder):
            key = "" if path.suffix in NEW_FILES else key_of(step.stage.method, into.key_added)
            if (str(path), key) in places:
                raise InputError(
                    f"into: {places[str(path), key]} and {step.name} both go into {path}"
                    f"{f' as {key}' if key else ''}: give one of them another file or key_added"
                )
            places[str(path), key] = step.name


def require_destinations(step: StageNode, folder: Path, record: Record) -> None:
    """Raise if a file named by ``into`` cannot take the result of a step, before it is computed.

    ``folder`` is that of the workflow file, from which paths are relative; ``record`` knows the tables that
    the workflow wrote.

    Raises
    ------
    InputError
        The file is missing, or a key is for another kind of file.
    OutputError
        It holds data that no workflow wrote.
    """
    for path, into in _destinations(step, folder):
        kind = {".nc": ".nc files", **dict.fromkeys(TABLES, "tables")}.get(path.suffix, "files of AnnData")
        for key, where in KINDS.items():
            if getattr(into, key) and where != kind:
                raise InputError(f"into: {key} is for {where}, and {path} is none")
        if path.suffix in TABLES:
            library("pyarrow", extra="formats", what=f"writing {path}")
            _table_output(path, record)
        elif path.suffix == ".nc":
            if path.exists() and facts_in_dataset(path) is None:
                raise OutputError(
                    f"into: {path} exists and is not of a workflow. Remove it, or choose another name"
                )
        else:
            require_cells(path)
            paths = paths_of(step.stage.method, into.key_added)
            held = held_in_cells(path, key_of(step.stage.method, into.key_added), paths)
            _require_ours(path, held.present & set(paths) if held.digest is None else held.changed)


def put_into(step: StageNode, result_path: Path, folder: Path, record: Record) -> None:
    """Copy the result at ``result_path`` into the files that its stage names, unless they already hold it.

    ``folder`` is that of the workflow file, from which paths are relative. ``record`` notes tables.
    """
    for path, into in _destinations(step, folder):
        result = Result(result_path)
        if path.suffix in TABLES:
            _put_into_table(path, result, into, record)
        elif path.suffix == ".nc":
            _put_into_dataset(path, result, into, folder)
        else:
            _put_into_cells(path, result, into)


def _destinations(step: StageNode, folder: Path) -> Iterator[tuple[Path, Destination]]:
    """Yield the path of each additional file for the result of a step, with its options.

    Paths are relative to ``folder``, that of the workflow file. For a step of a parameter sweep, the name of
    a new file includes the value.
    """
    for into in step.stage.into:
        new = Path(into.file).suffix in NEW_FILES
        yield (step.file(into.file, folder) if new else Path(resolve_path(into.file, folder))), into


def _put_into_cells(path: Path, result: Result, into: Destination) -> None:
    paths = paths_of(result.attrs["kind"], into.key_added)
    held = held_in_cells(path, key_of(kind_of(result), into.key_added), paths)
    same = held.digest == digest_of_facts(exported_facts(result))
    if same and set(paths) <= held.present and not held.changed:
        return
    _require_ours(path, held.changed)
    result.to_anndata(path, key_added=into.key_added, overwrite=held.digest is not None)


def _put_into_dataset(path: Path, result: Result, into: Destination, folder: Path) -> None:
    held = facts_in_dataset(path)
    if held == exported_facts(result, physical=into.physical):
        return
    like = None if into.like is None else resolve_path(into.like, folder)
    result.to_netcdf(path, like=like, physical=into.physical, overwrite=held is not None)


def _put_into_table(path: Path, result: Result, into: Destination, record: Record) -> None:
    digest = digest_of_facts({**exported_facts(result), "array": into.array})
    if any(known["of"] == digest for known in _known(path, path, record)):
        return
    output = _table_output(path, record)
    with output.draft() as draft:
        Table.of(result, path, into.array).write(draft, path.suffix)
        record.note_table(path, {"of": digest, **_trace(draft)})


def _table_output(path: Path, record: Record) -> FileOutput:
    """Output file of a table; an existing table is replaced only if it is unchanged since this workflow wrote
    it.
    """

    def foreign(there: Path) -> str | None:
        return None if _known(path, there, record) else "is not as this workflow wrote it"

    return file_output(path, foreign, replaces=True)


def _known(path: Path, there: Path, record: Record) -> list[dict[str, Any]]:
    """Entries in the record on the table ``path`` whose size and time are those of the file ``there``.

    Empty if the workflow did not write that file.
    """
    if not there.exists():
        return []
    trace = _trace(there)
    return [known for known in record.tables.get(str(path), []) if trace.items() <= known.items()]


def _trace(path: Path) -> dict[str, int]:
    """Size and modification time of a table, by which it is recognized."""
    stat = path.stat()
    return {"bytes": stat.st_size, "time": stat.st_mtime_ns}


def _require_ours(path: Path, foreign: Iterable[str]) -> None:
    names = ", ".join(sorted(foreign))
    if names:
        raise OutputError(
            f"into: {path} holds {names}, which this workflow did not write: it is never replaced. Remove "
            "it, or say into: {file: ..., key_added: ...} for another name"
        )


MARK = "rankfold-picture:"
"""Text in a picture of a workflow, before the digest of what it shows."""

OURS = carries(MARK, "is not of a workflow")
"""Function of a path: None for a picture that a workflow drew, else a message that it is none."""


class Pictures:
    """Pictures of all steps of a workflow; a step is a stage with one value of a parameter sweep, or without.

    ``outputs`` is the folder of results, ``document`` the workflow file.
    """

    def __init__(self, steps: Sequence[StageNode], outputs: Path, document: Any) -> None:
        self._steps, self._outputs, self._document = steps, outputs, document
        self._folder = document.path.absolute().parent

    def require(self) -> None:
        """Raise if a picture cannot be drawn, before any stage runs.

        Raises
        ------
        InputError
            Its type is unknown, two share one name, or its colors come from neither a stage nor a file.
        OutputError
            A file of that name was not drawn by a workflow.
        """
        paths: dict[Path, str] = {}
        for step in self._steps:
            try:
                for picture in step.stage.picture:
                    path = step.file(picture.file, self._folder)
                    if path in paths:
                        raise InputError(f"picture: {paths[path]} and {step.name} both draw {path}")
                    paths[path] = step.name
                    picture_output(path, overwrite=True, foreign=OURS)
                    self._options(step, picture)
            except RankfoldError as error:
                raise with_place(error, step.name, step.stage_name, self._document) from error

    def draw(self, step: StageNode, result_path: Path) -> Iterator[dict[str, Any]]:
        """Draw those pictures of a step that do not show its result at ``result_path`` yet.

        Yields the facts of each picture of the step, drawn or not: ``file``, ``kind`` and ``options``.
        """
        try:
            for picture in step.stage.picture:
                path = step.file(picture.file, self._folder)
                options = self._options(step, picture)
                result = Result(result_path)
                digest = _digest([result.attrs, picture.kind, options, _version_of(options)])
                if _digest_in(path) != digest:
                    output = picture_output(path, overwrite=True, foreign=OURS)
                    figure = result.plot(picture.kind, **options)
                    write_picture(figure, output, {"Identifier": MARK + digest})
                yield {"file": str(path), "kind": picture.kind, "options": options}
        except RankfoldError as error:
            raise with_place(error, step.name, step.stage_name, self._document) from error

    def _options(self, step: StageNode, picture: StagePicture) -> dict[str, Any]:
        """Arguments of ``Result.plot`` for a picture of a step, with absolute paths."""
        options = picture.options()
        for name in ("color", "names"):
            if (text := options.get(name)) is not None:
                options[name] = self._column(step, text)
        return options

    def _column(self, step: StageNode, text: str) -> str:
        """Path of the column of colors that ``text`` names, in a file or in the result of a stage.

        Of a stage in a parameter sweep, it is the step with the same value as ``step``.
        """
        tail = step.name.removeprefix(step.stage_name)
        names = [each.name for each in self._steps]
        reference = resolve(text, (), [name.removesuffix(tail) for name in names if name.endswith(tail)])
        name = f"{reference.stage}{tail}" if reference is not None else ""
        if name not in names:
            reference = resolve(text, (), names)
            name = "" if reference is None else reference.stage
        if reference is not None:
            return f"{self._outputs / name}.zarr" + f"::{reference.array}" * bool(reference.array)
        stage = resolve(text, (), [each.stage_name for each in self._steps])
        if stage is not None:
            choices = " or ".join(each.name for each in self._steps if each.stage_name == stage.stage)
            raise InputError(f"picture: {text} is of a stage that is swept. Say which step: {choices}")
        place = resolve_path(text, self._folder)
        try:
            require_path(split_location(place)[0])
        except InputError as error:
            raise InputError(f"picture: {text} is neither STAGE.ARRAY nor a file: {error}") from None
        return place


def _digest_in(path: Path) -> str | None:
    """The digest that a picture contains; None if it has none or cannot be read."""
    try:
        match = re.search(MARK.encode() + rb"([0-9a-f]{32})", head_of(path))
    except OSError:
        return None
    return None if match is None else match[1].decode()


def _digest(facts: Any) -> str:
    text = json.dumps(facts, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _version_of(options: Mapping[str, Any]) -> list[Any]:
    """Facts that change when the files that the options ``color`` and ``names`` name have changed."""
    versions: list[Any] = []
    for name in ("color", "names"):
        if name not in options:
            continue
        store, array = split_location(options[name])
        if not os.path.isdir(store):
            versions.append(file_version(store))
            continue
        try:
            versions.append(Result(store).attrs)
        except InputError:
            files = (os.path.join(store, array, each) for each in ("zarr.json", ".zarray", ".zattrs"))
            versions.append([file_version(each) for each in files if os.path.exists(each)])
    return versions
