"""Operations on workflows: submit them, follow them, repeat them, end them.

submitted     a workflow as one job of SLURM
command_task  a command as a task, before it is submitted
jobs          show what would be submitted
whereabouts   traces of a workflow or an output: folders, locks, jobs
holder        the process that holds a lock
status        progress of a workflow, and its jobs
logs          paths of logs, and their last lines
ending        end what runs, and leave no job behind
scheduling    a workflow that SLURM, or cron, runs repeatedly
timetable     the times at which it runs
"""
