"""No field of a profile, a workflow or a command puts a command, or an option, of its own into a script.

Scripts are written with texts that a shell would run if they were not quoted, then given to bash among
programs that are only played. One of these, ``marker``, leaves a file when it is run: nothing may run it.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from rankfold.cluster.doctor.job import probe_script
from rankfold.cluster.slurm.allocation import Allocation
from rankfold.cluster.slurm.jobs import WorkerJobs
from rankfold.cluster.slurm.profile import Profile
from rankfold.cluster.slurm.submission import job_script
from rankfold.pipeline.engine.scheduler import Budget
from rankfold.pipeline.errors import RankfoldError
from rankfold.workflows.operations.scheduling import chain_script, scron_block
from rankfold.workflows.operations.submitted import InOneJob
from rankfold.workflows.operations.timetable import Schedule

PIECES = (
    "$(marker)", "`marker`", "; marker", "\nmarker\n", "\rmarker\r", "| marker", "& marker", "&& marker",
    '" ; marker ; "', "' ; marker ; '", "$(", "${IFS}", "\\", '"', "'", "#", " ", "%j", "%%",
    "\n#SBATCH --wrap=marker", "\n* * * * * marker\n",
    ">marker.out", "<(marker)", "$'\\nmarker'", "!marker", "*", "~", "a", "0", "-x", "日本",
    "\t", "\x1b[2J", "\x07", "{a,b}", "=",
)  # fmt: skip
texts = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=4)), min_size=1, max_size=5).map("".join)
names = texts.filter(lambda text: "\0" not in text and "/" not in text and text not in (".", ".."))
"""What a file may be called."""

FIELDS = ("partition", "account", "interface", "scheduler_interface", "scratch", "python", "directives")
many = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def stage(tmp_path: Path) -> Path:
    """A folder with programs that do nothing, and ``marker``, which leaves a file."""
    (tmp_path / "bin").mkdir()
    for name in ("sbatch", "scontrol", "squeue", "srun", "rankfold-python", "module", "sleep"):
        _program(tmp_path / "bin" / name, "exit 0")
    _program(tmp_path / "bin" / "marker", f": >{tmp_path}/marked")
    (tmp_path / "empty").mkdir()
    return tmp_path


def _program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def run_without_mark(script: str, stage: Path, *shell: str) -> None:
    """Give a script to a shell; it must be one that the shell can read, and run no ``marker``."""
    data = script.encode("utf-8", "surrogateescape")
    assert b"\0" not in data
    path = {"PATH": f"{stage}/bin:/usr/bin:/bin", "HOME": str(stage), "SLURM_JOB_ID": "1"}
    options = {"input": data, "cwd": stage / "empty", "env": path, "capture_output": True, "timeout": 60}
    parsed = subprocess.run([*(shell or ("bash",)), "-n"], check=False, **options)  # type: ignore[call-overload]
    assert parsed.returncode == 0, parsed.stderr
    subprocess.run([*(shell or ("bash",))], check=False, **options)  # type: ignore[call-overload]
    assert not (stage / "marked").exists()
    assert not list((stage / "empty").iterdir())


def profile_of(field: str, text: str) -> Profile | None:
    """A profile with a text in one field; None if it is refused, as it is then in a file."""
    value = (text,) if field == "directives" else text
    given = {"memory": 2**31, "interface": "lo", "python": "rankfold-python", field: value}
    try:
        return Profile(**given)
    except ValidationError:
        return None


def directive_lines(script: str, kind: str = "#SBATCH") -> int:
    return sum(line.startswith(kind) for line in re.split(r"[\n\r]", script))


SCRIPTS: dict[str, Callable[[Profile, Path], str]] = {
    "driver": lambda profile, stage: job_script(["rankfold-python", "-m", "rankfold"], profile, name="t"),
    "probe": lambda profile, stage: probe_script(profile, "t", stage),
    "worker": lambda profile, stage: _worker(profile, stage),
}


def _worker(profile: Profile, stage: Path) -> str:
    from rankfold.cluster.slurm.jobqueue import worker_script

    options = WorkerJobs.of(profile, None, None, None).job_options("t", stage)
    return worker_script(profile.scheduler, "tcp://127.0.0.1:1", **options)


@many
@given(text=texts, field=st.sampled_from(FIELDS), kind=st.sampled_from(sorted(SCRIPTS)))
def test_no_field_of_a_profile_is_run(stage: Path, text: str, field: str, kind: str) -> None:
    plain = profile_of(field, "--x" if field == "directives" else "x")
    profile = profile_of(field, text)
    assert plain is not None
    if profile is not None:
        script = SCRIPTS[kind](profile, stage)
        assert directive_lines(script) == directive_lines(SCRIPTS[kind](plain, stage))
        run_without_mark(script, stage)


@many
@given(text=texts, field=st.sampled_from(("interface", "scratch", "python")))
def test_no_field_of_a_profile_is_run_by_the_step_of_an_allocation(
    stage: Path, text: str, field: str
) -> None:
    if profile := profile_of(field, text):
        allocation = Allocation(profile, Budget(2**30, 1, 2), 1, "1", 0)
        *step, option, line = allocation._command("tcp://127.0.0.1:1", "out", ["--tls-key", text])
        assert option == "-c" and step[-1] == "sh" and not any("marker" in word for word in step)
        run_without_mark(line, stage, "sh")


@many
@given(word=texts.filter(lambda text: "\0" not in text), name=names)
def test_no_word_of_a_command_and_no_path_of_a_profile_is_run(stage: Path, word: str, name: str) -> None:
    command = ["rankfold-python", "-m", "rankfold", "svd", word, "--out", name]
    script = job_script(command, Profile(), name="t", known_as=f"/data/{name}")
    assert directive_lines(script.partition("\nasked=")[0]) == directive_lines(
        job_script(["x"], Profile(), name="t")
    )
    run_without_mark(script, stage)


# Workflows -----------------------------------------------------------------------------------------


FLOW = """\
workflow: cells
inputs: {x: x.npy}
outputs: results
profile: p.yaml
stages: {a: {method: pca, input: x, rank: 2}}
"""


@functools.cache
def _schedules() -> tuple[Schedule, ...]:
    return Schedule(cron="0 3 * * 1"), Schedule(every="1d"), Schedule(every="6h", begin="2026-12-01T03:00")


@many
@given(folder=names, file=names, number=st.integers(0, 2))
def test_no_path_of_a_workflow_is_run(stage: Path, folder: str, file: str, number: int) -> None:
    home = stage / "flows" / folder
    try:
        home.mkdir(parents=True, exist_ok=True)
        path = home / f"{file}.yaml"
        path.write_text(FLOW)
        (home / "p.yaml").write_text("python: rankfold-python\n")
    except (OSError, ValueError):
        return  # too long, or no name on this system
    schedule = _schedules()[number]
    try:
        workflow = InOneJob.read(path)
        scripts = [workflow.script(), chain_script(workflow, schedule)]
    except RankfoldError as error:
        assert re.search(r"[\x00-\x1f\x7f\\]|UTF-8", f"{folder}{file}"), error
        return
    for script in scripts:
        run_without_mark(script, stage)
    if schedule.cron is not None:
        _check_crontab(scron_block(workflow, schedule), schedule.cron, stage)


def _check_crontab(block: str, cron: str, stage: Path) -> None:
    entries = [line for line in block.splitlines() if line and not line.startswith("#")]
    assert len(entries) == 1 and entries[0].startswith(f"{cron} exec ") and "\r" not in block
    run_without_mark(entries[0].removeprefix(cron).strip(), stage, "sh")


@pytest.mark.parametrize(
    "values",
    [
        {"cron": "0 3\n* * 1"},
        {"every": "1d", "begin": "2026-12-01\n03:00"},
        {"every": "1d", "begin": "2026-12-01;03:00"},
    ],
)
def test_a_schedule_is_one_line(values: dict[str, str]) -> None:
    try:
        schedule = Schedule(**values)
    except ValidationError:
        return
    assert not re.search(r"[\n;]", f"{schedule} {' '.join(schedule.options())}")


def test_a_prologue_of_several_lines_is_no_entry_of_a_crontab(stage: Path) -> None:
    (stage / "flow.yaml").write_text(FLOW)
    (stage / "p.yaml").write_text("prologue:\n  - |\n    module load a\n    * * * * * marker\n")
    workflow = InOneJob.read(stage / "flow.yaml")
    with pytest.raises(RankfoldError, match=r"an entry of a crontab is one line, and prologue: of p"):
        scron_block(workflow, _schedules()[0])


def test_a_name_that_is_not_utf_8_is_handed_to_slurm_as_it_is(
    stage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rankfold.cluster.slurm.submission import submit

    _program(stage / "bin" / "sbatch", "cat >$HOME/script; echo Submitted batch job 7")
    monkeypatch.setenv("PATH", f"{stage}/bin{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(stage))
    script = job_script(["rankfold-python", os.fsdecode(b"/data/\xff")], Profile(), name="t")
    assert submit(script, Profile(), "rankfold-t") == "7"
    (word,) = re.findall(rb"rankfold-python (\S+)", (stage / "script").read_bytes())
    assert word.isascii()
    read = subprocess.run(["bash", "-c", b"printf %s " + word], capture_output=True, check=True)
    assert read.stdout == b"/data/\xff"


def test_names_of_jobs_are_no_options() -> None:
    """The note of a run names jobs that are cancelled: what stands in it is one word to scancel."""
    from rankfold.cluster.slurm import leftovers

    words = shlex.split(leftovers._cancel_line("x; marker --user=other"))
    assert [word.partition("=")[0] for word in words] == ["scancel", "--name", "--user"]
