"""Checks of what a run needs from a machine.

local   checks of this machine
slurm   checks that ask SLURM about a profile
queues  checks that ask PBS, LSF or Grid Engine about a profile
job     a short job of SLURM that checks a node
node    the checks that this job runs on its node
"""
