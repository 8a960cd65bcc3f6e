"""Zarr arrays in a folder.

source         them as matrices
vector         those of one axis
layout         them opened
metadata       how their chunks lie
absent_chunks  how many chunks no file holds
"""
