"""What is done with a workflow that runs, or is to: on a cluster, again and again, or no more.

submitted     a workflow as one job of SLURM
command_task  a command as a task, before it is submitted
jobs          what would be submitted, shown
whereabouts   what was started for a workflow or an output
holder        which process holds a lock
status        how far it is, and its jobs
logs          where logs lie, and their last lines
ending        end what runs, and leave no job behind
scheduling    a workflow that SLURM, or cron, runs again and again
timetable     when it is to
"""
