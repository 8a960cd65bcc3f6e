"""Jobs of SLURM.

profile       settings of a site for worker jobs
jobs          worker jobs, of this or another queue system, and one scheduler here
rolling       workers about to end hand over to successors
allocation    all nodes of one job
step          workers of an allocation, by one srun
node_worker   a worker of a job, on one address of its node
job_script    a command as one job, requeued until done
jobqueue      the parts of dask-jobqueue that are used here
queue         queries of SLURM about jobs
shell_lines   quotes, exports and loops that job scripts share
leftovers     jobs that no process watches any more
"""
