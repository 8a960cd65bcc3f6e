"""What a run needs of a machine.

local   what this machine has
slurm   what SLURM says of a profile
queues  what PBS, LSF or Grid Engine says of one
job     a short job of SLURM that looks at a node
node    what that node finds
"""
