"""Zarr arrays in a folder.

source         arrays as matrices and volumes; number of chunks that no file holds
vector         arrays of one axis
layout         opening of arrays
metadata       layout of chunks, from the metadata
"""
