"""Jobs of SLURM.

profile       what a site wants to know of a worker job
jobs          worker jobs, of this or another system of queues, and one scheduler here
rolling       who is about to end hands over before
allocation    all nodes of one job
step          its workers, by one srun
node_worker   a worker of a job, on one address of its node
job_script    a command as one job, requeued until done
jobqueue      what we use of dask-jobqueue
queue         what SLURM says of jobs
shell_lines   quotes, exports and loops that job scripts share
leftovers     jobs that nobody looks after any more
"""
