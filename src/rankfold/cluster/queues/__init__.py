"""Queue systems that accept worker jobs: one module for each, with the functions of ``system``.

system    the interface of each module; settings of a job script that are the same for all but SLURM
registry  the modules by name, and functions for what only SLURM can do
slurm     SLURM
pbs       PBS Professional and OpenPBS
lsf       LSF
sge       Grid Engine
"""
