"""Kinds of attack, each a function of a bench, a seed and a number that gives one trial.

kills          signals to a command, or to one of its workers
damage         files of a run, or of a result, that are not what was written
power_loss     a file system that forgets what was not flushed
full_disk      no room for the output, scratch or temporary files
two_drivers    the same command twice at once
changing_data  inputs that change, or are damaged, before a command or during it
clock          a clock that is set
slow_files     names of files that take long, and files that are stale
workers        worker processes that are killed, stopped or cut off
slurm          jobs, nodes and processes of a real SLURM
folds          panels that are folded twice after kills
hostile        words, workflows and places nobody would give; hostile_stores the stores
"""
