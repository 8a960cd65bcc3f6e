"""What a run needs of a machine.

local   what this machine has
slurm   what SLURM says of a profile
job     a short job that looks at a node
node    what that node finds
"""
