"""Where it runs. Imports ``pipeline``; never sees a matrix.

threads       the threads of this process
client        a Dask client that somebody made
"""
