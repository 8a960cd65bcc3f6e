"""Jobs of SLURM.

profile        what a site wants to know of a worker job
jobs           worker jobs, and one scheduler here
rolling        who is about to end hands over before
allocation     all nodes of one job
step           its workers, by one srun
submission     a command as one job, requeued until done
jobqueue       what we use of dask-jobqueue
queue          what SLURM says of jobs
script_lines   lines of job scripts
leftovers      jobs that nobody looks after any more
certificates   TLS for one run
"""
