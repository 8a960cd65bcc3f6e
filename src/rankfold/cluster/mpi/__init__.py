"""Processes that ``mpiexec`` or ``srun`` has started: the first runs a command, the others are its workers.

rendezvous  the folder through which the first gives commands to the others; the number of a process among
            them
driver      runs the command, and keeps that folder alive
worker      each runs a worker while the first process asks for one
place       the place of execution: an allocation whose workers are already started
"""
