"""Workers on this machine, or of a client that the caller made.

threads          the threads of this process
processes        worker processes
client           a Dask client
worker           the plugin on every worker of a run
reports          reports of progress, from workers to the driver
relay            results that a worker cannot fetch from another directly
worker_process   a worker as a process of its own
lifeline         a worker ends when its driver does
watchdog         replaces workers that have ended
calibration      measured speed of this machine
"""
