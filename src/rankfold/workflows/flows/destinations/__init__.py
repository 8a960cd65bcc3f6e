"""Where results of stages go besides.

into      files of AnnData or netCDF, and tables
pictures  pictures of them
"""
