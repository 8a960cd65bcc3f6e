"""Places where a run is executed: each starts workers and has a budget (memory, threads, GPUs), but reads no
matrix.

local      threads of this process, processes of this machine, a Dask client of the caller
slurm      jobs of SLURM, or one job with many nodes
queues     one interface to the commands of SLURM, PBS, LSF and Grid Engine
mpi        processes that mpiexec or srun has started
doctor     checks of what a run needs from a machine
profiles   settings of sites that come with rankfold

executor       choice of the place by the arguments of a call
certificates   TLS for one run
"""
