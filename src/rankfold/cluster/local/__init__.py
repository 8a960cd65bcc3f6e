"""Workers on this machine, or of a Dask client that the caller made.

threads          the threads of this process
processes        worker processes; a worker as a process of its own
client           a Dask client
worker           the Dask plugin on every worker of a run
reports          reports of progress, from workers to the driver
relay            results that a worker cannot fetch from another directly
lifeline         ends a worker when its driver (the process that called rankfold) ends
watchdog         replaces workers that have ended
calibration      measured speed of this machine
"""
