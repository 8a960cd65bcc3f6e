"""Workers of this machine, or of a client that somebody made.

threads          the threads of this process
processes        worker processes
client           a Dask client
worker           what is put on every worker of a run
reports          how far streams are, from workers to the driver
relay            what a worker cannot fetch from another
worker_process   a worker as a process of its own
lifeline         a worker ends when its driver does
watchdog         who has ended gets a successor
calibration      how fast this machine is
"""
