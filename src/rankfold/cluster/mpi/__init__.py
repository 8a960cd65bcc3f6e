"""Processes that ``mpiexec`` or ``srun`` has started: the first runs a command, the others are its workers.

numbers     which of them a process is
rendezvous  the folder in which the first tells the others what to do
first       the command, and the life of that folder
others      a worker for as long as one is wanted
place       where the command runs: an allocation whose workers are there already
"""
