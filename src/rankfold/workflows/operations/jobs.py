"""Show the jobs that a command would submit to a queue, without submitting them: ``--print`` of every
command.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from rankfold.api.execute import jobs_of
from rankfold.cluster.queues.system import JobScript
from rankfold.pipeline.storage.run_directory import RunDirectory
from rankfold.pipeline.text import Lines, json_text
from rankfold.workflows.flows.importing import Importing
from rankfold.workflows.flows.plan import StagePlan, Workflow, executor_of, survey
from rankfold.workflows.flows.record import Record
from rankfold.workflows.reporting import say

NOTHING = "no jobs: all is done already, or runs on this machine. --cluster names a profile whose jobs do it"
"""Message if nothing would be submitted."""


def jobs_of_flow(workflow: Workflow, first: str | None, only: str | None) -> list[JobScript]:
    """Worker jobs that the stages of a workflow that are not done would submit, in the order of stages.

    ``first`` and ``only`` choose stages: see ``Workflow.select_steps``.
    """
    record = Record.of(workflow.outputs)
    record.require(workflow.flow.workflow)
    verdicts = survey(workflow, record.stages, first=first, only=only)
    return [job for verdict in verdicts for job in _jobs_of_stage(workflow, verdict)]


def _jobs_of_stage(workflow: Workflow, verdict: StagePlan) -> list[JobScript]:
    what, work, executor = f"workers of stage {verdict.step.name}", verdict.work, verdict.executor
    if verdict.action not in ("run", "resume") or isinstance(work, Importing):
        return []
    if executor is None or verdict.plan is None:  # its input does not exist yet
        what, executor = f"{what}, at most", executor_of(workflow, verdict.step)
    elif executor.budget.workers > verdict.plan.useful_workers:
        executor = executor.limited_to(verdict.plan.useful_workers)
    folder = RunDirectory.beside(verdict.path.absolute(), None, "RUN")
    return jobs_of(work, executor, folder, what)


def show_jobs(jobs: Sequence[JobScript], *, as_json: bool = False) -> None:
    """Print the scripts of jobs, or their fields as JSON; or a message if there are none."""
    if as_json:
        say(json_text([asdict(job) for job in jobs], indent=1))
        return
    for number, job in enumerate(jobs):
        say(Lines("", job.lines()) if number else job.lines())
    if not jobs:
        say(NOTHING)
