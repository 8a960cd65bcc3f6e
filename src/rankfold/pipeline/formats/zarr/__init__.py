"""Zarr arrays in a folder.

source    them as matrices
layout    them opened
metadata  how their chunks lie
"""
