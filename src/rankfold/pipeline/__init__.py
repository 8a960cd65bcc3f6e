"""From a matrix on disk to a result, in planned memory and few reads. Imports ``kernels`` only.

source.py       the protocol of a matrix          sources/    one file per kind of store
blocks.py       grains, panels, streams           plan.py     passes, bytes, memory: numbers first
sweep.py        the only maker of Dask tasks      checkpoint.py  the run directory, atomic parts
methods/        one method, one file              result.py   Zarr groups with provenance
errors.py       the tree of errors                quality.py  error estimates of a result
"""
