"""Number of this process in its launch, read from the environment that launchers set.

MPI itself is not loaded: nothing here sends a message by it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from rankfold.pipeline.errors import InputError

VARIABLES = {
    "Open MPI": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    "PMI (MPICH, Intel MPI, Cray)": ("PMI_RANK", "PMI_SIZE"),
    "srun": ("SLURM_PROCID", "SLURM_NTASKS"),
}
"""Variables of the number of a process, from 0, and of the count of processes; the first pair that is set is
used.
"""


def process_numbers(environment: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """Number of this process, from 0, and count of all processes of the launch.

    Raises
    ------
    InputError
        No launcher has started it, or it is the only process.
    """
    for number, count in VARIABLES.values():
        if number in environment and count in environment:
            here, total = int(environment[number]), int(environment[count])
            if total < 2:
                raise InputError(
                    "one process is started, which leaves none for work: the first runs the command, each of "
                    "the others is a worker. Start at least 2: mpiexec -n 5 rankfold mpi -- COMMAND"
                )
            return here, total
    launchers = "; ".join(f"{' and '.join(names)} of {launcher}" for launcher, names in VARIABLES.items())
    raise InputError(
        "no launcher has started this process: give mpiexec -n 5 rankfold mpi -- COMMAND, or srun -n 5. "
        f"Launchers are known by {launchers}"
    )
