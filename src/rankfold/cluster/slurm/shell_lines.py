"""Lines that job scripts share: settings of workers, and paths as SLURM parses them.

SLURM splits an option of a script like a shell, with comments from ``#`` on, and replaces ``%j`` and the like
in names of logs. In double quotes, spaces, quotes, ``$`` and ``#`` are kept, as tried with 22.05.

The trap: a backslash in the name of a log turns all replacement off and is lost itself, however it is quoted.
"""

from __future__ import annotations

import re
from pathlib import Path

from rankfold.cluster.local.processes import ONE_THREAD, WORKER_SETTINGS
from rankfold.pipeline.errors import ClusterError


def exports() -> list[str]:
    """Shell lines that export the environment variables of a worker."""
    return [f"export {key}={value}" for key, value in {**ONE_THREAD, **WORKER_SETTINGS}.items()]


def log_pattern(folder: Path, name: str) -> str:
    """Path of a log for an option of SLURM; ``name`` may hold what SLURM replaces, such as ``%j``.

    >>> log_pattern(Path("/data/50%"), "worker-%t.log")
    '/data/50%%/worker-%t.log'
    """
    if match := re.search(r"[\\\n\r]", str(folder)):
        raise ClusterError(
            f"SLURM writes no logs into {str(folder)!r}: it cannot be told of a name with {match[0]!r} in "
            "it. Rename that folder, or choose another"
        )
    return f"{str(folder).replace('%', '%%')}/{name}"


def require_one_line(text: str, what: str) -> str:
    """Return the text; raise if it holds the end of a line, or another control character.

    Such a text could add lines to a job script. ``what`` says in the message what the text is.
    """
    if match := re.search(r"[\x00-\x1f\x7f]", text):
        raise ClusterError(f"{what} {text!r} holds {match[0]!r}, which no job script may. Rename it")
    return text


FOLDERS = {"slurm": "${SLURM_TMPDIR:-/tmp}"}
"""Folder for a worker's own small files, if the profile sets none; other systems use ``$TMPDIR``."""


def node_folder(scratch: str | None, scheduler: str = "slurm") -> str:
    """A folder of a node, quoted for the node's shell, which expands its variables; see ``profile.FOLDER``.

    >>> node_folder("$TMPDIR/my work")
    '"$TMPDIR/my work"'
    """
    folder = scratch or FOLDERS.get(scheduler, "${TMPDIR:-/tmp}")
    return f'"{folder}"'


def in_directive(value: str) -> str:
    """A value for a line of ``#SBATCH`` or ``#SCRON``, quoted if necessary.

    >>> print(in_directive("/data/x-%j.log"), in_directive('/my data/"a"#1.log'))
    /data/x-%j.log "/my data/\\"a\\"#1.log"
    """
    if re.fullmatch(r"[\w%+,./:=@-]+", value, re.ASCII):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
