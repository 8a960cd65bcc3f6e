"""Jobs of SLURM: worker jobs, or one job whose nodes run all workers.

profile       settings of a site for worker jobs
jobs          worker jobs, of this or another queue system, and one scheduler here; successors for workers
              whose jobs are about to end
allocation    all nodes of one job; workers of an allocation, by one srun
node_worker   a worker of a job, on one address of its node
submission    submits a command as one job, requeued until done
jobqueue      the parts of dask-jobqueue that are used here
queue         queries of SLURM about jobs
shell_lines   quotes, exports and loops that job scripts share
leftovers     cancels jobs that no process watches any more
"""
