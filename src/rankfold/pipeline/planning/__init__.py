"""Numbers before tasks.

plan              passes, bytes, memory, tasks of a request
passes            a sweep in numbers, from the fold that it runs
peak_memory       most memory of a process, and how many segments fit at once
planner           what a task is and what it sweeps, made into a plan or refused
shape_only        a matrix that is only planned with
imagined_result   a result of such matrices
traffic           bytes between workers
seconds           predicted times
scaling           workers beyond which more do not help, and why
table             a plan, for people
progress          how far a run is, by its plan
sweep_words       what sweeps are called
"""
