"""Where it runs. Imports ``pipeline``; never sees a matrix.

threads       the threads of this process
client        a Dask client that somebody made
profile       what a site wants to know of a worker job
slurm         worker jobs, and one scheduler here      jobqueue      what we use of dask-jobqueue
watchdog      who has ended gets a successor           rolling       who is about to end hands over before
allocation    all nodes of one job of SLURM            step          its workers, by one srun
submission    a command as one job, requeued until done
lifeline      a worker ends when its driver does
queue         what SLURM says of jobs                  leftovers     jobs that nobody looks after any more
certificates  TLS for one run
profiles      those that come with rankfold
doctor        what a run needs of a machine
doctor_slurm  what SLURM says of a profile             doctor_probe  a short job that looks at a node
probe         what that node finds
yaml_file     settings in YAML: every mistake is one line that says where
"""
