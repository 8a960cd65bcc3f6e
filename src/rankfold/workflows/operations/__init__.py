"""Operations on workflows: submit them, follow them, repeat them, end them.

submitted     a workflow as one job of SLURM
command_task  checks and plans a command before it is submitted
jobs          show what would be submitted
running       finds what belongs to a workflow or an output: folders, locks, jobs
lock_owner    the process that holds a lock
status        progress of a workflow, and its jobs
logs          paths of logs, and their last lines
cancel        ends what runs for a workflow or an output, and its jobs
scheduling    a workflow that SLURM, or cron, runs repeatedly
timetable     the times at which a workflow runs repeatedly
"""
