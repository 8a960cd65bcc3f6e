"""Mistakes of those who write their first workflow: each is one line of where, what, and what instead."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from flow_commands import FLOW, begun, rankfold

from rankfold.pipeline import regular
from rankfold.workflows.messages import in_file

CRON = 'what begins with * needs quotes: write "*/5 * * * *"'
PAIRED = "a comma is missing, or"
NO_LINE = "takes `name: ...` lines, not a list that begins with -"

WRITTEN = {
    "a tab for spaces": (
        ("  counts:", "\tcounts:"),
        ":4: YAML takes spaces for indentation, here is a tab",
    ),
    "a tab in a stage": (
        ("    k: 3", "    k: 3\n\tmetric: cosine"),
        ":16: YAML takes spaces for indentation, here is a tab",
    ),
    "a colon is missing": (("    k: 3", "    k 3"), ":15: 'k 3' has no colon: write `key: value`"),
    "a colon is missing at the top": (
        ("outputs: results", "outputs results"),
        ":5: 'outputs results' has no colon: write `key: value`",
    ),
    "a colon is missing in the first line": (
        ("workflow: cells", "workflow cells"),
        ":2: 'workflow cells' has no colon: write `key: value`",
    ),
    "a colon without a space": (
        ("workflow: cells", "workflow:cells"),
        ":2: after a colon comes a space: write workflow: cells",
    ),
    "a colon is missing in braces": (
        ("memory: 1GiB,", "memory 1GiB,"),
        ":6: resources.memory 1GiB: has no colon: write memory: 1GiB",
    ),
    "a second colon": (
        ("workflow: cells", "workflow: cells: a"),
        ":2: a second colon in one line: put the value in quotes, or the second key below",
    ),
    "a comma is missing": (("1GiB, ", "1GiB "), f":6: between {{ and }} {PAIRED} }} itself"),
    "a brace is missing": (("threads: 2}", "threads: 2"), f":6: between {{ and }} {PAIRED} }} itself"),
    "a bracket is missing": (("k: 3", "needs: [near"), f":15: between [ and ] {PAIRED} ] itself"),
    "a quote is missing": (("cells", '"cells'), ":2: the quote that begins here has no end"),
    "too deep": (
        ("    k: 3", "      k: 3"),
        ":15: indented deeper than line 14, which has its value already",
    ),
    "not deep enough": (
        ("    k: 3", "   k: 3"),
        ":15: indented otherwise than the lines it belongs to: give them the same number of spaces",
    ),
    "a word with @": (("cells", "@cells"), ':2: what begins with @ needs quotes: write "@cells"'),
    "a cron in braces": (("stages:", "schedule: {cron: */5 * * * *}\nstages:"), f":7: {CRON}"),
    "a cron": (("stages:", "schedule:\n  cron: */5 * * * *  # often\nstages:"), f":8: {CRON}"),
    "two files": (
        ("stages:", "---\nstages:"),
        ":7: a second document begins here, and a workflow is one: take --- away",
    ),
}
"""What is not YAML, or hardly."""

RANK, RESOURCES = ":11: stages.components.rank: ", ":6: resources.memory: "
SIZE = "takes a size above 0, such as 256MiB or 2GiB"

VALUES = {
    "a word for a number": (("rank: 5", "rank: ten"), f"{RANK}takes a whole number, not 'ten'"),
    "below the least": (("rank: 5", "rank: -1"), f"{RANK}takes a whole number of at least 1, not -1"),
    "true for a number": (("rank: 5", "rank: true"), f"{RANK}takes a whole number, not true"),
    "true for a seed": (
        ("rank: 5", "seed: true"),
        ":11: stages.components.seed: takes a whole number, not true",
    ),
    "true for threads": (
        ("threads: 2", "threads: yes"),
        ":6: resources.threads: takes a whole number, not true",
    ),
    "true for any number": (("rank: 5", "tol: true"), ":11: stages.components.tol: takes a number, not true"),
    "a fraction": (("rank: 5", "rank: 2.5"), f"{RANK}takes a whole number, not 2.5"),
    "a list for a number": (("rank: 5", "rank: [5]"), f"{RANK}takes a whole number, not a list"),
    "too many digits": (
        ("rank: 5", f"rank: {'9' * 5000}"),
        f"{RANK}takes a smaller whole number, not {'9' * 40}...",
    ),
    "neither yes nor no": (
        ("rank: 5", "center: maybe"),
        ":11: stages.components.center: takes true or false, not 'maybe'",
    ),
    "below zero": (
        ("    rank: 5", "    rank: 5\n  parts: {method: nmf, input: counts, rank: 2, tol: -0.5}"),
        ":12: stages.parts.tol: takes a number of at least 0, not -0.5",
    ),
    "a list for a number or a word": (
        ("    rank: 5", "    rank: 5\n  parts: {method: nmf, input: counts, rank: 2, alpha_H: [1]}"),
        ":12: stages.parts.alpha_H: takes a number or a word, not a list",
    ),
    "a list for a name": (
        ("input: counts", "input: [x]"),
        ":10: stages.components.input: takes a name, not a list",
    ),
    "nothing for a name": (
        ("input: counts", "input:"),
        ":10: stages.components.input: takes a name, here is nothing",
    ),
    "memory below zero": (("1GiB", "-512MiB"), f"{RESOURCES}{SIZE}, not '-512MiB'"),
    "no memory": (("1GiB", "0GiB"), f"{RESOURCES}{SIZE}, not '0GiB'"),
    "true for memory": (("1GiB", "true"), f"{RESOURCES}takes a size, such as 256MiB or 2GiB, not true"),
    "no stages": ((FLOW[FLOW.index("stages:") :], "stages: {}\n"), ":7: stages: needs at least one stage"),
    "nothing below stages": (
        (FLOW[FLOW.index("stages:") :], "stages:\n"),
        ":7: stages: takes `name: ...` lines, here is nothing",
    ),
    "a list of inputs": (("  counts: x", "  - counts: x"), f":3: inputs: {NO_LINE}"),
    "a list of stages": (
        (FLOW[FLOW.index("stages:") :], "stages:\n- method: pca\n  input: counts\n"),
        f":7: stages: {NO_LINE}",
    ),
    "a list of paths": (
        ("counts: x.zarr", "counts: [x.zarr]"),
        ":4: inputs.counts: takes a path, or `key: value` lines with the key store, not a list",
    ),
    "a key that must be there is misspelt": (
        ("counts: x.zarr", "counts: {stor: x.zarr}"),
        ":4: inputs.counts.stor: no such key (did you mean 'store'?). Keys are store, row_axes, select_rows, "
        "select_columns, drop_missing_columns, drop_missing_rows, missing_chunks, prepare, mask_var, "
        "mask_obs, numeric, index_col",
    ),
    "the file is empty": (
        (FLOW, ""),
        ":1: the keys 'workflow', 'inputs', 'outputs' and 'stages' are missing",
    ),
    "a file for a folder": (
        ("outputs: results", "outputs: flow.yaml/there"),
        ":5: outputs: {folder}/flow.yaml is a file, not a folder. Choose other outputs",
    ),
    "no such file of a profile": (
        ("stages:", "profile: nosuch.yaml\nstages:"),
        ":7: profile: there is no file {folder}/nosuch.yaml. YAML files there: flow.yaml",
    ),
    "no rank": (
        ("    rank: 5\n", ""),
        ":8: stages.components: say how many components, rank, or what share of the norm to leave out, tol; "
        "all of them are solver: tsqr",
    ),
}
"""Values that cannot be."""


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    """A workflow beside its data."""
    return begun(tmp_path)


def said(*arguments: object) -> str:
    """The one line that a refused command ends with."""
    run = rankfold(*arguments)
    assert run.exit_code == 2, run.output
    (line,) = run.stderr.splitlines()
    return str(line).removeprefix("rankfold: ")


@pytest.mark.parametrize("mistake", [*WRITTEN, *VALUES])
def test_a_mistake_is_one_line_to_the_letter(flow: Path, mistake: str) -> None:
    (old, new), message = {**WRITTEN, **VALUES}[mistake]
    assert old in FLOW
    flow.write_text(FLOW.replace(old, new, 1))
    assert said("plan", flow) == f"{flow}{message.replace('{folder}', str(flow.parent))}"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"\xfe\xff\x00w",
            ":1: is not text: here is the byte 0xfe. A workflow is a text file, saved as UTF-8",
        ),
        (
            b"workflow: a\ninputs: \xe9\n",
            ":2: is not text: here is the byte 0xe9. A workflow is a text file, ",
        ),
        (b'outputs: "\\udcff"\n', ":1: is not text: here is the character #xdcff. Leave it out"),
        (b'a: b\n"\\0": c\n', ":2: is not text: here is the character #x0000. Leave it out"),
        (b"a: b\nc: \x00\n", ":2: is not text: here is the character #x0000. A workflow is a text file"),
    ],
)
def test_a_file_that_is_not_text(flow: Path, content: bytes, message: str) -> None:
    flow.write_bytes(content)
    assert said("run", flow).startswith(f"{flow}{message}")


def test_a_folder_is_no_workflow(flow: Path) -> None:
    folder = flow.parent / "x.zarr"
    assert said("run", folder) == f"{folder}: a workflow is a YAML file, and here is a folder. Name a file"


@pytest.mark.parametrize("kind", ["workflow", "profile"])
def test_a_file_that_may_not_be_read(flow: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told by the system: a test that takes the right away says nothing where root runs it."""
    site = flow.parent / "site.yaml"
    site.write_text("cores: 1\n")
    closed, opens = (flow if kind == "workflow" else site), regular.open_descriptor

    def refuses(path: str, *flags: int) -> int:
        if Path(path) == closed:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return opens(path, *flags)

    monkeypatch.setattr(regular, "open_descriptor", refuses)
    message = f"{closed}: may not be read by you. Allow it with chmod u+r, or ask its owner"
    assert said("run", flow, "--cluster", site) == message


def test_a_missing_workflow_names_what_is_near_and_else_what_is_there(flow: Path) -> None:
    folder = flow.parent
    there = f"there is no file {folder}"
    assert said("run", folder / "flo.yaml") == f"{there}/flo.yaml. Did you mean {flow}?"
    (folder / "e.yaml").write_text("")
    assert said("run", folder / "nope.yaml") == f"{there}/nope.yaml. YAML files there: e.yaml, flow.yaml"
    assert said("run", folder / "q" / "a.yaml") == f"{there}/q/a.yaml, nor a folder {folder}/q"
    assert said("run", folder / "x.zarr" / "a.yaml") == f"{there}/x.zarr/a.yaml: give the path of a workflow"


def test_a_profile_that_is_not_there_is_no_mistake_of_the_workflow(flow: Path) -> None:
    site = flow.parent / "nosuch.yaml"
    assert said("run", flow, "--cluster", site) == f"there is no file {site}. YAML files there: flow.yaml"
    assert said("run", flow, "--cluster", "nosuch").startswith(
        "there is no profile 'nosuch'. Give a path, or put "
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "walltime: 45 min\n",
            ":1: walltime: a walltime is written in minutes, or H:MM:SS, or D-HH:MM:SS, not '45 min'",
        ),
        ("cores: 1\nworkers: true\n", ":2: workers: takes a whole number, not true"),
        ("gpus: -1\n", ":1: gpus: takes a whole number of at least 0, not -1"),
        ("prologue: module load\n", ":1: prologue: takes a list, such as [first, second], not 'module load'"),
    ],
)
def test_a_mistake_in_a_profile_is_told_with_its_own_line(flow: Path, text: str, message: str) -> None:
    site = flow.parent / "site.yaml"
    site.write_text(text)
    assert said("run", flow, "--cluster", site) == f"{site}{message}"


def test_numbers_that_are_fine(flow: Path) -> None:
    parts = "  parts: {method: nmf, input: counts, rank: 2, time_limit: 60, alpha_H: 1}\n"
    flow.write_text(FLOW.replace("rank: 5", "rank: 5.0\n    center: yes") + parts)
    assert rankfold("plan", flow).exit_code == 0
    (flow.parent / "site.yaml").write_text('walltime: "45"\n')
    from rankfold.cluster.slurm.profile import find_profile

    assert find_profile(flow.parent / "site.yaml").drain_seconds == 270


def test_a_folder_that_cannot_be_written_to(flow: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told by ``plan`` already; a workflow that is complete there has nothing to write."""
    assert rankfold("run", flow).exit_code == 0
    asked = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode & os.W_OK == 0 and asked(path, mode))
    again = rankfold("run", flow)
    assert again.exit_code == 0 and "2 stages: 2 finished before" in again.stdout
    flow.write_text(flow.read_text().replace("k: 3", "k: 4"))
    found = flow.parent / "results"
    message = (
        f"{flow}:5: outputs: results go to {found}, but {found} cannot be written to. Name outputs elsewhere"
    )
    assert said("plan", flow) == said("run", flow) == message


def test_another_output_is_called_other_outputs() -> None:
    message = "cannot write x.zarr: Read-only file system. Choose another --out."
    assert in_file(message) == "cannot write x.zarr: Read-only file system. Choose other outputs."
