"""Additional destinations of results of stages.

into      files of AnnData or netCDF, and tables
pictures  pictures of results
"""
