"""Check that results of a workflow can be written, and fit on the disk together with the scratch (temporary
files) of one stage.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rankfold.pipeline.disk import bytes_under, device_of, free_bytes, nearest_folder
from rankfold.pipeline.errors import DiskSpaceError, OutputError
from rankfold.pipeline.storage.run_directory import scratch_of_runs
from rankfold.pipeline.units import format_bytes
from rankfold.settings.yaml_file import Document


@dataclass(frozen=True, slots=True)
class Demand:
    """Disk space that a stage needs."""

    name: str
    path: Path
    """The path of its result."""

    scratch: Path
    """Folder of its scratch (temporary files); by default that of the result."""

    scratch_bytes: int
    checkpoint_bytes: int
    """Bytes of checkpoints, which lie next to the result and are removed at the end of the stage."""

    result_bytes: int
    surplus: tuple[Path, ...] | None = None
    """Earlier results that are removed when the new one is complete; None for the one that it replaces."""


def require_room(demands: Sequence[Demand], outputs: Path, document: Document) -> None:
    """Raise ``DiskSpaceError`` if results do not fit, before anything is written.

    Stages run one after the other, so only the largest scratch counts. Files of an earlier attempt count as
    space already taken. Results that a new one replaces free their space when it is complete: the result
    before it, or the oldest if several are kept.
    """
    free = free_bytes(outputs)
    need = _most(demands, outputs, [(0, 0)] * len(demands))
    if need > free:  # only then is it worth reading the size of every file
        need = _most(demands, outputs, [_leftovers_of(one) for one in demands])
    if need > free:
        results = sum(one.result_bytes for one in demands)
        largest = max(demands, key=lambda one: one.result_bytes + _beside(one, outputs))
        total = largest.result_bytes + _beside(largest, outputs)
        scratch = max(_beside(one, outputs) for one in demands)
        raise DiskSpaceError(
            document.message_at(
                ("outputs",),
                f"results of {len(demands)} stage{'s' * (len(demands) != 1)} take {format_bytes(results)}, "
                f"scratch at most {format_bytes(scratch)} at a time, so that "
                f"{format_bytes(need)} must be free, but {outputs} has {format_bytes(free)}. Free "
                f"{format_bytes(need - free)}, name outputs on another file system, or move scratch with "
                f"scratch: DIR under resources. {largest.name} takes most, {format_bytes(total)}",
            )
        )
    for one in demands:
        if device_of(one.scratch) == device_of(outputs):
            continue
        missing = one.scratch_bytes - free_bytes(one.scratch)
        if missing > 0 and missing > _scratch_left(one):
            raise DiskSpaceError(
                document.message_at(
                    ("resources", "scratch"),
                    f"scratch of {one.name} takes {format_bytes(one.scratch_bytes)}, but {one.scratch} has "
                    f"{format_bytes(free_bytes(one.scratch))} free. Free some space, or name another folder",
                )
            )


def writable(folder: Path) -> bool:
    """True if files can be made in a folder, which may not exist yet."""
    return os.access(nearest_folder(folder), os.W_OK | os.X_OK)


def require_writable(outputs: Path, document: Document) -> None:
    """Raise ``OutputError`` if nothing can be written to the folder of results,
    before anything is computed.
    """
    if not writable(outputs):
        folder = nearest_folder(outputs)
        message = f"results go to {outputs}, but {folder} cannot be written to. Name outputs elsewhere"
        raise OutputError(document.message_at(("outputs",), message))


def _most(demands: Sequence[Demand], outputs: Path, leftovers: Sequence[tuple[int, int]]) -> int:
    """Largest number of bytes in use at any time, beyond those in use now.

    ``leftovers`` holds for each stage what ``_leftovers_of`` returns.
    """
    most = results = 0
    for one, (attempt, old) in zip(demands, leftovers, strict=True):
        most = max(most, results + one.result_bytes + _beside(one, outputs) - attempt)
        results += one.result_bytes - attempt - old
    return max(most, results)


def _beside(one: Demand, outputs: Path) -> int:
    """Bytes that a stage needs on the disk of the results while it runs, in addition to its result."""
    elsewhere = device_of(one.scratch) != device_of(outputs)
    return one.checkpoint_bytes + (0 if elsewhere else one.scratch_bytes)


def _leftovers_of(one: Demand) -> tuple[int, int]:
    """Bytes on the disk of the results that become free: files of an earlier attempt,
    and results to be removed.
    """
    gone = (one.path,) if one.surplus is None else one.surplus
    attempt = bytes_under(one.path.with_name(one.path.name + ".run"))
    if device_of(one.scratch) == device_of(one.path):
        attempt += _scratch_left(one)
    return attempt, sum(map(bytes_under, gone))


def _scratch_left(one: Demand) -> int:
    """Bytes that an earlier attempt has left in the folder of scratch."""
    run = one.path.with_name(one.path.name + ".run")
    return sum(map(bytes_under, scratch_of_runs(run, one.scratch)))
