"""Where it runs: yields workers and a budget, never sees a matrix.

local      threads of this process, processes of this machine, a Dask client that somebody made
slurm      jobs of SLURM, or one job with many nodes
queues     what is asked of SLURM, PBS, LSF and Grid Engine alike
mpi        processes that mpiexec or srun has started
doctor     what a run needs of a machine
profiles   settings of sites that come with rankfold

executor       where a task runs, from the arguments of a call
certificates   TLS for one run
"""
