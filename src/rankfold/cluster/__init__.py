"""Where it runs. Imports ``pipeline``; never sees a matrix.

threads       the threads of this process
client        a Dask client that somebody made
profile       what a site wants to know of a worker job
slurm         worker jobs, and one scheduler here      jobqueue      what we use of dask-jobqueue
watchdog      who has ended gets a successor           rolling       who is about to end hands over before
allocation    all nodes of one job of SLURM            step          its workers, by one srun
submission    a command as one job, requeued until done
queue         what SLURM says of jobs                  certificates  TLS for one run
yaml_file     settings in YAML: every mistake is one line that says where
"""
