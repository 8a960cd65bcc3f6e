"""Files and folders are removed in one module, and those who call it are a table.

A name in the table says what its module removes: something that it made and knows. Who needs a removal that
is not here says the same in a line of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import rankfold

PACKAGE = Path(rankfold.__file__).parent
FILES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))

REMOVAL, DURABLE = "pipeline/removal.py", "pipeline/durable.py"

CALLERS = {
    "api/functions/embedding_quality.py": "its folder of scratch, named by a digest",
    "cluster/certificates.py": "keys in a folder that it made",
    "cluster/doctor/job.py": "a folder that it made",
    "cluster/doctor/local.py": "two files that it wrote",
    "cluster/local/lifeline.py": "the local folder of a worker that has lost its driver",
    "cluster/mpi/rendezvous.py": "a folder of a launch, named by a digest",
    "cluster/slurm/leftovers.py": "its note of jobs in the folder of a run",
    "methods/fuzzy_graph/combination.py": "parts of a growing result",
    "methods/fuzzy_graph/fuzzy_graph.py": "parts of a growing result",
    "methods/isomap/graph.py": "parts of the state of a run",
    "methods/knn/graph.py": "parts of a growing result",
    "methods/similarity/operator.py": "parts of the state of a run",
    "pipeline/engine/sweep.py": "parts of the state of a run",
    "pipeline/engine/team.py": "the exchange of a team in the state of a run",
    "pipeline/exporting/cell_files.py": "its copy of a file, and its work folder in a store",
    "pipeline/importing/csr_writer.py": "buckets in the working folder of an import",
    "pipeline/importing/rows.py": "an array in the working folder of an import",
    "pipeline/importing/tiles.py": "working folders of imports of dead processes of this host",
    "pipeline/outputs.py": "a file that it was writing",
    "pipeline/storage/checkpoint.py": "parts of a run, and files that were being written",
    "pipeline/storage/manifest.py": "the manifest and drafts of a growing result",
    "pipeline/storage/result.py": "arrays of a growing result",
    "pipeline/storage/run_directory.py": "folders of requests, files of a run, replaced results",
    "pipeline/storage/scratch.py": "a matrix in the scratch of a run",
    "pipeline/storage/temporary.py": "temporary folders of dead programs of this host",
    "workflows/flows/retention.py": "earlier results that its list knows by their digest",
    "workflows/operations/cancel.py": "its note of a job that never began",
    "workflows/demo.py": "patches of the demo that it wrote",
}
"""Modules that remove something, and what."""

REMOVERS = {"rmtree", "unlink", "rmdir", "remove", "removedirs"}
RENAMERS = {"rename", "renames", "replace"}


def offences(file: str) -> Iterator[str]:
    """Calls by which a module itself removes a file, or gives one a name that another may have."""
    for node in ast.walk(ast.parse((PACKAGE / file).read_text())):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        name = node.func.attr
        if name not in REMOVERS | RENAMERS | {"move"}:
            continue
        owner = ast.unparse(node.func.value)
        of_system = owner in ("os", "shutil")
        of_path = name in ("unlink", "rmdir", "rmtree") or (
            name == "rename" and len(node.args) == 1 and not node.keywords
        )
        if (of_system and name in REMOVERS | RENAMERS | {"move"}) or of_path:
            yield f"{file}:{node.lineno} {owner}.{name}"


def test_nothing_is_removed_or_renamed_elsewhere() -> None:
    found = [one for file in FILES if file not in (REMOVAL, DURABLE) for one in offences(file)]
    assert not found, f"take rankfold.pipeline.removal, or the renames of rankfold.pipeline.durable: {found}"


def test_who_removes_says_what() -> None:
    callers = {
        file for file in FILES if "from rankfold.pipeline.removal import" in (PACKAGE / file).read_text()
    }
    assert callers == CALLERS.keys()
