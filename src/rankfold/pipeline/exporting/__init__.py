"""Results in forms that other libraries use: AnnData objects, xarray datasets, frames, pictures.

glance      a result in one line, and as a table for notebooks
outcome     a result as exports see it: arrays by name, facts, indices of rows and columns in the data
cells       names and values of an AnnData object, as scanpy has them
cell_files  elements of ``cells`` written into a ``.h5ad`` file or a Zarr store, all or nothing
fields      an xarray dataset with the axes and coordinates of the data
frames      pandas and polars frames
plots       pictures
exports     methods of a result that export it in these forms
"""
