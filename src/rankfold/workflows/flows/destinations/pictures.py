"""Pictures of results of stages: drawn when all stages are done, and again when their content has changed.

A picture contains a digest of what it shows, by which it is recognized. Other files are never replaced.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rankfold.pipeline.errors import InputError, RankfoldError
from rankfold.pipeline.exporting.plots.files import picture_output, write_picture
from rankfold.pipeline.formats.locate import require_path, split_location
from rankfold.pipeline.formats.open_files import file_version
from rankfold.pipeline.outputs import carries, head_of
from rankfold.pipeline.storage.result import Result
from rankfold.workflows.flows.flow_file import resolve_path
from rankfold.workflows.flows.graph import StageNode, resolve
from rankfold.workflows.flows.stage_models import StagePicture
from rankfold.workflows.messages import with_place

MARK = "rankfold-picture:"
"""Text before the digest in a picture."""

OURS = carries(MARK, "is not of a workflow")
"""Function of a path: None for a picture that a workflow drew, else a message that it is none."""


class Pictures:
    """Pictures of all steps of a workflow; a step is a stage with one value of a
    parameter sweep, or without one.
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
        """Draw the pictures of a step that are not up to date; yields the facts of each picture."""
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
        """Options of ``Result.plot``, with absolute paths."""
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
    """Facts that change when the files that the options name have changed."""
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
