"""Where results of stages go besides.

into      files of AnnData or netCDF
pictures  pictures of them
"""
