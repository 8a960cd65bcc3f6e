"""Progress of a workflow or a command, read from its files on disk; nothing is computed or opened that
takes long.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rankfold.cluster.slurm.queue import list_jobs
from rankfold.pipeline.planning.sweep_words import words_of
from rankfold.pipeline.regular import read_last_lines
from rankfold.pipeline.text import Lines, shell_words
from rankfold.pipeline.units import format_bytes
from rankfold.workflows.flows.record import LOCK, Record
from rankfold.workflows.flows.retention import EarlierResults
from rankfold.workflows.messages import columns
from rankfold.workflows.operations.lock_owner import holder_of
from rankfold.workflows.operations.running import Work
from rankfold.workflows.reports.history import History
from rankfold.workflows.results import description, description_facts, result_at

HEADINGS = ("stage", "method", "state", "how far", "seconds", "attempts", "when", "where")


@dataclass(frozen=True, slots=True)
class Standing:
    """Progress of one stage of a workflow."""

    stage: str
    method: str
    state: str
    """``done``, ``running``, ``partial``, ``failed`` or ``not begun``."""

    far: str
    seconds: float | None
    attempts: int
    when: str
    where: str
    message: str
    out: str
    earlier: tuple[dict[str, Any], ...] = ()
    """Earlier results that were kept, the oldest first."""


def standings(work: Work) -> list[Standing]:
    """Progress of each stage of a workflow; empty if it has not begun and ``work`` is not of its file."""
    record = Record.of(work.folder)
    methods = work.methods or {
        name: record.stages.get(name, {}).get("method", "") for name in record.values.get("steps", ())
    }
    alive = holder_of(work.folder / LOCK) is not None
    return [
        _standing(name, method, record.stages.get(name, {}), work.folder, alive)
        for name, method in methods.items()
    ]


def _standing(name: str, method: str, facts: dict[str, Any], outputs: Path, alive: bool) -> Standing:
    out = outputs / f"{name}.zarr"
    state, progress = facts.get("state", ""), facts.get("progress")
    if state == "running" and alive:
        verdict = "running"
    elif state == "failed":
        verdict = "failed"
    elif state == "done" or (not state and out.exists()):
        verdict = "done" if out.exists() else "not begun"
    else:
        verdict = "partial" if state else "not begun"
    far = "" if not progress or verdict == "done" else _far(progress)
    seconds, attempts = facts.get("seconds"), int(facts.get("attempts", 0))
    if verdict == "done" and (history := History.of(out)).attempts:
        # As the stage reported when it was done, and as reports do.
        seconds, attempts = history.seconds, len(history.attempts)
    place = facts.get("where", {})
    words = [str(place[key]) for key in ("kind", "host") if key in place]
    return Standing(
        name,
        facts.get("method", method),
        verdict,
        far,
        seconds,
        attempts,
        facts.get("ended") or facts.get("started") or "",
        " on ".join(words),
        facts.get("message", ""),
        str(out),
        tuple(one.as_dict() for one in EarlierResults(out).all()),
    )


def output_facts(work: Work) -> dict[str, Any]:
    """Facts on the output of a command, by name, for JSON: its progress, and if finished, the result."""
    out, holder = _output(work), work.holder()
    history = History.of(out)
    facts = {
        "out": str(out),
        "state": "running" if holder else history.state,
        "seconds": history.seconds,
        "attempts": len(history.attempts),
        "held_by": str(holder) if holder else None,
    }
    result = None if holder else result_at(out)
    return facts if result is None else {**facts, "result": description_facts(result)}


def output_lines(work: Work) -> list[str]:
    """Description, in lines, of the output of a command if it is finished, else of its progress."""
    out, holder = _output(work), work.holder()
    history = History.of(out)
    count, seconds = len(history.attempts), history.seconds or 0.0
    if holder:
        return [f"{work.target}: {holder} is writing it"]
    if result := result_at(out):
        return [description(result)]
    if out.exists():
        return [
            f"{work.target}: finished, a matrix: rankfold info {shell_words([str(work.target)])} tells of it"
        ]
    began = f"{count} attempt{'s' * (count != 1)}, {seconds:.3g} s" if count else "nothing was computed yet"
    if history.bars:
        began += f", in {words_of(max(history.bars, key=lambda each: each.began).sweep)}"
    lines = [f"{work.target}: not finished ({began}); the same command goes on from what there is"]
    facts = history.attempts[-1].facts if count else {}
    if "command" in facts:
        lines += [f"in        {facts['folder']}"] if "folder" in facts else []
        lines += [f"command   {facts['command']}"]
    return lines


def _output(work: Work) -> Path:
    assert work.output is not None  # noqa: S101  it is no workflow
    return work.output


def _far(progress: dict[str, Any]) -> str:
    share = progress["done"] / progress["total"] if progress["total"] else 1.0
    return f"{words_of(progress['sweep'])}, {100 * share:.0f} %"


def _last_said(log: str | Path) -> str:
    """End of a message: the last line of a log, which often says why a job ended; empty without a line."""
    try:
        lines = [line for line in read_last_lines(log) if line.strip()]
    except OSError:
        return ""
    return f", which ends with: {lines[-1].strip()[:200]}" if lines else ""


def job_facts(work: Work) -> dict[str, Any]:
    """Facts, by name, for JSON: the last submission, and jobs of a workflow or output in queues.

    ``submitted["ended"]`` is True if the job of that submission is in the queue no more.
    """
    queue, submission = list_jobs(), work.submission
    workers = work.worker_jobs(queue or ())
    facts: dict[str, Any] = {"submitted": submission and asdict(submission)}
    if queue is not None:
        jobs = work.own_jobs(queue)
        if submission is not None:
            facts["submitted"]["ended"] = submission.job not in {job.number for job in jobs}
        facts["jobs"] = [asdict(job) for job in (*jobs, *work.crontab_jobs(queue))]
    if queue is not None or workers:
        facts["workers"] = [asdict(job) for job in workers]
    return facts


def job_lines(work: Work) -> list[str]:
    """Lines on the jobs of a workflow or output in queues, after an empty line; no lines without jobs."""
    queue, submission, lines = list_jobs(), work.submission, list[str]()
    if queue is not None:
        jobs = work.own_jobs(queue)
        lines = [str(job) for job in (*jobs, *work.crontab_jobs(queue))]
        if submission is not None and submission.job not in {job.number for job in jobs}:
            lines.append(
                f"job {submission.job} has ended; its log is {submission.log}{_last_said(submission.log)}"
            )
    if workers := work.worker_jobs(queue or ()):
        states = Counter(job.state for job in workers)
        why = sorted({job.reason for job in workers if job.state == "pending"})
        counts = ", ".join(f"{count} {state}" for state, count in states.items())
        lines.append(f"jobs of workers: {counts}" + (f" ({', '.join(why)})" if why else ""))
    return ["", *lines] if lines else []


def status_table(stages: list[Standing]) -> Lines:
    """One line for each stage, then messages of failed stages and a line for stages with earlier results."""
    if not stages:
        return Lines("no stage has begun")
    rows: list[tuple[str, ...]] = [HEADINGS]
    for one in stages:
        seconds = "" if one.seconds is None else f"{one.seconds:.3g}"
        attempts = str(one.attempts or "")
        rows.append((one.stage, one.method, one.state, one.far, seconds, attempts, one.when, one.where))
    wrong = [f"{one.stage}: {one.message}" for one in stages if one.state == "failed" and one.message]
    kept = [_describe_earlier(one) for one in stages if one.earlier]
    return Lines(columns(rows, right=(4, 5)), *wrong, *kept)


def _describe_earlier(stage: Standing) -> str:
    """Earlier results of a stage that were kept, in one line."""
    paths = [Path(one["out"]) for one in stage.earlier]
    names = paths[0].name if len(paths) == 1 else f"{paths[0].name} to {paths[-1].name}"
    size = format_bytes(sum(one["bytes"] for one in stage.earlier))
    what = f"{len(paths)} earlier result{'s' * (len(paths) != 1)}"
    return f"{stage.stage}: {what}, {names}, {size} in {paths[0].parent}"
