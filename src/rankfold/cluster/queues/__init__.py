"""Systems of queues that worker jobs may be given to: one module for each, with the functions of ``system``.

system    what is asked of each of them
registry  which there are, and what only SLURM has
shell     settings of a job script that are the same for all but SLURM
slurm     SLURM
pbs       PBS Professional and OpenPBS
lsf       LSF
sge       Grid Engine
"""
