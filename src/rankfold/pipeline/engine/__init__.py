"""What runs: sweeps, and what a process holds for them.

blocks          grains, panels, streams
fold            what a sweep over rows does with a panel, and what follows from what it holds
device          where the arrays of a segment live, host or device
sweep           a sweep over rows
pairs           blocks that are compared, and in what order
pair_sweep      a sweep over pairs of blocks
attempt         what a process holds for a sweep
by_reference    what tasks share, read once by a process
run             the sweeps of one request, and their tallies
keeping         how durable a run is
scheduler       what a sweep needs of where it runs
memory          what a process really holds
control_groups  memory that the groups of a process leave to it
team            processes that work at the same time, and exchange what they have
"""
