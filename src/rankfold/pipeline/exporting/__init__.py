"""Results as what other libraries go on with: objects of AnnData, datasets of xarray, frames, pictures.

glance      a result in one line, and as a table for notebooks
outcome     what is exported: arrays by name, facts, and where rows and columns lie in the whole
cells       names and values of an AnnData object, as scanpy has them
cell_files  the same written into a ``.h5ad`` file or a Zarr store, all or nothing
fields      an xarray dataset with the axes and coordinates of the data
frames      pandas and polars frames
plots       pictures
exports     all of these as methods of a result
"""
