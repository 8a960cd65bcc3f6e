"""Plans: passes, bytes, memory and time of a request, before any task runs.

plan              passes, bytes, memory, tasks of a request
passes            a sweep in numbers, from the fold that it runs; most memory of a process, and how many
                  segments fit at once
planner           makes a plan from facts and sweeps of a task, or refuses it
shape_only        a matrix with shape and type only, for plans; a result with such matrices, for plans
traffic           bytes between workers
seconds           predicted times
scaling           number of workers beyond which more do not help, and why
table             a plan, for people
progress          progress of a run, by its plan
sweep_words       plain words for names of sweeps
"""
