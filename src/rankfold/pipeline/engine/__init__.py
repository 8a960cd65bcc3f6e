"""Running sweeps, and the state that a process holds for them.

blocks          grains (rows of one product), panels (rows read at once), streams (panels folded in order)
fold            what a sweep over rows does with a panel, and the memory of its buffers and sums
device          placement of the arrays of a segment, on host or device
sweep           a sweep over rows
pairs           blocks that are compared, and in what order
pair_sweep      a sweep over pairs of blocks
attempt         workspaces and progress of a process in one attempt at a sweep
run             files of one request, its sweeps, and counts of passes, seconds and bytes
durability      which files of a run are recorded and flushed, and when
scheduler       interface to the place where sweeps run, and its budget; data that tasks share, read once by
                a process
memory          memory that a process really holds; memory that the groups of a process leave to it
team            processes that work at the same time, and exchange what they have
rounds          rounds over a state in memory, made by this process or by a team
"""
